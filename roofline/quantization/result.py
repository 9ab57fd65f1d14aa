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

PassKind = Literal["requantize", "quantize", "dequantize"]
"""``requantize``: accumulators are read, scaled, clipped, rounded and written in few bits;
``quantize``: the same from floats, where a layer reads what was kept in them; ``dequantize``: codes
become floats, for an operator that takes nothing else."""

PartName = Literal["layers", "requantization", "conversions", "shortcuts", "others"]

BANDWIDTH_ONLY = "bandwidth-only what-if"
"""Widths for which a machine has no kernel."""

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
    """A layer under the roof, before or after it is quantized.

    Attributes:
        weight_bytes: as the other bytes, at the bits of the operand, each operand once.
        eager_min_time_s: with level, ceiling and rates as in `Placement`; other minimum times are
            not known of single layers.
        time: a prediction; None where none can be made, and always where the machine has no kernel
            for the width.
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
        """All bytes read and written, each operand once."""
        return self.weight_bytes + self.input_bytes + self.output_bytes

    def cells(self) -> list[Any]:
        """Return what rows have of it."""
        times = dict.fromkeys(("predicted_s", "predicted_low_s", "predicted_high_s"))
        if time := self.time:
            times = dict(zip(times, (time.s, time.low_s, time.high_s), strict=True))
        known = {"bound": self.bound.value, **times}
        return [known[each] if each in known else getattr(self, each) for each in _SIDE]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWhatIf:
    """One layer in few bits, with the operators fused into it (batch norm, ReLU).

    Attributes:
        operators: rows of the analysis that it stands for, its own first.
        output_bits: in which its result is kept: the most that a reader takes.
        executable: the data type that it is computed in here.
        has_kernel: whether that is the width itself, so that a time may be predicted.
        parameters: its weights, without its bias.
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
class QuantizationPass:
    """A pass over a tensor that only quantization needs.

    Attributes:
        where: the layer whose result (``requantize``) or operand (``quantize``) it is, or the
            operator that takes floats (``dequantize``); ``operator`` is its row.
        flop: multiplications, comparisons and roundings.
        is_separate: it needs a kernel of its own; a ``requantize`` does not, where the kernel
            before it writes codes.
        time: as in `Side`.
    """

    kind: PassKind
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
        """Bytes read and written."""
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the forward pass, before and after; times are None where a member has none.

    ``layers`` with the operators fused into them, ``shortcuts`` the additions at their ends,
    ``requantization`` the passes over accumulators in separate kernels, ``conversions`` the passes
    between floats and codes, ``others`` all other operators.
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
    """A model in the bits of a policy, on the machine of its analysis.

    Attributes:
        layer_bytes_before: each weight once, and what each layer writes twice (written, then read);
            ``layer_bytes_after`` at the bits of that layer.
        model_bytes_before: parameters and buffers as in a file; ``model_bytes_after`` with codes
            packed, and scales.
        eager_min_time_before_s: of the whole pass; ``eager_min_time_after_s`` with requantization
            inside the kernels, ``separate_eager_min_time_s`` in separate ones.
        minimum_before: the minimum times of the model as it is.
        before: the prediction of the pass; None: there is none.
        after: the same in few bits; None also where a layer has no kernel.
        unquantized: what stays in floats although it has weights, in words.
    """

    ALSO_WRITTEN: ClassVar = ("minimum_after", "minimum_separate", "has_kernels")

    policy: Policy
    layers: tuple[LayerWhatIf, ...]
    passes: tuple[QuantizationPass, ...]
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
        """Minimum times after: the eager one alone, which is ``eager_min_time_after_s``."""
        return MinTimes(eager_min_time_s=self.eager_min_time_after_s)

    @property
    def minimum_separate(self) -> MinTimes:
        """The same with requantization in separate kernels: ``separate_eager_min_time_s``."""
        return MinTimes(eager_min_time_s=self.separate_eager_min_time_s)

    @property
    def has_kernels(self) -> bool:
        """Whether the machine has kernels for all widths, so that a speedup may be estimated."""
        return all(each.has_kernel for each in self.layers)

    def part(self, name: PartName) -> Part:
        """Return the part of that name."""
        return next(each for each in self.parts if each.name == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeVariant:
    """The model run here in a lower precision, timed interleaved with the original.

    Attributes:
        way: ``"bfloat16"``, ``"int8 (torch.ao, static)"`` …
        bits: those of the what-if that it belongs to.
        speedup: median over rounds of original over variant, with the 80 % interval.
        predicted_s: by the what-if; None where it predicts nothing.
        error: relative L2 error of the outputs against the original's; None: not known, or not
            finite.
        allocator: settings of malloc meanwhile; ``""``: not known.
        why_not: why there are no times.
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
    """The effect of one layer quantized alone.

    Attributes:
        error: relative L2 error of the model's outputs.
        saved_s: by the basis of `Sensitivity`; below 0 where it takes longer.
        saved_bytes: of reading and writing.
    """

    name: str
    bits: LayerBits
    error: float
    saved_s: float | None
    saved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Bits for each layer under a budget; ``error`` is computed with all of them in place."""

    policy: Policy
    budget: str
    is_within: bool
    model_bytes: int
    time_s: float | None
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Layers by their output error for what they save, the worst last.

    Attributes:
        basis: what saved times are: predictions, or minimum times.
        inputs: whose errors are computed, with `weights`, in words.
        unranked: layers of the what-if that could not be tried, and why.
    """

    layers: tuple[LayerSensitivity, ...]
    basis: Literal["prediction", "bound"]
    inputs: str
    weights: str
    proposal: Proposal | None = None
    unranked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Quantization(Result):
    """Lower precision for a model on a machine.

    Attributes:
        analysis: of the model as it is.
        what_ifs: the one of the policy that was set, then those of a sweep.
        native_variants: run here.
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
        """The one of the policy that was set."""
        return self.what_ifs[0]

    @property
    def summary(self) -> str:
        """Bytes and minimum time before and after, and predicted and measured times if any."""
        from roofline.quantization.blocks import verdict

        return verdict(self)

    def to_data(self) -> dict[str, Any]:
        """Return plain data; errors that are not finite are null."""
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
        """Return facts, and tables of parts, layers, passes, widths, variants and sensitivity."""
        from roofline.quantization.blocks import quantization_blocks

        return quantization_blocks(self, view)

    def draw(self, figure: Figure, *, labels: int = 16) -> None:
        """Draw an arrow under the roofline for each layer, from before to after.

        Args:
            figure: an empty one.
            labels: number of layers to name, largest savings first, where there is room.
        """
        from roofline.quantization.drawing import draw_quantization

        draw_quantization(figure, self, labels)
