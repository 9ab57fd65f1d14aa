"""Real tensors of a pass may be on another device than the model's own."""

from __future__ import annotations

import torch

from roofline.run import Run
from roofline.workload.capture.reals import Reals
from roofline.workload.inputs import InputRequest
from roofline.workload.tensors import Role

# The one device beside the CPU that every torch has.
OTHER = torch.device("meta")


def test_copies_and_inputs_are_on_the_device_that_is_named() -> None:
    reals = Reals(Run(), OTHER)
    weight = torch.nn.Parameter(torch.ones(4, 3).t())
    copy = reals.of(weight, Role.PARAMETER, is_changed=True)
    assert copy.device == OTHER
    assert (copy.shape, copy.stride()) == ((3, 4), (1, 3))
    made = reals.given(InputRequest(shape=(2, 3)), torch.float32)
    assert made.device == OTHER
    given = reals.given(InputRequest(shape=(2,), like=torch.zeros(2)), torch.float32)
    assert given.device == OTHER
    assert weight.device.type == "cpu"


def test_by_default_they_are_where_the_model_is() -> None:
    reals = Reals(Run())
    assert reals.of(torch.zeros(2), Role.BUFFER).device.type == "cpu"
    assert reals.given(InputRequest(shape=(2,)), torch.int64).device.type == "cpu"
