"""The machine decides whose operators are called, unless that is said."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import roofline
from roofline.analysis import Analysis
from roofline.design.comparison.balance import balance_points
from roofline.design.comparison.machines import all_operators, combine_operators, unshared_operators
from roofline.errors import InputError
from roofline.machine.catalog import load_hardware
from roofline.pipeline.language import analyze_stage
from roofline.pipeline.sweeps import sweep
from roofline.run import RunOptions
from roofline.workload.capture import cuda_emulation

CPU, GPU, APPLE = "10980xe", "rtx4090", "m2-ultra"
NOT_ITS_OWN = "but operators were captured for"


class Attention(torch.nn.Module):
    """A linear layer, and attention of two heads over what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x).unflatten(-1, (2, 8)).transpose(1, 2)
        x = torch.nn.functional.scaled_dot_product_attention(x, x, x)
        return x.transpose(1, 2).flatten(2)


SHAPE = (4, 6, 16)
ON_CPU, ON_GPU = (
    f"aten._scaled_dot_product_{kernel}"
    for kernel in ("flash_attention_for_cpu", "efficient_attention")
)


def kernels(analysis: Analysis) -> set[str]:
    return {row.op for row in analysis.operators if "_scaled_dot_product_" in row.op}


@pytest.mark.parametrize(
    ("hardware", "device", "expected"),
    [
        (CPU, None, ON_CPU),
        (GPU, None, ON_GPU),
        # Those of Apple's GPUs cannot be had.
        (APPLE, None, ON_CPU),
        (GPU, "cpu", ON_CPU),
        (CPU, "cuda", ON_GPU),
    ],
)
def test_the_machine_decides_unless_it_is_said(
    hardware: str, device: str | None, expected: str
) -> None:
    found = roofline.analyze(Attention(), SHAPE, hardware=hardware, device=device)
    assert kernels(found) == {expected}
    of = load_hardware(hardware).device
    assert found.run.device == ("cuda" if expected == ON_GPU else "cpu")
    assert any(NOT_ITS_OWN in each for each in found.warnings) == (of != found.run.device)


def test_training_and_autocast_for_a_gpu() -> None:
    found = roofline.analyze(Attention(), SHAPE, hardware=GPU, train=True, autocast="float16")
    assert kernels(found) == {
        "aten._scaled_dot_product_flash_attention",
        "aten._scaled_dot_product_flash_attention_backward",
    }
    assert not any(NOT_ITS_OWN in each for each in found.warnings)


def test_machines_of_both_kinds_each_have_their_own_operators() -> None:
    """As many as they have when they are analysed alone, and the same times."""
    comparison = roofline.compare_machines(Attention(), SHAPE, hardware=[CPU, GPU, "v100", APPLE])
    for name, each in zip((CPU, GPU, "v100", APPLE), comparison.analyses, strict=True):
        alone = roofline.analyze(Attention(), SHAPE, hardware=name)
        assert each.operators == alone.operators
        assert each.totals == alone.totals
    # Both kernels are attention, in one place; they are compared.
    attention = [across for across in comparison.operators if across[0].op == ON_CPU]
    assert [[row.op for row in across] for across in attention] == [
        [ON_CPU, ON_GPU, ON_GPU, ON_CPU]
    ]
    assert unshared_operators(comparison) is None


def test_what_only_some_machines_call_is_in_totals_alone() -> None:
    """Autocast for GPUs has softmax in float32 and casts it back; a CPU leaves it in bfloat16."""

    def weighted(x: torch.Tensor) -> torch.Tensor:
        return (x @ x.mT).softmax(-1) @ x

    comparison = roofline.compare_machines(
        weighted, SHAPE, hardware=[CPU, GPU], autocast="bfloat16"
    )
    beside, every = unshared_operators(comparison), all_operators(comparison)
    assert beside is not None
    for place, each in enumerate(comparison.analyses):
        shared_s = combine_operators(comparison, comparison.operators).eager_min_time_s[place]
        beside_s = beside.eager_min_time_s[place]
        assert shared_s is not None and beside_s is not None
        assert each.totals.eager_min_time_s == pytest.approx(shared_s + beside_s)
        assert every.eager_min_time_s[place] == each.totals.eager_min_time_s
        assert len(comparison.changing_rows(place)) == len(each.operators)


def test_models_compared_on_machines_of_both_kinds() -> None:
    grid = roofline.compare(Attention(), torch.nn.Linear(16, 16), inputs=SHAPE, hardware=[CPU, GPU])
    found = [kernels(each.analyses[0]) for each in grid.each_machine]
    assert found == [{ON_CPU}, {ON_GPU}]


def test_sweeps_over_machines_of_both_kinds() -> None:
    """Every cell is what an analysis of it says."""
    models = (Attention(), torch.nn.Linear(16, 16))
    found = sweep(
        *models, axes={"batch": [1, 2]}, inputs=SHAPE, hardware=[CPU, GPU], executor="local"
    )
    for point, cells in zip(found.points, found.cells, strict=True):
        for model, cell in zip(models, cells, strict=True):
            alone = roofline.analyze(
                model, SHAPE, batch=int(point["batch"]), hardware=str(point["hardware"])
            )
            assert cell.eager_min_time_s == alone.totals.eager_min_time_s
    ridge = sweep(*models, axes="balance=1:256:x2", inputs=SHAPE, hardware=CPU)
    known = {each.machine.name: each.times_s for each in balance_points(ridge) if each.machine}
    for name in (CPU, GPU):
        alone = [
            roofline.analyze(each, SHAPE, hardware=name).totals.eager_min_time_s for each in models
        ]
        assert known[name] == pytest.approx(alone)


def test_stages_and_gates_and_predictions() -> None:
    config = "hidden_size=64,intermediate_size=128,num_hidden_layers=1,num_attention_heads=4"
    stage: dict[str, Any] = {"config": config, "stage": "prefill", "context": 8}
    for name, device in ((CPU, "cpu"), (GPU, "cuda")):
        options = RunOptions(hardware=name)
        assert analyze_stage("hf:llama", options, **stage).run.device == device
        # A prompt before it fills the cache.
        decode = analyze_stage("hf:llama", options, **{**stage, "stage": "decode"})
        assert decode.run.device == device
        assert kernels(decode) == {ON_GPU if device == "cuda" else ON_CPU}
        assert roofline.predict(Attention(), SHAPE, hardware=name).run.device == device
        assert roofline.check(Attention(), SHAPE, hardware=name).now.run.device == device
        assert roofline.quantize(Attention(), SHAPE, hardware=name).analysis.run.device == device


def test_where_torch_cannot_do_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators of a CPU then, and the warning; what is asked for is refused."""
    monkeypatch.setattr(cuda_emulation, "can_capture_cuda", lambda: False)
    found = roofline.analyze(Attention(), SHAPE, hardware=GPU)
    assert kernels(found) == {ON_CPU}
    assert any(NOT_ITS_OWN in each for each in found.warnings)
    with pytest.raises(InputError, match="device='cuda': this torch has no CUDA"):
        RunOptions(device="cuda").run()
