"""``roofline measure``."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from roofline.cli import candidates
from roofline.cli.live_findings import LiveFindings
from roofline.cli.measure_links import measure_links
from roofline.cli.options import output_options
from roofline.cli.results import result_console, say_written
from roofline.cli.streams import tell
from roofline.errors import InputError

if TYPE_CHECKING:
    from roofline.machine.hardware import Effort, HardwareProfile


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
    from roofline.machine.measuring.samples import samples_file, samples_text

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
