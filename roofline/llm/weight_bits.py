"""Weight-only quantization: w8a16, w4a16.

Kernels read codes and dequantize them. Dequantized weights are counted; their time is not known and
in no minimum time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from roofline.analysis import Analysis, MinTimes, minimum_times_of
from roofline.core.dtypes import DType
from roofline.core.text import printable
from roofline.errors import InputError
from roofline.llm.parts import Stage, parts_of, quantized_weights
from roofline.llm.placing import ModelOnMachine, PlacedStage, Types
from roofline.llm.stages import StageResult
from roofline.quantization.policy import FLOAT_BITS, LayerBits, Policy, check_bits, structure_of
from roofline.quantization.result import WhatIf
from roofline.quantization.what_ifs import what_if
from roofline.quantization.widths import Widths

_FORM = re.compile(r"w([0-9]{1,2})a([0-9]{1,2})")
_ACTIVATIONS = (16, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightBits:
    """How many bits weights have, and the activations that meet them."""

    weights: int
    activations: int

    def __post_init__(self) -> None:
        check_bits("weights", self.weights)
        if self.activations not in _ACTIVATIONS:
            raise InputError(
                f"{self.words}: activations stay floats here, of 16 or 32 bits, such as"
                f" w{self.weights}a16; for fewer there is roofline quantize"
            )
        if self.weights >= self.activations:
            raise InputError(
                f"{self.words}: weights must have fewer bits than activations, such as w8a16"
            )

    @property
    def words(self) -> str:
        """``"w4a16"``."""
        return f"w{self.weights}a{self.activations}"

    @staticmethod
    def parsed(text: str) -> WeightBits:
        """The bits written as ``w4a16``."""
        match = _FORM.fullmatch(text.strip().lower())
        if match is None:
            raise InputError(
                f"weight bits '{printable(text)[:40]}' are not of the form w8a16 or w4a16"
            )
        return WeightBits(weights=int(match[1]), activations=int(match[2]))

    def types(self, dtype: DType, half: DType | None) -> Types:
        """The types of a model of `dtype` in these bits; `half`: the machine's 16-bit floats."""
        compute = dtype
        if half is not None and self.activations == half.bits < dtype.bits:
            compute = half
        weights = DType(f"codes{self.weights}", self.weights, "int")
        return Types(compute=compute, weights=weights, cache=compute)

    def notes(self, dtype: DType, types: Types) -> tuple[str, ...]:
        """What to say where it is computed in other floats than were asked for."""
        if types.compute.bits == self.activations:
            return ()
        why = f"the model is in {dtype}"
        if self.activations < dtype.bits:
            why = f"this machine has no ceiling for floats of {self.activations} bits"
        return (f"{self.words} is counted with arithmetic in {types.compute}: {why}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageInBits:
    """A stage with its weights in few bits.

    ``asked_before`` and ``asked_after`` are what the architecture asks for; ``bound_*_s`` are those
    of the operators that the library calls, with weights of their layers in these bits, None where
    nothing could be quantized in them. ``minimum_before`` are the minimum times of these operators
    as they are. ``unpacked_weights`` are the codes that become floats in one pass.
    """

    stage: Stage
    asked_before: PlacedStage
    asked_after: PlacedStage
    eager_min_time_before_s: float | None
    eager_min_time_after_s: float | None
    minimum_before: MinTimes = field(default_factory=MinTimes)
    unpacked_weights: int
    notes: tuple[str, ...] = ()

    ALSO_WRITTEN: ClassVar = ("minimum_after",)

    @property
    def minimum_after(self) -> MinTimes:
        """The minimum times after: the eager one alone, as in `WhatIf`."""
        return MinTimes(eager_min_time_s=self.eager_min_time_after_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class BitsWhatIf:
    """A language model with its weights in few bits, the vocabulary's product left in floats.

    ``weight_byte_*`` are all weights as they lie in memory; scales are left out there. ``notes``
    say where it is another than was asked for.
    """

    bits: WeightBits
    weight_bytes_before: int
    weight_bytes_after: int
    stages: tuple[StageInBits, ...]
    notes: tuple[str, ...] = ()


def in_bits(model: ModelOnMachine, bits: WeightBits, stages: Sequence[StageResult]) -> BitsWhatIf:
    """Return a model in floats of one type with its weights in few bits."""
    floats = model.types.compute
    types = bits.types(floats, Widths(model.roof.profile, model.roof.threads).half)
    quantized = quantized_weights(model.architecture)
    others_bytes = model.weight_bytes - floats.byte(quantized)
    others_bytes = others_bytes * types.compute.bits // floats.bits
    after = replace(model, types=types)
    return BitsWhatIf(
        bits=bits,
        weight_bytes_before=model.weight_bytes,
        weight_bytes_after=types.weights.byte(quantized) + others_bytes,
        stages=tuple(_stage_in_bits(each, bits, after) for each in stages),
        notes=bits.notes(floats, types),
    )


def _stage_in_bits(stage: StageResult, bits: WeightBits, after: ModelOnMachine) -> StageInBits:
    """A stage in few bits: as the architecture asks for it, and as the library calls it."""
    analysis, size = stage.analysis, stage.asked.size
    before_s, after_s = analysis.totals.eager_min_time_s, None
    try:
        structure = structure_of([row.record for row in analysis.operators])
        floats = LayerBits(weights=FLOAT_BITS, activations=FLOAT_BITS)
        last = {each.name: floats for each in structure.layers if each.place == "last"}
        policy = Policy(
            weights=bits.weights,
            activations=bits.activations,
            first_last=bits.weights,
            per_channel=True,
            layers=last if len(last) < len(structure.layers) else {},
        )
        found = what_if(analysis, policy)
        before_s, after_s = found.eager_min_time_before_s, _unfused_s(found, analysis)
        notes = tuple(f"left in floats: {each}" for each in found.unquantized)
    except InputError as error:
        notes = (f"{stage.stage}: no operator could be quantized: {error}",)
    parts = parts_of(after.architecture, size, stage.spread.typical if stage.spread else None)
    return StageInBits(
        stage=stage.stage,
        asked_before=stage.asked,
        asked_after=after.placed(size),
        eager_min_time_before_s=before_s,
        eager_min_time_after_s=after_s,
        minimum_before=MinTimes(**minimum_times_of(analysis.totals)),
        unpacked_weights=sum(each.count * each.weights for each in parts if each.is_quantized),
        notes=notes,
    )


def _unfused_s(found: WhatIf, analysis: Analysis) -> float | None:
    """The bound of all operators in few bits, none of them inside of another.

    A what-if takes activation functions into the layer before them; that is no gain of fewer bits,
    so those layers gain at most what is left of it when their functions stand apart again.
    """
    if found.eager_min_time_after_s is None:
        return None
    apart_s = 0.0
    for each in found.layers:
        inside = (index for index in each.operators if index != each.layer.index)
        inside_s = sum(analysis.operators[index].eager_min_time_s or 0.0 for index in inside)
        gain_s = (each.before.eager_min_time_s or 0.0) - (each.after.eager_min_time_s or 0.0)
        apart_s += max(0.0, min(inside_s, gain_s))
    return found.eager_min_time_after_s + apart_s
