"""Calls without their tensors: what is kept of them, and when two are the same work."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import pytest
import torch

from roofline.latency.measuring.calls import (
    ArgumentStorage,
    Call,
    CallLog,
    TensorArgument,
    describe_call,
)
from roofline.run import Run
from roofline.workload.capture.passes import capture
from roofline.workload.capture.training import TrainingConfig, optimizer_factory
from roofline.workload.inputs import Inputs
from roofline.workload.operators import Capture
from roofline.workload.tensors import Role

ATEN = torch.ops.aten


def described(func: Any, *args: Any, kept: tuple[torch.Tensor, ...] = (), **kwargs: Any) -> Call:
    roles = {each.untyped_storage()._cdata: Role.PARAMETER for each in kept}
    return describe_call(func, args, kwargs, roles)


def logged(model: torch.nn.Module, *inputs: Any, run: Run | None = None) -> tuple[Capture, CallLog]:
    log = CallLog()
    training = (
        TrainingConfig(optimizer=optimizer_factory(run.optimizer))
        if run and run.optimizer
        else None
    )
    captured = capture(
        model, Inputs(*inputs), name="model", run=run, training=training, on_call=log.begin
    )
    return captured, log


def assert_told_of_each(captured: Capture, log: CallLog) -> None:
    assert [each.op for each in log.calls] == [each.op for each in captured.records]


def test_a_call_is_what_it_takes_to_make_it_again() -> None:
    weight, made = torch.empty(8, 4), torch.empty(2, 4)

    call = described(ATEN.addmm.default, torch.empty(8), made, weight.t(), beta=2, kept=(weight,))

    assert (call.op, call.overload, call.problem) == ("aten.addmm", "default", "")
    assert call.function is ATEN.addmm.default
    assert call.args == (
        TensorArgument((8,), (1,), torch.float32, 0, 0, is_kept=False),
        TensorArgument((2, 4), (4, 1), torch.float32, 1, 0, is_kept=False),
        TensorArgument((4, 8), (1, 4), torch.float32, 2, 0, is_kept=True),
    )
    assert call.kwargs == (("beta", 2),)
    assert [each.byte for each in call.storages] == [32, 32, 128]
    assert [each.is_kept for each in call.storages] == [False, False, True]


def test_a_key_is_readable_and_says_all_that_matters() -> None:
    call = described(ATEN.add.Tensor, torch.empty(2, 3), torch.empty(3), alpha=0.5)

    assert call.key(4) == (
        "1 aten.add.Tensor threads=4 (made:float32[2,3]/[3,1]#0, made:float32[3]/[1]#1, alpha=0.5)"
    )


def test_equal_work_has_an_equal_key() -> None:
    others = [torch.empty(100) for _ in range(3)]
    x, y = torch.empty(2, 6), torch.empty(2, 6)
    same = described(ATEN.add.Tensor, torch.empty(2, 6), torch.empty(2, 6))

    assert described(ATEN.add.Tensor, x, y) == same
    assert described(ATEN.add.Tensor, x, y).key(1) == same.key(1)
    assert described(ATEN.add.Tensor, x, y, alpha=2, out=others[0]).key(1) == (
        described(ATEN.add.Tensor, x, y, out=others[1], alpha=2).key(1)
    )


def test_the_place_of_a_part_in_a_storage_does_not_matter_unless_it_is_unaligned() -> None:
    whole = torch.empty(4, 64)
    keys = [described(ATEN.neg.default, each).key(1) for each in whole.split(16, dim=1)]
    unaligned = described(ATEN.neg.default, whole[:, 1:17])

    assert len(set(keys)) == 1
    assert unaligned.key(1) != keys[0]
    assert unaligned.storages == (
        ArgumentStorage(4 + (3 * 64 + 16) * 4, torch.float32, is_kept=False),
    )


X = torch.empty(4, 8, 6, 6)
OTHER_WORK = {
    "shape": described(ATEN.mul.Tensor, X[:2], X[:2].clone()),
    "layout": described(
        ATEN.mul.Tensor, X.contiguous(memory_format=torch.channels_last), X.clone()
    ),
    "dtype": described(ATEN.mul.Tensor, X.bfloat16(), X.bfloat16()),
    "role": described(ATEN.mul.Tensor, X, X.clone(), kept=(X,)),
    "aliasing": described(ATEN.mul.Tensor, X, X),
    "scalar": described(ATEN.mul.Tensor, X, 2.0),
    "overload": described(ATEN.mul.Scalar, X, 2.0),
    "number": described(ATEN.mul.Scalar, X, 3.0),
    "type of number": described(ATEN.mul.Scalar, X, 3),
    "operator": described(ATEN.div.Tensor, X, X.clone()),
    "argument": described(ATEN.div.Tensor_mode, X, X.clone(), rounding_mode="floor"),
    "another argument": described(ATEN.div.Tensor_mode, X, X.clone(), rounding_mode="trunc"),
}


def test_other_work_has_another_key() -> None:
    plain = described(ATEN.mul.Tensor, X, X.clone())
    keys = [plain.key(1), plain.key(2), *(each.key(1) for each in OTHER_WORK.values())]

    assert len(set(keys)) == len(keys)


def test_long_lists_have_short_keys_that_differ_in_their_last_tensor() -> None:
    many = [torch.empty(number) for number in range(1, 200)]
    one, other = (
        described(ATEN._foreach_neg.default, [*many, torch.empty(last)]).key(1) for last in (3, 4)
    )

    assert one != other
    assert len(one) == len(other) < 1000


def quantized() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)


@pytest.mark.parametrize(
    ("func", "args", "reason"),
    [
        (ATEN.bernoulli.default, (X, torch.Generator()), "a random number generator"),
        (ATEN.neg.default, (torch.eye(3).to_sparse(),), "sparse"),
        (ATEN.neg.default, (quantized(),), "quantized"),
        (ATEN.neg.default, (torch.empty(2, device="meta"),), "runs on meta"),
        (ATEN._foreach_neg.default, ([X, torch.empty(2, device="meta")],), "runs on meta"),
        (ATEN.mkldnn_rnn_layer_backward.default, (X,), "oneDNN"),
        (ATEN.add.Tensor, (X, object()), "takes object"),
    ],
)
def test_what_cannot_be_described_says_why(func: Any, args: tuple[Any, ...], reason: str) -> None:
    call = described(func, *args)

    assert reason in call.problem
    assert call.args == ()


def test_no_tensor_is_kept_alive() -> None:
    tensor = torch.empty(3)
    gone = weakref.ref(tensor), weakref.ref(tensor.untyped_storage())
    call = described(ATEN._foreach_neg.default, [tensor, tensor[1:]])
    del tensor

    assert [each() for each in gone] == [None, None]
    assert call.storages[0].byte == 12


class Branches(torch.nn.Module):
    """Calls other operators where its values are known."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        return y.sin() if y.sum() > 0 else y.cos()


class Forgives(torch.nn.Module):
    """Calls what fails, and does something else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return x @ x
        except RuntimeError:
            return x.neg()


class Keeps(torch.nn.Module):
    """Computes with parameters, buffers and a tensor that torch does not know of."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("shift", torch.ones(4))
        self.plain = [torch.ones(4)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.linear(x) + self.shift) * self.plain[0]


@pytest.mark.parametrize("model", [Branches(), Forgives(), Keeps()])
def test_there_is_a_call_for_each_record(model: torch.nn.Module) -> None:
    captured, log = logged(model, torch.ones(3, 4))

    assert_told_of_each(captured, log)


def test_a_second_try_begins_anew() -> None:
    captured, log = logged(Branches(), torch.ones(3, 4))

    assert "real tensors" in captured.notes[0]
    assert [each.op for each in log.calls] == ["aten.exp", "aten.sum", "aten.gt", "aten.sin"]


def test_weights_in_any_form_are_kept_and_results_are_not() -> None:
    captured, log = logged(Keeps(), torch.ones(3, 4))
    kept = {
        call.op: [each.is_kept for each in call.args if isinstance(each, TensorArgument)]
        for call in log.calls
    }

    # The weight is transposed on its way, and the input lives as long as they do.
    assert kept["aten.addmm"] == [True, True, True]
    assert kept["aten.add"] == [False, True]
    assert kept["aten.mul"] == [False, True]
    assert len(captured.records) == 4


def test_a_step_of_training_is_told_of_with_its_update_and_not_with_what_prepares_it() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    captured, log = logged(model, torch.ones(5, 4), run=Run(train=True, optimizer="adam"))

    assert_told_of_each(captured, log)
    assert {each.phase for each in captured.records} == {"forward", "backward", "optimizer"}
    update = next(each for each in log.calls if each.op.startswith("aten.addcdiv"))
    # A parameter, its two moments.
    assert [each.is_kept for each in update.storages] == [True, True, False]


def test_a_pass_keeps_nothing_for_being_told_of() -> None:
    model = torch.nn.Linear(4, 4)
    told, log = logged(model, torch.ones(3, 4))
    untold = capture(model, Inputs(torch.ones(3, 4)), name="model")

    assert log.calls
    assert [each.freed for each in told.records] == [each.freed for each in untold.records]
    assert told.notes == untold.notes == ()
