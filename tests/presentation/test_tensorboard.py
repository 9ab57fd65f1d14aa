"""Event files: checksums and encodings of their standards, and what TensorBoard's reader finds."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.analysis import Analysis
from roofline.cli.main import run
from roofline.errors import InputError
from roofline.presentation.output import check_targets, format_of, render, write
from roofline.presentation.tensorboard.events import event_file, scalars
from roofline.presentation.tensorboard.messages import varint, whole
from roofline.presentation.tensorboard.records import crc32c
from roofline.workload.operators import State
from tests.presentation.examples import examples, hostile, resnet
from tests.presentation.machines import eight

EXAMPLES = examples()


# -- the standards ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        # RFC 3720, appendix B.4, and the check value of the catalogue of CRCs.
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
        (b"123456789", 0xE3069283),
    ],
)
def test_checksums(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


def test_varints() -> None:
    """The examples of the documentation of protocol buffers."""
    assert varint(1) == b"\x01"
    assert varint(150) == b"\x96\x01"
    assert varint(300) == b"\xac\x02"
    assert varint(-2) == b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    assert whole(1, 150) == b"\x08\x96\x01"


# -- a reader of its own, that knows no messages ---------------------------------------------------


def records(data: bytes) -> Iterator[bytes]:
    """The records of an event file; every checksum is undone and held against its data."""
    at = 0
    while at < len(data):
        head = data[at : at + 8]
        (length,) = struct.unpack("<Q", head)
        (of_head,) = struct.unpack("<I", data[at + 8 : at + 12])
        body = data[at + 12 : at + 12 + length]
        (of_body,) = struct.unpack("<I", data[at + 12 + length : at + 16 + length])
        for crc, of in ((of_head, head), (of_body, body)):
            turned = (crc - 0xA282EAD8) % 2**32
            assert (turned << 15 | turned >> 17) % 2**32 == crc32c(of)
        assert len(body) == length
        yield body
        at += 16 + length


def numbered(data: bytes) -> dict[int, list[Any]]:
    """The fields of a message by their number."""
    found: dict[int, list[Any]] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = number()
        kind = key & 7
        if kind == 0:
            value: Any = number()
        elif kind == 1:
            (value,) = struct.unpack("<d", data[at : at + 8])
            at += 8
        elif kind == 5:
            (value,) = struct.unpack("<f", data[at : at + 4])
            at += 4
        else:
            assert kind == 2
            size = number()
            value = data[at : at + size]
            at += size
        found.setdefault(key >> 3, []).append(value)
    return found


@given(st.integers(0, 2**63 - 1))
def test_varints_come_back(value: int) -> None:
    assert numbered(whole(7, value)) == {7: [value]}


def events(analysis: Analysis) -> list[dict[int, list[Any]]]:
    return [numbered(each) for each in records(event_file(analysis, wall_time_s=12.5))]


def graph(analysis: Analysis) -> list[dict[int, list[Any]]]:
    (found,) = [each[4][0] for each in events(analysis) if 4 in each]
    return [numbered(each) for each in numbered(found).get(1, [])]


def test_a_file_begins_with_its_version() -> None:
    first, *rest = events(resnet())
    assert first == {1: [12.5], 3: [b"brain.Event:2"]}
    assert all(each[1] == [12.5] for each in rest)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_operator_that_works_is_a_node_and_every_input_is_one(name: str) -> None:
    analysis = EXAMPLES[name]
    nodes = graph(analysis)
    names = [each[1][0] for each in nodes]
    assert len(set(names)) == len(names)
    at_work = [row for row in analysis.operators if row.state is not State.FREE]
    assert len([each for each in nodes if each[2] != [b"Placeholder"]]) == len(at_work)
    for node in nodes:
        for source in node.get(3, []):
            assert source.removeprefix(b"^") in names


def test_edges_are_who_reads_what_whom_wrote() -> None:
    """The input goes to the first convolution, and each operator reads what is before it."""
    inputs = {each[1][0].decode(): each.get(3, []) for each in graph(resnet())}
    (given,) = [name for name in inputs if name.startswith("inputs/")]
    assert any(given.encode() in each for each in inputs.values())
    # Whoever reads nothing of others reads parameters or the input alone.
    sources = [name for name, each in inputs.items() if not each and name != given]
    assert len(sources) < len(inputs) / 2


def test_scalars_are_the_numbers_of_the_analysis() -> None:
    analysis = resnet()
    said = {(tag, step): value for tag, step, value in scalars(analysis)}
    assert said["totals/flop", 0] == analysis.totals.flop
    assert said["totals/bound_s", 0] == analysis.totals.bound_s
    for row in analysis.operators:
        bound = None if row.state is State.FREE else row.bound_s
        assert said.get(("operators/bound_s", row.index)) == bound
    assert ("totals/predicted_s", 0) not in said


def test_what_is_unknown_is_left_out() -> None:
    for analysis in EXAMPLES.values():
        said = {(tag, step) for tag, step, _ in scalars(analysis)}
        for row in analysis.operators:
            if row.flop is None:
                assert ("operators/flop", row.index) not in said


def test_times_of_nodes_are_there_where_all_are_known() -> None:
    tags = [numbered(each[8][0])[1] for each in events(resnet()) if 8 in each]
    assert tags == [[b"bound"]]


def test_hostile_names_stay_names() -> None:
    for node in graph(hostile()):
        name = node[1][0].decode("ascii")
        assert all(part and (part[0].isalnum() or part[0] == ".") for part in name.split("/"))


# -- files and commands ----------------------------------------------------------------------------


def test_the_suffix_chooses_it(tmp_path: Path) -> None:
    assert format_of(Path("runs/resnet50.tfevents")) == "tensorboard"
    write(resnet(), [tmp_path / "a.tfevents"])
    assert len(list(records((tmp_path / "a.tfevents").read_bytes()))) > 10


def test_several_machines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one pass on one machine"):
        render(eight(), "tensorboard")
    with pytest.raises(InputError, match="name one"):
        check_targets([tmp_path / "a.tfevents"], overwrite=False, are_several=True)


def test_show_writes_one_of_what_is_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, events_of_it = tmp_path / "a.json", tmp_path / "a.tfevents"
    resnet().save(saved)
    assert run(["show", str(saved), "-o", str(events_of_it)]) == 0
    assert f"Wrote {events_of_it}" in capsys.readouterr().err
    assert run(["show", str(saved), "-o", str(events_of_it)]) == 2
    assert "exists; add --force" in capsys.readouterr().err


# -- TensorBoard's own reader ----------------------------------------------------------------------


def test_tensorboard_reads_it(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    analysis = resnet()
    write(analysis, [tmp_path / "resnet.tfevents"])
    reader = EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    reader.Reload()
    read: dict[tuple[str, int], Any] = {}
    for tag in reader.Tags()["tensors"]:
        for event in reader.Tensors(tag):
            value: Any = make_ndarray(event.tensor_proto)
            if tag == "report/text_summary":
                assert bytes(value.item()).decode().startswith("# resnet-like")
            else:
                read[tag, event.step] = value.item()
    assert read == {(tag, step): float(value) for tag, step, value in scalars(analysis)}
    assert reader.SummaryMetadata("totals/flop").plugin_data.plugin_name == "scalars"
    assert reader.SummaryMetadata("report/text_summary").plugin_data.plugin_name == "text"
    drawn = reader.Graph()
    assert {node.name.encode() for node in drawn.node} == {each[1][0] for each in graph(analysis)}
    first = next(node for node in drawn.node if node.op == "convolution")
    row = analysis.operators[first.attr["index"].i]
    assert first.attr["flop"].i == row.flop
    shape = first.attr["_output_shapes"].list.shape[0]
    assert tuple(each.size for each in shape.dim) == row.outputs[0].shape
    stats = reader.RunMetadata("bound").step_stats.dev_stats[0].node_stats
    assert [each.node_name for each in stats] == [
        node.name for node in drawn.node if node.op != "Placeholder"
    ]
    assert [each.all_end_rel_micros for each in stats] == [
        round((row.bound_s or 0) * 1e6) for row in analysis.operators if row.state is not State.FREE
    ]
