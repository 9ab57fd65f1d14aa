"""torch, set up so that what Inductor does can be seen, and put back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

_NEEDED: dict[str, object] = {
    # What comes from caches is not seen, and nothing that is not built may get into them.
    "force_disable_caches": True,
    "fx_graph_cache": False,
    # Partitions are for CUDA graphs.
    "graph_partition": False,
    "compile_threads": 1,
    # Else a compiler is asked which vectors it can do, which changes no schedule. (For some, it is
    # asked all the same: `_not_asked`.)
    "cpp.vec_isa_ok": True,
}

_LEFT_OUT = {
    "freezing": "it computes with the weights",
    "max_autotune": "it chooses kernels by timing them",
    "max_autotune_gemm": "it chooses kernels by timing them",
    "benchmark_fusion": "it chooses what to fuse by timing it",
    "cpp_wrapper": "calls are read off the Python that makes them",
    "fx_wrapper": "calls are read off the Python that makes them",
    "memory_planning": "buffers are read off as the defaults allocate them",
}
"""Settings that cannot be followed without building what is generated, and why."""

_OF_THE_ENVIRONMENT = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE_")

_WITHOUT_EFFECT = ("_DIR", "CACHE", "THREADS")
"""Parts of names of variables that change nothing of what is generated."""

_UNKNOWN = object()


@contextlib.contextmanager
def settings() -> Iterator[tuple[str, ...]]:
    """Inductor's settings of this process, but for those that hide what it does.

    Yields:
        Which settings were left out, and what the environment sets.
    """
    import torch._dynamo
    import torch._dynamo.config as dynamo_config
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config
    from torch._inductor import cpp_builder
    from torch._inductor.cpu_vec_isa import VecISA

    now = {name: _value(inductor_config, name) for name in (*_NEEDED, *_LEFT_OUT)}
    left_out = {name: why for name, why in _LEFT_OUT.items() if now[name] is True}
    inductor = {name: value for name, value in _NEEDED.items() if now[name] is not _UNKNOWN}
    torch._dynamo.reset()
    try:
        with (
            inductor_config.patch(inductor | dict.fromkeys(left_out, False)),
            functorch_config.patch({"enable_autograd_cache": False}),
            dynamo_config.patch({"suppress_errors": False}),
            mock.patch.object(VecISA, "check_build", _not_asked),
            mock.patch.object(cpp_builder, "get_cpp_compiler", _usual_compiler),
        ):
            yield tuple(_notes(left_out))
    finally:
        torch._dynamo.reset()
        _forget_compiler()


def _value(config: Any, name: str) -> Any:
    """The value of a setting; `_UNKNOWN` where this version of torch does not have it."""
    for part in name.split("."):
        config = getattr(config, part, _UNKNOWN)
    return config


def _notes(left_out: dict[str, str]) -> Iterator[str]:
    for name, why in left_out.items():
        yield f"torch._inductor.config.{name} is on here and was left out: {why}"
    found = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_OF_THE_ENVIRONMENT)
        and not any(each in name for each in _WITHOUT_EFFECT)
    }
    if found:
        said = ", ".join(f"{name}={value}" for name, value in found.items())
        yield f"the environment sets {said}"


def is_switched_off() -> bool:
    """Whether torch.compile does nothing in this process."""
    import torch._dynamo.config as dynamo_config

    return bool(dynamo_config.disable)


def _not_asked(self: Any, code: str) -> bool:
    """In the place of what builds a few lines to see whether a compiler can: nothing is built."""
    return False


def _usual_compiler() -> str:
    """In the place of what looks for one: which it is changes pragmas, and there may be none."""
    return "g++"


def _forget_compiler() -> None:
    """What was taken for granted of the compiler is asked again when something is built."""
    from torch._inductor import cpp_builder, cpu_vec_isa

    kinds = (cpu_vec_isa.VecISA, *_kinds(cpu_vec_isa.VecISA))
    remembered = [each for kind in kinds for each in vars(kind).values()]
    asked = [each for name, each in vars(cpp_builder).items() if name.startswith("is_")]
    for known in (cpu_vec_isa.valid_vec_isa_list, *remembered, *asked):
        if hasattr(known, "cache_clear"):
            known.cache_clear()


def _kinds(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from _kinds(each)
