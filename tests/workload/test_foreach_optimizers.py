"""Lists of tensors against their tensors one by one; fused updates against unfused ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.optim.adagrad import _single_tensor_adagrad
from torch.optim.adam import _single_tensor_adam
from torch.optim.sgd import _single_tensor_sgd

from roofline.workload.formulas import find
from roofline.workload.operators import OperatorRecord, State
from tests.workload.passes import only, passed, total, working

ATEN = torch.ops.aten
ONE_BY_ONE: dict[str, Any] = {
    "sgd": _single_tensor_sgd,
    "adam": _single_tensor_adam,
    "adagrad": _single_tensor_adagrad,
}
SHAPES = ((3, 4), (), (5,), (0, 2), (2, 2))


def overloads() -> Iterator[tuple[str, str]]:
    """Every operator on lists that torch has, but for those that write to a given result."""
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        operator, _, overload = name.removeprefix("aten::").partition(".")
        if operator.startswith("_foreach_") and not overload.lower().endswith("out"):
            yield operator, overload or "default"


def larger(self: torch.Tensor, other: torch.Tensor | float) -> torch.Tensor:
    return torch.maximum(self, other) if isinstance(other, torch.Tensor) else self.clamp_min(other)


def smaller(self: torch.Tensor, other: torch.Tensor | float) -> torch.Tensor:
    return torch.minimum(self, other) if isinstance(other, torch.Tensor) else self.clamp_max(other)


SINGLE: dict[str, Callable[..., Any]] = {
    "norm": torch.linalg.vector_norm,
    "maximum": larger,
    "minimum": smaller,
    "zero": torch.zero_,
    "copy": lambda self, src: self.copy_(src),
}
"""Of operators whose like on one tensor has another name."""


def tensors(shapes: tuple[tuple[int, ...], ...] = SHAPES) -> list[torch.Tensor]:
    return [torch.rand(shape) + 0.5 for shape in shapes]


def arguments(operator: str, overload: str, shapes: tuple[tuple[int, ...], ...]) -> list[Any]:
    """Lists, scalars and tensors as the schema asks for them; defaults are left out."""
    schema = getattr(getattr(ATEN, operator), overload)._schema
    made: list[Any] = []
    for argument in schema.arguments:
        if argument.has_default_value() and argument.name != "value":
            continue
        kind = str(argument.type)
        if kind == "List[Tensor]":
            # mm takes the second factor transposed.
            flip = operator.startswith("_foreach_mm") and argument.name == "mat2"
            made.append(tensors(tuple(each[::-1] for each in shapes) if flip else shapes))
        elif kind.startswith("List["):
            made.append([1.5 + i for i in range(len(shapes))])
        elif kind == "Tensor" and argument.name == "scalars":
            made.append(torch.arange(len(shapes)) + 1.5)
        else:
            made.append(torch.tensor(1.5) if kind == "Tensor" else 1.5)
    return made


def one_by_one(operator: str, given: list[Any]) -> Callable[..., Any]:
    """The same with operators on one tensor: tensors come in the order of the lists."""
    name = operator.removeprefix("_foreach_").removesuffix("_")
    single: Any = SINGLE.get(name, getattr(ATEN, name, None))
    if operator.endswith("_"):
        single = SINGLE.get(name, getattr(ATEN, name + "_", None))
    is_list = next(i for i, each in enumerate(given) if isinstance(each, list))

    def run(*given: Any) -> list[Any]:
        found = []
        for i in range(len(given[is_list])):
            each = [one[i] if isinstance(one, list) else one for one in given]
            if name in ("addcmul", "addcdiv"):
                value = each[3]
                # A number in a tensor is not known to be 1.
                value = 1.5 if isinstance(value, torch.Tensor) else value
                found.append(single(*each[:3], value=value))
            else:
                found.append(single(*each))
        return found

    return run


def work_of(records: list[OperatorRecord]) -> dict[str, int]:
    works = [each.work for each in records]
    names = ("flop", "min_flop", "macs")
    return {name: sum(getattr(each, name) for each in works) for name in names}


@pytest.mark.parametrize(("operator", "overload"), list(overloads()))
def test_lists_are_their_tensors_one_by_one(operator: str, overload: str) -> None:
    """Operations are the sum of those of the operators on one tensor; the kind is the same."""
    shapes = SHAPES if operator not in ("_foreach_mm", "_foreach_max") else ((3, 4), (2, 2))
    given = arguments(operator, overload, shapes)
    function = getattr(getattr(ATEN, operator), overload)
    records = working(passed(lambda *given: function(*given), *given))
    (record,) = [each for each in records if "_foreach_" in each.op]
    assert record.state is State.COUNTED
    if "powsum" in operator:
        # A square an element and their sum: 2 n - 1, and nothing of nothing.
        assert record.work.flop == sum(max(0, 2 * each.numel() - 1) for each in given[0])
        return
    singles = working(passed(one_by_one(operator, given), *given))
    assert work_of([record]) == work_of(singles)
    assert record.type in {each.type for each in singles}


@pytest.mark.parametrize(
    "operator",
    ["_foreach_add", "_foreach_mul_", "_foreach_sqrt", "_foreach_lerp_", "_foreach_norm"],
)
def test_bytes_are_those_of_the_tensors(operator: str) -> None:
    """Each tensor is read once and written once."""
    overload = "default" if "sqrt" in operator else "Scalar"
    given = arguments(operator, overload, SHAPES)
    function = getattr(getattr(ATEN, operator), overload)
    record = only(passed(lambda *given: function(*given), *given))
    assert (
        record.work.traffic_bytes
        == total(passed(one_by_one(operator, given), *given)).traffic_bytes
    )


def test_factors_of_one_are_none() -> None:
    """Of sums and products with a factor in the list or beside it."""
    lists = [tensors(((4,), (6,))) for _ in range(3)]
    for call, flop in (
        (lambda a, b, c: ATEN._foreach_add(a, b), 10),
        (lambda a, b, c: ATEN._foreach_add(a, b, alpha=2), 20),
        (lambda a, b, c: ATEN._foreach_addcmul(a, b, c), 20),
        (lambda a, b, c: ATEN._foreach_addcmul(a, b, c, value=3), 30),
        (lambda a, b, c: ATEN._foreach_addcmul(a, b, c, [1, 2]), 8 + 18),
        (lambda a, b, c: ATEN._foreach_pow(a, [2, 3]), 4 + 12),
        (lambda a, b, c: ATEN._foreach_pow(a, 0.5), 10),
    ):
        assert only(passed(call, *lists)).work.flop == flop


def test_lists_of_nothing() -> None:
    for call in (
        lambda a: ATEN._foreach_add(a, 1.0),
        lambda a: ATEN._foreach_mul_(a, 2.0),
        lambda a: ATEN._foreach_copy_(a, a),
    ):
        assert total(passed(call, [torch.empty(0), torch.empty(0, 3)])).flop == 0


def test_integers_and_complex_numbers() -> None:
    """Integers take no FLOP; complex numbers what they take one by one."""
    whole = [torch.ones(3, dtype=torch.int64)]
    assert only(passed(lambda a: ATEN._foreach_mul(a, 2), whole)).work.flop == 0
    numbers = [torch.ones(3, dtype=torch.complex64)]
    in_list = only(passed(lambda a: ATEN._foreach_mul(a, 2.0), numbers))
    alone = only(passed(lambda a: a * 2.0, numbers[0]))
    assert (in_list.state, in_list.work.flop) == (alone.state, alone.work.flop)


FUSED = [ATEN._fused_sgd_, ATEN._fused_adam_, ATEN._fused_adamw_, ATEN._fused_adagrad_]
N = 12
"""Elements of each parameter."""


def state(count: int) -> list[list[torch.Tensor]]:
    """Lists of two tensors each."""
    return [[torch.rand(3, 4) + 0.1 for _ in range(2)] for _ in range(count)]


def steps() -> list[torch.Tensor]:
    return [torch.tensor(3.0) for _ in range(2)]


def handed_over(records: list[OperatorRecord]) -> int:
    """Bytes written between the operators, and read: all but the last of what was given."""
    given, written = set[int](), list[int]()
    for record in records:
        given |= {each.storage for each in record.inputs if each.elements == N} - {*written}
        written += [each.storage for each in record.outputs if each.elements == N]
    return 2 * 4 * N * (len(written) - len(given.intersection(written)))


def large(captured: Any) -> list[OperatorRecord]:
    """Operators on whole parameters; the step is counted on a number."""
    return [each for each in working(captured) if any(spec.elements == N for spec in each.outputs)]


Update = Callable[..., None]
COMMON = {"has_complex": False, "differentiable": False}


def updates(name: str, is_first: bool = False, **options: Any) -> tuple[Update, Update]:
    """The fused one, and torch's with an operator for each step."""
    if name == "sgd":

        def momenta(given: Any) -> Any:
            return given if options["momentum"] else []

        return (
            lambda params, grads, buffers: ATEN._fused_sgd_(
                *(params, grads, momenta(buffers)), lr=0.1, is_first_step=is_first, **options
            ),
            lambda params, grads, buffers: ONE_BY_ONE["sgd"](
                *(params, grads, (not is_first and momenta(buffers)) or [None, None], None, None),
                **{"lr": 0.1, "has_sparse_grad": False, **options},
            ),
        )
    if name == "adagrad":
        options |= {"lr": 0.1, "lr_decay": 0.2, "eps": 1e-8}
        return (
            lambda *lists: ATEN._fused_adagrad_(*lists, steps(), **options),
            lambda *lists: ONE_BY_ONE["adagrad"](
                *(*lists, steps(), None, None), **{"has_sparse_grad": False, **COMMON, **options}
            ),
        )
    options |= {"beta1": 0.9, "beta2": 0.99, "lr": 0.1, "eps": 1e-8}

    def with_largest(lists: Any) -> Any:
        return (*lists[:-1], lists[-1] if options["amsgrad"] else [], steps())

    own = {"capturable": False, "decoupled_weight_decay": name == "adamw"}
    return (
        lambda *lists: getattr(ATEN, f"_fused_{name}_")(*with_largest(lists), **options),
        lambda *lists: ONE_BY_ONE["adam"](
            *(*with_largest(lists), None, None), **{**own, **COMMON, **options}
        ),
    )


LISTS = {"sgd": 3, "adagrad": 3, "adam": 5, "adamw": 5}


def both(name: str, **options: Any) -> tuple[OperatorRecord, list[OperatorRecord]]:
    """What the fused update is recorded as, and the operators on whole parameters of the other."""
    fused, unfused = updates(name, **options)
    return only(passed(fused, *state(LISTS[name]))), large(passed(unfused, *state(LISTS[name])))


def choices(name: str, **values: tuple[Any, ...]) -> list[tuple[str, dict[str, Any]]]:
    every = itertools.product(*values.values())
    return [(name, dict(zip(values, each, strict=True))) for each in every]


FLAGS = (False, True)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(
            each
            for each in choices(
                "sgd",
                weight_decay=(0, 0.1),
                momentum=(0, 0.9),
                dampening=(0, 0.2),
                nesterov=FLAGS,
                maximize=FLAGS,
            )
            if not each[1]["nesterov"] or (each[1]["momentum"] and not each[1]["dampening"])
        ),
        *choices("adam", weight_decay=(0.0, 0.1), amsgrad=FLAGS, maximize=FLAGS),
        *choices("adamw", weight_decay=(0.0, 0.1), amsgrad=FLAGS, maximize=FLAGS),
        *choices("adagrad", weight_decay=(0.0, 0.1), maximize=FLAGS),
    ],
)
def test_updates(name: str, options: dict[str, Any]) -> None:
    """The same operations as torch's update with an operator for each step."""
    record, unfused = both(name, **options)
    assert work_of([record]) == work_of(unfused)
    assert record.work.internal_bytes == handed_over(unfused)
    assert (record.type, record.work.macs) == ("optimizer", 0)


def test_the_first_step_of_sgd_copies_the_gradient() -> None:
    """p - lr * g is left: two an element."""
    options = {"weight_decay": 0, "dampening": 0, "nesterov": False, "maximize": False}
    record, unfused = both("sgd", is_first=True, momentum=0.9, **options)
    assert record.work.flop == 2 * 2 * N
    assert record.work.internal_bytes == 0
    assert work_of([record]) == work_of(unfused)


def test_adam_by_hand() -> None:
    """m: -, *, +; v: *, *, *, +; sqrt, /, +; *, /, +. And a root, a quotient … of 4 bytes."""
    record, _ = both("adam", weight_decay=0.0, amsgrad=False, maximize=False)
    assert record.work.flop == 13 * 2 * N
    assert record.work.internal_bytes == 4 * 2 * 4 * 2 * N


def test_unscaling_is_one_more() -> None:
    """A division of each gradient by the scale, in all fused updates."""

    def all_four(scale: torch.Tensor | None, *lists: list[torch.Tensor]) -> None:
        p, g, m, v = lists
        rule = {"lr": 0.1, "weight_decay": 0.0, "maximize": False}
        decay = {"beta1": 0.9, "beta2": 0.9, "eps": 1e-8, "amsgrad": False}
        given = {"grad_scale": scale, "found_inf": None if scale is None else scale * 0}
        ATEN._fused_sgd_(
            *(p, g, []),
            **rule,
            **given,
            momentum=0.0,
            dampening=0.0,
            nesterov=False,
            is_first_step=False,
        )
        ATEN._fused_adam_(p, g, m, v, [], steps(), **rule, **decay, **given)
        ATEN._fused_adamw_(p, g, m, v, [], steps(), **rule, **decay, **given)
        ATEN._fused_adagrad_(p, g, m, steps(), **rule, **given, lr_decay=0.0, eps=1e-8)

    passes = (
        passed(lambda *lists: all_four(None, *lists), *state(4)),
        passed(all_four, torch.tensor(8.0), *state(4)),
    )
    without, unscaled = (
        [each for each in working(captured) if "_fused" in each.op] for captured in passes
    )
    assert len(without) == len(unscaled) == 4
    for a, b in zip(without, unscaled, strict=True):
        assert (b.work.flop or 0) - (a.work.flop or 0) == 2 * N
        assert a.work.internal_bytes == b.work.internal_bytes


@pytest.mark.parametrize("operator", FUSED)
def test_a_learning_rate_in_a_tensor_resolves(operator: Any) -> None:
    """Every overload of the fused updates has the formula; it is the functional one's too."""
    name = operator.__name__
    for overload in operator.overloads():
        found = find(f"aten.{name}", overload)
        assert found is not None
        assert found.key == f"aten.{name.removesuffix('_')}"


def test_the_scaling_of_gradients() -> None:
    """Two an element, all but what a product with 1 would save; then three for the scale."""
    lists = tensors(((3, 4), (5,)))

    def check(grads: list[torch.Tensor], found: torch.Tensor, inverse: torch.Tensor) -> None:
        ATEN._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)

    one = torch.ones(1)
    record = only(passed(check, lists, one * 0, one))
    assert record.work.flop == 2 * 17
    # Both are read and written, and so is the flag; the inverse of the scale is read.
    assert record.work.traffic_bytes == 2 * 17 * 4 + 3 * 4
    record = only(
        passed(
            lambda *each: ATEN._amp_update_scale_(*each, 2.0, 0.5, 10),
            *(one * 8, torch.zeros(1, dtype=torch.int32), one * 0),
        )
    )
    assert (record.work.flop, record.work.min_flop) == (3, 1)


def optimizers() -> list[tuple[type[torch.optim.Optimizer], dict[str, Any]]]:
    plain = (
        *("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop"),
        *("Rprop", "SGD"),
    )
    kinds = [
        (getattr(torch.optim, name), {"foreach": is_list})
        for name in plain
        for is_list in (False, True)
    ]
    return [
        *kinds,
        *(
            (getattr(torch.optim, name), {"fused": True})
            for name in ("Adam", "AdamW", "SGD", "Adagrad")
        ),
        (
            torch.optim.SGD,
            {"foreach": True, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        ),
        (torch.optim.RMSprop, {"foreach": False, "momentum": 0.9, "centered": True}),
        (torch.optim.Adam, {"foreach": True, "amsgrad": True, "maximize": True}),
        (torch.optim.Adafactor, {"foreach": False}),
        (torch.optim.Adafactor, {"foreach": True}),
        (torch.optim.Muon, {}),
    ]


@pytest.mark.parametrize(("kind", "options"), optimizers())
def test_every_optimizer_of_torch_is_counted(
    kind: type[torch.optim.Optimizer], options: dict[str, Any]
) -> None:
    """Two steps of a parameter; no operator is unknown."""

    def step(value: torch.Tensor, grad: torch.Tensor) -> None:
        parameter = torch.nn.Parameter(value.clone())
        parameter.grad = grad.clone()
        optimizer = kind([parameter], **options)
        optimizer.step()
        optimizer.step()

    records = working(passed(step, torch.rand(3, 4), torch.rand(3, 4)))
    assert {each.op for each in records if each.state is State.UNKNOWN} == set()
    assert sum(each.work.flop or 0 for each in records) >= 2 * 2 * 12


def test_clipped_gradients_are_counted() -> None:
    """Norms of all, their norm, and a factor for all."""
    grads = tensors(((3, 4), (5,)))

    def clip(grads: list[torch.Tensor]) -> None:
        norm = torch.nn.utils.get_total_norm(grads, foreach=True)
        torch.nn.utils.clip_grads_with_norm_(
            [torch.nn.Parameter(each) for each in grads], 1.0, norm, foreach=True
        )

    records = passed(clip, grads).records
    assert all(each.state is not State.UNKNOWN for each in records)
    assert any(each.op == "aten._foreach_norm" for each in records)
