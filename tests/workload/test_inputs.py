"""What a model is called with, as text and in Python."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.dtypes import dtype
from roofline.core.units import format_shape
from roofline.errors import InputError
from roofline.workload.inputs import (
    InputRequest,
    Inputs,
    parse_input,
    resolve_inputs,
    to_inputs,
)
from roofline.workload.torch_dtypes import input_dtype, input_specs
from tests.workload.passes import passed

Pair = namedtuple("Pair", "left right")


def asked(*shape: int, of: str = "") -> InputRequest:
    return InputRequest(shape=shape, dtype=dtype(of) if of else None)


# -- as text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("1x3x224x224", "", asked(1, 3, 224, 224)),
        ("7", "", asked(7)),
        ("1x128:int64", "", asked(1, 128, of="int64")),
        ("1x128:bf16", "", asked(1, 128, of="bfloat16")),
        ("mask=1x128:bool", "mask", asked(1, 128, of="bool")),
        ("input_ids=2x4", "input_ids", asked(2, 4)),
        ("use_cache=false", "use_cache", False),
        ("labels=None", "labels", None),
        ("[3x8x8, 3x9x9]", "", [asked(3, 8, 8), asked(3, 9, 9)]),
        ("images=[3x8x8,]", "images", [asked(3, 8, 8)]),
        ("[]", "", []),
        (
            "{image=1x3x8x8, boxes=[4:int64, {deep=true}]}",
            "",
            {"image": asked(1, 3, 8, 8), "boxes": [asked(4, of="int64"), {"deep": True}]},
        ),
        ("batch={a.b=2}", "batch", {"a.b": asked(2)}),
    ],
)
def test_inputs_in_text(text: str, name: str, value: Any) -> None:
    assert parse_input(text) == (name, value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "shape '': must be sizes such as 1x3x224x224"),
        ("1x", "shape '1x': must be sizes"),
        ("1X3", "shape '1X3': must be sizes"),
        ("-1x3", "shape '-1x3': must be sizes"),
        ("1x0x3", "every size must be at least 1"),
        ("1.5x3", "shape '1.5x3': must be sizes"),
        ("1x3:", "unknown dtype ''"),
        ("1x3:flot32", "unknown dtype 'flot32'; did you mean 'float32'"),
        ("=1x3", "'' is not a valid argument name"),
        ("a b=1x3", "'a b' is not a valid argument name"),
        ("a=b=1x3", "'a=b' is not a valid argument name"),
        ("x=", "shape '': must be sizes"),
        ("[1x3", "does not end with ']'"),
        ("[1x3]]", "unbalanced brackets"),
        ("[1x3],[2]", "unbalanced brackets"),
        ("[,1x3]", "an empty item before a comma"),
        ("{1x3}", "expected key=shape"),
        ("{=1x3}", "expected key=shape"),
        ("{a=1, a=2}", "duplicate key 'a'"),
        ("[1x3, [2x]]", "shape '2x': must be sizes"),
    ],
)
def test_what_is_wrong_with_an_input(text: str, message: str) -> None:
    """The message quotes the option and says the right forms."""
    with pytest.raises(InputError, match=message) as raised:
        parse_input(text)
    assert str(raised.value).startswith(f"inputs '{text}'")


@given(shape=st.lists(st.integers(1, 999), min_size=1, max_size=5), name=st.sampled_from(["", "x"]))
def test_inputs_in_text_are_read_back(shape: list[int], name: str) -> None:
    """What tables print is what the option takes."""
    text = f"{f'{name}=' if name else ''}{format_shape(tuple(shape))}"
    assert parse_input(text) == (name, asked(*shape))


@given(text=st.text(alphabet="13x[]{}=,: abtruefls", max_size=20))
def test_no_text_ends_in_a_traceback(text: str) -> None:
    """It is an input, or an error of ours."""
    try:
        parse_input(text)
    except InputError as error:
        assert "\n" not in str(error)


# -- in Python -------------------------------------------------------------------------------------

X = torch.zeros(2, 3)


def shapes(inputs: Inputs | None) -> dict[str, tuple[int, ...]]:
    assert inputs is not None
    return {f"{i}:{name}": each.shape for i, (name, each) in enumerate(inputs.requests())}


@pytest.mark.parametrize(
    ("given_inputs", "expected"),
    [
        (X, {"0:": (2, 3)}),
        ((2, 3), {"0:": (2, 3)}),
        ([2, 3], {"0:": (2, 3)}),
        (X.shape, {"0:": (2, 3)}),
        ("2x3", {"0:": (2, 3)}),
        ([(2, 3), "4x5", X], {"0:": (2, 3), "1:": (4, 5), "2:": (2, 3)}),
        ((X, X), {"0:": (2, 3), "1:": (2, 3)}),
        ({"a": X, "b": "4x5:int64"}, {"0:a": (2, 3), "1:b": (4, 5)}),
        (["y=2x3"], {"0:y": (2, 3)}),
        (["2", "y=2x3"], {"0:": (2,), "1:y": (2, 3)}),
        (InputRequest(name="z", shape=(1,)), {"0:z": (1,)}),
        ({"a": InputRequest(shape=(1,))}, {"0:a": (1,)}),
        ([[X, X]], {"0:0[0]": (2, 3), "1:0[1]": (2, 3)}),
        ([{"image": X}], {"0:0.image": (2, 3)}),
        ({"batch": {"image": [X, (4,)]}}, {"0:batch.image[0]": (2, 3), "1:batch.image[1]": (4,)}),
        ({"pair": Pair(X, (1,))}, {"0:pair.left": (2, 3), "1:pair.right": (1,)}),
        (Inputs(X, None, mask=X, flag=True), {"0:": (2, 3), "1:mask": (2, 3)}),
        (Inputs({"a b": X}), {"0:0['a b']": (2, 3)}),
        (Inputs(), {}),
    ],
)
def test_inputs_in_python(given_inputs: Any, expected: dict[str, tuple[int, ...]]) -> None:
    """A tensor, a shape, text, several of them, keywords, and all of these in each other."""
    assert shapes(to_inputs(given_inputs)) == expected


def test_no_inputs() -> None:
    assert to_inputs(None) is None


@pytest.mark.parametrize("wrong", [3, 2.5, [None], {"a": {}}, object(), [[2.0, 3]], [object()]])
def test_what_is_no_input(wrong: Any) -> None:
    """The message shows what was given."""
    with pytest.raises(InputError, match="inputs: expected a tensor, a shape such as"):
        to_inputs(wrong)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: to_inputs([(2, 0)]), "every size must be at least 1"),
        (lambda: to_inputs({"a": (3, -1)}), "every size must be at least 1"),
        (lambda: Inputs((0,)), "every size must be at least 1"),
        (lambda: to_inputs({"a": ["b=2x3"]}), "a nested argument cannot have a name"),
        (lambda: to_inputs({"a": "b=2x3"}), "a nested argument cannot have a name"),
        (lambda: to_inputs(["a=1x4", "a=2x4"]), "inputs: duplicate argument a"),
        (lambda: Inputs([X, X]).with_batch(2), "batch: an input contains several tensors"),
        (lambda: Inputs(torch.tensor(1.0)).with_batch(2), "batch: an input has no dimensions"),
    ],
)
def test_what_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_what_is_no_tensor_reaches_the_model_as_it_is() -> None:
    """Flags, numbers, None and objects."""
    marker = object()
    seen: list[Any] = []

    def model(x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
        seen.extend([*rest, named])
        return x + 1

    passed(model, X, None, 3.5, marker, flag=True)
    assert seen == [None, 3.5, marker, {"flag": True}]


# -- batch and defaults ----------------------------------------------------------------------------


def test_batch_replaces_the_first_size_of_every_input() -> None:
    """Names and types stay."""
    inputs = to_inputs(["1x4", "mask=9x2:bool", "flag=true"])
    assert inputs is not None
    changed = inputs.with_batch(8)
    assert shapes(changed) == {"0:": (8, 4), "1:mask": (8, 2)}
    assert changed.kwargs["mask"].dtype == dtype("bool")
    assert changed.kwargs["flag"] is True


def test_a_batch_of_a_channels_last_tensor_stays_channels_last() -> None:
    """The order of the dimensions in memory is kept, for another batch too."""
    image = torch.zeros(1, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    # Tensors of the pass would be taken out of it again.
    seen: list[tuple[tuple[int, ...], bool]] = []

    def model(x: torch.Tensor) -> torch.Tensor:
        seen.append((tuple(x.shape), x.is_contiguous(memory_format=torch.channels_last)))
        return x * 2

    passed(model, Inputs(image).with_batch(4).args[0])
    assert seen[0] == ((4, 3, 8, 8), True)


def test_inputs_must_be_given_where_they_are_unknown() -> None:
    """The message names the arguments of forward."""
    with pytest.raises(InputError, match=r"model 'net': input shapes are not known.*: input"):
        resolve_inputs(torch.nn.Linear(4, 2), None, (), name="net", batch=None)


def test_defaults_are_taken_where_nothing_is_given() -> None:
    default = (InputRequest(name="input_ids", shape=(1, 128), dtype=dtype("int64")),)
    inputs = resolve_inputs(torch.nn.Linear(4, 2), None, default, name="net", batch=2)
    assert shapes(inputs) == {"0:input_ids": (2, 128)}
    given_one = resolve_inputs(torch.nn.Linear(4, 2), Inputs(X), default, name="net", batch=None)
    assert shapes(given_one) == {"0:": (2, 3)}


class Constant(torch.nn.Module):
    def forward(self) -> torch.Tensor:
        return torch.ones(3) * 2


@pytest.mark.parametrize(
    ("module", "inputs"), [(Constant(), None), (torch.nn.Linear(4, 2), Inputs())]
)
def test_there_may_be_no_inputs(module: torch.nn.Module, inputs: Inputs | None) -> None:
    """Of a model that takes nothing, and on purpose."""
    found = resolve_inputs(module, inputs, (), name="net", batch=None)
    assert (found.args, found.kwargs) == ((), {})


# -- data types ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "change", "expected"),
    [
        (asked(2), None, torch.float32),
        (asked(2), torch.bfloat16, torch.bfloat16),
        (asked(2, of="int64"), torch.bfloat16, torch.int64),
        (asked(2, of="float64"), torch.bfloat16, torch.float64),
        (InputRequest(shape=(2,), like=torch.zeros(2, dtype=torch.float16)), None, torch.float16),
        (InputRequest(shape=(2,), like=torch.zeros(2)), torch.float16, torch.float16),
        (
            InputRequest(shape=(2,), like=torch.zeros(2, dtype=torch.int32)),
            torch.float16,
            torch.int32,
        ),
    ],
)
def test_the_type_of_an_input(
    request_: InputRequest, change: torch.dtype | None, expected: torch.dtype
) -> None:
    """As asked; else that of the tensor; a changed type is for floating inputs only."""
    assert input_dtype(request_, change) == expected


@pytest.mark.parametrize("kind", ["qint8", "quint4x2"])
def test_quantized_inputs_cannot_be_made(kind: str) -> None:
    with pytest.raises(InputError, match="needs a tensor, not a shape"):
        input_dtype(asked(2, of=kind), None)


def test_specs_say_where_each_tensor_goes() -> None:
    specs = input_specs(Inputs(X, [X, "3:int64"], mask=(4,)), torch.float64)
    assert [(each.name, each.shape, str(each.dtype)) for each in specs] == [
        ("", (2, 3), "float64"),
        ("1[0]", (2, 3), "float64"),
        ("1[1]", (3,), "int64"),
        ("mask", (4,), "float64"),
    ]
