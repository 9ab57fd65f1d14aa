"""``roofline measure``."""

from __future__ import annotations

import sys
import time
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal

import click

from roofline.cli import candidates
from roofline.cli.options import output_options
from roofline.cli.results import plain_console, present_result, result_console, say_written
from roofline.cli.streams import tell
from roofline.errors import InputError
from roofline.foundation.text import counted

if TYPE_CHECKING:
    from rich.console import Group

    from roofline.machine.hardware import Effort, HardwareProfile
    from roofline.machine.measuring.estimation import Finding


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


def measure_links(others: dict[str, bool], outputs: tuple[Path, ...], *, force: bool) -> None:
    """Measures the links between processes of this machine, and shows its profile with them.

    Args:
        others: options that have no effect here, and whether they were given.
        outputs: files that the profile is written to as well.
        force: overwrites them.

    Raises:
        InputError: one of `others`, or a file that cannot be written.
    """
    for option, is_given in others.items():
        if is_given:
            raise InputError(
                f"{option} has no effect with --links, which measures links alone; leave it out"
            )
    from roofline.foundation.blocks import View
    from roofline.machine import catalog
    from roofline.machine.hardware import HardwareProfile

    HardwareProfile.check_files(outputs, overwrite=force)
    from roofline.pipeline.measuring import measure_links as measure

    profile = measure(say=tell)
    # Files first: what is printed may end early, in a pipe that closes.
    profile.save(*outputs, overwrite=force)
    present_result(profile, (), stdout_format=None, view=View(), force=force)
    say_written((catalog.host_file(), *outputs))


@click.command("measure")
@click.option("--quick", is_flag=True, help="In 3 s: no library ceilings.")
@click.option(
    "--thorough",
    is_flag=True,
    help="In minutes: every kernel a second on end, which shows what heat does.",
)
@click.option(
    "--threads", type=int, metavar="N", help='How many threads "all" is; default: every core.'
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="What is measured.",
)
@click.option(
    "--compare",
    "old",
    metavar="OLD",
    shell_complete=candidates.machines,
    help="Say what changed since OLD (a name, a .toml file; host: the last measurement).",
)
@click.option(
    "--explain", is_flag=True, help="Say how this machine is measured, and measure nothing."
)
@click.option(
    "--links",
    is_flag=True,
    help="Measure what goes between two processes over gloo, and add it to this machine's profile.",
)
@output_options(".toml .json .csv .md .html .png .svg")
def command(
    quick: bool,
    thorough: bool,
    threads: int | None,
    device: Literal["cpu", "cuda"],
    old: str | None,
    explain: bool,
    links: bool,
    outputs: tuple[Path, ...],
    force: bool,
) -> None:
    """Measure the ceilings of this machine, in ten seconds.

    Kernels of our own run its vector units and memory levels; torch's matrix products and
    convolutions are timed beside them. The profile is kept in the user's folder, where analyze
    finds it, with its raw samples beside it, and written to FILE with -o. Stop what else runs on
    the machine first.
    """
    if explain:
        others = {
            "--quick": quick,
            "--thorough": thorough,
            "--threads": threads is not None,
            "--device": device != "cpu",
            "--compare": old is not None,
            "--links": links,
            "--force": force,
        }
        _explain([*(option for option, given in others.items() if given), *map(str, outputs)])
        return
    if links:
        others = {
            "--quick": quick,
            "--thorough": thorough,
            "--threads": threads is not None,
            "--device": device != "cpu",
            "--compare": old is not None,
        }
        measure_links(others, outputs, force=force)
        return
    if quick and thorough:
        raise InputError("--quick and --thorough exclude each other; choose one")
    effort: Effort = "quick" if quick else "thorough" if thorough else "default"
    from roofline.foundation.blocks import View
    from roofline.foundation.files import check_writable, write_atomically
    from roofline.machine.hardware import HardwareProfile
    from roofline.machine.measuring.estimation import samples_file, samples_text

    HardwareProfile.check_files(outputs, overwrite=force)
    for path in outputs:
        if path.suffix == ".toml":
            check_writable(samples_file(path), overwrite=force)
    before = _comparable(old, device) if old is not None else None
    from roofline.machine.difference import hardware_change
    from roofline.pipeline import measure_with_samples
    from roofline.render.console import print_report

    with LiveFindings("Measuring this machine") as live:
        measured = measure_with_samples(
            effort=effort,
            device=device,
            threads=threads,
            progress=live.report,
            found=live.found,
            waiting=live.waiting,
        )
    written: list[Path] = [measured.file] if measured.file else []
    measured.profile.save(*outputs, overwrite=force)
    for path in outputs:
        written.append(path)
        if path.suffix == ".toml":
            samples = samples_file(path)
            text = samples_text(measured.series, name=measured.profile.name)
            write_atomically(samples, text, overwrite=force)
            written.append(samples)
    # Files first: what is printed may end early, in a pipe that closes.
    result = hardware_change(before, measured.profile) if before else measured.profile
    print_report(result.report(View(today=date.today())), result_console())
    say_written(tuple(written))
    if measured.note:
        tell(measured.note)
    if measured.problem:
        raise InputError(measured.problem)
    if measured.file is not None and measured.file.stem.endswith("-quick"):
        tell(
            "The fuller profile stays what analyze takes; this one is"
            f" --hardware {measured.file.stem}"
        )


def _comparable(name: str, device: str) -> HardwareProfile:
    """The profile of that name, if it is of the kind of machine that will be measured."""
    from roofline.machine.catalog import load_hardware

    profile = load_hardware(name)
    if profile.device != device:
        raise InputError(
            f"--compare {name}: is a {profile.device} device, and a {device} is measured; two"
            " machines are compared with `roofline hardware diff`"
        )
    return profile


def _explain(others: list[str]) -> None:
    if others:
        raise InputError(f"--explain measures nothing and writes nothing; leave out {others[0]}")
    from roofline.foundation.blocks import Report, notes, safe
    from roofline.pipeline.explanations import explain_measurement
    from roofline.render.console import print_report

    blocks = [
        each for section in explain_measurement() for each in notes(section.title, section.lines)
    ]
    report = Report(headline="How roofline measures this machine", blocks=tuple(blocks))
    print_report(safe(report), result_console())
