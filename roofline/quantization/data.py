"""Quantisations as plain data, for files and frames: every name carries its unit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roofline.analysis import MINIMUM_TIMES
from roofline.foundation import schema
from roofline.foundation.rows import cells_of, csv_text, finite, frame_of

if TYPE_CHECKING:
    import pandas

    from roofline.quantization.result import LayerWhatIf, Quantization, Side, WhatIf

SCHEMA_VERSION = 1
"""Of quantisations in JSON files; policies are read out of them, and nothing else."""

KIND = "quantization"
"""What such a file says it is."""

_SIDE = {
    "weight_byte": "Int64",
    "input_byte": "Int64",
    "output_byte": "Int64",
    "traffic_byte": "Int64",
    "flop": "Int64",
    "level": "string",
    "ceiling": "string",
    "bound": "string",
    "bound_s": "Float64",
    **dict.fromkeys(MINIMUM_TIMES, "Float64"),
    "intensity_flop_per_byte": "Float64",
    "attainable_flop_per_s": "Float64",
    "predicted_s": "Float64",
    "predicted_low_s": "Float64",
    "predicted_high_s": "Float64",
}

COLUMNS = {
    "what_if": "Int64",
    "policy": "string",
    "layer": "string",
    "place": "string",
    "operator": "Int64",
    "weight_bits": "Int64",
    "activation_bits": "Int64",
    "output_bits": "Int64",
    "executable": "string",
    "has_kernel": "boolean",
    "parameters": "Int64",
    "multiply_add": "Int64",
    **{f"before_{name}": kind for name, kind in _SIDE.items()},
    **{f"after_{name}": kind for name, kind in _SIDE.items()},
}
"""The columns of `Quantization.to_frame` and of CSV files, with pandas' types."""


def data_of(quantization: Quantization) -> dict[str, Any]:
    """All of a quantisation as plain data, its analysis whole; what is not finite is null."""
    sensitivity = quantization.sensitivity
    data = {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "model": quantization.model,
        "hardware": quantization.analysis.hardware.name,
        "threads": quantization.analysis.threads,
        "summary": quantization.summary,
        "what_ifs": [_what_if(each) for each in quantization.what_ifs],
        "companions": [schema.to_data(each) for each in quantization.companions],
        "sensitivity": schema.to_data(sensitivity) if sensitivity is not None else None,
        "warnings": list(quantization.warnings),
        "analysis": schema.to_data(quantization.analysis),
    }
    found: dict[str, Any] = finite(data)
    return found


def _what_if(what_if: WhatIf) -> dict[str, Any]:
    # The policy as `Policy.from_data` reads it.
    return {**schema.to_data(what_if), "policy": what_if.policy.to_data()}


def rows_of(quantization: Quantization) -> list[dict[str, Any]]:
    """One row a layer of every what-if: those of the one that was asked for first."""
    return [
        _row(number, what_if, layer)
        for number, what_if in enumerate(quantization.what_ifs)
        for layer in what_if.layers
    ]


def _row(number: int, what_if: WhatIf, layer: LayerWhatIf) -> dict[str, Any]:
    return {
        "what_if": number,
        "policy": what_if.policy.words,
        "layer": layer.layer.name,
        "place": layer.layer.place,
        "operator": layer.layer.index,
        "weight_bits": layer.bits.weights,
        "activation_bits": layer.bits.activations,
        "output_bits": layer.output_bits,
        "executable": layer.executable,
        "has_kernel": layer.has_kernel,
        "parameters": layer.parameters,
        "multiply_add": layer.multiply_add,
        **_side("before", layer.before),
        **_side("after", layer.after),
    }


def _side(name: str, side: Side) -> dict[str, Any]:
    time = side.time
    values = {
        **{each: getattr(side, each) for each in _SIDE if hasattr(side, each)},
        "bound": side.bound.value,
        "predicted_s": time.s if time is not None else None,
        "predicted_low_s": time.low_s if time is not None else None,
        "predicted_high_s": time.high_s if time is not None else None,
    }
    return {f"{name}_{each}": values[each] for each in _SIDE}


def layers_frame(quantization: Quantization) -> pandas.DataFrame:
    """One row a layer of every what-if; what is unknown is missing, never 0."""
    return frame_of(COLUMNS, cells_of(COLUMNS, rows_of(quantization)))


def layers_csv(quantization: Quantization) -> str:
    """One line a layer of every what-if; what is unknown is empty, never 0."""
    return csv_text(COLUMNS, cells_of(COLUMNS, rows_of(quantization)))
