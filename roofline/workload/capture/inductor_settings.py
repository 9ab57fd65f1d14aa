"""torch, set up so that what Inductor does can be seen, and put back."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def settings() -> Iterator[None]:
    """The defaults, but without caches (what comes from them is not seen) and without workers."""
    import torch._dynamo
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config

    inductor = {
        "fx_graph_cache": False,
        # Partitions are for CUDA graphs.
        "graph_partition": False,
        "compile_threads": 1,
        # Else a compiler is asked which vectors it can do, which changes no schedule.
        "cpp.vec_isa_ok": True,
    }
    torch._dynamo.reset()
    try:
        with (
            inductor_config.patch(inductor),
            functorch_config.patch({"enable_autograd_cache": False}),
        ):
            yield
    finally:
        torch._dynamo.reset()
        _forget_vectors()


def _forget_vectors() -> None:
    """What was taken for granted of the compiler is asked again when something is built."""
    from torch._inductor import cpu_vec_isa

    for known in (cpu_vec_isa.valid_vec_isa_list, *map(_is_there, _kinds(cpu_vec_isa.VecISA))):
        if hasattr(known, "cache_clear"):
            known.cache_clear()


def _is_there(kind: type) -> Any:
    return kind.__dict__.get("__bool__")


def _kinds(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from _kinds(each)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps torch from logging and warning of what the result says."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
