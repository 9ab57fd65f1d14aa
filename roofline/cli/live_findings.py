"""What a measurement has found so far, on a terminal, while it goes on."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from roofline.cli.results import plain_console
from roofline.cli.streams import tell
from roofline.foundation.text import counted

if TYPE_CHECKING:
    from rich.console import Group

    from roofline.machine.measuring.schedule import Finding

_REFRESH_S = 0.2


class LiveFindings:
    """A progress bar on stderr, and under it the best rate so far of each data type and level.

    Both go when the measurement is over. In a file or a pipe there is one plain line instead. The
    screen is drawn between kernels, on the thread that measures: drawing beside them would disturb.
    """

    def __init__(self, title: str) -> None:
        from rich.live import Live
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = plain_console(stderr=True)
        self._title = title
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[now]}"),
            TimeElapsedColumn(),
            console=console,
            auto_refresh=False,
        )
        self._task = self._bar.add_task(title, total=1.0, now="")
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._best: dict[str, Finding] = {}
        self._rates: dict[tuple[str, int], Finding] = {}
        self._shown = sys.stderr.isatty()
        self._started = False
        self._drawn_s = 0.0

    def __enter__(self) -> LiveFindings:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._started and self._shown:
            self._live.stop()

    def report(self, fraction: float, now: str) -> None:
        """How far it is, 0 to 1, and what comes next."""
        if not self._started:
            self._started = True
            if self._shown:
                self._live.start()
            else:
                tell(f"{self._title} …")
        if self._shown and time.monotonic() - self._drawn_s > _REFRESH_S:
            self._bar.update(self._task, completed=fraction, now=now)
            self._live.update(self._screen(), refresh=True)
            self._drawn_s = time.monotonic()

    def found(self, finding: Finding) -> None:
        """A rate as far as it is known."""
        self._rates[finding.what, finding.threads] = finding
        group = finding.what.partition(" ")[0]
        best = self._best.get(group)
        if best is None or best.what == finding.what or finding.per_s > best.per_s:
            self._best[group] = finding

    def waiting(self, why: str) -> None:
        """Says that another measurement is waited for."""
        tell(f"roofline: {why}")

    def _screen(self) -> Group:
        from rich.console import Group
        from rich.table import Table

        from roofline.foundation.units import format_bytes_per_s, format_flop_per_s

        teams = sorted({threads for _, threads in self._rates})
        table = Table.grid(padding=(0, 2))
        for best in self._best.values():
            form = format_flop_per_s if best.quantity == "flop" else format_bytes_per_s
            cells = [
                f"{form(rate.per_s)} on {counted(team, 'thread')}" if rate else ""
                for team in teams
                for rate in [self._rates.get((best.what, team))]
            ]
            table.add_row(best.what, *cells)
        return Group(self._bar, table)
