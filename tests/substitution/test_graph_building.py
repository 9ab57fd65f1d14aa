"""Built modules: called like the model, with its weights, and fit for torch's own tools."""

from __future__ import annotations

import copy
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import fx, nn

from roofline.errors import InputError, ModelError
from roofline.substitution.graphs.building import as_plain_module, build_module
from roofline.substitution.graphs.capturing import CapturedModel, structure_of
from roofline.substitution.graphs.graph import Editor, Graph, TensorType, Value, Weight, contiguous
from roofline.substitution.rules import rule as registry
from roofline.substitution.rules.rule import Chain, Rule, Step
from tests.substitution.rewriting import OPERATORS, Model, capture_of


def _built(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
    model = capture_of(module, *args, **kwargs)
    return build_module(model, model.graph)


def _assert_equal(found: Any, expected: Any) -> None:
    """The same tensors in the same containers."""
    tensors: list[torch.Tensor] = []
    others: list[torch.Tensor] = []
    assert structure_of(found, tensors, "") == structure_of(expected, others, "")
    assert all(map(torch.equal, tensors, others))


@dataclass
class Pair:
    first: Any
    second: Any = None


class Named(NamedTuple):
    x: Any
    y: Any


class _Nested(nn.Module):
    """Takes and returns all kinds of containers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(
        self,
        images: list[dict[str, torch.Tensor]],
        pair: Pair,
        *more: torch.Tensor,
        scale: float = 2.0,
        sizes: tuple[int, ...] = (1, 2),
        mask: torch.Tensor | None = None,
        **others: torch.Tensor,
    ) -> Any:
        y = self.linear(images[0]["x"]) * scale + pair.first * sizes[1]
        for each in (*more, *others.values()):
            y = y + each
        if mask is not None:
            y = y * mask
        listed = [y + 1, {"z": y - 1}]
        return Pair(Named(y, OrderedDict(w=listed, n=None)), (scale, "text", y))


def _tensors(count: int) -> Iterator[torch.Tensor]:
    torch.manual_seed(0)
    return (torch.randn(2) for _ in range(count))


def _nested_calls() -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    a, b, c, d, e = _tensors(5)
    return {
        "plain": (([{"x": a}], Pair(b)), {}),
        "more": (([{"x": a}], Pair(b), c, d), {"mask": e}),
        "others": (([{"x": a}], Pair(b)), {"left": c, "right": d, "scale": 3.0}),
        "named": ((), {"pair": Pair(b), "images": [{"x": a}]}),
    }


@pytest.mark.parametrize("call", _nested_calls())
def test_built_modules_are_called_like_the_model(call: str) -> None:
    args, kwargs = _nested_calls()[call]
    module = _Nested()
    found = _built(module, *args, **kwargs)
    assert isinstance(found, fx.GraphModule)
    assert not found.training
    with torch.no_grad():
        expected = module(*args, **kwargs)
        for each in (found, _pickled(found), copy.deepcopy(found)):
            _assert_equal(each(*args, **kwargs), expected)
        if call == "plain":
            # Arguments may be given by name or position.
            _assert_equal(found(images=args[0], pair=args[1], scale=2.0), expected)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"scale": 3.0}, "argument 'scale' is fixed to 2.0"),
        ({"sizes": (1, 3)}, r"argument 'sizes' is fixed to \(1, 2\)"),
        ({"mask": torch.ones(2)}, "argument 'mask' is fixed to None"),
        ({"other": torch.ones(2)}, "argument 'others' is fixed to {}"),
    ],
)
def test_arguments_that_are_in_the_graph_cannot_change(more: dict[str, Any], words: str) -> None:
    args, kwargs = _nested_calls()["plain"]
    found = _built(_Nested(), *args, **kwargs)
    with pytest.raises(InputError, match=words):
        found(*args, **more)


class _Network(nn.Module):
    """With names that graph modules have for something else."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        self.graph = nn.Linear(4, 4)
        self.code = nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)
        self.head.weight = nn.Parameter(torch.randn(3, 4))

    def forward(self, input: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.stem(input).mean((2, 3))
        left, right = self.code(self.graph(x)).relu_().chunk(2, 1)
        return {"out": self.head(torch.cat([right, left], 1)), "zero": x.new_zeros(1)}


_IMAGE = (2, 3, 6, 6)


def test_weights_are_the_models_own() -> None:
    module = _Network()
    found = _built(module, torch.randn(_IMAGE))
    mine = dict(found.named_parameters()) | dict(found.named_buffers())
    for name, each in {**dict(module.named_parameters()), **dict(module.named_buffers())}.items():
        if name.endswith("num_batches_tracked"):
            continue
        first, dot, rest = name.partition(".")
        name = f"{first}_{dot}{rest}" if first in ("graph", "code") else name
        assert mine.pop(name) is each
    assert not mine


def _pickled(module: nn.Module) -> nn.Module:
    return pickle.loads(pickle.dumps(module))


def _saved(module: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def _exported_as_it_is(module: nn.Module) -> Any:
    return torch.export.export(module, (torch.randn(_IMAGE),), strict=False).module()


def _exported(module: nn.Module) -> Any:
    given = {"input": torch.randn(_IMAGE)}
    return torch.export.export(as_plain_module(module), (), given, strict=False).module()


def _compiled(module: nn.Module) -> Any:
    return torch.compile(module, backend="eager", fullgraph=True)


@pytest.mark.parametrize(
    "way", [_pickled, _saved, copy.deepcopy, _exported_as_it_is, _exported, _compiled]
)
@pytest.mark.filterwarnings("ignore")
def test_built_modules_go_through_torchs_own_tools(way: Callable[[nn.Module], Any]) -> None:
    module, image = _Network().eval(), torch.randn(_IMAGE)
    found = _built(module, image)
    with torch.no_grad():
        expected = module(image)
        other = way(found)
        if way is _exported:
            _assert_equal(other(input=image), expected)
        else:
            _assert_equal(other(image), expected)
        _assert_equal(found(image), expected)
    names = [each.removeprefix("_orig_mod.") for each in other.state_dict()]
    assert sorted(names) == sorted(found.state_dict())


def test_what_is_exported_gets_arguments_by_their_names() -> None:
    class Subtracts(nn.Module):
        def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return left - 2 * right

    module, x = Subtracts(), torch.randn(2)
    found = _built(module, left=x, right=x + 1)
    program = torch.export.export(
        as_plain_module(found), (), {"right": x + 1, "left": x}, strict=False
    )
    assert torch.equal(program.module()(right=x + 1, left=x), module(x, x + 1))


def test_copies_have_weights_of_their_own() -> None:
    module = _Network()
    found = _built(module, torch.randn(_IMAGE))
    other = copy.deepcopy(found)
    assert type(other).__name__ == type(found).__name__
    with torch.no_grad():
        other.get_parameter("head.weight").zero_()
    assert module.head.weight.abs().sum() > 0
    other.train()
    assert _pickled(other).training
    # Nor is their layout the model's.
    image = torch.randn(_IMAGE)
    last = copy.deepcopy(found).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    with torch.no_grad():
        result = last(image.to(memory_format=torch.channels_last))["out"]
        torch.testing.assert_close(result, module.eval()(image)["out"])


def test_other_weights_by_name() -> None:
    model = capture_of(nn.Linear(2, 2), torch.ones(2))
    other = {"weight": torch.eye(2).double(), "bias": torch.zeros(2).double()}
    given = torch.tensor([1.0, 2.0]).double()
    assert torch.equal(build_module(model, model.graph, weights=other)(given), given)


def test_types_that_operators_name_are_cast_with_the_weights() -> None:
    module: Any = Model(
        lambda m, x: m.linear(x.to(torch.float32)) + torch.zeros(3, dtype=torch.float32),
        linear=nn.Linear(3, 3),
    )
    x = torch.randn(2, 3)
    found = _built(module, x).double()
    with torch.no_grad():
        result = found(x.double())
        assert result.dtype == torch.float64
        expected = copy.deepcopy(module.linear).double()(x.double())
        assert torch.equal(result, expected)
        assert torch.equal(_pickled(found)(x.double()), expected)
        assert found.float()(x).dtype == torch.float32


def test_operators_that_may_not_overwrite_do_not() -> None:
    model = capture_of(Model(lambda m, x: (x * -1).relu_()), torch.ones(2))
    graph = model.graph
    (product,) = [number for number, node in graph.nodes.items() if node.op == "aten.mul"]
    form = structure_of((torch.ones(1), torch.ones(1)), [], "")
    both = Graph(
        nodes=graph.nodes, outputs=(*graph.outputs, Value(product)), next_number=graph.next_number
    )
    found = build_module(replace(model, form=replace(model.form, result=form)), both)
    relu, negative = found(torch.ones(2))
    assert (relu.tolist(), negative.tolist()) == ([0.0, 0.0], [-1.0, -1.0])
    alone = build_module(model, graph)
    assert "relu_" in str(alone.code)
    assert "relu_(" not in str(found.code)


# -- weights that rules make -----------------------------------------------------------------------


def _doubled(weight: torch.Tensor, *, by: float) -> torch.Tensor:
    assert weight.dtype == torch.float64
    return weight * by


def _permuted(weight: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    assert order.dtype == torch.int64
    return weight[order]


def _failing(weight: torch.Tensor) -> torch.Tensor:
    raise ValueError("no such luck")


def _of_another_shape(weight: torch.Tensor) -> torch.Tensor:
    return weight[:1]


@pytest.fixture
def constructors(monkeypatch: pytest.MonkeyPatch) -> None:
    # Those of the toolkit are registered when they are first asked for, and not again.
    registry.all_rules()
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    chain = Chain(steps=(Step(role="x", ops=frozenset()),))
    registry.register_rule(
        Rule(
            name="of-a-test",
            summary="",
            pattern=chain,
            refuses=lambda _graph, _match: "",
            rewrite=lambda _editor, _match: None,
            constructors={
                "doubled": _doubled,
                "permuted": _permuted,
                "failing": _failing,
                "of-another-shape": _of_another_shape,
            },
        )
    )


def _ordered() -> nn.Module:
    module = Model(lambda m, x: m.head(x)[..., m.order], head=nn.Linear(3, 2, bias=False))
    module.register_buffer("order", torch.tensor([1, 0]))
    return module


def _with_weight(model: CapturedModel, change: Callable[[Weight, Weight], Weight]) -> Graph:
    graph = model.graph
    editor = Editor(graph, OPERATORS.complete, "of-a-test")
    (head,) = [number for number, node in graph.nodes.items() if node.op == "aten.linear"]
    (order,) = [
        each for node in graph.nodes.values() for each in node.weights() if each.name == "order"
    ]
    weight = change(graph.nodes[head]["weight"], order)
    editor.replace(Value(head), Value(editor.add_like(graph.nodes[head], weight=weight)))
    return editor.finished()


@pytest.mark.usefixtures("constructors")
def test_weights_are_made_in_double_precision_and_cast() -> None:
    module: Any = _ordered()
    x = torch.randn(4, 3)
    model = capture_of(module, x)
    turned = TensorType(shape=(2, 3), stride=(1, 2), dtype="float32")

    def change(weight: Weight, order: Weight) -> Weight:
        third = Weight(type=weight.type, made_by="doubled", of=(weight,), options=(("by", 1 / 3),))
        return Weight(type=turned, made_by="permuted", of=(third, order))

    found = build_module(model, _with_weight(model, change))
    (name,) = [name for name, _ in found.named_parameters()]
    assert name == "permuted_head_weight"
    made = found.get_parameter(name)
    assert (made.dtype, made.stride()) == (torch.float32, (1, 2))
    assert torch.equal(made, (module.head.weight.detach().double() / 3)[[1, 0]].float())
    with torch.no_grad():
        torch.testing.assert_close(found(x) * 3, module.head(x))
    assert torch.equal(_pickled(found).get_parameter(name), made)


@pytest.mark.usefixtures("constructors")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("failing", "the weight constructor 'failing' failed: no such luck"),
        ("of-another-shape", r"'of-another-shape' returned \(1, 3\), but declares \(2, 3\)"),
        ("nobody", "nobody"),
        ("", "the model has no weight 'strange'"),
    ],
)
def test_constructors_that_fail_and_weights_that_are_not_there_are_named(
    name: str, words: str
) -> None:
    def made(weight: Weight, _: Weight) -> Weight:
        if not name:
            return Weight(type=contiguous((2, 3), "float32"), name="strange")
        return Weight(type=weight.type, made_by=name, of=(weight,))

    model = capture_of(_ordered(), torch.randn(4, 3))
    graph = _with_weight(model, made)
    with pytest.raises((ModelError, InputError), match=words):
        build_module(model, graph)
