"""Quantisations as JSON, CSV and frames: whole, finite, and with units in every name."""

from __future__ import annotations

import csv
import io
import json
import math

import pandas
import pytest

from roofline.foundation import schema
from roofline.quantization.data import COLUMNS, data_of, layers_csv, rows_of
from roofline.quantization.findings import Companion, LayerSensitivity, Sensitivity
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.result import Quantization
from roofline.quantization.what_if import what_ifs
from tests.design.advice_models import Clock
from tests.quantization.what_if_machines import PingPong, timed_analysis_of


@pytest.fixture(scope="module")
def found() -> Quantization:
    analysis = timed_analysis_of(PingPong(16, 3), 4, 16, clock=Clock())
    policy = Policy(layers={"layers.1": LayerBits(weights=3, activations=4)})
    bits = LayerBits(weights=8, activations=8)
    ranked = LayerSensitivity(
        name="layers.0", bits=bits, error=math.nan, saved_s=None, saved_byte=3
    )
    return Quantization(
        model="net",
        analysis=analysis,
        what_ifs=what_ifs(analysis, policy, (2, 8), Clock()),
        companions=(Companion(way="int8", bits=bits, error=math.inf),),
        sensitivity=Sensitivity(
            layers=(ranked,), basis="bound", inputs="random", weights="as given"
        ),
        warnings=("a warning",),
    )


def test_json_is_whole_and_finite(found: Quantization) -> None:
    data = json.loads(found.to_json())
    assert data == json.loads(json.dumps(data_of(found), allow_nan=False))
    assert (data["kind"], data["schema_version"]) == ("quantization", 1)
    assert data["summary"] == found.summary
    assert [len(each["layers"]) for each in data["what_ifs"]] == [3, 3, 3]
    assert data["companions"][0]["error"] is None
    assert data["sensitivity"]["layers"][0]["error"] is None
    assert data["warnings"] == ["a warning"]
    assert data["analysis"] == json.loads(json.dumps(schema.to_data(found.analysis)))
    assert data["what_ifs"][2]["has_kernels"] is False


def test_policies_are_read_out_of_it(found: Quantization) -> None:
    data = json.loads(found.to_json())
    for each, what_if in zip(data["what_ifs"], found.what_ifs, strict=True):
        assert Policy.from_data(each["policy"]) == what_if.policy


def test_one_row_a_layer_of_every_what_if(found: Quantization) -> None:
    rows = rows_of(found)
    assert [row["what_if"] for row in rows] == [0] * 3 + [1] * 3 + [2] * 3
    assert all(list(row) == list(COLUMNS) for row in rows)
    for row, layer in zip(rows, found.what_if.layers, strict=False):
        assert row["layer"] == layer.layer.name
        assert row["after_traffic_byte"] == layer.after.traffic_byte
        assert row["before_bound_s"] == layer.before.bound_s
        assert row["after_bound"] == layer.after.bound.value
    assert rows[1]["after_predicted_s"] is None
    assert rows[0]["before_predicted_s"] is not None


def test_frames_have_nullable_types(found: Quantization) -> None:
    frame = found.to_frame()
    assert list(frame.columns) == list(COLUMNS)
    assert len(frame) == 9
    assert frame["after_predicted_s"].isna().sum() == sum(
        row["after_predicted_s"] is None for row in rows_of(found)
    )
    assert str(frame["before_flop"].dtype) == "Int64"
    assert frame.loc[1, "weight_bits"] == 3
    assert isinstance(frame, pandas.DataFrame)


def test_csv_leaves_empty_what_is_unknown(found: Quantization) -> None:
    lines = list(csv.DictReader(io.StringIO(layers_csv(found))))
    assert len(lines) == 9
    assert list(lines[0]) == list(COLUMNS)
    assert lines[1]["after_predicted_s"] == ""
    assert lines[1]["has_kernel"] == "false"
    assert float(lines[0]["before_bound_s"]) == found.what_if.layers[0].before.bound_s


def test_every_number_has_a_unit_in_its_name() -> None:
    counts = {"what_if", "operator", "weight_bits", "activation_bits", "output_bits"}
    counts |= {"parameters", "multiply_add", "before_flop", "after_flop"}
    for name, kind in COLUMNS.items():
        if kind in ("Int64", "Float64") and name not in counts:
            assert name.endswith(("_byte", "_s", "_flop_per_byte", "_flop_per_s"))
