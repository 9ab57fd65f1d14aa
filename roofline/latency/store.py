"""What was measured and is learned from, kept in a file beside the profile of the machine.

There are runs (models with each of their operators), a cache of operators that were timed on their
own, and short notes. Each belongs to an environment; those of another one stay where they are, and
are not used.
"""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from types import TracebackType
from typing import Any, get_args

from roofline.errors import FileFormatError
from roofline.foundation.progress import Say
from roofline.foundation.sampling import Sample
from roofline.foundation.schema import from_data, to_data
from roofline.latency.database import Database, Tables, read_only
from roofline.latency.environment import Environment
from roofline.latency.samples import (
    FACTS_VERSION,
    Facts,
    IsolatedSample,
    OperatorSample,
    Origin,
    RunSample,
)
from roofline.latency.sqlite_files import DamagedError
from roofline.machine.hardware import Host
from roofline.machine.pace import Pace

STORE_VERSION = 1
"""Of the tables; a file with newer ones is refused."""

TABLES = Tables(
    version=STORE_VERSION,
    statements=(
        """CREATE TABLE environment (
            id INTEGER PRIMARY KEY, host TEXT NOT NULL, torch TEXT NOT NULL,
            facts_version INTEGER NOT NULL)""",
        """CREATE TABLE run (
            id INTEGER PRIMARY KEY, environment INTEGER NOT NULL REFERENCES environment,
            model TEXT NOT NULL, family TEXT NOT NULL, origin TEXT NOT NULL, date TEXT NOT NULL,
            batch INTEGER, dtype TEXT NOT NULL, threads INTEGER NOT NULL,
            channels_last INTEGER NOT NULL, train INTEGER NOT NULL,
            end_to_end_s REAL NOT NULL, end_to_end_iqr_s REAL NOT NULL, operators_s REAL NOT NULL,
            free_s REAL NOT NULL, free_calls INTEGER NOT NULL, calls INTEGER NOT NULL,
            page_faults REAL NOT NULL, clock_hz REAL, core_to_core_latency_s REAL)""",
        """CREATE TABLE operator (
            run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE, place INTEGER NOT NULL,
            kind TEXT NOT NULL, variant TEXT NOT NULL, dtype TEXT NOT NULL, layout TEXT NOT NULL,
            threads INTEGER NOT NULL, numbers TEXT NOT NULL, eager_min_time_s REAL NOT NULL,
            calls INTEGER NOT NULL, time_s REAL NOT NULL, iqr_s REAL NOT NULL,
            page_faults REAL NOT NULL, PRIMARY KEY (run, place)) WITHOUT ROWID""",
        """CREATE TABLE isolated (
            environment INTEGER NOT NULL REFERENCES environment, key TEXT NOT NULL,
            times_s TEXT NOT NULL, clock_hz REAL, core_to_core_latency_s REAL,
            PRIMARY KEY (environment, key)) WITHOUT ROWID""",
        """CREATE TABLE note (
            environment INTEGER NOT NULL REFERENCES environment, name TEXT NOT NULL,
            text TEXT NOT NULL, PRIMARY KEY (environment, name)) WITHOUT ROWID""",
    ),
)

_RUN = (
    *("model", "family", "origin", "date", "batch", "dtype", "threads", "channels_last", "train"),
    *(
        "end_to_end_s",
        "end_to_end_iqr_s",
        "operators_s",
        "free_s",
        "free_calls",
        "calls",
        "page_faults",
    ),
    *("clock_hz", "core_to_core_latency_s"),
)
# "group" is a word of SQL.
_FACTS = ("kind", "variant", "dtype", "layout", "threads", "numbers", "eager_min_time_s")
_OPERATOR = (*_FACTS, "calls", "time_s", "iqr_s", "page_faults")


def check_finite(sample: RunSample | IsolatedSample) -> None:
    """Refuses what SQLite would keep as something else, or what nothing can be learned from.

    Raises:
        ValueError: a number that is not finite.
    """
    if isinstance(sample, IsolatedSample):
        numbers: Sequence[float] = sample.sample.times_s
    else:
        numbers = (
            *(sample.end_to_end_s, sample.end_to_end_iqr_s, sample.operators_s, sample.free_s),
            *(sample.page_faults, *(each.page_faults for each in sample.operators)),
        )
    if not all(map(math.isfinite, numbers)):
        raise ValueError("only finite numbers are kept")


def storable(text: str) -> str:
    """`text` as it is, or, where it comes from a name that is not Unicode, with escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def environments(connection: Connection) -> list[tuple[int, Environment]]:
    """Those that anything was kept of, with their numbers."""
    found: list[tuple[int, Environment]] = []
    query = "SELECT id, host, torch, facts_version FROM environment ORDER BY id"
    for number, host, torch, version in connection.execute(query):
        with _damage_told("environment"):
            data = from_data(Host, json.loads(host), file="host")
            found.append((number, Environment(host=data, torch=torch, facts_version=version)))
    return found


def add_environment(connection: Connection, environment: Environment) -> int:
    """Its number from now on."""
    values = (
        json.dumps(to_data(environment.host), allow_nan=False),
        environment.torch,
        environment.facts_version,
    )
    return _inserted(connection, "environment", ("host", "torch", "facts_version"), values)


def sample_counts(connection: Connection) -> list[tuple[Environment, int]]:
    """How many operators were timed in each environment, in place and on their own."""
    counts: dict[int, int] = defaultdict(int)
    for query in (
        "SELECT environment, count(*) FROM operator JOIN run ON run = id GROUP BY environment",
        "SELECT environment, count(*) FROM isolated GROUP BY environment",
    ):
        for number, count in connection.execute(query):
            counts[number] += count
    return [(each, counts[number]) for number, each in environments(connection)]


def add_run(connection: Connection, environment: int, run: RunSample) -> None:
    """Adds a run with its operators, in the order they have."""
    values = (_storable_value(getattr(run, name)) for name in _RUN)
    number = _inserted(connection, "run", ("environment", *_RUN), (environment, *values))
    connection.executemany(
        _insertion("operator", ("run", "place", *_OPERATOR)),
        ((number, place, *_operator_row(each)) for place, each in enumerate(run.operators)),
    )


def run_samples(connection: Connection, environment: int | None) -> tuple[RunSample, ...]:
    """The runs of an environment, oldest first."""
    operators = _operators(connection, environment)
    query = f"SELECT id, {', '.join(_RUN)} FROM run WHERE environment = ? ORDER BY id"
    found: list[RunSample] = []
    for number, *row in connection.execute(query, (environment,)):
        with _damage_told("run"):
            found.append(_run(row, tuple(operators.get(number, ()))))
    return tuple(found)


def keep_isolated_sample(
    connection: Connection, environment: int, key: str, sample: IsolatedSample
) -> None:
    """Keeps it in place of an earlier one of that key."""
    connection.execute(
        "INSERT OR REPLACE INTO isolated"
        " (environment, key, times_s, clock_hz, core_to_core_latency_s)"
        " VALUES (?, ?, ?, ?, ?)",
        (
            *(environment, storable(key), _numbers_text(sample.sample.times_s)),
            *(sample.pace.clock_hz, sample.pace.core_to_core_latency_s),
        ),
    )


def isolated_sample(
    connection: Connection, environment: int | None, key: str
) -> IsolatedSample | None:
    """That of a key; None: there is none."""
    row = connection.execute(
        "SELECT times_s, clock_hz, core_to_core_latency_s FROM isolated"
        " WHERE environment = ? AND key = ?",
        (environment, storable(key)),
    ).fetchone()
    if row is None:
        return None
    with _damage_told("isolated"):
        times_s, clock_hz, core_to_core_latency_s = row
        sample = IsolatedSample(
            sample=Sample(times_s=_numbers(times_s)),
            pace=Pace(clock_hz=clock_hz, core_to_core_latency_s=core_to_core_latency_s),
        )
        check_finite(sample)
        return sample


def _operators(connection: Connection, environment: int | None) -> dict[int, list[OperatorSample]]:
    """The operators of each run of an environment."""
    found: dict[int, list[OperatorSample]] = defaultdict(list)
    # Most calls come again in other runs.
    known: dict[tuple[Any, ...], Facts] = {}
    query = (
        f"SELECT run, {', '.join(f'operator.{name}' for name in _OPERATOR)}"
        " FROM run JOIN operator ON run = id WHERE environment = ? ORDER BY run, place"
    )
    with _damage_told("operator"):
        for run, *row in connection.execute(query, (environment,)):
            columns = tuple(row[: len(_FACTS)])
            facts = known.get(columns)
            if facts is None:
                facts = known[columns] = _facts(*columns)
            calls, time_s, iqr_s, page_faults = row[len(_FACTS) :]
            found[run].append(
                OperatorSample(
                    facts=facts, calls=calls, time_s=time_s, iqr_s=iqr_s, page_faults=page_faults
                )
            )
    return found


def _run(row: Sequence[Any], operators: tuple[OperatorSample, ...]) -> RunSample:
    values: dict[str, Any] = dict(zip(_RUN, row, strict=True))
    if values["origin"] not in get_args(Origin):
        raise ValueError("no such origin")
    # SQLite knows no booleans.
    for name in ("channels_last", "train"):
        values[name] = bool(values[name])
    run = RunSample(**values, operators=operators)
    check_finite(run)
    # What is no pace raises.
    _ = run.pace
    return run


def _facts(
    kind: str,
    variant: str,
    dtype: str,
    layout: str,
    threads: int,
    numbers: str,
    eager_min_time_s: float,
) -> Facts:
    return Facts(
        group=kind,
        variant=variant,
        dtype=dtype,
        layout=layout,
        threads=threads,
        numbers=_numbers(numbers),
        eager_min_time_s=eager_min_time_s,
    )


def _operator_row(sample: OperatorSample) -> tuple[Any, ...]:
    facts = sample.facts
    return (
        *map(storable, (facts.group, facts.variant, facts.dtype, facts.layout)),
        *(facts.threads, _numbers_text(facts.numbers), facts.eager_min_time_s),
        *(sample.calls, sample.time_s, sample.iqr_s, sample.page_faults),
    )


def _storable_value(value: object) -> object:
    return storable(value) if isinstance(value, str) else value


def _numbers_text(numbers: Sequence[float]) -> str:
    """Numbers as JSON, every digit of them."""
    return json.dumps(numbers, separators=(",", ":"), allow_nan=False)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(float, json.loads(text)))


def _insertion(table: str, columns: Sequence[str]) -> str:
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"


def _inserted(
    connection: Connection, table: str, columns: Sequence[str], values: Sequence[object]
) -> int:
    """The number of the row."""
    number = connection.execute(_insertion(table, columns), tuple(values)).lastrowid
    assert number is not None
    return number


@contextmanager
def _damage_told(table: str) -> Generator[None]:
    """Takes what cannot be made of a row of `table` for damage of the file."""
    try:
        yield
    except (ValueError, TypeError, RecursionError, FileFormatError):
        raise DamagedError(f"table '{table}' holds what was never written there") from None


def latency_file(profile: Path) -> Path:
    """Where the samples of the machine in that file are: ``host.latency.sqlite``, by its side."""
    return profile.with_suffix(".latency.sqlite")


class Store:
    """The samples of one machine, as far as they were measured in one environment.

    Any number of processes may have the file open at once; each change is made whole or not at all.
    A file that turns out to be damaged is set aside, and the store goes on with an empty one.
    Every method raises InputError where the file cannot be written any more (its disk is full), and
    RooflineError where another process keeps it locked.
    """

    def __init__(self, database: Database, environment: Environment) -> None:
        self._database = database
        self._environment = environment

    @classmethod
    def open(cls, path: Path, environment: Environment, *, say: Say) -> Store:
        """The store in that file, which is made if there is none.

        Args:
            path: its file; folders are made.
            environment: that of what is added, and the only one of what is given.
            say: called with a line if the file is damaged, which may turn out later.

        Raises:
            InputError: the file, or its folder, cannot be written.
            FileFormatError: a newer version has written it.
            RooflineError: another process keeps it locked.
        """
        return cls(Database(path, TABLES, say=say), environment)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; twice is no error."""
        self._database.close()

    def add(self, run: RunSample) -> None:
        """Keeps a run with all of its operators.

        Raises:
            ValueError: a number that is not finite.
        """
        check_finite(run)
        self._database.change(
            lambda connection: add_run(connection, self._made_id(connection), run)
        )

    def runs(self) -> tuple[RunSample, ...]:
        """The runs of this environment in the order they were added."""
        return self._database.read(lambda connection: run_samples(connection, self._id(connection)))

    def forget_runs(self, origin: Origin) -> int:
        """Drops the runs that a command measured in this environment, and says how many."""
        return self._database.change(
            lambda connection: (
                connection.execute(
                    "DELETE FROM run WHERE environment = ? AND origin = ?",
                    (self._id(connection), origin),
                ).rowcount
            )
        )

    def unused(self) -> tuple[str, ...]:
        """What is in the file and not used here, and why: a line for each other environment."""
        found = self._database.read(sample_counts)
        lines: list[str] = []
        for other, count in found:
            difference = other.difference(self._environment)
            if difference and count:
                subject = "1 sample is not used: since it was measured"
                if count > 1:
                    subject = f"{count:,} samples are not used: since they were measured"
                lines.append(f"{subject}, {difference}")
        return tuple(lines)

    def isolated(self, key: str) -> IsolatedSample | None:
        """The times of the operator of that key, timed on its own; None: it was not."""
        return self._database.read(
            lambda connection: isolated_sample(connection, self._id(connection), key)
        )

    def keep_isolated(self, key: str, sample: IsolatedSample) -> None:
        """Keeps the times of an operator, in place of earlier ones.

        Raises:
            ValueError: a time that is not finite.
        """
        check_finite(sample)
        self._database.change(
            lambda connection: keep_isolated_sample(
                connection, self._made_id(connection), key, sample
            )
        )

    @property
    def isolated_count(self) -> int:
        """How many operators were timed on their own."""
        return self._database.read(
            lambda connection: int(
                connection.execute(
                    "SELECT count(*) FROM isolated WHERE environment = ?", (self._id(connection),)
                ).fetchone()[0]
            )
        )

    def note(self, name: str) -> str | None:
        """The text that was kept under `name`; None: there is none."""
        found = self._database.read(
            lambda connection: connection.execute(
                "SELECT text FROM note WHERE environment = ? AND name = ?",
                (self._id(connection), storable(name)),
            ).fetchone()
        )
        return None if found is None else str(found[0])

    def keep_note(self, name: str, text: str) -> None:
        """Keeps a short text, such as how far a calibration came, in place of an earlier one."""
        self._database.change(
            lambda connection: connection.execute(
                "INSERT OR REPLACE INTO note (environment, name, text) VALUES (?, ?, ?)",
                (self._made_id(connection), storable(name), storable(text)),
            )
        )

    def _id(self, connection: Connection) -> int | None:
        """The number of this environment in the file; None: nothing of it is there."""
        return next(
            (
                number
                for number, each in environments(connection)
                if not each.difference(self._environment)
            ),
            None,
        )

    def _made_id(self, connection: Connection) -> int:
        number = self._id(connection)
        return add_environment(connection, self._environment) if number is None else number


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRuns:
    """The runs of one environment in a file, and its notes by name."""

    environment: Environment
    runs: tuple[RunSample, ...]
    notes: Mapping[str, str]


def read_runs(path: Path, host: Host) -> KeptRuns | None:
    """The runs in a file that is only read, such as one that came with the profile of a machine.

    Of the environments that have the fingerprint of `host` and facts as they are told today, it is
    the one that was measured in last. None: there is none, or no such file.

    Raises:
        InputError: it cannot be read.
        FileFormatError: it is damaged, is something else, or a newer version has written it.
    """

    def work(connection: Connection) -> KeptRuns | None:
        latest = dict(
            connection.execute("SELECT environment, max(id) FROM run GROUP BY environment")
        )
        fitting = [
            (latest[number], number, each)
            for number, each in environments(connection)
            if number in latest
            and not each.host.difference(host)
            and each.facts_version == FACTS_VERSION
        ]
        if not fitting:
            return None
        _, number, environment = max(fitting, key=lambda each: each[0])
        notes = connection.execute("SELECT name, text FROM note WHERE environment = ?", (number,))
        return KeptRuns(
            environment=environment,
            runs=run_samples(connection, number),
            notes={str(name): str(text) for name, text in notes},
        )

    if not os.path.lexists(path):
        return None
    return read_only(path, TABLES, work)
