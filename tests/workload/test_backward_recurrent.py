"""The backward pass of recurrent layers and cells, against loops that give autograd's gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.workload.formulas import Flop
from tests.workload.passes import total, trained
from tests.workload.scalars import Scalar, Tally, columns, dot, numbers, same, sum_of, tanh
from tests.workload.schema_calls import counted, spec

sizes = st.integers(1, 3)
MODES = {"relu": 0, "tanh": 1, "lstm": 2, "gru": 3}
GATES = {"relu": 1, "tanh": 1, "lstm": 4, "gru": 3}
LAYERS: dict[str, Any] = {
    "lstm": torch.nn.LSTM,
    "gru": torch.nn.GRU,
    "tanh": torch.nn.RNN,
    "relu": lambda *sizes, **options: torch.nn.RNN(*sizes, nonlinearity="relu", **options),
}


def random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# What each cell keeps of a number of its state, and its way back: the gradients of the gates'
# input halves, of their state halves, what goes to the old state directly, and the old memory's.


def keep_lstm(a: torch.Tensor, b: torch.Tensor, _h: Any, c: torch.Tensor) -> Any:
    i, f, g, o = (a + b).chunk(4, -1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    new = f * c + i * g
    return (i, f, g, o, c, new.tanh()), o * new.tanh(), new


def lstm_back(kept: Any, dh: Any, dc: Any) -> Any:
    i, f, g, o, c, t = kept
    do, through = dh * t, dh * o * (1 - t * t)
    dc = through if dc is None else through + dc
    di, df, dg = dc * g, dc * c, dc * i
    gates = [di * (1 - i) * i, df * (1 - f) * f, dg * (1 - g * g), do * (1 - o) * o]
    return gates, gates, None, dc * f


def keep_gru(a: torch.Tensor, b: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
    (ar, az, an), (br, bz, bn) = a.chunk(3, -1), b.chunk(3, -1)
    r, z = (ar + br).sigmoid(), (az + bz).sigmoid()
    n = (an + r * bn).tanh()
    return (r, z, n, h, bn), (h - n) * z + n, c


def gru_back(kept: Any, dh: Any, _dc: Any) -> Any:
    r, z, n, h, bn = kept
    rest = 1 - z
    dz, dn = dh * (h - n) * rest * z, dh * rest * (1 - n * n)
    dr = dn * bn * (1 - r) * r
    return [dr, dz, dn], [dr, dz, dn * r], dh * z, None


def keep_tanh(a: torch.Tensor, b: torch.Tensor, _h: Any, c: torch.Tensor) -> Any:
    h = (a + b).tanh()
    return (h,), h, c


def tanh_back(kept: Any, dh: Any, _dc: Any) -> Any:
    gate = dh * (1 - kept[0] * kept[0])
    return [gate], [gate], None, None


def keep_relu(a: torch.Tensor, b: torch.Tensor, _h: Any, c: torch.Tensor) -> Any:
    h = (a + b).relu()
    return (h,), h, c


def relu_back(kept: Any, dh: Any, _dc: Any) -> Any:
    gate = dh if kept[0] > 0 else Scalar(0.0, dh.tally)
    return [gate], [gate], None, None


CELLS: dict[str, Any] = {
    "lstm": (keep_lstm, lstm_back),
    "gru": (keep_gru, gru_back),
    "tanh": (keep_tanh, tanh_back),
    "relu": (keep_relu, relu_back),
}


def kept_by(layer: Any, keep: Any, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
    """The forward pass, in torch: for each step what the cell keeps, and the state before."""
    found = []
    for step in x:
        a = step @ layer.weight_ih_l0.T + (layer.bias_ih_l0 if layer.bias else 0)
        b = h @ layer.weight_hh_l0.T + (layer.bias_hh_l0 if layer.bias else 0)
        kept, new, c = keep(a, b, h, c)
        found.append((kept, h))
        h = new
    return found


def in_rows(found: Any, side: int) -> list[Any]:
    """One half's gradients of all numbers of the state, gate by gate as in the matrices."""
    return [each[side][gate] for gate in range(len(found[0][side])) for each in found]


def written_out(layer: Any, name: str, x: Any, states: Any, grads: Any, tally: Tally) -> Any:
    """Gradients of input, both matrices and both states."""
    keep, back = CELLS[name]
    ends: list[Any] = [None if each is None else numbers(each, tally) for each in grads]
    dy, dlast, dmemory = ends
    steps, batch, hidden = len(x), x.shape[1], layer.hidden_size
    forward = [
        ([numbers(each, tally) for each in kept], numbers(h, tally))
        for kept, h in kept_by(layer, keep, x, *states)
    ]
    u = columns(numbers(layer.weight_hh_l0, tally))
    of_input: list[Any] = []
    of_state: list[Any] = []
    first: list[Any] = []
    for n in range(batch):
        dh = dlast[n] if dlast is not None else None
        dc = dmemory[n] if dmemory is not None else [None] * hidden
        for step in reversed(range(steps)):
            kept, _h = forward[step]
            # The output's gradient, and what comes from the step behind it.
            pairs = zip(dh or [], dy[step][n], strict=dh is not None)
            dh = [a + b for a, b in pairs] if dh is not None else dy[step][n]
            found = [back([each[n][k] for each in kept], dh[k], dc[k]) for k in range(hidden)]
            count = GATES[name]
            halves = [
                [found[k][side][g] for g in range(count) for k in range(hidden)] for side in (0, 1)
            ]
            of_input.append((step, n, halves[0]))
            of_state.append((step, n, halves[1]))
            direct, dc = [each[2] for each in found], [each[3] for each in found]
            dh = [dot(halves[1], column) for column in u]
            dh = [a if b is None else a + b for a, b in zip(dh, direct, strict=True)]
        first.append((dh, dc))
    vectors, w = numbers(x, tally), columns(numbers(layer.weight_ih_l0, tally))
    dx = {(step, n): [dot(row, column) for column in w] for step, n, row in of_input}
    inputs, gates = [vectors[s][n] for s, n, _ in of_input], [row for *_, row in of_input]
    dw = [[dot(g, column) for column in columns(inputs)] for g in columns(gates)]
    before, last = [forward[s][1][n] for s, n, _ in of_state], [row for *_, row in of_state]
    du = [[dot(g, column) for column in columns(before)] for g in columns(last)]
    if layer.bias:
        for column in columns(gates):
            sum_of(column)
        # Of the last gate both halves differ.
        for column in columns(last)[2 * hidden :] if name == "gru" else []:
            sum_of(column)
    return [[dx[s, n] for n in range(batch)] for s in range(steps)], dw, du, first


def of_formula(name: str, layer: Any, shape: tuple[int, ...], has: tuple[bool, bool]) -> Flop:
    """The kernel for CPUs, called for each kind of layer by the number it has for it."""
    steps, batch, inputs = shape
    hidden = layer.hidden_size
    state, y = spec(batch, hidden), spec(steps, batch, hidden)
    rows = GATES[name] * hidden
    bias = spec(rows)
    operands = {"input": spec(*shape), "weight1": spec(rows, inputs), "weight2": spec(rows, hidden)}
    operands |= {"weight3": bias, "weight4": bias, "hx_": state, "cx_tmp": state, "hy_": state}
    operands |= {"cy_": state, "grad_output": y, "workspace": spec(64, kind="uint8")}
    if has[0]:
        operands["grad_hy"] = state
    if has[1]:
        operands["grad_cy"] = state
    given: dict[str, Any] = {"mode": MODES[name], "hidden_size": hidden, "has_biases": layer.bias}
    given |= {"num_layers": 1, "train": True, "bidirectional": False, "batch_sizes": []}
    return counted(
        "mkldnn_rnn_layer_backward",
        operands["input"],
        **{**operands, **given, "reverse": False, "batch_first": False},
        ignored={"output"},
    )


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(sorted(MODES)),
    shape=st.tuples(sizes, sizes, sizes, sizes),
    bias=st.booleans(),
    has=st.tuples(st.booleans(), st.booleans()),
)
def test_layers(name: str, shape: tuple[int, ...], bias: bool, has: tuple[bool, bool]) -> None:
    """Every operation of the way back through time, with gradients of last states or without."""
    steps, batch, inputs, hidden = shape
    has = (has[0], has[1] and name == "lstm")
    layer = LAYERS[name](inputs, hidden, bias=bias)
    x, h, c = random(1, steps, batch, inputs), random(2, batch, hidden), random(3, batch, hidden)
    dy, dh, dc = random(4, steps, batch, hidden), random(5, batch, hidden), random(6, batch, hidden)
    leaves = [each[None].requires_grad_() for each in (h, c)]
    x_leaf = x.clone().requires_grad_()
    y, last = layer(x_leaf, tuple(leaves) if name == "lstm" else leaves[0])
    hy, *memory = last if name == "lstm" else (last,)
    ends: list[Any] = [(y, dy), *([(hy[0], dh)] if has[0] else [])]
    ends += [(memory[0][0], dc)] if has[1] else []
    torch.autograd.backward([each for each, _ in ends], [each for _, each in ends])
    tally = Tally()
    with torch.no_grad():
        grads = dy, dh if has[0] else None, dc if has[1] else None
        dx, dw, du, first = written_out(layer, name, x, (h, c), grads, tally)
    assert x_leaf.grad is not None
    assert same(dx, x_leaf.grad, 1e-3)
    assert same(dw, layer.weight_ih_l0.grad, 1e-3)
    assert same(du, layer.weight_hh_l0.grad, 1e-3)
    assert leaves[0].grad is not None
    assert same([each for each, _ in first], leaves[0].grad, 1e-3)
    found = of_formula(name, layer, (steps, batch, inputs), has)
    assert found.flop == tally.flop
    # Twice the products of the forward pass.
    products = steps * batch * GATES[name] * hidden * (inputs + hidden)
    assert found.macs == 2 * products
    assert 2 * found.macs <= found.min_flop <= found.flop


def test_training_an_lstm_takes_three_times_its_products() -> None:
    """5 steps of 2 sequences, 8 to 6 in both directions, then 12 to 6."""
    layer = torch.nn.LSTM(8, 6, 2, bidirectional=True)
    captured = trained(layer, (5, 2, 8), loss=lambda output: output[0].sum())
    forward = 5 * 2 * 2 * 4 * 6 * ((8 + 6) + (12 + 6))
    back = [each for each in captured.records if each.op == "aten.mkldnn_rnn_layer_backward"]
    assert len(back) == 4
    assert sum(each.work.macs or 0 for each in back) == 2 * forward
    assert total(captured).macs == 3 * forward
    assert {each.type for each in back} == {"recurrent"}


@pytest.mark.parametrize("name", ["lstm", "gru"])
@pytest.mark.parametrize("has_bias", [True, False])
def test_fused_cells(name: str, has_bias: bool) -> None:
    """A cell alone, of 3 sequences and 2 numbers: as in a layer, and tanh(c) taken anew."""
    batch, hidden = 3, 2
    rows, state = GATES[name] * hidden, spec(batch, hidden)
    keep, back = CELLS[name]
    a, b = random(1, batch, rows), random(2, batch, rows)
    h, c = random(3, batch, hidden), random(4, batch, hidden)
    dh, dc = random(5, batch, hidden), random(6, batch, hidden)
    leaves = [each.requires_grad_() for each in (a, b, h, c)]
    kept, new, memory = keep(*leaves)
    ends = [(new, dh), *([(memory, dc)] if name == "lstm" else [])]
    torch.autograd.backward([each for each, _ in ends], [each for _, each in ends])
    tally = Tally()
    numbered = [numbers(each.detach(), tally) for each in kept]
    of_h, of_c = numbers(dh, tally), numbers(dc, tally) if name == "lstm" else None
    rows_of: list[Any] = []
    for n in range(batch):
        found = [
            back(
                again(numbered, name, n, k, memory.detach()),
                *(of_h[n][k], of_c[n][k] if of_c is not None else None),
            )
            for k in range(hidden)
        ]
        rows_of.append([in_rows(found, side) for side in (0, 1)])
    halves = columns(rows_of)
    for half, leaf in zip(halves, leaves, strict=False):
        assert leaf.grad is not None
        assert same(half, leaf.grad, 1e-3)
    if has_bias:
        for column in columns(halves[0]) + (
            columns(halves[1])[2 * hidden :] if name == "gru" else []
        ):
            sum_of(column)
    if name == "lstm":
        options: dict[str, Any] = {"grad_hy": state, "grad_cy": state, "cx": state, "cy": state}
        options |= {"workspace": spec(batch, rows), "has_bias": has_bias}
        for operator in ("_thnn_fused_lstm_cell_backward", "_thnn_fused_lstm_cell_backward_impl"):
            assert counted(operator, [], **options).flop == tally.flop
        return
    options = {"grad_hy": state, "workspace": spec(batch, 5 * hidden), "has_bias": has_bias}
    assert counted("_thnn_fused_gru_cell_backward", [], **options).flop == tally.flop


def again(kept: Any, name: str, n: int, k: int, memory: torch.Tensor) -> Any:
    """What a cell has kept: not tanh(c), but c."""
    own = [each[n][k] for each in kept]
    if name == "lstm":
        own[-1] = tanh(Scalar(float(memory[n, k]), own[0].tally))
    return own


def test_gradients_that_are_missing_by_hand() -> None:
    """Without dc an addition less; without dh no output gate and no tanh: 13 operations."""
    state = spec(3, 2)
    given: dict[str, Any] = {"cx": state, "cy": state, "workspace": spec(3, 8), "has_bias": False}
    name = "_thnn_fused_lstm_cell_backward_impl"
    assert counted(name, [], grad_hy=state, grad_cy=state, **given).flop == 6 * (22 + 8)
    assert counted(name, [], grad_hy=state, **given).flop == 6 * (21 + 8)
    assert counted(name, [], grad_cy=state, **given).flop == 6 * 13


def cudnn(mask: tuple[bool, ...], **options: Any) -> Flop:
    """5 steps of 2 sequences, 8 to 6, two LSTMs in both directions."""
    weights = [spec(24, 8), spec(24, 6), spec(24), spec(24)]
    given: dict[str, Any] = {"input": spec(5, 2, 8), "weight": weights, "weight_stride0": 4}
    given |= {"weight_buf": spec(1000), "hx": spec(4, 2, 6), "cx": spec(4, 2, 6), "mode": 2}
    given |= {"grad_output": spec(5, 2, 12), "hidden_size": 6, "proj_size": 0, "num_layers": 2}
    given |= {"batch_first": False, "dropout": 0.0, "train": True, "bidirectional": True}
    given |= {"batch_sizes": [], "reserve": spec(100), "output_mask": mask, **options}
    return counted("_cudnn_rnn_backward", [], **given, ignored={"output"})


def test_cudnn_computes_what_is_asked_for() -> None:
    """All: twice the products. Without weights: once. Without the input: not its first product."""
    of_input, of_state = 5 * 2 * 2 * 24 * (8 + 12), 2 * 5 * 2 * 2 * 24 * 6
    first = 5 * 2 * 2 * 24 * 8
    every = cudnn((True, True, True, True))
    assert every.macs == 2 * (of_input + of_state)
    assert cudnn((True, True, True, False)).macs == of_input + of_state
    assert cudnn((False, True, True, True)).macs == 2 * (of_input + of_state) - first
    # The first step's product for the state that was given, of two layers in two directions.
    rest = cudnn((True, False, False, True))
    assert rest.macs == every.macs
    assert every.min_flop - rest.min_flop == 2 * 2 * 2 * 2 * 24 * 6
    assert every.elements == {"weight_buf": 0}


def test_bytes_inside_by_hand() -> None:
    """2 steps of 3 sequences, 5 cells. A cell: 7 tensors written and read, dc three times more;
    gradients of 4 gates written, and read for x, h, both matrices and biases. Between the steps:
    dh and dc, written and read, and 100 weights and 20 biases again.
    """
    layer = torch.nn.LSTM(8, 5)
    found = of_formula("lstm", layer, (2, 3, 8), (False, False))
    cells = 2 * 15
    assert found.internal_bytes == 4 * (cells * (17 + 4 * 6) + 2 * 15 + 2 * 15 + 120)
