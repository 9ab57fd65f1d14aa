"""Lower precision of a model's layers: bytes, minimum and predicted times before and after."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from roofline.analysis import MINIMUM_TIMES, Analysis, MinTimes
from roofline.core.blocks import Block, View
from roofline.core.rows import finite
from roofline.design.advice.subject import Time
from roofline.placement import Bound
from roofline.quantization.policy import Layer, LayerBits, Policy
from roofline.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OverheadKind = Literal["requantize", "quantize", "dequantize"]
"""``requantize``: scale, clip and round accumulators to codes; ``quantize``: the same from
floats; ``dequantize``: convert codes to floats, for operators without integer kernels.
"""

PartName = Literal["layers", "requantization", "conversions", "shortcuts", "others"]

BANDWIDTH_ONLY = "bandwidth-only what-if"
"""Mark of bit widths without a kernel on the machine."""

_SIDE = {
    **dict.fromkeys(
        ("weight_bytes", "input_bytes", "output_bytes", "traffic_bytes", "flop"), "Int64"
    ),
    **dict.fromkeys(("level", "ceiling", "bound"), "string"),
    **dict.fromkeys(MINIMUM_TIMES, "Float64"),
    **dict.fromkeys(("intensity_flop_per_byte", "attainable_flop_per_s"), "Float64"),
    **dict.fromkeys(("predicted_s", "predicted_low_s", "predicted_high_s"), "Float64"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Figures of a layer under the roofline, before or after quantization.

    Attributes:
        weight_bytes: like the other bytes, at the bit width of the operand, each operand once.
        eager_min_time_s: with level, ceiling and rates as in `Placement`; other minimum times are
            unknown for single layers.
        time: prediction; None: unavailable, or the machine has no kernel for the width.
    """

    weight_bytes: int
    input_bytes: int
    output_bytes: int
    flop: int | None
    level: str
    ceiling: str
    bound: Bound
    eager_min_time_s: float | None
    fused_min_time_s: float | None = None
    model_min_time_s: float | None = None
    intensity_flop_per_byte: float | None
    attainable_flop_per_s: float | None
    time: Time | None

    @property
    def traffic_bytes(self) -> int:
        """Bytes read and written, each operand once."""
        return self.weight_bytes + self.input_bytes + self.output_bytes

    def cells(self) -> list[Any]:
        times = dict.fromkeys(("predicted_s", "predicted_low_s", "predicted_high_s"))
        if time := self.time:
            times = dict(zip(times, (time.s, time.low_s, time.high_s), strict=True))
        known = {"bound": self.bound.value, **times}
        return [known[each] if each in known else getattr(self, each) for each in _SIDE]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWhatIf:
    """Quantized layer, with the operators fused into it (batch norm, ReLU).

    Attributes:
        operators: rows of the analysis, the layer's own first.
        output_bits: bit width of the result: the most that a reader requires.
        executable: data type that it is computed in on the machine.
        has_kernel: the executable type has the width of the layer, so that a time may be predicted.
        parameters: number of weights, without bias.
    """

    layer: Layer
    bits: LayerBits
    operators: tuple[int, ...]
    output_bits: int
    executable: str
    has_kernel: bool
    parameters: int
    macs: int
    before: Side
    after: Side


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationOverhead:
    """Pass over a tensor that only quantization requires.

    Attributes:
        where: layer of the result (``requantize``) or operand (``quantize``), or operator that
            reads floats (``dequantize``); ``operator`` is its row.
        flop: multiplications, comparisons and roundings.
        is_separate: requires a separate kernel; a ``requantize`` may be fused into the layer.
        time: as in `Side`.
    """

    kind: OverheadKind
    where: str
    operator: int
    elements: int
    from_bits: int
    to_bits: int
    read_bytes: int
    written_bytes: int
    flop: int
    is_separate: bool
    eager_min_time_s: float | None
    time: Time | None

    @property
    def traffic_bytes(self) -> int:
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Part of the forward pass, before and after; times are None if unknown for a member.

    ``layers`` include fused operators; ``shortcuts`` are the additions at their ends;
    ``requantization`` is in separate kernels; ``conversions`` are between floats and codes.
    """

    name: PartName
    count: int
    before_bytes: int
    after_bytes: int
    before_eager_min_time_s: float | None
    after_eager_min_time_s: float | None
    before_time: Time | None
    after_time: Time | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Model at the bit widths of a policy, on the machine of its analysis.

    Attributes:
        layer_bytes_before: each weight once, each layer output twice (written, read);
            ``layer_bytes_after`` at the bits of the layer.
        model_bytes_before: parameters and buffers as in a file; ``model_bytes_after`` with packed
            codes and scales.
        eager_min_time_before_s: whole forward pass; ``eager_min_time_after_s`` with requantization
            in the layer kernels, ``separate_eager_min_time_s`` in separate ones.
        minimum_before: minimum times of the original model.
        before: predicted time; None: unavailable.
        after: predicted time after quantization; None also if a layer has no kernel.
        unquantized: descriptions of float operators with weights.
    """

    ALSO_WRITTEN: ClassVar = ("minimum_after", "minimum_separate", "has_kernels")

    policy: Policy
    layers: tuple[LayerWhatIf, ...]
    passes: tuple[QuantizationOverhead, ...]
    parts: tuple[Part, ...]
    layer_bytes_before: int
    layer_bytes_after: int
    model_bytes_before: int
    model_bytes_after: int
    eager_min_time_before_s: float | None
    eager_min_time_after_s: float | None
    separate_eager_min_time_s: float | None
    minimum_before: MinTimes = field(default_factory=MinTimes)
    before: Time | None
    after: Time | None
    unquantized: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def minimum_after(self) -> MinTimes:
        """Minimum times after quantization: eager only (``eager_min_time_after_s``)."""
        return MinTimes(eager_min_time_s=self.eager_min_time_after_s)

    @property
    def minimum_separate(self) -> MinTimes:
        """Minimum times with separate requantization kernels: ``separate_eager_min_time_s``."""
        return MinTimes(eager_min_time_s=self.separate_eager_min_time_s)

    @property
    def has_kernels(self) -> bool:
        """Return whether the machine has kernels for all widths, so that a speedup may be
        estimated.
        """
        return all(each.has_kernel for each in self.layers)

    def part(self, name: PartName) -> Part:
        return next(each for each in self.parts if each.name == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeVariant:
    """Model in a lower precision, timed here, interleaved with the original.

    Attributes:
        way: ``"bfloat16"``, ``"int8 (torch.ao, static)"`` …
        bits: bits of the corresponding what-if.
        speedup: median over rounds of original over variant, with the 80 % interval.
        predicted_s: prediction of the what-if; None: unavailable.
        error: relative L2 error of the outputs; None: unknown, or not finite.
        allocator: malloc settings; ``""``: unknown.
        why_not: reason for missing times.
    """

    way: str
    bits: LayerBits
    before_s: float | None = None
    after_s: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    rounds: int = 0
    predicted_before_s: float | None = None
    predicted_s: float | None = None
    error: float | None = None
    allocator: str = ""
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSensitivity:
    """Effect of quantizing a single layer.

    Attributes:
        error: relative L2 error of the model outputs.
        saved_s: time saved, by the basis of `Sensitivity`; negative: slower.
        saved_bytes: traffic saved.
    """

    name: str
    bits: LayerBits
    error: float
    saved_s: float | None
    saved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Bits per layer under a budget; ``error`` is that of the whole policy."""

    policy: Policy
    budget: str
    is_within: bool
    model_bytes: int
    time_s: float | None
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Layers by output error per saving, highest last.

    Attributes:
        basis: kind of saved times: predictions, or minimum times.
        inputs: description of the inputs used for errors; also `weights`.
        unranked: layers without a known error, with the reason.
    """

    layers: tuple[LayerSensitivity, ...]
    basis: Literal["prediction", "bound"]
    inputs: str
    weights: str
    proposal: Proposal | None = None
    unranked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Quantization(Result):
    """Lower precision of a model on a machine.

    Attributes:
        analysis: of the original model.
        what_ifs: that of the policy first, then those of the sweep.
        native_variants: variants timed here.
        sensitivity: None: not computed.
    """

    kind: ClassVar = "quantization"
    made_by: ClassVar = "roofline quantize MODEL -o FILE.json"
    columns: ClassVar = {
        "what_if": "Int64",
        **dict.fromkeys(("policy", "layer", "place"), "string"),
        **dict.fromkeys(("operator", "weight_bits", "activation_bits", "output_bits"), "Int64"),
        "executable": "string",
        "has_kernel": "boolean",
        **dict.fromkeys(("parameters", "macs"), "Int64"),
        **{f"before_{name}": dtype for name, dtype in _SIDE.items()},
        **{f"after_{name}": dtype for name, dtype in _SIDE.items()},
    }
    ALSO_WRITTEN: ClassVar = ("summary",)

    model: str
    analysis: Analysis
    what_ifs: tuple[WhatIf, ...]
    native_variants: tuple[NativeVariant, ...] = ()
    sensitivity: Sensitivity | None = None
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.what_ifs:
            raise ValueError("what_ifs: expected one or more")

    @property
    def what_if(self) -> WhatIf:
        """First what-if: that of the policy."""
        return self.what_ifs[0]

    @property
    def summary(self) -> str:
        """Verdict: bytes and minimum time before and after, predicted and measured times if any."""
        from roofline.quantization.blocks import verdict

        return verdict(self)

    def to_data(self) -> dict[str, Any]:
        """Return plain data; non-finite errors are null."""
        data: dict[str, Any] = finite(super(Quantization, self).to_data())
        return data

    def rows(self) -> Iterable[list[Any]]:
        """Return a row for each layer of each what-if."""
        for number, what_if in enumerate(self.what_ifs):
            for each in what_if.layers:
                layer, bits = each.layer, each.bits
                yield [
                    *(number, what_if.policy.words, layer.name, layer.place, layer.index),
                    *(bits.weights, bits.activations, each.output_bits, each.executable),
                    *(each.has_kernel, each.parameters, each.macs),
                    *each.before.cells(),
                    *each.after.cells(),
                ]

    def blocks(self, view: View) -> Iterable[Block]:
        """Return facts, and tables of breakdown, layers, overhead, widths, variants and
        sensitivity.
        """
        from roofline.quantization.blocks import quantization_blocks

        return quantization_blocks(self, view)

    def draw(self, figure: Figure, *, labels: int = 16) -> None:
        """Draw an arrow under the roofline for each layer, from before to after.

        Args:
            figure: an empty figure.
            labels: maximum number of labels, largest savings first.
        """
        from roofline.quantization.drawing import draw_quantization

        draw_quantization(figure, self, labels)
