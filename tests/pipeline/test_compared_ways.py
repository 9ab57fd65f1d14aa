"""Models in several ways: what variants there are, what they are called, how they are measured."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch

import roofline
from roofline.design.comparison.ratios import RoundTime
from roofline.design.comparison.result import Comparison
from roofline.errors import InputError, MeasurementError
from roofline.pipeline import comparisons, measured_comparisons
from roofline.pipeline.comparisons import names_of, reference_among, variants_of
from roofline.pipeline.measured_comparisons import Candidate, measure_interleaved
from roofline.run import RunOptions

SHEET = "10980xe"
IMAGE = (1, 8, 10, 10)


def ways(models: int = 1, **options: Any) -> Any:
    return variants_of(models, RunOptions.every(**options))


def test_variants_are_the_cross_product_named_by_what_varies() -> None:
    found = ways(2, dtype=["float32", "bfloat16"], threads=[1, 2], batch=8)
    assert names_of(found, ["a", "b"]) == (
        "a float32 · 1 thread",
        "a float32 · 2 threads",
        "a bfloat16 · 1 thread",
        "a bfloat16 · 2 threads",
        "b float32 · 1 thread",
        "b float32 · 2 threads",
        "b bfloat16 · 1 thread",
        "b bfloat16 · 2 threads",
    )
    assert {each.options.batch for each in found} == {8}
    found = ways(batch=[1, 8], channels_last=[False, True])
    assert names_of(found, ["net"]) == (
        "net · batch 1 · contiguous",
        "net · batch 1 · channels-last",
        "net · batch 8 · contiguous",
        "net · batch 8 · channels-last",
    )
    assert names_of(ways(2), ["a", "a"]) == ("a (1)", "a (2)")
    assert names_of(ways(dtype=[torch.float16, torch.float64]), ["a"]) == ("a float16", "a float64")


def test_a_reference_is_a_model_in_its_first_way_or_one_way() -> None:
    found = ways(2, dtype=["float32", "bfloat16"])
    models = ["a", "b"]
    assert reference_among("b", found, models) == 2
    assert reference_among("b bfloat16", found, models) == 3
    assert reference_among(1, found, models) == 1
    with pytest.raises(InputError, match="not a compared model; did you mean 'b bfloat16'"):
        reference_among("b bfloat61", found, models)
    with pytest.raises(InputError, match="there are a, b, a float32"):
        reference_among("zzz", found, models)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": []}, "dtype: the list is empty"),
        ({"dtype": ["float32", "float32"]}, "dtype='float32': given twice"),
        ({"channels_last": [True, True]}, "channels_last=True: given twice"),
    ],
)
def test_lists_that_are_none(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ways(**options)


def test_one_model_in_several_ways() -> None:
    """Half the bytes in bfloat16; FLOP and reference are those of the other."""
    found = roofline.compare(
        torch.nn.Conv2d(8, 8, 3, padding=1, bias=False),
        inputs=IMAGE,
        dtype=["float32", "bfloat16"],
        hardware=SHEET,
        reference="Conv2d bfloat16",
    )
    assert isinstance(found, Comparison)
    assert found.designs == ("Conv2d float32", "Conv2d bfloat16")
    assert found.ratios(found.quantity("traffic_bytes")) == (2.0, 1.0)
    assert found.ratios(found.quantity("flop")) == (1.0, 1.0)


def test_threads_may_differ_on_one_machine() -> None:
    """One capture, placed under one core and under all 16."""
    found = roofline.compare(
        torch.nn.Linear(64, 64), inputs=(8, 64), threads=[1, 16], hardware=SHEET
    )
    assert isinstance(found, Comparison)
    assert [each.threads for each in found.analyses] == [1, 16]
    assert found.analyses[0].operators[0].inputs is found.analyses[1].operators[0].inputs
    assert found.notes == ("threads differ: 1 (Linear · 1 thread), 16 (Linear · 16 threads)",)


def test_batches_are_compared_by_the_sample() -> None:
    found = roofline.compare(
        torch.nn.Conv2d(8, 8, 1, bias=False), inputs=IMAGE, batch=[1, 8], hardware=SHEET
    )
    assert isinstance(found, Comparison)
    assert found.samples == (1, 8)
    flop = found.quantity("flop")
    assert (flop.name, flop.title) == ("flop_per_sample", "FLOP per sample")
    assert found.ratios(flop) == (1.0, 1.0)
    # 6400 bytes of images each; of 256 bytes of weights an eighth.
    assert found.quantity("traffic_bytes").values == (6656, 6432)
    assert (
        "equal FLOP per sample, 1.03× shorter minimum time per sample on 10980xe"
        in found.sentences[0]
    )
    assert "samples per pass: 1 (Conv2d · batch 1), 8 (Conv2d · batch 8)" in found.notes[0]
    assert found.to_frame()["samples"].tolist() == [1, 8]


def test_other_inputs_are_told_and_equal_things_too() -> None:
    wide = roofline.analyze(torch.nn.ReLU(), (1, 8, 10, 10), hardware=SHEET)
    high = roofline.analyze(torch.nn.ReLU(), (1, 8, 20, 20), hardware=SHEET)
    found = Comparison.of([wide, high], names=["a", "b"])
    assert not found.per_sample
    assert found.notes == ("inputs differ: a 1x8x10x10, b 1x8x20x20",)
    assert Comparison.of([wide, wide]).notes == (
        "ReLU (1) and ReLU (2) are identical: same model and run",
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "two models or variants"),
        ({"dtype": "float32"}, "two models or variants"),
        ({"dtype": ["float32", "int8"]}, "floating type"),
        ({"batch": [1, 0]}, "batch=0"),
        ({"threads": [1, 17]}, "choose 1 to 16"),
        ({"batch": [1, 2], "rounds": 3}, "rounds=3 has no effect without measure=True"),
        ({"batch": [1, 2], "measure": True}, "measure=True measures on this machine, but"),
        ({"batch": [1, 2], "measure": True, "train": True}, "measure=True train=True"),
        ({"batch": [1, 2], "measure": True, "device": "cuda"}, "on the CPU only"),
        ({"batch": [1, 2], "measure": True, "cold": True}, "leave cold=True out"),
        ({"batch": [1, 2], "measure": True, "rounds": 0}, "rounds=0"),
        ({"batch": [1, 2], "reference": 2}, "must be from 0 to 1"),
        ({"batch": [1, 2], "names": ["a", "b", "c"]}, "3 names for 1 models"),
    ],
)
def test_what_cannot_be_asked(options: dict[str, Any], words: str) -> None:
    hardware = None if "measure" in options and len(options) > 2 else SHEET
    asked: dict[str, Any] = {"inputs": IMAGE, "hardware": hardware, **options}
    with pytest.raises(roofline.RooflineError, match=words):
        roofline.compare(torch.nn.ReLU(), **asked)


def test_saved_analyses_are_what_they_are() -> None:
    saved = roofline.analyze(torch.nn.ReLU(), IMAGE, hardware=SHEET)
    for options in (
        {"measure": True},
        {"dtype": ["float32", "bfloat16"]},
        {"threads": [1, 2]},
        {"hardware": [SHEET, "v100"]},
    ):
        asked: dict[str, Any] = options
        with pytest.raises(InputError, match="cannot change a saved analysis"):
            roofline.compare(saved, torch.nn.ReLU(), inputs=None, **asked)


# --- measuring, with fakes -----------------------------------------------------------------------


def candidate(name: str) -> Candidate:
    return Candidate(name=name, model=name, inputs=None, options=RunOptions(threads=1))


@contextmanager
def fake_bench(**_: object) -> Generator[Any]:
    class Here:
        conditions = ("a fan was heard",)

    yield Here()


def fake_processes(times: dict[str, list[float]], order: list[str]) -> Callable[[], Any]:
    """Processes whose models take the next of their times; MemoryError where it is 0, and below
    an end of the process."""

    @contextmanager
    def processes() -> Generator[Callable[..., RoundTime]]:
        def run(function: Callable[..., RoundTime], _here: object, asked: Candidate) -> RoundTime:
            assert function.__name__ == "time_candidate"
            order.append(asked.name)
            time_s = times[asked.name].pop(0)
            if not time_s:
                raise MemoryError
            if time_s < 0:
                raise MeasurementError("its process ended with exit code 7")
            return RoundTime(times_s=(time_s,))

        yield run

    return processes


def in_turn(times: dict[str, list[float]], order: list[str], **options: Any) -> Any:
    return measure_interleaved(
        [candidate(name) for name in times],
        processes=fake_processes(times, order),
        on=fake_bench,
        **options,
    )


def test_candidates_take_turns() -> None:
    """A B C A B C: the neighbour that doubles the second round doubles all of it."""
    order: list[str] = []
    said: list[tuple[float, str]] = []
    found = in_turn(
        {"a": [2.0, 4.0], "b": [1.0, 2.0], "c": [3.0, 6.0]},
        order,
        rounds=2,
        progress=lambda fraction, what: said.append((fraction, what)),
    )
    assert order == ["a", "b", "c", "a", "b", "c"]
    assert [found.ratio(number, 0).value for number in range(3)] == [1.0, 0.5, 1.5]
    assert found.ratio(2, 0).interval == (1.5, 1.5)
    assert found.conditions == ("a fan was heard",)
    assert said[0] == (0.0, "a, round 1 of 2")
    assert said[-1] == (pytest.approx(5 / 6), "c, round 2 of 2")


def test_five_rounds_where_nobody_says() -> None:
    order: list[str] = []
    in_turn({"a": [1.0] * 5, "b": [1.0] * 5}, order)
    assert len(order) == 10


def test_who_runs_out_of_memory_is_named() -> None:
    with pytest.raises(MeasurementError, match="b ran out of memory"):
        in_turn({"a": [1.0], "b": [0.0]}, [], rounds=1)


def test_whose_process_ended_is_named() -> None:
    with pytest.raises(MeasurementError, match=r"^b: its process ended with exit code 7$"):
        in_turn({"a": [1.0], "b": [-1.0]}, [], rounds=1)


def test_who_cannot_leave_this_process_is_measured_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class within a function cannot be pickled; one of a library can."""

    class Local(torch.nn.Module):
        pass

    where: list[str] = []

    @contextmanager
    def processes(name: str) -> Generator[Callable[..., RoundTime]]:
        where.append(name)
        yield lambda *_: RoundTime(times_s=(1.0,))

    monkeypatch.setattr(measured_comparisons, "fresh_processes", lambda: processes("new"))
    monkeypatch.setattr(measured_comparisons, "this_process", lambda: processes("this"))
    stays, goes = (
        replace(candidate("a"), model=Local()),
        replace(candidate("b"), model=torch.nn.ReLU()),
    )
    found = measure_interleaved([goes, stays], rounds=1, on=fake_bench)
    assert not found.own_processes
    assert found.conditions[1].startswith(
        "measured in this process, not in fresh ones: a is defined"
    )
    assert measure_interleaved([goes, candidate("c")], rounds=1, on=fake_bench).own_processes
    assert where == ["this", "new"]


def test_what_was_measured_stands_beside_what_was_predicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pipeline hands on what it analysed, and puts the times where they belong."""
    asked: list[Candidate] = []

    def measured(candidates: Sequence[Candidate], **_: object) -> Any:
        asked.extend(candidates)
        seconds = {1: [1.0, 1.0], 8: [4.0, 4.0]}
        times = {each.name: seconds[each.options.batch or 0] for each in candidates}
        return in_turn(times, [], rounds=2)

    def is_fine(*_: object, **__: object) -> None:
        pass

    monkeypatch.setattr(comparisons, "measure_interleaved", measured)
    monkeypatch.setattr(comparisons, "check_measurable", is_fine)
    found = roofline.compare(
        torch.nn.ReLU(), inputs=IMAGE, batch=[1, 8], threads=2, hardware=SHEET, measure=True
    )
    assert isinstance(found, Comparison)
    assert [(each.name, each.options.batch, each.threads) for each in asked] == [
        ("ReLU · batch 1", 1, 2),
        ("ReLU · batch 8", 8, 2),
    ]
    # 8 samples in 4 s against 1 in 1 s.
    measured_s = found.quantity("measured_s")
    assert measured_s.values == (1.0, 0.5)
    assert found.ratios(measured_s) == (1.0, 0.5)
    assert (
        "2.000× faster per sample on 10980xe (measured, 2 rounds: 2.000 to 2.000)"
        in found.sentences[0]
    )
    assert "a fan was heard" in found.notes
