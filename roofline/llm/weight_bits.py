"""Weight-only quantization (W8A16, W4A16) what-ifs.

Kernels read integer codes and dequantize them. The time of dequantization is unknown and in no
minimum time.
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
from roofline.llm.bounds import ModelOnMachine, PlacedStage, Types
from roofline.llm.parts import Stage, parts_of, quantized_weights
from roofline.llm.stages import StageResult
from roofline.quantization.policy import FLOAT_BITS, LayerBits, Policy, check_bits, structure_of
from roofline.quantization.result import WhatIf
from roofline.quantization.what_ifs import evaluate_policy
from roofline.quantization.widths import Widths

_FORM = re.compile(r"w([0-9]{1,2})a([0-9]{1,2})")
_ACTIVATIONS = (16, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightBits:
    """Bit widths of weights and activations."""

    weights: int
    activations: int

    def __post_init__(self) -> None:
        check_bits("weights", self.weights)
        if self.activations not in _ACTIVATIONS:
            raise InputError(
                f"{self.words}: activations must have 16 or 32 bits, such as w{self.weights}a16;"
                " for fewer use roofline quantize"
            )
        if self.weights >= self.activations:
            raise InputError(
                f"{self.words}: weights must have fewer bits than activations; write w8a16"
            )

    @property
    def words(self) -> str:
        """``"w4a16"``."""
        return f"w{self.weights}a{self.activations}"

    @staticmethod
    def parse(text: str) -> WeightBits:
        """Return the bit widths written as ``w4a16``."""
        match = _FORM.fullmatch(text.strip().lower())
        if match is None:
            raise InputError(
                f"weight bits '{printable(text)[:40]}': expected a form such as w8a16 or w4a16"
            )
        return WeightBits(weights=int(match[1]), activations=int(match[2]))

    def types(self, dtype: DType, half: DType | None) -> Types:
        """Return the types of a `dtype` model in these bits; `half`: 16-bit type of the machine."""
        compute = dtype
        if half is not None and self.activations == half.bits < dtype.bits:
            compute = half
        weights = DType(f"codes{self.weights}", self.weights, "int")
        return Types(compute=compute, weights=weights, cache=compute)

    def notes(self, dtype: DType, types: Types) -> tuple[str, ...]:
        """Return a note if arithmetic is not in the requested width."""
        if types.compute.bits == self.activations:
            return ()
        why = f"the model is in {dtype}"
        if self.activations < dtype.bits:
            why = f"the machine has no ceiling for {self.activations}-bit floats"
        return (f"{self.words}: arithmetic counted in {types.compute}, because {why}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageInBits:
    """Stage with quantized weights.

    ``asked_before`` and ``asked_after`` are stages of the architecture. ``eager_min_time_*_s`` are
    those of transformers' operators, None if nothing could be quantized; ``minimum_before`` their
    minimum times in floats. ``unpacked_weights`` are the weights dequantized per pass.
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
        """Minimum times with quantized weights: the eager one only."""
        return MinTimes(eager_min_time_s=self.eager_min_time_after_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class BitsWhatIf:
    """Language model with quantized weights; the vocabulary product stays in floats.

    ``weight_bytes_*`` are all weights in memory, without scales.
    """

    bits: WeightBits
    weight_bytes_before: int
    weight_bytes_after: int
    stages: tuple[StageInBits, ...]
    notes: tuple[str, ...] = ()


def what_if_in_bits(
    model: ModelOnMachine, bits: WeightBits, stages: Sequence[StageResult]
) -> BitsWhatIf:
    """Return the what-if of a model with quantized weights."""
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
    """Return a stage with quantized weights, of the architecture and of transformers."""
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
        found = evaluate_policy(analysis, policy)
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
    """Return the eager minimum time with quantized weights, without operator fusion.

    The what-if fuses activation functions into the layer before, which is no gain of lower bit
    width and is subtracted.
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
