"""The layers that int8 is learned from, against those of models that torch quantized."""

from __future__ import annotations

import pytest

from roofline.latency.calibration_set import CalibrationCase, int8_designs
from roofline.pipeline.calibrations import case_workload
from roofline.pipeline.timing import materialize_model
from roofline.quantization.native_variants import int8_kernels, int8_problem, quantize_int8
from roofline.run import RunOptions
from roofline.workload.capture.passes import capture
from roofline.workload.operators import OperatorRecord

pytestmark = pytest.mark.skipif(bool(int8_problem()), reason=int8_problem() or "there is int8")


def records(subject: CalibrationCase) -> tuple[OperatorRecord, ...]:
    asked = case_workload(subject, RunOptions(channels_last=subject.channels_last))
    with int8_kernels():
        model = quantize_int8(materialize_model(asked), asked.given)
        return capture(model, asked.given, name=subject.name, run=asked.run).records


@pytest.mark.parametrize("kind", ["standard", "separable", "residual", "branches", "max_pool_of"])
def test_inner_layers_read_codes_with_channels_last(kind: str) -> None:
    """As within ResNets: both operands of a sum lie alike, so that none is laid out again."""
    subject = min(
        (each for each in int8_designs() if each.kind == kind and each.channels_last),
        key=lambda each: (each.shape[0], each.shape[1] * each.shape[2]),
    )
    read = [
        (each.op, spec.layout)
        for each in records(subject)
        if each.op.startswith("quantized.")
        for spec in each.inputs
        if spec.dtype.name == "quint8" and len(spec.shape) == 4 and spec.shape[2:] != (1, 1)
    ]
    assert read and {layout for _, layout in read} == {"channels-last"}


def test_an_entrance_reads_the_image_as_it_is_given() -> None:
    subject = min(
        (each for each in int8_designs() if each.shape[1:2] == (3,)),
        key=lambda each: each.shape[0] * each.shape[2],
    )
    first = next(each for each in records(subject) if each.op.startswith("quantized.conv"))
    assert (first.inputs[0].shape[1], first.inputs[0].layout) == (3, "contiguous")
