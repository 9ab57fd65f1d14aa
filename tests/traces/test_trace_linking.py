"""Kernels find their operators by each kind of evidence; what has none stays apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roofline.traces.linking import Evidence, Links, Nesting, link
from roofline.traces.reading import read_events

from .events import PRODUCT, Events, product_step


def linked(events: Events, tmp_path: Path, capture: Events | None = None) -> tuple[Nesting, Links]:
    nesting = Nesting(read_events(events.save(tmp_path / "t.json")))
    of_capture = (
        Nesting(read_events(capture.save(tmp_path / "c.json"))) if capture is not None else None
    )
    return nesting, link(nesting, of_capture)


def names(nesting: Nesting, links: Links) -> list[tuple[str, Evidence]]:
    return [
        (nesting.trace.name_of(int(place)) if place >= 0 else "", path)
        for place, path in zip(links.operator, links.path, strict=True)
    ]


def test_evidence_is_taken_in_its_order(tmp_path: Path) -> None:
    events = Events()
    product_step(events)
    # Its kernel has no id of an operator, but its runtime call has.
    number = events.operator("aten::add", 20, 5)
    launch: Any = {"External id": number}
    events.kernel("add", 30, 2, correlation=events.launch(21, **launch))
    # Only the place of the call is known: within relu, which is within a block.
    events.operator("block", 40, 20)
    events.operator("aten::relu", 42, 5)
    events.kernel("relu", 60, 2, correlation=events.launch(43))
    # After all operators.
    events.kernel("late", 80, 2, correlation=events.launch(75))
    # No runtime call is in the trace.
    events.kernel("orphan", 90, 2, correlation=77)
    nesting, links = linked(events, tmp_path)
    assert names(nesting, links) == [
        ("aten::mm", "external id"),
        ("aten::add", "correlation"),
        ("aten::relu", "nesting"),
        ("", "none"),
        ("", "none"),
    ]


def test_operators_of_other_threads_do_not_count(tmp_path: Path) -> None:
    events = Events()
    events.operator("aten::relu", 0, 50, tid=2)
    events.kernel("k", 60, 2, correlation=events.launch(10))
    nesting, links = linked(events, tmp_path)
    assert names(nesting, links) == [("", "none")]


def graph(events: Events, *kernels: str) -> None:
    correlation = events.launch(0, "hipGraphLaunch")
    for place, name in enumerate(kernels):
        events.kernel(name, 100 + 10 * place, 5, correlation=correlation)


def capturing(*kernels: str) -> Events:
    events = Events()
    for place, name in enumerate(kernels):
        number = events.operator(f"aten::op{place}", 10 * place, 5, **PRODUCT)
        events.launch(10 * place + 1, "hipLaunchKernel", kernel=name, **{"External id": number})
    return events


def test_kernels_of_graphs_are_linked_by_their_capture_alone(tmp_path: Path) -> None:
    events = Events()
    graph(events, "a", "b", "a")
    _, links = linked(events, tmp_path)
    assert links.path == ["graph"] * 3
    assert links.operator.tolist() == [-1, -1, -1]
    capture = capturing("a", "b", "a")
    _, links = linked(events, tmp_path, capture)
    assert links.path == ["graph capture"] * 3
    found = Nesting(read_events(tmp_path / "c.json"))
    assert [found.trace.name_of(int(each)) for each in links.operator] == [
        "aten::op0",
        "aten::op1",
        "aten::op2",
    ]


def test_kernels_that_the_capture_does_not_launch_stay_unlinked(tmp_path: Path) -> None:
    events = Events()
    graph(events, "a", "copied by the driver", "b")
    _, links = linked(events, tmp_path, capturing("a", "b"))
    assert links.path == ["graph capture", "graph", "graph capture"]


def test_modules_and_phases_are_those_around_an_operator(tmp_path: Path) -> None:
    events = Events()
    events.add("python_function", "nn.Module: Net_0", 0, 100)
    events.add("python_function", "nn.Module: Linear_3", 5, 30)
    events.operator("aten::linear", 6, 20)
    events.operator("aten::addmm", 7, 10)
    events.operator("aten::relu", 50, 10)
    nesting = Nesting(read_events(events.save(tmp_path / "t.json")))
    paths = {
        nesting.trace.name_of(place): nesting.module_path(place)
        for place in range(len(nesting.trace.events.kind))
    }
    assert paths["aten::addmm"] == "Net_0.Linear_3"
    assert paths["aten::relu"] == "Net_0"
