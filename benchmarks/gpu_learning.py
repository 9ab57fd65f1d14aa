"""Learns the constants of predictions on GPUs from public measurements.

    python benchmarks/gpu_learning.py [FOLDER] > roofline/latency/gpu/learned.json

FOLDER has public measurements as CSV files, `../shared/measurements` unless given. Constants have
priors around values of physics, and every chip counts alike. `gpu_accuracy.py` calls `learn` with
the rows of all chips but one, so that no constant follows from the chip that is judged.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import gpu_rows
import numpy as np
from gpu_rows import Measured, Trace, Whole, chip
from scipy.optimize import least_squares

from roofline.latency.gpu.chips import FLOAT8_BLOCK
from roofline.latency.gpu.gemm import constants_of
from roofline.latency.gpu.kernels import ATTENTION, CONVOLUTIONS, DEPTHWISE, GEMMS
from roofline.latency.gpu.learned import Group, KindConstants, Learned
from roofline.latency.gpu.times import Table, seconds

ROWS = 1500
"""Measurements of one kind and chip that constants are fitted to."""

GEMM_ROWS = 500
"""The same for products, of which each has many candidates."""

NOISE = 0.06
"""Deviation of the logarithm of whole runs that a fit aims at."""

OPERATOR_NOISE = 0.2
"""The same of single operators."""

BASE = Learned(
    streaming={"base": 0.75, "growth": 0.07},
    kinds={"other": KindConstants()},
    compiled={"other": KindConstants()},
    softmax={
        "again": 1.7,
        "half_missed": 0.7,
        "steepness": 4.0,
        "bytes_per_cycle": 12.0,
        "warp": 0.5,
    },
    layer_norm={
        "again": 1.0,
        "half_missed": 0.8,
        "steepness": 4.0,
        "bytes_per_cycle": 15.0,
    },
    convolution={
        "power": 1.2,
        "prologue": 20.0,
        "waves": 0.5,
        "direct": 0.8,
        "winograd 2": 0.7,
        "winograd 4": 0.6,
        "transform": 1.0,
        "choice": 6.0,
    },
    gemm={},
    shared={"norm": 4.0, "start_s": 4e-6, "latency_s": 4e-7},
    compiled_shared={"norm": 4.0, "start_s": 4e-6, "latency_s": 4e-7},
    dispatch_s=1e-5,
    groups=(),
)
"""Where fits start."""

HOST_S = {
    "elementwise": 1e-5,
    "softmax": 2e-5,
    "layer norm": 5e-5,
    "convolution": 2e-4,
    "float32 linear": 6e-5,
    "float32 batched": 4.2e-5,
}
"""Time of the host per call that the source of operators includes; learned, not used elsewhere."""

_GEMM: Priors = {
    "start_s": (3e-6, 0.15),
    "wave_s": (6e-7, 0.5),
    "split_s": (1.5e-6, 0.7),
    "half_filled": (3000.0, 0.7),
    "small_tile": (8.0, 0.5),
    "prologue": (30.0, 0.7),
    "quantized": (0.5, 0.17),
    "dram": (0.8, 0.1),
    "l2": (0.6, 0.5),
    "split_traffic": (1.0, 0.7),
    "norm": (3.0, 0.4),
    "best": (0.95, 0.08),
    "power": (1.0, 0.05),
}
_GEMM_NARROW: Priors = {**_GEMM, "loaded": (256.0, 0.7)}
_GEMM_FLOAT32: Priors = {
    **_GEMM,
    "aligned": (1.1, 0.1),
    "wide": (1.1, 0.07),
    "batched": (0.9, 0.2),
    "deep": (0.37, 0.5),
    "deep_steepness": (2.0, 0.4),
    # At most the other three sectors of a line are fetched again, or all four.
    "again_left": (3.0, 0.08),
    "again_right": (4.0, 0.08),
    "rows": (0.37, 0.7),
    "rows_steepness": (1.35, 0.3),
    "tall": (0.2, 0.7),
    "assumed_dram": (0.9, 0.1),
    "small_preferred": (0.05, 0.7),
    "temperature": (0.015, 0.2),
}

Place = Callable[[Mapping[str, float]], Learned]
Priors = Mapping[str, float | tuple[float, float]]
"""Values where fits start, with deviations of their logarithms (0.7 where not given)."""


def fitted(start: Priors, rows: Sequence[Measured], place: Place) -> dict[str, float]:
    """Return constants that minimize the error of logarithms, with priors.

    ``host_s`` among them is the host's time per call, of which the source shows the longer one.
    """
    priors = {name: of if isinstance(of, tuple) else (of, 0.7) for name, of in start.items()}
    first = np.log([value for value, _ in priors.values()])
    width = np.array([each for _, each in priors.values()])

    def residuals(values: np.ndarray) -> np.ndarray:
        constants = dict(zip(priors, map(float, np.exp(values)), strict=True))
        learned = place(constants)
        parts = [(values - first) / width]
        for each in rows:
            found_s = with_host(each, learned, constants.get("host_s", 0.0))
            weight = row_weights(each) / OPERATOR_NOISE
            parts.append(weight * np.log(found_s / each.time_s))
        return np.concatenate(parts)

    bounds = first - 4 * width, first + 4 * width
    solved = least_squares(
        residuals, first, loss="soft_l1", max_nfev=25, x_scale=width, bounds=bounds
    )
    return dict(zip(priors, map(float, np.exp(solved.x)), strict=True))


def row_weights(rows: Measured) -> np.ndarray:
    """Return weights, half by time, half by row; every chip counts like 300 rows at most."""
    by_time = rows.time_s**0.7
    weight = 0.5 + 0.5 * np.minimum(by_time / by_time.mean(), 20)
    return np.sqrt(min(300, len(weight)) * weight / weight.sum())


def with_host(rows: Measured, learned: Learned, host_s: float) -> np.ndarray:
    """Return predicted seconds of single calls, which include the host's part."""
    found_s = seconds(rows.table, chip(rows.device)[1], learned)
    # Products wait for a queue; other kernels follow the host's work.
    return (found_s**4 + host_s**4) ** 0.25 if "gemm" in rows.kind else found_s + host_s


def learn_operators(
    rows: Sequence[Measured], base: Learned = BASE
) -> tuple[Learned, dict[str, float]]:
    """Return constants from single operators, and the host's time per call in their source."""
    learned, host_s = base, dict(HOST_S)
    for kind, name in (
        ("elementwise", "streaming"),
        ("softmax", "softmax"),
        ("layer norm", "layer_norm"),
        ("convolution", "convolution"),
    ):
        chosen = [
            each.sample(ROWS) for each in rows if each.kind == kind and each.type == "float32"
        ]
        if not chosen:
            continue

        def place(of: Mapping[str, float], name: str = name, known: Learned = learned) -> Learned:
            constants = {key: value for key, value in of.items() if key != "host_s"}
            return replace(known, **{name: constants})

        start = {**getattr(BASE, name), "host_s": HOST_S[kind]}
        found = fitted(start, chosen, place)
        host_s[kind] = found["host_s"]
        learned = place(found)
    return learned, host_s


def learn_gemms(rows: Sequence[Measured], base: Learned) -> tuple[Learned, dict[str, float]]:
    """Return constants of matrix products by type, and the host's time per call."""
    learned, host_s = base, {}
    by_name: dict[str, list[Measured]] = {}
    for each in rows:
        if "gemm" in each.kind:
            by_name.setdefault(constants_of(each.kind, each.type), []).append(each)
    for name, chosen in sorted(by_name.items()):
        is_float32 = name.startswith("float32")

        def place(of: Mapping[str, float], name: str = name, known: Learned = learned) -> Learned:
            constants = {key: value for key, value in of.items() if key != "host_s"}
            return replace(known, gemm={**known.gemm, name: constants})

        start = dict(_GEMM_FLOAT32 if is_float32 else _GEMM_NARROW)
        if is_float32:
            start["host_s"] = (HOST_S[name], 0.3)
        found = fitted(start, [each.sample(GEMM_ROWS) for each in chosen], place)
        host_s[name] = found.get("host_s", 0.0)
        learned = place(found)
    return learned, host_s


# -- whole runs ------------------------------------------------------------------------------------

_OF_PRODUCTS = ("memory", "share", "prologue", "idle", "layout")
_CONSTANTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(CONVOLUTIONS, _OF_PRODUCTS),
    **dict.fromkeys(ATTENTION, ("memory", "share", "element")),
    **dict.fromkeys(DEPTHWISE, ("memory", "element", "prologue", "window")),
    **dict.fromkeys(("softmax", "layer norm"), ("memory",)),
    **dict.fromkeys(GEMMS, ()),
}
"""Constants of kinds that whole runs can tell; of others, memory and instructions."""

INDEXED = ("broadcast", "strided pointwise", "transposing copy")
"""Kinds of one kernel of torch, which computes an index for each element."""

_PRIORS: dict[str, tuple[float, float, float, float]] = {
    # value, deviation of its logarithm, lowest, highest
    "memory": (1.0, 0.15, 0.3, 1.12),
    "share": (0.85, 0.25, 0.2, 1.2),
    "prologue": (16.0, 1.0, 1.0, 200.0),
    "idle": (16.0, 1.0, 1.0, 200.0),
    "element": (20.0, 0.7, 3.0, 300.0),
    "window": (0.0, 0.3, -2.0, 2.0),
    "layout": (2.0, 1.0, 0.2, 8.0),
    "norm": (4.0, 0.5, 2.0, 12.0),
    "start_s": (4e-6, 0.4, 2e-6, 5e-6),
    "latency_s": (4e-7, 1.0, 1e-7, 2e-6),
}


@dataclass
class Runs:
    """Whole runs on one device: their kernels by kind."""

    wholes: Sequence[Whole]

    def __post_init__(self) -> None:
        self.chip = chip(self.wholes[0].device)[1]
        self.log_s = np.log([each.time_s for each in self.wholes])
        found: dict[str, tuple[list[Any], list[int], list[int]]] = {}
        for place, whole in enumerate(self.wholes):
            for kernel, calls in zip(whole.kernels, whole.calls, strict=True):
                known, places, counts = found.setdefault(kernel.kind, ([], [], []))
                known.append(kernel)
                places.append(place)
                counts.append(calls)
        self.kinds = {
            kind: (Table(kernels), np.array(places), np.array(calls, dtype=float))
            for kind, (kernels, places, calls) in found.items()
        }

    def of_kind(self, kind: str, learned: Learned, *, compiled: bool) -> np.ndarray:
        """Return the seconds of a kind in each run."""
        if kind not in self.kinds:
            return np.zeros(len(self.wholes))
        table, places, calls = self.kinds[kind]
        times = seconds(table, self.chip, learned, compiled=compiled)
        return np.bincount(places, calls * times, len(self.wholes))

    def seconds(self, learned: Learned, *, compiled: bool = False) -> np.ndarray:
        """Return the seconds of each run."""
        kinds = (self.of_kind(kind, learned, compiled=compiled) for kind in self.kinds)
        return np.asarray(sum(kinds))


def learn_whole(
    runs: Sequence[Runs],
    base: Learned,
    rows: Sequence[Measured] = (),
    *,
    compiled: bool = False,
) -> Learned:
    """Return constants of kinds from whole runs under AMP, by their sums, and from operators."""
    rows = [each for each in rows if each.kind not in GEMMS]
    kinds = sorted({kind for each in runs for kind in each.kinds} | {each.kind for each in rows})
    indexed = tuple(kind for kind in INDEXED if kind in kinds)
    keys = [
        ((kind,), name)
        for kind in kinds
        for name in _CONSTANTS.get(kind, ("memory", "element"))
        if (kind, name) not in [(each, "element") for each in indexed]
    ]
    keys += [(indexed, "element")] if indexed else []
    keys += [(("",), name) for name in ("norm", "start_s", "latency_s")]

    def scaled(name: str, value: float) -> float:
        return value if name == "window" else float(np.log(value))

    priors = [_PRIORS[name] for _, name in keys]
    columns = zip(keys, priors, strict=True)
    first, low, high = np.array(
        [[scaled(name, prior[at]) for at in (0, 2, 3)] for (_, name), prior in columns]
    ).T
    width = np.array([each[1] for each in priors])

    def place(values: np.ndarray) -> Learned:
        by_kind: dict[str, dict[str, float]] = {}
        for (of, name), value in zip(keys, values, strict=True):
            plain = float(value if name == "window" else np.exp(value))
            for kind in of:
                by_kind.setdefault(kind, {})[name] = plain
        shared = by_kind.pop("")
        known = base.compiled if compiled else base.kinds
        found = {kind: replace(KindConstants(), **of) for kind, of in by_kind.items()}
        merged = {**known, **found}
        if compiled:
            return replace(base, compiled=merged, compiled_shared=shared)
        return replace(base, kinds=merged, shared=shared)

    def parts(values: np.ndarray) -> list[dict[str, np.ndarray]]:
        learned = place(values)
        return [
            {kind: each.of_kind(kind, learned, compiled=compiled) for kind in each.kinds}
            for each in runs
        ]

    def of_rows(each: Measured, learned: Learned) -> np.ndarray:
        weight = row_weights(each) / OPERATOR_NOISE
        return weight * np.log(seconds(each.table, chip(each.device)[1], learned) / each.time_s)

    def residuals(values: np.ndarray) -> np.ndarray:
        learned = place(values)
        sums = [np.asarray(sum(each.values())) for each in parts(values)]
        errors = [(np.log(s) - each.log_s) / NOISE for s, each in zip(sums, runs, strict=True)]
        errors += [of_rows(each, learned) for each in rows]
        return np.concatenate([(values - first) / width, *errors])

    def slopes(values: np.ndarray) -> np.ndarray:
        # A constant of one kind changes the time of that kind alone.
        before, step = parts(values), 1e-4
        blocks = [np.diag(1 / width)]
        for each, by_kind in zip(runs, before, strict=True):
            whole_s = np.asarray(sum(by_kind.values()))
            block = np.zeros((len(whole_s), len(keys)))
            for column, (of, _) in enumerate(keys):
                changed = list(by_kind) if of == ("",) else [kind for kind in of if kind in by_kind]
                if not changed:
                    continue
                moved = values.copy()
                moved[column] += step
                learned = place(moved)
                more_s = sum(
                    each.of_kind(name, learned, compiled=compiled) - by_kind[name]
                    for name in changed
                )
                block[:, column] = more_s / step / whole_s / NOISE
            blocks.append(block)
        for each in rows:
            known = of_rows(each, place(values))
            block = np.zeros((len(known), len(keys)))
            for column, (of, _) in enumerate(keys):
                if each.kind in of or of == ("",):
                    moved = values.copy()
                    moved[column] += step
                    block[:, column] = (of_rows(each, place(moved)) - known) / step
            blocks.append(block)
        return np.vstack(blocks)

    solved = least_squares(
        residuals,
        np.clip(first, low + 1e-6, high - 1e-6),
        jac=slopes,  # pyright: ignore[reportArgumentType]
        bounds=(low, high),
        loss="soft_l1",
        max_nfev=25,
    )
    return place(solved.x)


# -- everything ------------------------------------------------------------------------------------

Z_80 = 1.2815515655446004
HALF = ("float16", "bfloat16")
FLOATS = ("float32", "float16", "bfloat16", "float64")
PLAIN = (*FLOATS, "int64", "int32", "int16", "int8", "uint8", "bool")

OPERATORS = "sitar-lab/NeuSight @ 6945927d, MIT"
PRODUCTS = "ai-dynamo/aiconfigurator @ 095f58a5, Apache-2.0"
TRACES = "AMD-AGI/TraceLens @ 171dd747, MIT"
VISION = "huggingface/pytorch-image-models @ aa4b5850, Apache-2.0"


@dataclass(frozen=True)
class Data:
    """All measurements to learn from."""

    rows: Sequence[Measured]
    eager: Sequence[Sequence[Whole]] = ()
    compiled: Sequence[Sequence[Whole]] = ()
    language: Sequence[Whole] = ()
    traces: Sequence[Trace] = ()

    def without(self, left_out: str) -> Data:
        """Return the measurements of all other chips."""
        eager, compiled = (
            [of for of in each if of and chip(of[0].device)[0] != left_out]
            for each in (self.eager, self.compiled)
        )
        return Data(
            [each for each in self.rows if each.chip != left_out],
            eager,
            compiled,
            [each for each in self.language if chip(each.device)[0] != left_out],
            [each for each in self.traces if chip(each.whole.device)[0] != left_out],
        )

    @property
    def trace_rows(self) -> list[Measured]:
        """Operators of all traces."""
        return [rows for each in self.traces for rows in each.rows]

    @property
    def chips(self) -> set[str]:
        """Chips of all measurements."""
        devices = [each[0].device for of in (self.eager, self.compiled) for each in of if each]
        devices += [each.device for each in (*self.rows, *self.language)]
        devices += [each.whole.device for each in self.traces]
        return {chip(device)[0] for device in devices}


def scale(errors: Sequence[np.ndarray]) -> float:
    """Return the deviation of which 80 % intervals contain 80 % of errors; chips count alike."""
    flat = np.abs(np.concatenate(errors))
    weight = np.concatenate([np.full(len(each), 1 / len(each)) for each in errors])
    order = np.argsort(flat)
    reached = np.cumsum(weight[order]) / weight.sum()
    return float(flat[order][np.searchsorted(reached, 0.8)] / Z_80)


def _folds(rows: Sequence[Measured]) -> list[tuple[list[Measured], list[Measured]]]:
    """Return rows to learn from and to judge: by chip, of a single one by shape."""
    chips = sorted({each.chip for each in rows})
    if len(chips) > 1:
        return [
            ([each for each in rows if each.chip != name], [e for e in rows if e.chip == name])
            for name in chips
        ]
    folds: list[tuple[list[Measured], list[Measured]]] = []
    for fold in range(5):
        parts: tuple[list[Measured], list[Measured]] = ([], [])
        for each in rows:
            is_out = np.array([hash((k.m, k.n, k.k, k.elements)) % 5 == fold for k in each.kernels])
            for part, places in zip(parts, (~is_out, is_out), strict=True):
                part.append(each.at(np.flatnonzero(places)))
        folds.append(parts)
    return folds


Learn = Callable[[Sequence[Measured], Learned], tuple[Learned, dict[str, float]]]


def deviation(rows: Sequence[Measured], learn: Learn, base: Learned) -> float:
    """Return the deviation of predictions for chips left out."""
    errors: list[np.ndarray] = []
    for known, judged in _folds(rows):
        learned, host_s = learn(known, base)
        errors += [
            np.log(with_host(each, learned, host_of(each, host_s)) / each.time_s)
            for each in (one.sample(ROWS) for one in judged)
        ]
    return scale(errors)


def host_of(rows: Measured, host_s: Mapping[str, float]) -> float:
    """Return the host's time per call in the source of rows."""
    name = constants_of(rows.kind, rows.type) if "gemm" in rows.kind else rows.kind
    return host_s.get(name, 0.0)


_GROUPS: tuple[tuple[str, tuple[str, ...], tuple[str, ...], str], ...] = (
    ("float32 products", GEMMS, ("float32",), OPERATORS),
    ("16-bit products", ("gemm",), ("bfloat16", "float16"), PRODUCTS),
    ("float8 products", ("gemm",), ("float8_e4m3fn",), PRODUCTS),
    ("float8 products with block scales", ("gemm",), (FLOAT8_BLOCK,), PRODUCTS),
    ("float32 convolutions", CONVOLUTIONS, ("float32",), OPERATORS),
    ("softmax", ("softmax",), ("float32",), OPERATORS),
    ("layer norms", ("layer norm",), ("float32",), OPERATORS),
    ("elementwise operators", ("pointwise", "gelu", "add", "multiply"), ("float32",), OPERATORS),
)
"""Subjects, kinds and types of single operators, with their source."""

_BOUND = ("float8 products", "float8 products with block scales")


def learn(data: Data) -> Learned:
    """Return everything learned from measurements, with deviations of what was left out."""
    operators = [each for each in data.rows if "gemm" not in each.kind]
    learned, host_s = learn_operators(operators)
    learned, _ = learn_gemms(data.rows, learned)
    groups: list[Group] = []
    for subject, kinds, types, source in _GROUPS:
        name = {"pointwise": "elementwise"}.get(kinds[0], kinds[0])
        chosen = [
            each
            for each in data.rows
            if each.type in types and each.kind in (*kinds, name) and each.kind != "gelu"
        ]
        if chosen:
            fit = learn_gemms if "gemm" in kinds[0] else learn_operators
            groups.append(
                Group(
                    subject=subject,
                    kinds=kinds,
                    types=types,
                    chips=len({each.chip for each in chosen}),
                    rows=sum(len(each.kernels) for each in chosen),
                    deviation=deviation(chosen, fit, learned),
                    far_deviation=0.0,
                    architectures=tuple(
                        sorted({chip(each.device)[1].architecture for each in chosen})
                    ),
                    source=source,
                    is_bound=subject in _BOUND,
                )
            )
    learned = learn_narrow(data, learned)
    alone = learn_narrow(replace(data, traces=()), learned)
    if compiled := [Runs(each) for each in data.compiled if each]:
        learned = learn_whole(compiled, learned, compiled=True)
    learned = replace(learned, dispatch_s=host_s["elementwise"])
    wholes, single = _left_out_errors(data, learned)
    whole = scale(wholes) if wholes else 0.0
    eager = [each[0].device for each in data.eager if each]
    traced = [each.whole.device for each in data.traces]
    runs = sum(map(len, data.eager))
    units = (*CONVOLUTIONS, *ATTENTION, *DEPTHWISE)
    # Traces have few convolutions: their architecture counts as another one.
    for subject, kinds, types, known in (
        ("convolutions and attention of models under AMP", units, (*HALF, "tf32"), eager),
        ("batched 16-bit products", ("batched gemm",), HALF, traced),
        (
            "float32 attention and depthwise convolutions, from 16 bits",
            (*ATTENTION, *DEPTHWISE),
            ("float32",),
            [],
        ),
        ("other operators", (), PLAIN, eager + traced),
    ):
        errors = [
            error
            for (kind, dtype), error in single
            if dtype in types and (kind in kinds if kinds else kind not in (*units, *GEMMS))
        ]
        is_known = bool(errors) and known is not eager
        groups.append(
            Group(
                subject=subject,
                kinds=kinds,
                types=types,
                chips=len({chip(each)[0] for each in known or eager}),
                rows=sum(map(len, errors)) + (0 if known is traced else runs),
                # Sums of operators were measured: one operator errs more than their sum.
                deviation=max(2 * whole, scale([np.concatenate(errors)]) if is_known else 0.0),
                far_deviation=0.0,
                architectures=tuple(sorted({chip(each)[1].architecture for each in known})),
                source=f"{VISION}; {TRACES}",
            )
        )
    learned = replace(learned, groups=tuple(groups))
    far = _far_deviations(data, replace(alone, groups=learned.groups))
    return replace(
        learned,
        groups=tuple(
            replace(each, far_deviation=max(2 * each.deviation, far.get(each.subject, 0.0)))
            for each in groups
        ),
        pass_deviation=whole,
        pass_far_deviation=max(2 * whole, far.get("", 0.0)),
    )


def learn_narrow(data: Data, base: Learned) -> Learned:
    """Return constants of 16-bit products, and of kinds, from whole runs and traces."""
    rows = [each for each in (*data.rows, *data.trace_rows) if each.type in HALF]
    learned, _ = learn_gemms(rows, base)
    eager = [Runs(each) for each in data.eager if each]
    return learn_whole(eager, learned, data.trace_rows) if eager else learned


def _far_deviations(data: Data, alone: Learned) -> dict[str, float]:
    """Return deviations of traces by subject, and of their sums, on constants without traces."""
    found: dict[str, list[np.ndarray]] = {}
    for trace in data.traces:
        for each in trace.rows:
            profile = chip(each.device)[1]
            group = alone.group(each.kind, each.type, profile.architecture)
            if group is not None and group.source.endswith(TRACES):
                error = np.log(seconds(each.table, profile, alone) / each.time_s)
                found.setdefault(group.subject, []).append(error)
        error = np.log(Runs([trace.whole]).seconds(alone) / trace.whole.time_s)
        found.setdefault("", []).append(error)
    return {name: scale([np.concatenate(errors)]) for name, errors in found.items()}


def whole_s(wholes: Sequence[Whole], learned: Learned) -> np.ndarray:
    """Return predicted seconds of whole runs on one device, at least the host's."""
    calls = np.array([sum(each.calls) for each in wholes])
    return np.maximum(Runs(wholes).seconds(learned), calls * learned.dispatch_s)


def _left_out_errors(
    data: Data, learned: Learned
) -> tuple[list[np.ndarray], list[tuple[tuple[str, str], np.ndarray]]]:
    """Return logarithmic errors of whole runs, and of operators of traces by kind and type.

    Language models are left out by chip; vision models by family, constants being learned again
    without each fifth; traces one by one.
    """
    found: list[np.ndarray] = []
    for name in sorted({chip(each.device)[0] for each in data.language}):
        rest = data.without(name)
        known, _ = learn_operators([each for each in rest.rows if "gemm" not in each.kind])
        known, _ = learn_gemms([each for each in rest.rows if each.type == "float32"], known)
        judged = [each for each in data.language if chip(each.device)[0] == name]
        found.append(np.log(whole_s(judged, known) / [each.time_s for each in judged]))
    traced: list[float] = []
    single: list[tuple[tuple[str, str], np.ndarray]] = []
    for fold in range(5):
        parts = [split(each, fold) for each in data.eager if each]
        if not parts or not all(known and judged for known, judged in parts):
            continue
        is_out = [place % 5 == fold for place in range(len(data.traces))]
        rest = [each for each, out in zip(data.traces, is_out, strict=True) if not out]
        again = learn_narrow(
            replace(data, eager=[known for known, _ in parts], traces=rest), learned
        )
        found += [
            np.log(whole_s(judged, again) / [each.time_s for each in judged]) for _, judged in parts
        ]
        for trace in itertools.compress(data.traces, is_out):
            traced.append(Runs([trace.whole]).seconds(again)[0] / trace.whole.time_s)
            for each in trace.rows:
                error = np.log(seconds(each.table, chip(each.device)[1], again) / each.time_s)
                single.append(((each.kind, each.type), error))
    if traced:
        found.append(np.log(traced))
    return [each for each in found if len(each)], single


def split(wholes: Sequence[Whole], fold: int) -> tuple[list[Whole], list[Whole]]:
    """Return the runs of four fifths of the families, and the others."""
    families = {name: at % 5 for at, name in enumerate(sorted({each.family for each in wholes}))}
    is_out = [families[each.family] == fold for each in wholes]
    return (
        [each for each, out in zip(wholes, is_out, strict=True) if not out],
        [each for each, out in zip(wholes, is_out, strict=True) if out],
    )


AMP = "benchmark-infer-amp-nchw-{}"
EAGER = (
    (AMP.format("pt240-cu124-rtx3090"), "rtx-3090"),
    (AMP.format("pt240-cu124-rtx4090"), "rtx4090"),
)
COMPILED = AMP.format("pt291-cu128-4090-dynamo"), "rtx4090"


def measurements(folder: Path) -> Data:
    """Return all measurements of a folder."""
    file, device = COMPILED
    return Data(
        rows=[
            *gpu_rows.operators(folder),
            *gpu_rows.gemms(folder),
            *gpu_rows.convolutions(folder),
        ],
        eager=[gpu_rows.vision_models(gpu_rows.vision_rows(folder, f), d) for f, d in EAGER],
        compiled=[
            gpu_rows.vision_models(gpu_rows.vision_rows(folder, file), device, is_fused=True)
        ],
        language=gpu_rows.language_models(folder),
        traces=gpu_rows.traces(folder),
    )


def main() -> None:
    """Write what was learned as JSON."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else gpu_rows.FOLDER
    learned = asdict(learn(measurements(folder)))
    learned["script"] = f"benchmarks/{Path(__file__).name}"
    learned["digest"] = digest()

    def rounded(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.5g}")
        if isinstance(value, dict):
            return {name: rounded(each) for name, each in value.items()}
        return [rounded(each) for each in value] if isinstance(value, (list, tuple)) else value

    json.dump(rounded(learned), sys.stdout)
    print()
    for reason, count in gpu_rows.REFUSED.items():
        if count:
            print(f"left out: {count:,} rows: {reason}", file=sys.stderr)


def digest() -> str:
    """Return the digest of the scripts that learn."""
    names = ("gpu_learning.py", "gpu_rows.py")
    content = b"".join((Path(__file__).parent / name).read_bytes() for name in names)
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    main()
