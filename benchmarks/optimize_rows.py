"""Rows of the tables about `roofline optimize`: each computed in a process of its own, and kept.

A row that ends badly costs that row. What is finished stands as a line of JSON in a folder, so that
a run that is stopped, or reaches its time limit, goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from roofline.core.files import write_atomically
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile

HERE = Path(__file__).parent
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A script's rows, in the order of their worth, and what is made of them.

    ``keys`` name the rows; ``compute`` makes one, in a process of its own, told whether to be
    quick; ``lines`` are those of the Markdown file ``name-host``.md: every host has its own.
    """

    name: str
    keys: Sequence[str]
    compute: Callable[[str, bool], Row]
    lines: Callable[[Sequence[Row]], Iterable[str]]
    row_limit_s: float = 600.0


def run(table: Table, doc: str | None) -> None:
    """What the script does: computes the rows that are missing, then writes the table."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help="where finished rows are kept")
    parser.add_argument("--table", action="store_true", help="only the table")
    parser.add_argument("--quick", action="store_true", help="to see that it runs; no table here")
    parser.add_argument("--only", metavar="TEXT", action="append", help="rows with it in their key")
    parser.add_argument("--time-limit", type=float, metavar="S", help="starts no row after that")
    parser.add_argument("--list", action="store_true", help="the keys of the rows")
    parser.add_argument("--row", metavar="KEY", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row is not None:
        print(json.dumps(table.compute(options.row, options.quick)))
        return
    keys = [
        key for key in table.keys if not options.only or any(each in key for each in options.only)
    ]
    if options.list:
        print("\n".join(keys))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    file = options.folder / f"{table.name}{'-quick' if options.quick else ''}.jsonl"
    if not options.table:
        _fill(table, keys, file, quick=options.quick, time_limit_s=options.time_limit)
    text = "\n".join(table.lines(_in_order(table, _kept(file)))) + "\n"
    target = options.folder if options.quick else HERE
    write_atomically(target / f"{table.name}-{_host().name}.md", text, overwrite=True)
    print(text)


def _fill(
    table: Table, keys: Sequence[str], file: Path, *, quick: bool, time_limit_s: float | None
) -> None:
    begun_s = time.monotonic()
    done = {row["key"] for row in _kept(file) if "error" not in row}
    for key in keys:
        if key in done:
            continue
        if time_limit_s is not None and time.monotonic() - begun_s > time_limit_s:
            print("the time limit is reached; call it again to go on", flush=True)
            return
        started_s = time.monotonic()
        row = _in_own_process(key, quick=quick, limit_s=table.row_limit_s)
        row = {"key": key, **row, "row_s": time.monotonic() - started_s}
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
        said = row.get("error", "")
        print(time.strftime("%H:%M:%S"), key, f"{row['row_s']:.1f} s", said, flush=True)


def _in_own_process(key: str, *, quick: bool, limit_s: float) -> Row:
    command = [sys.executable, sys.argv[0], ".", "--row", key, *(["--quick"] if quick else [])]
    # Processes of their own, where models are timed, load our networks by the names of modules.
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        printed, said = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        # It has processes of its own, which would disturb the next row.
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return {"error": f"took more than {limit_s:.0f} s"}
    if child.returncode != 0:
        lines = said.strip().splitlines()
        return {"error": lines[-1] if lines else f"exit code {child.returncode}"}
    return json.loads(printed.strip().splitlines()[-1])


def _kept(file: Path) -> list[Row]:
    """The last row of each key."""
    if not file.exists():
        return []
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return list({row["key"]: row for row in rows}.values())


def _in_order(table: Table, rows: Iterable[Row]) -> list[Row]:
    by_key = {row["key"]: row for row in rows}
    return [by_key[key] for key in table.keys if key in by_key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Two ways to compute the same, in turn: medians in seconds, and the speed-up of the second.

    ``speedup_low`` and ``speedup_high`` are the interval from 10 to 90 % of rounds.
    """

    before_s: float
    after_s: float
    speedup: float
    speedup_low: float
    speedup_high: float

    @property
    def is_clear(self) -> bool:
        """Whether one of them is faster by more than 5 %, and no round nearly says otherwise."""
        gains = self.speedup > 1.05 and self.speedup_low > 1.0
        return gains or (self.speedup < 1 / 1.05 and self.speedup_high < 1.0)


def in_turn(
    before: Callable[..., Any],
    after: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    *,
    rounds: int = 15,
    burst_s: float = 0.01,
) -> Timed:
    """Times A, B, A, B …; each round is a burst of calls of both, in either order."""
    ways = (before, after)
    with torch.inference_mode():
        for way in ways:
            for _ in range(3):
                way(*inputs)
        calls = [max(1, round(burst_s / max(_burst_s(way, inputs, 1), 1e-6))) for way in ways]
        times: list[tuple[float, float]] = []
        for number in range(rounds):
            order = (0, 1) if number % 2 == 0 else (1, 0)
            found = {place: _burst_s(ways[place], inputs, calls[place]) for place in order}
            times.append((found[0], found[1]))
    ratios = sorted(one / other for one, other in times)
    return Timed(
        before_s=statistics.median(one for one, _ in times),
        after_s=statistics.median(other for _, other in times),
        speedup=statistics.median(ratios),
        speedup_low=ratios[round(0.1 * (len(ratios) - 1))],
        speedup_high=ratios[round(0.9 * (len(ratios) - 1))],
    )


def _burst_s(way: Callable[..., Any], inputs: Sequence[torch.Tensor], calls: int) -> float:
    begun_s = time.perf_counter()
    for _ in range(calls):
        way(*inputs)
    return (time.perf_counter() - begun_s) / calls


def about_the_machine() -> str:
    """The line that a table begins with."""
    return (
        f"Machine: {_host().name} ({platform.machine()}), torch {torch.__version__},"
        f" {time.strftime('%Y-%m-%d')}."
    )


def _host() -> HardwareProfile:
    return catalog.load_hardware(catalog.HOST)


def ratio(value: float | None) -> str:
    """A ratio to two places; a dash where there is none."""
    return "–" if value is None else f"{value:.2f} ×"


def interval(low: float | None, high: float | None) -> str:
    """The interval of a ratio."""
    return "–" if low is None or high is None else f"{low:.2f} … {high:.2f}"


def counted(words: Iterable[str]) -> str:
    """``fold-batch-norm ×53, merge-convolutions``: each word once, with how often it occurs."""
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    parts = [word if count == 1 else f"{word} ×{count}" for word, count in counts.items()]
    return ", ".join(parts) or "–"


def failed(rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Rows that ended badly, as a list; nothing where there are none."""
    wrong = [row for row in rows if "error" in row]
    if wrong:
        yield ""
        yield "Failed:"
        yield ""
        for row in wrong:
            yield f"* {row['key']}: {row['error']}"
