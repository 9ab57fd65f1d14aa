"""What was measured and is learned from, kept in a file beside the profile of the machine.

There are runs (models with each of their operators), a cache of operators that were timed on their
own, and short notes. Each belongs to an environment; those of another one stay where they are, and
are not used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from types import TracebackType

from roofline.foundation.progress import Say
from roofline.latency.database import Database, read_only
from roofline.latency.environment import Environment
from roofline.latency.samples import FACTS_VERSION, IsolatedSample, Origin, RunSample
from roofline.latency.stored_rows import STORE_VERSION as STORE_VERSION
from roofline.latency.stored_rows import (
    TABLES,
    add_environment,
    add_run,
    check_finite,
    environments,
    isolated_sample,
    keep_isolated_sample,
    run_samples,
    sample_counts,
    storable,
)
from roofline.machine.hardware import Host


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
