"""Event files, read with TensorBoard's own readers and held against their analysis."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from roofline.analysis import Analysis
from roofline.analysis.event_file import event_file, node_names, scalars
from roofline.cli.analysis import check_analysis_files
from roofline.cli.options import Output
from roofline.errors import InputError
from roofline.workload.operators import State
from roofline.workload.tensors import Role
from tests.analysis.examples import (
    Network,
    analysis_of,
    examples,
    full_profile,
    hostile,
    resnet,
    small,
    trained,
)

pytest.importorskip("tensorboard")

EXAMPLES = examples()


def events(analysis: Analysis, folder: Path) -> list[Any]:
    """All of a file, each checksum of which the reader holds against its record."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto import event_pb2

    event: Any = event_pb2
    path = folder / "a.tfevents"
    path.write_bytes(event_file(analysis, wall_time_s=12.5))
    return [event.Event.FromString(each) for each in RawEventFileLoader(str(path)).Load()]


def graph(analysis: Analysis, folder: Path) -> list[Any]:
    from tensorboard.compat.proto import graph_pb2

    graphs: Any = graph_pb2
    (found,) = [each for each in events(analysis, folder) if each.WhichOneof("what") == "graph_def"]
    return list(graphs.GraphDef.FromString(found.graph_def).node)


def at_work(analysis: Analysis) -> list[Any]:
    return [row for row in analysis.operators if row.state is not State.FREE]


# -- what is in a file -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_file_has_its_version_a_graph_the_report_and_every_scalar(
    name: str, tmp_path: Path
) -> None:
    found = events(EXAMPLES[name], tmp_path)
    assert {each.wall_time for each in found} == {12.5}
    assert found[0].file_version == "brain.Event:2"
    kinds = Counter(each.WhichOneof("what") for each in found)
    assert (kinds["file_version"], kinds["graph_def"]) == (1, 1)
    assert kinds["summary"] == 1 + len(list(scalars(EXAMPLES[name])))


def test_the_same_analysis_makes_the_same_file() -> None:
    once, again = (event_file(resnet(), wall_time_s=3.0) for _ in range(2))
    assert once == again


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_operator_that_works_is_a_node_and_every_input_is_one(
    name: str, tmp_path: Path
) -> None:
    nodes = graph(EXAMPLES[name], tmp_path)
    names = [each.name for each in nodes]
    assert len(set(names)) == len(names)
    working = [each for each in nodes if each.op != "Placeholder"]
    assert len(working) == len(at_work(EXAMPLES[name]))
    assert {each.removeprefix("^") for node in nodes for each in node.input} <= set(names)


def test_edges_are_who_reads_what_whom_wrote(tmp_path: Path) -> None:
    """The input goes to the first convolution, and each operator reads what is before it."""
    inputs = {each.name: list(each.input) for each in graph(resnet(), tmp_path)}
    (given,) = [name for name in inputs if name.startswith("inputs/")]
    assert any(given in each for each in inputs.values())
    # Whoever reads nothing of others reads parameters or the input alone.
    sources = [name for name, each in inputs.items() if not each and name != given]
    assert len(sources) < len(inputs) / 2


def test_modules_are_scopes_in_each_other(tmp_path: Path) -> None:
    net = Network()
    x = net.tensor(64, 64, role=Role.INPUT)
    net.relu(net.relu(x, "encoder.layers.0.act"), "encoder.layers.1.act")
    inputs = {each.name: list(each.input) for each in graph(of(net), tmp_path)}
    first, second = "encoder/layers/0/act/relu__0", "encoder/layers/1/act/relu__1"
    assert inputs == {"inputs/input_0": [], first: ["inputs/input_0"], second: [first]}


def of(net: Network) -> Analysis:
    return analysis_of(net, full_profile(), model="by hand")


def test_training_has_a_scope_for_each_phase() -> None:
    analysis = trained()
    scopes = {name.partition("/")[0] for name in node_names(analysis.operators)}
    assert scopes == {row.phase for row in analysis.operators}


@pytest.mark.parametrize("path", ["ü.ß", "a b.c:d", "^x.-y", "a/b", "_.__", "x" * 300])
def test_odd_names_stay_names(path: str, tmp_path: Path) -> None:
    net = Network()
    net.relu(net.relu(net.tensor(8, 8, role=Role.INPUT), path), path)
    check_names(of(net), tmp_path)


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    check_names(hostile(), tmp_path)


def check_names(analysis: Analysis, folder: Path) -> None:
    for node in graph(analysis, folder):
        assert node.name.isascii()
        parts = node.name.split("/")
        assert all(part and (part[0].isalnum() or part[0] == ".") for part in parts)


def test_scalars_are_the_numbers_of_the_analysis() -> None:
    analysis = resnet()
    said = {(tag, step): value for tag, step, value in scalars(analysis)}
    assert said["totals/flop", 0] == analysis.totals.flop
    assert said["totals/eager_min_time_s", 0] == analysis.totals.eager_min_time_s
    for row in analysis.operators:
        bound = None if row.state is State.FREE else row.eager_min_time_s
        assert said.get(("operators/eager_min_time_s", row.index)) == bound
    assert ("totals/predicted_s", 0) not in said


def test_sizes_and_times_beyond_64_bits_are_unknown(tmp_path: Path) -> None:
    analysis = small()
    row = analysis.operators[-1]
    wide = replace(row.outputs[0], shape=(2**200,))
    odd = replace(row, outputs=(wide,), eager_min_time_s=1e30)
    analysis = replace(analysis, operators=(*analysis.operators[:-1], odd))
    (shape,) = graph(analysis, tmp_path)[-1].attr["_output_shapes"].list.shape
    assert [each.size for each in shape.dim] == [-1]
    kinds = {each.WhichOneof("what") for each in events(analysis, tmp_path)}
    assert "tagged_run_metadata" not in kinds


def test_what_is_unknown_is_left_out() -> None:
    for analysis in EXAMPLES.values():
        said = {(tag, step) for tag, step, _ in scalars(analysis)}
        for row in analysis.operators:
            if row.flop is None:
                assert ("operators/flop", row.index) not in said


def test_times_of_nodes_are_there_where_all_are_known(tmp_path: Path) -> None:
    tags = [
        each.tagged_run_metadata.tag
        for each in events(resnet(), tmp_path)
        if each.WhichOneof("what") == "tagged_run_metadata"
    ]
    assert tags == ["bound"]


# -- files and commands ----------------------------------------------------------------------------


def test_the_suffix_is_in_small_letters(tmp_path: Path) -> None:
    # TensorBoard looks for these letters in names of files, in capitals it does not find them.
    with pytest.raises(InputError, match="lower case"):
        check_analysis_files(Output((tmp_path / "A.TFEVENTS",), force=False))


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)


_SHOW = """
import sys
from roofline.cli.analysis import check_analysis_files
from roofline.cli.main import run
from roofline.cli.options import Output
assert run(["show", sys.argv[1], "-o", sys.argv[2]]) == 0
print([each for each in ("torch", "tensorflow") if each in sys.modules])
"""


def test_writing_one_imports_neither_torch_nor_tensorflow(tmp_path: Path) -> None:
    resnet().save(tmp_path / "a.json")
    done = python(_SHOW, str(tmp_path / "a.json"), str(tmp_path / "a.tfevents"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


_MISSING = """
import sys
sys.modules["tensorboard"] = None
from roofline.cli.analysis import check_analysis_files
from roofline.cli.main import run
from roofline.cli.options import Output
code = run(["analyze", "resnet18", "--hardware", "10980xe", "-o", sys.argv[1]])
print(code, "torch" in sys.modules)
"""


def test_without_tensorboard_one_line_says_what_installs_it(tmp_path: Path) -> None:
    """And before anything is analysed, which takes torch."""
    done = python(_MISSING, str(tmp_path / "a.tfevents"))
    assert done.stdout == "2 False\n"
    assert "pip install 'roofline[tensorboard]'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


# -- what TensorBoard shows ------------------------------------------------------------------------


def accumulated(analysis: Analysis, folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    analysis.save(folder / "resnet.tfevents")
    reader = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    reader.Reload()
    return reader


def test_its_reader_finds_every_scalar(tmp_path: Path) -> None:
    from tensorboard.util.tensor_util import make_ndarray

    analysis = resnet()
    reader = accumulated(analysis, tmp_path)
    read: dict[tuple[str, int], Any] = {}
    for tag in reader.Tags()["tensors"]:
        for event in reader.Tensors(tag):
            value: Any = make_ndarray(event.tensor_proto)
            if tag == "report/text_summary":
                assert bytes(value.item()).decode().startswith("# resnet-like")
                continue
            read[tag, event.step] = value.item()
            # The loader that TensorBoard uses if it can shows no scalar of another type.
            assert str(value.dtype) == "float32"
    assert read == {
        (tag, step): struct.unpack("<f", struct.pack("<f", value))[0]
        for tag, step, value in scalars(analysis)
    }
    assert reader.SummaryMetadata("totals/flop").plugin_data.plugin_name == "scalars"
    assert reader.SummaryMetadata("report/text_summary").plugin_data.plugin_name == "text"


def test_its_reader_finds_the_graph_with_what_is_known_of_each_node(tmp_path: Path) -> None:
    analysis = resnet()
    reader = accumulated(analysis, tmp_path)
    drawn = reader.Graph()
    first = next(node for node in drawn.node if node.op == "convolution")
    row = analysis.operators[first.attr["index"].i]
    assert first.attr["flop"].i == row.flop
    assert first.attr["module"].s.decode() == row.module_path
    shape = first.attr["_output_shapes"].list.shape[0]
    assert tuple(each.size for each in shape.dim) == row.outputs[0].shape
    (device,) = reader.RunMetadata("bound").step_stats.dev_stats
    assert {node.device for node in drawn.node} == {device.device}
    assert [each.node_name for each in device.node_stats] == [
        node.name for node in drawn.node if node.op != "Placeholder"
    ]
    assert [each.all_end_rel_micros for each in device.node_stats] == [
        round((row.eager_min_time_s or 0) * 1e6) for row in at_work(analysis)
    ]
