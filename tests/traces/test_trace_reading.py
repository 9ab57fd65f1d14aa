"""Events are read as a stream: whole, cut, damaged, packed and hostile files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from roofline.errors import FileFormatError
from roofline.traces import reading
from roofline.traces.reading import Kind, Signature, read_events

from .events import PRODUCT, Events, product_step


def small() -> Events:
    events = Events()
    for start in (0, 100, 200):
        product_step(events, start)
    return events


def test_events_have_their_kinds_times_and_links(tmp_path: Path) -> None:
    trace = read_events(small().save(tmp_path / "t.json"))
    assert [len(trace.events.of(kind)) for kind in Kind] == [3, 3, 3, 0, 0, 0]
    kernel = int(trace.events.of(Kind.KERNEL)[1])
    assert (trace.events.start[kernel], trace.events.duration[kernel]) == (110.0, 5.0)
    operator = int(trace.events.of(Kind.OPERATOR)[1])
    assert trace.events.external[kernel] == trace.events.external[operator]
    signature = trace.details[trace.events.detail[operator]]
    assert isinstance(signature, Signature)
    assert signature.dims == ((8, 16), (16, 32))
    assert trace.devices[0].multiprocessors == 132
    # Equal arguments are kept once.
    assert sum(isinstance(each, Signature) for each in trace.details) == 1


@pytest.mark.parametrize("chunk", [1, 7, 64, 10**6])
@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_chunks_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, name: str
) -> None:
    events = small()
    events.add("cpu_op", 'naïve 名 \\" }', 300, 1)
    monkeypatch.setattr(reading, "_CHUNK", chunk)
    trace = read_events(events.save(tmp_path / name))
    assert len(trace.events.kind) == 10
    assert trace.names[-1] == 'naïve 名 \\" }'
    assert trace.notes == ()


def test_a_file_cut_anywhere_gives_what_is_whole(tmp_path: Path) -> None:
    text = small().text()
    path = tmp_path / "t.json"
    first = text.index("}", text.index('"External id"')) + 10
    for cut in range(0, len(text) - 1, 11):
        path.write_text(text[:cut])
        try:
            trace = read_events(path)
        except FileFormatError as error:
            assert "\n" not in str(error)
            assert cut <= first
            continue
        begun = text[:cut].count('"ph"')
        assert begun - 1 <= len(trace.events.kind) <= begun
        assert any("cut" in note for note in trace.notes)


def test_damaged_events_are_left_out_and_counted(tmp_path: Path) -> None:
    text = small().text().replace('"name": "sm90_gemm"', '"name": sm90_gemm', 1)
    path = tmp_path / "t.json"
    path.write_text(text)
    trace = read_events(path)
    assert len(trace.events.kind) == 8
    assert trace.notes == ("1 damaged event left out",)


@pytest.mark.parametrize(
    ("found", "damage"),
    [('"deviceProperties":', '"deviceProperties" 7'), ('"ph": "X"', '] "ph": "X"'), ("]\n}", "}")],
)
def test_damage_anywhere_costs_one_event(tmp_path: Path, found: str, damage: str) -> None:
    text = small().text()
    path = tmp_path / "t.json"
    for place in (text.index(found), text.rindex(found)):
        path.write_text(text[:place] + damage + text[place + len(found) :])
        trace = read_events(path)
        assert len(trace.events.kind) >= 8
        assert trace.notes


def test_a_compressed_file_that_ends_early_gives_its_events(tmp_path: Path) -> None:
    events = Events()
    for start in range(4000):
        product_step(events, 10.0 * start)
    path = tmp_path / "t.json.gz"
    data = gzip.compress(events.text().encode())
    path.write_bytes(data[: len(data) // 2])
    trace = read_events(path)
    assert 0 < len(trace.events.kind) < 12000
    assert any("cut" in note for note in trace.notes)


@pytest.mark.parametrize("time", [float("nan"), float("inf"), -1, "soon", None, True])
def test_wrong_times_are_left_out(tmp_path: Path, time: Any) -> None:
    events = small()
    events.add("kernel", "odd", 5, time)
    trace = read_events(events.save(tmp_path / "t.json"))
    assert "odd" not in trace.names
    assert trace.notes == ("1 event left out: times are missing, negative or not finite",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"hello", "neither a JSON object nor a list"),
        (b"{}", "is no profiler trace"),
        (b'{"traceEvents": 3}', "holds no operator"),
        (b'{"traceEvents": []}', "holds no operator"),
        (b"[" * 100_000, "holds no operator"),
        (b"\x1f\x8b\x08\x00garbage", "is no"),
        (b"\x00\xff\xfe" * 50, "neither"),
    ],
)
def test_what_is_no_trace_gets_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=words) as error:
        read_events(path)
    assert "\n" not in str(error.value)


def test_a_missing_file_and_a_folder_get_one_line(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="no such file"):
        read_events(tmp_path / "none.json")
    with pytest.raises(FileFormatError, match="regular file"):
        read_events(tmp_path)


def test_a_list_of_events_and_the_older_format_are_traces(tmp_path: Path) -> None:
    older = [
        {
            "ph": "X",
            "cat": "Operator",
            "name": "aten::mm",
            "pid": 1,
            "tid": "7",
            "ts": 10,
            "dur": 4,
            "args": {"Input dims": [[8, 16], [16, 32]], "Input type": [], "External id": 2},
        },
        {
            "ph": "X",
            "cat": "Kernel",
            "name": "gemm",
            "pid": 0,
            "tid": "stream 7",
            "ts": 20,
            "dur": 3,
            "args": {"correlation": 5, "external id": 2, "stream": 7},
        },
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(older))
    trace = read_events(path)
    assert trace.events.external.tolist() == [2, 2]
    detail = trace.details[trace.events.detail[0]]
    assert isinstance(detail, Signature)
    assert (detail.dims, detail.types) == (((8, 16), (16, 32)), ())


def test_an_execution_trace_has_operators_without_times(tmp_path: Path) -> None:
    node = {
        "id": 4,
        "name": "aten::mm",
        "inputs": {
            "values": [[1, 1, 0, 128, 2, "cpu"], [2, 2, 0, 512, 2, "cpu"]],
            "shapes": PRODUCT["Input Dims"],
            "types": ["Tensor(c10::BFloat16)", "Tensor(c10::BFloat16)"],
        },
        "outputs": {"values": [], "shapes": [[8, 32]], "types": ["Tensor(c10::BFloat16)"]},
        "attrs": [{"name": "rf_id", "type": "uint64", "value": 9}],
    }
    path = tmp_path / "et.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": [node]}))
    trace = read_events(path)
    assert trace.is_execution_trace
    assert trace.events.record.tolist() == [9]
    detail = trace.details[trace.events.detail[0]]
    assert isinstance(detail, Signature)
    assert detail.types == ("c10::BFloat16", "c10::BFloat16")
