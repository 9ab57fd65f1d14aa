"""Constants of predictions on GPUs, which `benchmarks/gpu_learning.py` learned."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import Any

from roofline.core.text import counted

Constants = Mapping[str, float]

FILE = "learned.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class KindConstants:
    """Constants of one kind of kernel.

    ``memory`` is a share of the streaming bandwidth, ``share`` one of the peak of products;
    ``prologue`` and ``idle`` are elements of k and n that tiles add; ``element`` are instructions
    per element, ``window`` the exponent of their growth with taps; ``layout`` is the number of
    passes over images that a convolution converts.
    """

    memory: float = 1.0
    share: float = 0.8
    prologue: float = 16.0
    idle: float = 16.0
    element: float = 20.0
    window: float = 0.0
    layout: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Measurements that constants were learned from.

    ``kinds`` are those of kernels (empty: all others), ``types`` the data types; ``subject`` names
    both in reports. ``chips`` is the number of GPUs, ``rows`` that of measurements, ``deviation``
    the standard deviation of the logarithm of the time on chips left out of learning, on other
    architectures than ``architectures`` (those of `Chip`) ``far_deviation``: at least twice as
    large. ``is_bound`` limits predictions to these architectures.
    """

    subject: str
    kinds: tuple[str, ...]
    types: tuple[str, ...]
    chips: int
    rows: int
    deviation: float
    far_deviation: float
    architectures: tuple[str, ...]
    source: str
    is_bound: bool = False

    @property
    def words(self) -> str:
        """Subject with its size: ``"float32 products of 5 GPUs (131,386 times)"``."""
        return f"{self.subject} of {counted(self.chips, 'GPU')} ({self.rows:,} times)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """All constants, with their sources.

    ``kinds`` and ``shared`` are those of eager kernels, ``compiled`` and ``compiled_shared`` those
    of fused ones. Shared are ``norm``, which joins arithmetic and memory, ``start_s``, the start
    and end of a kernel, and ``latency_s``, that of memory. ``dispatch_s`` is the host's time per
    call; all in seconds.
    """

    streaming: Constants
    kinds: Mapping[str, KindConstants]
    compiled: Mapping[str, KindConstants]
    softmax: Constants
    layer_norm: Constants
    convolution: Constants
    gemm: Mapping[str, Constants]
    shared: Constants
    compiled_shared: Constants
    dispatch_s: float
    groups: tuple[Group, ...]
    pass_deviation: float = 0.0
    pass_far_deviation: float = 0.0
    script: str = ""
    digest: str = ""

    def kind(self, name: str, *, compiled: bool = False) -> KindConstants:
        """Return the constants of a kind; those of ``"other"`` if it was not measured."""
        known = self.compiled if compiled else self.kinds
        return known.get(name) or known["other"]

    def group(self, kind: str, dtype: str, architecture: str) -> Group | None:
        """Return the measurements of a kind and type; None where they justify no prediction."""
        for each in self.groups:
            if (not each.kinds or kind in each.kinds) and dtype in each.types:
                is_far = each.is_bound and architecture not in each.architectures
                return None if is_far else each
        return None

    def streaming_share(self, generation: int) -> float:
        """Return the share of the DRAM's data sheet that kernels reach.

        It grew with the first generations of tensor cores; later ones count as the third.
        """
        grown = self.streaming["base"] + self.streaming["growth"] * min(generation, 2)
        return min(grown, 1.0)


def learned_of(data: Mapping[str, Any]) -> Learned:
    """Return the constants in plain data."""
    known = {each.name for each in fields(Learned)}
    plain = {name: value for name, value in data.items() if name in known}
    return Learned(
        **{
            **plain,
            **{
                table: {name: KindConstants(**each) for name, each in data[table].items()}
                for table in ("kinds", "compiled")
            },
            "groups": tuple(
                Group(
                    **{
                        **each,
                        **{name: tuple(each[name]) for name in ("kinds", "types", "architectures")},
                    }
                )
                for each in data["groups"]
            ),
        }
    )


@functools.cache
def shipped() -> Learned:
    """Return the constants that ship with the package."""
    text = files("roofline.latency.gpu").joinpath(FILE).read_text(encoding="utf-8")
    return learned_of(json.loads(text))
