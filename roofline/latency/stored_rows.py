"""Samples as rows of tables, and back; what no sample can be is taken for damage."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from sqlite3 import Connection
from typing import Any, get_args

from roofline.errors import FileFormatError
from roofline.foundation.sampling import Sample
from roofline.foundation.schema import from_data, to_data
from roofline.latency.database import Tables
from roofline.latency.environment import Environment
from roofline.latency.samples import Facts, IsolatedSample, OperatorSample, Origin, RunSample
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
