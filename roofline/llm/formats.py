"""Data types of a serving run: weights, arithmetic, embedding and head, KV cache."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roofline.core.dtypes import DType, dtype
from roofline.core.text import printable
from roofline.errors import InputError, argument, did_you_mean
from roofline.llm.parts import Part, PartName
from roofline.machine.roof import MachineRoof


@dataclass(frozen=True, slots=True)
class Codes(DType):
    """Quantized weights of a mean number of bits, scales included."""

    mean_bits: float = 8.0

    def byte(self, elements: int) -> int:
        """Return the bytes of packed elements, rounded up."""
        return math.ceil(elements * self.mean_bits / 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Types:
    """Data types of a run.

    ``compute`` is that of products with quantized ``weights``, ``floats`` that of activations and
    of other weights and their products, ``attention`` that of the products of attention.
    ``all_weights``: embedding and head are quantized too; ``kept``: parts that stay floats.
    """

    compute: DType
    weights: DType
    cache: DType
    floats: DType
    attention: DType
    all_weights: bool = False
    kept: frozenset[str] = frozenset()

    @staticmethod
    def all_of(of: DType) -> Types:
        """Return one type for all."""
        return Types(compute=of, weights=of, cache=of, floats=of, attention=of)

    def of_weights(self, part: Part) -> DType:
        """Return the type of a part's weights."""
        return self.weights if self._is_coded(part) else self.floats

    def compute_of(self, part: Part) -> DType:
        """Return the type of a part's arithmetic."""
        if part.name == "attention":
            return self.attention
        return self.compute if self._is_coded(part) else self.floats

    def _is_coded(self, part: Part) -> bool:
        return (part.is_quantized or self.all_weights) and part.name not in self.kept


_FLOATS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_EIGHT = dtype("float8_e4m3fn")
_FOUR = dtype("float4_e2m1fn_x2")
_NAMED = {
    # Bits with scales, and type of arithmetic.
    "fp8": (8.0, _EIGHT),
    "int8": (8.0, dtype("int8")),
    "mxfp4": (4.25, _FOUR),
    "nvfp4": (4.5, _FOUR),
}
_FORM = re.compile(r"w([0-9]{1,2}(?:\.[0-9]{1,6})?)a(8|16|32)")
_CACHES = {**_FLOATS, "fp8": "float8_e4m3fn", "int8": "int8", "int4": "int4"}
SHORT = {name: short for short, name in _CACHES.items()}
"""Short names of data types."""


def cache_type(text: str) -> DType:
    """Return the type of a KV cache, written as ``fp8``."""
    word = text.strip().lower()
    if word not in _CACHES:
        raise InputError(
            f"{argument('kv', printable(text)[:40])}: must be one of {', '.join(_CACHES)}"
            f"{did_you_mean(word, _CACHES)}"
        )
    return dtype(_CACHES[word])


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """Format of quantized weights: mean bits, scales included, and type of arithmetic.

    ``compute`` None: 16- or 32-bit floats, ``float_bits``. ``floats``: all weights have this type.
    """

    name: str
    bits: float
    compute: DType | None = None
    float_bits: int = 16
    floats: DType | None = None

    @staticmethod
    def parse(text: str) -> WeightFormat:
        """Return the format written as ``bf16``, ``fp8``, ``w4a16`` or ``w4.5a8``."""
        word = text.strip().lower()
        if word in _FLOATS:
            floats = dtype(_FLOATS[word])
            return WeightFormat(name=word, bits=floats.bits, float_bits=floats.bits, floats=floats)
        if word in _NAMED:
            bits, compute = _NAMED[word]
            return WeightFormat(name=word, bits=bits, compute=compute)
        match = _FORM.fullmatch(word)
        if match is None:
            known, shown = (*_FLOATS, *_NAMED), printable(text)[:40]
            # int4 mostly names weight-only quantization.
            meant = re.sub("int([1-7])", r"w\1a16", word)
            hint = did_you_mean(meant, known if meant == word else [meant])
            raise InputError(
                f"{argument('weights', shown)}: must be {', '.join(known)}, or a form such as"
                f" w4a16{hint}"
            )
        bits, activations = float(match[1]), int(match[2])
        if not 1 <= bits <= activations or bits == activations > 8:
            raise InputError(
                f"{argument('weights', word)}: weights must have at least 1 bit and fewer bits than"
                " activations, such as w4a16"
            )
        compute = dtype("int8") if activations == 8 else None
        return WeightFormat(name=word, bits=bits, compute=compute, float_bits=max(16, activations))

    def types(
        self,
        floats: DType,
        cache: DType | None,
        roof: MachineRoof,
        *,
        all_weights: bool = False,
        kept: frozenset[str] = frozenset(),
    ) -> Types:
        """Return the types on a machine; `cache` None: that of the floats.

        Arithmetic of a type without a ceiling is done in floats, as kernels do that convert
        weights; of 4-bit floats in 8-bit ones.
        """
        floats = self.floats or floats
        known = roof.mac_ceilings
        if self.floats is None and floats.bits != self.float_bits:
            halves = [dtype(each) for each in ("bfloat16", "float16")]
            usual = dtype("float32") if self.float_bits == 32 else halves[0]
            floats = next((each for each in halves if each in known), usual)
            floats = floats if self.float_bits == 16 else usual
        compute = self.compute or floats
        if compute not in known:
            compute = _EIGHT if compute == _FOUR and _EIGHT in known else floats
        cache = cache or floats
        weights = floats
        if self.floats is None:
            weights = Codes(f"codes{self.bits:g}", math.ceil(self.bits), "int", self.bits)
        return Types(
            compute=compute,
            weights=weights,
            cache=cache,
            floats=floats,
            attention=cache if cache == _EIGHT and cache in known else floats,
            all_weights=all_weights and self.floats is None,
            kept=kept,
        )

    def notes(self, types: Types, machine: str) -> tuple[str, ...]:
        """Return a note if arithmetic is not of the format's type."""
        if self.compute is None or self.compute == types.compute:
            return ()
        return (
            f"{self.name} on {machine}: arithmetic in {types.compute}, because the machine has no"
            f" ceiling for {self.compute}",
        )


_KEPT: Mapping[str, PartName] = {
    "self_attn": "attention projections",
    "shared_expert": "shared experts",
}
"""Parts by the modules of transformers in lists of those that are not quantized."""


def kept_parts(configuration: Mapping[str, Any]) -> frozenset[PartName]:
    """Return the parts that a ``config.json`` keeps in floats in all layers."""
    of = _table(configuration.get("quantization_config"))
    lists = (of.get(key) for key in ("modules_to_not_convert", "ignore", "exclude_modules"))
    found = [str(each) for listed in lists if isinstance(listed, list) for each in listed]
    patterns = [each for each in found if "*" in each]
    return frozenset(
        part for module, part in _KEPT.items() if any(module in each for each in patterns)
    )


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def stored_format(configuration: Mapping[str, Any]) -> str | None:
    """Return the format of quantized weights in a ``config.json``; None for floats.

    Groups have a scale of 16 bits, and a zero point of the bits of a weight.
    """
    of = _table(configuration.get("quantization_config"))
    if not of:
        return None
    method, bits = str(of.get("quant_method")), of.get("bits", of.get("w_bit"))
    group = of.get("group_size", of.get("q_group_size"))
    if method == "compressed-tensors":
        first = _table(next(iter(_table(of.get("config_groups")).values()), None))
        weights = _table(first.get("weights"))
        bits, group = weights.get("num_bits"), weights.get("group_size")
        if first.get("input_activations") or weights.get("type") == "float":
            method = f"{weights.get('type')}{bits}"
    elif method == "modelopt":
        method = str(of.get("quant_algo")).lower()
    known = {"fbgemm_fp8": "fp8", "float8": "fp8", "float4": "nvfp4"}
    name = known.get(method, method)
    if name in _NAMED:
        return name
    if method in ("gptq", "awq", "compressed-tensors") and type(bits) is int and 1 <= bits <= 8:
        scales = (16 + bits) / group if type(group) is int and group > 0 else 0
        return f"w{bits + scales:g}a16"
    raise InputError(
        f"quantization_config: method '{printable(method)[:40]}' not supported; add"
        f" {argument('weights', 'w4a16')}"
    )


def usual_format(floats: DType, roof: MachineRoof | None) -> str:
    """Return the name of a float format; on a machine, of 16-bit floats that it has units for."""
    if roof and floats.bits == 16 and floats not in roof.mac_ceilings:
        other = dtype("float16" if floats.name == "bfloat16" else "bfloat16")
        floats = other if other in roof.mac_ceilings else floats
    return SHORT.get(floats.name, "fp32")
