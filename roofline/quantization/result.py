"""What lower precision would be worth: the values that `roofline.quantize` gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from roofline.analysis import Analysis, MinTimes
from roofline.design.advice.times import Time
from roofline.foundation.rows import json_text
from roofline.placement import Bound
from roofline.quantization.findings import Companion, Sensitivity
from roofline.quantization.layers import Layer
from roofline.quantization.policy import LayerBits, Policy

if TYPE_CHECKING:
    import pandas

PassKind = Literal["requantize", "quantize", "dequantize"]
"""``requantize``: accumulators are read, scaled, clipped, rounded and written in few bits;
``quantize``: the same from floats, where a layer reads what was kept in them; ``dequantize``: codes
become floats, for an operator that takes nothing else."""

PartName = Literal["layers", "requantization", "conversions", "shortcuts", "others"]

BANDWIDTH_ONLY = "bandwidth-only what-if"
"""What is said of widths for which a machine has no kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A layer under the roof, before or after it is quantised.

    Bytes are those of its operands at their bits, each once. ``bound_s`` and what stands beside it
    are as in `Placement`; ``eager_min_time_s`` is the same, and other minimum times are not known
    of single layers, before or after. ``time`` is a prediction; None where none can be made, and
    always where the machine has no kernel for the width.
    """

    weight_byte: int
    input_byte: int
    output_byte: int
    flop: int | None
    level: str
    ceiling: str
    bound: Bound
    bound_s: float | None
    eager_min_time_s: float | None = None
    fused_min_time_s: float | None = None
    model_min_time_s: float | None = None
    intensity_flop_per_byte: float | None
    attainable_flop_per_s: float | None
    time: Time | None

    @property
    def traffic_byte(self) -> int:
        """All bytes read and written, each operand once."""
        return self.weight_byte + self.input_byte + self.output_byte


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWhatIf:
    """One layer in few bits, with what is folded into it (batch norm, ReLU).

    ``operators`` are the rows of the analysis that it stands for: its own first. ``output_bits``
    are those in which its result is kept: the most that a reader takes. ``executable`` is the data
    type it would be computed in here; ``has_kernel`` whether that is the width itself, so that a
    time may be predicted. ``parameters`` counts its weights, its bias left aside.
    """

    layer: Layer
    bits: LayerBits
    operators: tuple[int, ...]
    output_bits: int
    executable: str
    has_kernel: bool
    parameters: int
    multiply_add: int
    before: Side
    after: Side


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationPass:
    """A walk over a tensor that only quantisation asks for.

    ``where`` is the layer whose result (``requantize``) or operand (``quantize``) it is, or the
    operator that takes floats (``dequantize``); ``operator`` its row. ``is_separate``: it is a
    kernel of its own for certain; a ``requantize`` is not, where the kernel before it writes codes.
    ``flop`` are multiplications, comparisons and roundings. ``time`` as in `Side`.
    """

    kind: PassKind
    where: str
    operator: int
    elements: int
    from_bits: int
    to_bits: int
    read_byte: int
    written_byte: int
    flop: int
    is_separate: bool
    bound_s: float | None
    time: Time | None

    ALSO_WRITTEN: ClassVar = ("eager_min_time_s",)

    @property
    def traffic_byte(self) -> int:
        """Bytes read and written."""
        return self.read_byte + self.written_byte

    @property
    def eager_min_time_s(self) -> float | None:
        """The same as ``bound_s``: of a kernel of its own. A single pass has no other minimum."""
        return self.bound_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the pass, before and after.

    ``layers`` with what is folded into them, ``shortcuts`` the additions at their ends,
    ``requantization`` the passes over accumulators as kernels of their own, ``conversions`` the
    passes between floats and codes, ``others`` all other operators. Times are None where one of its
    members has none.
    """

    name: PartName
    count: int
    before_byte: int
    after_byte: int
    before_bound_s: float | None
    after_bound_s: float | None
    before_time: Time | None
    after_time: Time | None

    ALSO_WRITTEN: ClassVar = ("before_eager_min_time_s", "after_eager_min_time_s")

    @property
    def before_eager_min_time_s(self) -> float | None:
        """The same as ``before_bound_s``: operators one by one. Parts have no other minimum."""
        return self.before_bound_s

    @property
    def after_eager_min_time_s(self) -> float | None:
        """The same as ``after_bound_s``."""
        return self.after_bound_s


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A model in the bits of a policy, on the machine of its analysis.

    ``layer_byte_*`` count each weight once and what each layer writes twice (written, then
    read), at the bits of that layer. ``model_byte_*`` are all parameters and buffers as they
    would lie in a file: codes packed, scales and what is not quantised as they are.
    ``bound_*_s`` are of the whole pass, with requantisation inside the kernels;
    ``separate_bound_s`` with those passes as kernels of their own. ``minimum_before`` are the
    minimum times of the model as it is. ``before`` and ``after`` are predictions of the pass;
    None where there is none, and ``after`` always where a layer has no kernel. ``left`` says in
    words what stays in floats although it has weights.
    """

    policy: Policy
    layers: tuple[LayerWhatIf, ...]
    passes: tuple[QuantizationPass, ...]
    parts: tuple[Part, ...]
    layer_byte_before: int
    layer_byte_after: int
    model_byte_before: int
    model_byte_after: int
    bound_before_s: float | None
    bound_after_s: float | None
    separate_bound_s: float | None
    minimum_before: MinTimes = field(default_factory=MinTimes)
    before: Time | None
    after: Time | None
    left: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    ALSO_WRITTEN: ClassVar = ("minimum_after", "minimum_separate", "has_kernels")

    @property
    def minimum_after(self) -> MinTimes:
        """The minimum times after: the eager one alone, which is ``bound_after_s``.

        Kernels and rewritings of a pass in few bits are not derived.
        """
        return MinTimes(eager_min_time_s=self.bound_after_s)

    @property
    def minimum_separate(self) -> MinTimes:
        """The same with requantisation in kernels of its own: ``separate_bound_s``."""
        return MinTimes(eager_min_time_s=self.separate_bound_s)

    @property
    def has_kernels(self) -> bool:
        """Whether the machine has kernels for all widths, so that a speed may be told."""
        return all(each.has_kernel for each in self.layers)

    def part(self, name: PartName) -> Part:
        """The part of that name."""
        return next(each for each in self.parts if each.name == name)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Quantization:
    """What lower precision is worth for a model on a machine.

    ``analysis`` is of the model as it is; ``what_ifs`` begin with the one that was asked for, those
    of a sweep follow. ``companions`` were run here, ``sensitivity`` is there where it was asked
    for.
    """

    model: str
    analysis: Analysis
    what_ifs: tuple[WhatIf, ...]
    companions: tuple[Companion, ...] = ()
    sensitivity: Sensitivity | None = None
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Quantization: {self.summary}>"

    @property
    def what_if(self) -> WhatIf:
        """The one that was asked for."""
        return self.what_ifs[0]

    @property
    def summary(self) -> str:
        """The verdict, in a sentence."""
        from roofline.quantization.verdict import verdict

        return verdict(self)

    def to_frame(self) -> pandas.DataFrame:
        """One row a layer of every what-if; what is unknown is missing, never 0."""
        from roofline.quantization.data import layers_frame

        return layers_frame(self)

    def to_json(self) -> str:
        """All of it as JSON text, the analysis whole."""
        from roofline.quantization.data import data_of

        return json_text(data_of(self))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes it to a file whose suffix says how: .json .csv .md .html .png .svg.

        Raises:
            InputError: an unknown suffix, a file that exists, or a folder that cannot be written.
        """
        from roofline.presentation.quantization_output import write_quantization

        write_quantization(self, [Path(path)], overwrite=overwrite)

    def plot(self, **options: Any) -> Any:
        """Each layer as an arrow under the roof, in a matplotlib Figure.

        The options are those of `quantization_figure.plot_quantization`.
        """
        from roofline.presentation.quantization_figure import plot_quantization

        return plot_quantization(self, **options)

    def _repr_html_(self) -> str:
        from roofline.presentation.reports.quantization_report import quantization_html

        return quantization_html(self)
