"""The file of samples: what is kept, from where it is used, and what happens when it is hurt."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.core.sampling import Sample
from roofline.errors import FileFormatError, InputError, RooflineError
from roofline.latency import store as store_module
from roofline.latency.samples import (
    FEATURES_VERSION,
    IsolatedSample,
    OperatorFeatures,
    OperatorSample,
    RunSample,
)
from roofline.latency.store import STORE_VERSION, Environment, Store, read_runs
from roofline.machine.core_state import CoreState
from roofline.machine.hardware import Host
from tests.latency.samples import call_of, run_of, sample_of

HOST = Host(
    cpu_model="Imagined 9000",
    architecture="x86_64",
    operating_system="Linux",
    instruction_sets=("avx2", "fma"),
    available_cpus=2,
    versions={"torch": "2.13.0+cpu"},
)
HERE = Environment(host=HOST, torch="2.13.0+cpu")
OLDER = Environment(host=HOST, torch="2.12.0+cpu")


def operator(number: int = 0) -> OperatorSample:
    facts = call_of(
        group="convolution",
        variant="onednn",
        layout="nhwc",
        threads=2,
        numbers=(0.1 + number, 17.25, -math.pi),
        eager_min_time_s=1e-5 / 3,
    )
    return sample_of(facts, 2e-5 / 3, calls=3, iqr_s=1e-7, page_faults=0.5)


def run(model: str = "resnet18", operators: int = 2) -> RunSample:
    return run_of(
        map(operator, range(operators)),
        model=model,
        family="resnet",
        threads=2,
        channels_last=True,
        end_to_end_s=0.1,
        end_to_end_iqr_s=0.002,
        operators_s=0.09,
        free_s=0.001,
        free_calls=4,
        calls=70,
        page_faults=12.5,
    )


def alone(times_s: tuple[float, ...]) -> IsolatedSample:
    return IsolatedSample(
        sample=Sample(times_s=times_s),
        pace=CoreState(clock_hz=3.9e9, core_to_core_latency_s=2e-7),
    )


def opened(path: Path, environment: Environment = HERE) -> Store:
    return Store(path, environment)


def filled(path: Path, *models: str, operators: int = 2, environment: Environment = HERE) -> Path:
    """The file, closed, with a run of each model."""
    with opened(path, environment) as store:
        for model in models:
            store.add(run(model, operators))
    return path


def models_of(store: Store) -> list[str]:
    return [each.model for each in store.runs()]


def changed(path: Path, statement: str, *values: str) -> int:
    """Number of rows that a statement changes in a file, past the store."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, values).rowcount


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "host.latency.sqlite"


# What is kept


def finite(least: float = -1e60, *, more: bool = False) -> st.SearchStrategy[float]:
    """Numbers that saved files hold: 0, or of a magnitude from 2^-256 to 2^256."""
    found = st.floats(least, 1e60, exclude_min=more)
    return found.filter(lambda each: each == 0 or abs(each) > 1e-60)


COUNT = st.integers(1, 2**40)
NAME = st.text(min_size=1)
FACTS = dict[str, st.SearchStrategy[Any]](
    **dict.fromkeys(("group", "variant", "dtype", "layout"), NAME),
    threads=COUNT,
    numbers=st.lists(finite()).map(tuple),
    eager_min_time_s=finite(0.0),
)
OPERATOR = dict[str, st.SearchStrategy[Any]](
    facts=st.builds(OperatorFeatures, **FACTS),
    calls=COUNT,
    time_s=finite(0.0, more=True),
    iqr_s=finite(0.0),
    page_faults=finite(0.0),
)
RUN = dict[str, st.SearchStrategy[Any]](
    **dict.fromkeys(("model", "family", "date", "dtype"), NAME),
    **dict.fromkeys(("end_to_end_iqr_s", "operators_s", "free_s", "page_faults"), finite(0.0)),
    **dict.fromkeys(("channels_last", "train"), st.booleans()),
    **dict.fromkeys(("free_calls", "calls", "threads"), COUNT),
    origin=st.sampled_from(["calibrate", "profile", "validate"]),
    batch=st.none() | COUNT,
    end_to_end_s=finite(0.0, more=True),
    operators=st.lists(st.builds(OperatorSample, **OPERATOR), max_size=4).map(tuple),
    **dict.fromkeys(("clock_hz", "core_to_core_latency_s"), st.none() | finite(0.0, more=True)),
)


@settings(max_examples=60)
@given(st.lists(st.builds(RunSample, **RUN), max_size=3))
def test_runs_come_back_as_they_were_in_their_order(runs: list[RunSample]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.latency.sqlite"
        with opened(path) as store:
            for each in runs:
                store.add(each)
            assert store.runs() == tuple(runs)
        with opened(path) as store:
            assert store.runs() == tuple(runs)


@pytest.mark.parametrize(
    ("kind", "drawn"), [(OperatorFeatures, FACTS), (OperatorSample, OPERATOR), (RunSample, RUN)]
)
def test_no_field_is_left_out_above(kind: type[Any], drawn: dict[str, Any]) -> None:
    assert {each.name for each in fields(kind)} == drawn.keys()


@given(st.text(), st.lists(finite(0.0, more=True), min_size=1).map(tuple))
@settings(max_examples=30)
def test_raw_times_come_back_under_their_key(key: str, times_s: tuple[float, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.latency.sqlite"
        with opened(path) as store:
            assert store.isolated(key) is None
            store.keep_isolated(key, alone(times_s=(1.0,)))
            store.keep_isolated(key, alone(times_s=times_s))
        with opened(path) as store:
            assert store.isolated(key) == alone(times_s=times_s)
            assert store.isolated(f"{key}x") is None


def test_notes_are_replaced(path: Path) -> None:
    with opened(path) as store:
        assert store.note("progress") is None
        store.keep_note("progress", '{"done": 1}')
        store.keep_note("progress", '{"done": 2}')
    with opened(path) as store:
        assert store.note("progress") == '{"done": 2}'
        assert store.note("other") is None


def test_runs_of_one_command_are_forgotten_with_their_operators(path: Path) -> None:
    with opened(path, OLDER) as store:
        store.add(run("kept, of another torch"))
    with opened(path) as store:
        assert store.delete_runs("calibrate") == 0
        store.add(run("a"))
        store.add(replace(run("b"), origin="profile"))
        store.add(run("c"))
        assert store.delete_runs("calibrate") == 2
        assert models_of(store) == ["b"]
        store.add(run("d", operators=3))
        assert models_of(store) == ["b", "d"]


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    "wrong",
    [
        replace(run(), page_faults=NAN),
        replace(run(), free_s=INF),
        replace(run(), end_to_end_iqr_s=NAN),
        replace(run(), operators=(operator(), replace(operator(), page_faults=NAN))),
    ],
)
def test_what_is_no_number_is_not_kept(path: Path, wrong: RunSample) -> None:
    with opened(path) as store:
        with pytest.raises(ValueError, match="only finite numbers"):
            store.add(wrong)
        with pytest.raises(ValueError, match="only finite numbers"):
            store.keep_isolated("key", alone(times_s=(1.0, INF)))
        assert (store.runs(), store.isolated("key")) == ((), None)


def test_names_that_are_not_unicode_are_kept(path: Path) -> None:
    name = os.fsdecode(b"m\xff.py:Model")
    with opened(path) as store:
        store.add(run(name))
        store.keep_isolated(name, alone(times_s=(1.0,)))
        store.keep_note(name, name)
        assert models_of(store) == [name]
        assert store.isolated(name) == alone(times_s=(1.0,))
        assert store.note(name) == name


def test_threads_share_a_store(path: Path) -> None:
    with opened(path) as store:
        threads = [
            threading.Thread(target=lambda: [store.add(run(operators=1)) for _ in range(5)])
            for _ in range(3)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(store.runs()) == 15


# From where it is used

ELSEWHERE = {
    "torch 2.12.0+cpu → 2.13.0+cpu": OLDER,
    "CPU model 'Real 1' → 'Imagined 9000'": replace(HERE, host=replace(HOST, cpu_model="Real 1")),
    "available CPUs 1 → 2": replace(HERE, host=replace(HOST, available_cpus=1)),
    "instruction sets added: fma": replace(HERE, host=replace(HOST, instruction_sets=("avx2",))),
    "version of operator features 0 → 3": replace(HERE, facts_version=0),
}


@pytest.mark.parametrize(("why", "other"), ELSEWHERE.items())
def test_what_was_measured_elsewhere_is_not_used_and_that_is_said(
    path: Path, why: str, other: Environment
) -> None:
    assert FEATURES_VERSION == 3
    with opened(path, other) as store:
        store.add(run(operators=1_233))
        store.keep_isolated("key", alone(times_s=(1.0,)))
        store.keep_note("progress", "all")
        assert store.unused_samples() == ()
    with opened(path) as store:
        assert (store.runs(), store.isolated("key")) == ((), None)
        assert store.note("progress") is None
        (line,) = store.unused_samples()
        assert line == f"1,234 samples are not used: since they were measured, {why}"
        store.keep_isolated("key", alone(times_s=(2.0,)))
        assert store.unused_samples() == (line,)
    with opened(path, other) as store:
        assert len(store.runs()) == 1
        assert store.isolated("key") == alone(times_s=(1.0,))
        (line,) = store.unused_samples()
        assert line.startswith("1 sample is not used: since it was measured, ")


def test_everything_that_differs_is_said() -> None:
    other = replace(OLDER, host=replace(HOST, available_cpus=4), facts_version=7)
    assert other.difference(HERE) == (
        "available CPUs 4 → 2; torch 2.12.0+cpu → 2.13.0+cpu; version of operator features 7 → 3"
    )
    assert HERE.difference(HERE) == ""


def test_what_is_no_part_of_the_fingerprint_makes_no_difference(path: Path) -> None:
    same = replace(HOST, instruction_sets=("fma", "avx2"), versions={}, operating_system="other")
    filled(path, "a")
    with opened(path, Environment(host=same, torch="2.13.0+cpu")) as store:
        assert models_of(store) == ["a"]
        assert store.unused_samples() == ()


# Several processes

ADD = """
import pickle, sys
from pathlib import Path
from roofline.latency.store import Store
path, environment, runs = pickle.load(sys.stdin.buffer)
print("ready", flush=True)
sys.stdin.buffer.readline()
with Store(path, environment) as store:
    for each in runs:
        store.add(each)
"""

KILLED = """
import pickle, sys
from roofline.latency.store import Store
path, environment, (run,) = pickle.load(sys.stdin.buffer)
store = Store(path, environment)
with store._transaction("IMMEDIATE") as connection:
    # So much is changed that part of it goes to the disk before the end.
    connection.execute("PRAGMA cache_size = 10")
    for number in range(300):
        connection.execute(
            "INSERT INTO kept (environment, kind, samples, data) VALUES (1, 'run', 0, ?)",
            ("x" * 10_000,),
        )
    print("halfway", flush=True)
    sys.stdin.buffer.readline()
"""


def started(code: str, path: Path, runs: list[RunSample], until: bytes) -> subprocess.Popen[bytes]:
    """A process that has come so far; it goes on when it is sent a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(pickle.dumps((path, HERE, runs)))
    process.stdin.flush()
    assert process.stdout.readline() == until
    return process


def said_by_adders(path: Path) -> str:
    """What two processes say that open the file at the same time and add 40 runs each."""
    processes = [
        started(ADD, path, [run(f"{name}{number}", 20) for number in range(40)], b"ready\n")
        for name in ("a", "b")
    ]
    for each in processes:
        assert each.stdin is not None
        each.stdin.write(b"\n")
        each.stdin.flush()
    said = b"".join(each.communicate(timeout=60)[0] for each in processes)
    assert [each.returncode for each in processes] == [0, 0]
    return said.decode()


def test_two_processes_add_at_once(path: Path) -> None:
    assert said_by_adders(path) == ""
    with opened(path) as store:
        found = store.runs()
    for name in ("a", "b"):
        assert [each.model for each in found if each.model[0] == name] == [
            f"{name}{number}" for number in range(40)
        ]
    assert all(each.operators == run(operators=20).operators for each in found)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM environment").fetchone() == (1,)
    connection.close()


def test_a_process_that_is_killed_in_the_middle_leaves_what_was_there(path: Path) -> None:
    filled(path, "before")
    process = started(KILLED, path, [run("half")], b"halfway\n")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert path.stat().st_size > 100_000
    assert Path(f"{path}-journal").exists()
    with opened(path) as store:
        assert models_of(store) == ["before"]
        store.add(run("after"))
        assert models_of(store) == ["before", "after"]
        assert len(store.runs()[1].operators) == 2


def test_an_interrupt_in_the_middle_leaves_what_was_there(path: Path) -> None:
    with opened(path) as store:
        store.add(run("before"))
        with pytest.raises(KeyboardInterrupt), store._transaction("IMMEDIATE") as connection:
            connection.execute("DELETE FROM kept")
            raise KeyboardInterrupt
        store.keep_note("progress", "1")
        store.add(run("after"))
        assert models_of(store) == ["before", "after"]


def test_a_process_that_keeps_the_file_locked_is_waited_for_only_so_long(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_LOCK_TIMEOUT_S", 0.0)
    with opened(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(RooflineError, match="locked by another process") as caught:
                store.add(run())
            assert not isinstance(caught.value, InputError)
            # Reading goes on meanwhile.
            assert store.runs() == ()
        finally:
            other.close()
        store.add(run())


# Damage


def is_refused(path: Path, content: bytes) -> None:
    """Whether a damaged file is refused in a line, by who writes and by who reads, and stays."""
    for use in (opened, lambda path: read_runs(path, HOST)):
        with pytest.raises(FileFormatError, match=r"is damaged \(.*\); remove it; ") as caught:
            use(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)
    assert path.read_bytes() == content
    path.unlink()
    filled(path, "new")
    with opened(path) as store:
        assert models_of(store) == ["new"]


@pytest.mark.parametrize("length", [2, 15, 16, 99, 100, 511, 512, 4096, 100_000])
def test_a_file_of_something_else_is_refused(path: Path, length: int) -> None:
    content = random.Random(length).randbytes(length)
    path.write_bytes(content)
    is_refused(path, content)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_short_is_refused(path: Path, share: float) -> None:
    content = filled(path, "a", "b", operators=300).read_bytes()
    content = content[: int(share * len(content))]
    path.write_bytes(content)
    is_refused(path, content)


def test_pages_that_were_overwritten_are_found_or_held_nothing(path: Path) -> None:
    content = filled(path, "a", "b", operators=300).read_bytes()
    expected = (run("a", 300), run("b", 300))
    found = 0
    for page in range(len(content) // 4096):
        hurt = bytearray(content)
        # The first hundred bytes are the file's header.
        begin, end = max(100, page * 4096), (page + 1) * 4096
        hurt[begin:end] = random.Random(page).randbytes(end - begin)
        path.write_bytes(hurt)
        try:
            with opened(path) as store:
                assert store.runs() == expected
        except FileFormatError:
            found += 1
            assert path.read_bytes() == bytes(hurt)
    assert found > 10


@pytest.mark.parametrize("content", [b"", b"x"])
def test_an_empty_file_is_as_good_as_none(path: Path, content: bytes) -> None:
    # SQLite itself makes files of one byte, on some systems, before it writes to them.
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"is damaged \(.*\); remove it; "):
        read_runs(path, HOST)
    assert path.read_bytes() == content
    filled(path, "a")
    with opened(path) as store:
        assert models_of(store) == ["a"]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE other (x)",
        "CREATE TABLE kept (id INTEGER PRIMARY KEY); PRAGMA user_version = 1",
        "CREATE TABLE other (x); PRAGMA user_version = -1",
    ],
)
def test_a_file_with_other_tables_is_refused(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.executescript(statement)
    connection.close()
    is_refused(path, path.read_bytes())


DAMAGED_RUNS = (
    ('"numbers":[', '"numbers":[null,'),
    ('"numbers":[', '"numbers":'),
    ('"numbers":[', '"numbers":[NaN,'),
    ('"group":"convolution"', '"group":""'),
    ('"time_s":', '"time_s":-1'),
    ('"page_faults":', '"page_faults":9e999'),
    ('"calls":3', '"calls":"many"'),
    ('"origin":"calibrate"', '"origin":"nowhere"'),
    ('"end_to_end_s":0.1', '"end_to_end_s":0'),
    ('"batch":', '"unknown":1,"batch":'),
    ('"model":"a"', '"model":1'),
)


@pytest.mark.parametrize(("part", "damage"), DAMAGED_RUNS)
def test_what_no_sample_can_be_is_damage_found_while_in_use(
    path: Path, part: str, damage: str
) -> None:
    with opened(path) as store:
        store.add(run("a"))
        statement = "UPDATE kept SET data = replace(data, ?, ?) WHERE instr(data, ?)"
        assert changed(path, statement, part, damage, part) == 1
        with pytest.raises(FileFormatError, match=r"is damaged \(.*; remove it"):
            store.runs()
    with pytest.raises(FileFormatError, match=r"is damaged \(.*; remove it"):
        read_runs(path, HOST)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE kept SET data = CAST(x'ff00ff' AS TEXT)",
        "UPDATE kept SET data = '{'",
        "UPDATE environment SET data = '{}'",
        "UPDATE environment SET data = '['",
    ],
)
def test_rows_that_are_no_text_of_ours_are_damage(path: Path, statement: str) -> None:
    filled(path, "a")
    changed(path, statement)
    with opened(path) as store, pytest.raises(FileFormatError, match="is damaged"):
        store.runs()


def test_damage_of_the_cache_is_found_while_in_use(path: Path) -> None:
    with opened(path) as store:
        store.keep_isolated("key", alone(times_s=(1.0,)))
        changed(path, "UPDATE kept SET data = replace(data, '1.0', '0')")
        with pytest.raises(FileFormatError, match="is damaged"):
            store.isolated("key")
        store.keep_isolated("key", alone(times_s=(2.0,)))
        assert store.isolated("key") == alone(times_s=(2.0,))


def test_a_newer_file_is_refused_and_left_as_it_is(path: Path) -> None:
    filled(path, "a")
    changed(path, f"PRAGMA user_version = {STORE_VERSION + 1}")
    content = path.read_bytes()
    with pytest.raises(FileFormatError, match="was written by a newer roofline") as caught:
        opened(path)
    assert "pip install --upgrade roofline" in str(caught.value)
    with pytest.raises(FileFormatError, match="was written by a newer roofline"):
        read_runs(path, HOST)
    assert path.read_bytes() == content
    assert [each.name for each in path.parent.iterdir()] == [path.name]


# Files and folders that refuse


@pytest.fixture
def visible() -> Iterator[Path]:
    """A folder that other users may look into, if they come there."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    user = os.geteuid()
    try:
        yield folder
    finally:
        os.seteuid(user)
        folder.chmod(0o755)
        shutil.rmtree(folder)


def lock(folder: Path) -> None:
    """From here on nothing can be written in the folder, not even by root."""
    for each in folder.iterdir():
        each.chmod(0o444)
    folder.chmod(0o555)
    if os.geteuid() == 0:
        os.seteuid(65534)


def test_a_folder_that_cannot_be_written_is_said_in_a_line(visible: Path) -> None:
    path = filled(visible / "a.latency.sqlite", "a")
    lock(visible)
    for name in ("a", "b", "folder/c"):
        with pytest.raises(InputError, match=r"cannot be written: .*\S$") as caught:
            opened(visible / f"{name}.latency.sqlite")
        assert str(caught.value).startswith(str(visible))
        assert "\n" not in str(caught.value)
    found = read_runs(path, HOST)
    assert found is not None
    assert [each.model for each in found[1]] == ["a"]


@pytest.mark.parametrize("name", ["/proc/a.latency.sqlite", "/dev/null/a.latency.sqlite"])
def test_places_where_no_file_can_be(name: str) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        opened(Path(name))


def test_what_is_no_file_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(InputError, match="is not a regular file"):
        opened(path)
    with pytest.raises(InputError, match="is not a regular file"):
        read_runs(path, HOST)
    pipe = path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="is not a regular file"):
        opened(pipe)
    with pytest.raises(InputError, match="cannot be written"):
        opened(path / "a\0b")


def test_a_full_disk_is_said_and_leaves_what_was_there(path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(path) as store:
        store.add(run("before"))
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
            with pytest.raises(InputError, match=r"cannot be written: .*; .* disk"):
                store.add(run("too large", operators=10_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        store.add(run("after"))
        assert models_of(store) == ["before", "after"]


@pytest.mark.parametrize("name", ["a?b=c&mode=memory", "a#b", "50%20 é\n'\"", ":memory:", "\udcff"])
def test_odd_names(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(name) / name
    filled(path, "a")
    assert (tmp_path / name / name).is_file()
    found = read_runs(path, HOST)
    assert found is not None
    assert [each.model for each in found[1]] == ["a"]
    path.write_bytes(b"garbage")
    with pytest.raises(FileFormatError) as caught:
        opened(path)
    assert str(caught.value).isprintable()


def test_a_link_keeps_leading_to_its_file(tmp_path: Path, path: Path) -> None:
    (tmp_path / "folder").mkdir()
    path.symlink_to("folder/real")
    filled(path, "a")
    assert path.is_symlink()
    with opened(tmp_path / "folder" / "real") as store:
        assert models_of(store) == ["a"]


# Machines one does not have


def test_where_there_is_no_file_nothing_is_read(path: Path) -> None:
    assert read_runs(path, HOST) is None
    assert list(path.parent.iterdir()) == []


def test_the_environment_measured_in_last_is_read(path: Path) -> None:
    filled(path, "old", environment=OLDER)
    filled(path, "elsewhere", environment=ELSEWHERE["available CPUs 1 → 2"])
    filled(path, "here")
    filled(path, "other facts", environment=replace(HERE, facts_version=FEATURES_VERSION + 1))
    assert read_runs(path, HOST) == (HERE, (run("here"),))
    filled(path, "old again", environment=OLDER)
    assert read_runs(path, HOST) == (OLDER, (run("old"), run("old again")))
    assert read_runs(path, replace(HOST, cpu_model="Real 1")) is None


def test_reading_leaves_nothing_behind(path: Path) -> None:
    filled(path, "a")
    before = path.stat()
    assert read_runs(path, HOST) == (HERE, (run("a"),))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert [each.name for each in path.parent.iterdir()] == [path.name]
