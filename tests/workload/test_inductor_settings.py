"""Under which settings Inductor is asked, what is said of them, and that all is put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from roofline.workload.capture.inductor import capture_compiled
from roofline.workload.compiled_kernels import CompiledPass
from roofline.workload.inputs import Inputs
from roofline.workload.models.sources import Function


def twice(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x) * 2


def compiled(model: Callable[..., Any] | None = None, count: int = 8) -> CompiledPass:
    module = model if isinstance(model, nn.Module) else Function(model or twice)
    return capture_compiled(module, Inputs(torch.ones(count)))


def state() -> dict[str, Any]:
    """What compiling changes of torch while it runs."""
    import logging

    import torch._dynamo.config as dynamo_config
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config
    from torch._inductor.codegen.cpp import CppScheduling
    from torch._inductor.graph import GraphLowering

    return {
        "inductor": inductor_config.get_config_copy(),
        "functorch": functorch_config.get_config_copy(),
        "dynamo": dynamo_config.get_config_copy(),
        "caches": torch.compiler.config.force_disable_caches,
        "build": GraphLowering.compile_to_module,
        "define": CppScheduling.define_kernel,
        "modes": torch._C._len_torch_dispatch_stack(),
        "grad": torch.is_grad_enabled(),
        "logging": logging.root.manager.disable,
        "seed": torch.initial_seed(),
    }


class Interrupts(nn.Module):
    """Ends what runs it, as Ctrl-C does, once it runs outside of a graph."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        raise self.error


def test_torch_is_left_as_it_was() -> None:
    """When all goes well, after Ctrl-C, and after a model that ends the process."""
    before = state()
    usual = compiled()
    assert state() == before
    with pytest.raises(KeyboardInterrupt):
        compiled(Interrupts(KeyboardInterrupt()))
    assert state() == before
    assert "SystemExit" in compiled(Interrupts(SystemExit())).why_not
    assert state() == before
    assert compiled() == usual and not usual.why_not


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("freezing", "it computes with the weights"),
        ("max_autotune", "it times"),
        ("cpp_wrapper", "Python"),
        ("memory_planning", "default allocation"),
    ],
)
def test_a_setting_that_cannot_be_followed_is_left_out_and_said(setting: str, why: str) -> None:
    import torch._inductor.config as inductor_config

    usual = compiled()
    with inductor_config.patch({setting: True}):
        found = compiled()
        assert getattr(inductor_config, setting) is True
    assert found.graphs == usual.graphs
    (note,) = found.notes
    assert f"torch._inductor.config.{setting} was turned off" in note and why in note


def test_what_the_environment_sets_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_PERMUTE_FUSION", "1")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/nowhere")
    assert compiled().notes == ("the environment sets TORCHINDUCTOR_PERMUTE_FUSION=1",)


def test_torch_compile_may_be_switched_off() -> None:
    import torch._dynamo.config as dynamo_config

    with dynamo_config.patch({"disable": True}):
        assert "disabled" in compiled().why_not


def test_why_it_is_not_known_is_said_though_torch_may_swallow_errors() -> None:
    import torch._dynamo.config as dynamo_config

    with dynamo_config.patch({"suppress_errors": True}):
        chooses = compiled(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)))
    assert "nested graphs" in chooses.why_not


def test_sizes_that_depend_on_values_are_not_guessed() -> None:
    import torch._dynamo.config as dynamo_config

    with dynamo_config.patch({"capture_dynamic_output_shape_ops": True}):
        found = compiled(lambda x: torch.exp(torch.nonzero(x).float()))
    assert "depend on values" in found.why_not


def test_no_compiler_is_needed_and_none_is_remembered() -> None:
    import torch._inductor.config as inductor_config
    from torch._inductor import cpp_builder, exc

    cpp_builder.is_gcc.cache_clear()
    with inductor_config.patch({"cpp.cxx": ("no-such-compiler",)}):
        # What is written for it depends on the compiler: it reads along two dimensions.
        found = compiled(lambda x: ((s := x.reshape(16, 16)) + s.t()).softmax(-1), 256)
        assert not found.why_not
        with pytest.raises(exc.InvalidCxxCompiler):
            cpp_builder.is_gcc()
