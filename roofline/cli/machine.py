"""Commands measure, calibrate, validate and hardware."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from roofline.cli import candidates
from roofline.cli.options import (
    MEASURING,
    QUICK,
    FileName,
    Output,
    command,
    flag,
    models_argument,
    output_pack,
    run_option,
    run_pack,
    top_option,
    value,
)
from roofline.cli.streams import (
    present_result,
    print_as_tables,
    print_stderr,
    print_written,
    progress_bar,
)
from roofline.core.blocks import Report, View, escape_report, notes
from roofline.core.text import counted
from roofline.core.units import parse_clock, parse_transfer_rate
from roofline.errors import InputError, MeasurementError

if TYPE_CHECKING:
    from roofline.machine.hardware import Effort, HardwareProfile
    from roofline.machine.measuring.estimation import Finding
    from roofline.machine.theory.datasheet import DataSheet
    from roofline.result import Result

_T = TypeVar("_T")
_FORMATS = ".toml .json .csv .md .html .png .svg"


@command(
    "measure",
    flag("--quick", "3 s: without library ceilings."),
    flag("--thorough", "Minutes: one second per kernel."),
    run_option("threads"),
    value("--device", "Device to measure.", type=click.Choice(["cpu", "cuda"]), default="cpu"),
    value(
        "--compare OLD",
        "Show changes since OLD: a name, .toml file or host (last measurement).",
        shell_complete=candidates.machines,
    ),
    flag("--explain", "Explain the method without measuring."),
    flag("--links", "Measure inter-process bandwidth and latency (gloo)."),
    output_pack(_FORMATS),
)
def measure(
    quick: bool,
    thorough: bool,
    threads: int | None,
    device: Any,
    compare: str | None,
    explain: bool,
    links: bool,
    output: Output,
) -> None:
    """Measure the ceilings of this machine, in ten seconds.

    Microbenchmarks measure vector units and memory levels; GEMMs and convolutions of torch give the
    library ceilings. The profile and its raw samples are stored in the user's folder, where
    analyze finds it; -o writes it to FILE. Stop other processes first.
    """
    given = {
        "--quick": quick,
        "--thorough": thorough,
        "--threads": threads is not None,
        "--device": device != "cpu",
        "--compare": compare is not None,
    }
    others = [name for name, is_given in given.items() if is_given]
    if explain:
        others += ["--links"] * links + ["--force"] * output.force + list(map(str, output.outputs))
        if others:
            raise InputError(f"{others[0]}: has no effect with --explain; leave it out")
        from roofline.pipeline.measuring import explain_measurement

        sections = explain_measurement()
        blocks = [each for section in sections for each in notes(section.title, section.lines)]
        headline = "Method of measurement"
        print_as_tables(escape_report(Report(headline=headline, blocks=tuple(blocks))))
    elif links:
        _measure_links(others, output)
    elif quick and thorough:
        raise InputError("--quick --thorough: exclude each other; give one")
    else:
        effort = "quick" if quick else "thorough" if thorough else "default"
        _measure(effort, threads, device, compare, output)


def _measure(
    effort: Effort, threads: int | None, device: Any, compare: str | None, output: Output
) -> None:
    from roofline.core.files import check_writable, write_atomically
    from roofline.machine.catalog import load_hardware
    from roofline.machine.difference import hardware_change
    from roofline.machine.hardware import HardwareProfile
    from roofline.machine.measuring.estimation import samples_file, samples_text

    output.check(HardwareProfile)
    samples = {each: samples_file(each) for each in output.files if each.suffix == ".toml"}
    for path in samples.values():
        check_writable(path, overwrite=output.force)
    before = load_hardware(compare) if compare is not None else None
    if before is not None and before.device != device:
        raise InputError(
            f"--compare {compare}: is a {before.device} device, the measured one is {device};"
            " compare machines with `roofline hardware diff`"
        )
    from roofline.pipeline.measuring import measure_with_samples

    with progress_bar("Measuring this machine", redraw=False) as progress:
        latest = LatestRate(progress)
        measured = measure_with_samples(
            effort=effort,
            device=device,
            threads=threads,
            progress=latest.report,
            found=latest.found,
            waiting=lambda why: print_stderr(f"roofline: {why}"),
        )
    # Files first: what is printed may end early, in a pipe that closes.
    measured.profile.save(*output.files, overwrite=output.force)
    for path in samples.values():
        text = samples_text(measured.series, name=measured.profile.name)
        write_atomically(path, text, overwrite=output.force)
    result = hardware_change(before, measured.profile) if before else measured.profile
    present_result(result, stdout_format=output.format, view=View(verbose=output.verbose))
    written = (each for path in output.files for each in (path, samples.get(path)))
    print_written([each for each in (measured.file, *written) if each])
    if measured.note:
        print_stderr(measured.note)
    if measured.problem:
        raise InputError(measured.problem)
    if measured.file is not None and measured.file.stem.endswith("-quick"):
        print_stderr(
            f"analyze keeps using the full profile; for this one: --hardware {measured.file.stem}"
        )


class LatestRate:
    """Progress of a measurement with the latest rate."""

    def __init__(self, progress: Callable[[float, str], None]) -> None:
        self._progress = progress
        self._rate = ""

    def found(self, finding: Finding) -> None:
        """Store a rate."""
        from roofline.core.units import format_bytes_per_s, format_flop_per_s

        form = format_flop_per_s if finding.quantity == "flop" else format_bytes_per_s
        threads = counted(finding.threads, "thread")
        self._rate = f" ({finding.what}: {form(finding.per_s)} on {threads})"

    def report(self, fraction: float, now: str) -> None:
        """Report progress (0 to 1), the next step, and the latest rate."""
        self._progress(fraction, f"{now}{self._rate}")


def _measure_links(others: list[str], output: Output) -> None:
    if others:
        raise InputError(f"{others[0]}: has no effect with --links; leave it out")
    from roofline.machine import catalog
    from roofline.machine.hardware import HardwareProfile

    output.check(HardwareProfile)
    from roofline.pipeline.measuring import measure_links

    profile = measure_links(say=print_stderr)
    # Files first: what is printed may end early, in a pipe that closes.
    profile.save(*output.files, overwrite=output.force)
    present_result(profile, stdout_format=output.format, view=View(verbose=output.verbose))
    print_written((catalog.host_file(), *output.files))


@command(
    "calibrate",
    flag("--quick", "Up to 60 s: a few models correct the generic CPU model."),
    flag("--fresh", "Discard data of earlier calibrations."),
    flag("--force", "Measure on a busy machine."),
    value(
        "--from FILE",
        "Learn a GPU's times from a trace or table (.csv, .csv.gz).",
        to="source",
        type=FileName(),
    ),
    value(
        "--hardware NAME|FILE",
        "GPU of --from.  [default: by the device in the trace]",
        shell_complete=candidates.machines,
    ),
    run_option(
        "dtype",
        "--dtype",
        "dtypes",
        multiple=True,
        shell_complete=candidates.calibrated_dtypes,
        help="float32, bfloat16, float16 or int8; repeatable.  [default: those of the CPU]",
    ),
)
def calibrate(
    quick: bool,
    fresh: bool,
    force: bool,
    source: Path | None,
    hardware: str | None,
    dtypes: tuple[str, ...],
) -> None:
    """Calibrate predictions on this machine, in 5 to 8 minutes.

    Models of many families run here, and each of their operators is timed in place. From then on
    analyze and predict give predicted times with a prediction interval. The data is stored next to
    the machine's profile; its error is judged on models of families that were left out. Stop other
    processes first. Ctrl-C keeps the data; the next call continues there.

    --from measures nothing: predictions for the GPU of FILE learn from the times in it.
    """
    if source is not None:
        given = {"--quick": quick, "--force": force, "--dtype": bool(dtypes)}
        if others := [name for name, is_given in given.items() if is_given]:
            raise InputError(f"{others[0]}: has no effect with --from; leave it out")
        from roofline.pipeline.machine_times import learn_times

        with progress_bar("Reading") as progress:
            found = learn_times(source, hardware, fresh=fresh, progress=progress)
        print_as_tables(found.report())
        return
    if hardware is not None:
        raise InputError("--hardware: calibrate measures this machine; give it with --from FILE")
    from roofline.pipeline.calibrations import calibrate

    with progress_bar("Calibrating") as progress:
        result = calibrate(
            quick=quick,
            fresh=fresh,
            dtypes=_each_once(dtypes),
            force=force,
            progress=progress,
            say=print_stderr,
        )
    print_as_tables(result.report())
    if result.interrupted:
        raise KeyboardInterrupt


def _each_once(values: Iterable[_T]) -> list[_T] | None:
    """Return the values without duplicates; None for none at all."""
    return list(dict.fromkeys(values)) or None


@command(
    "validate",
    models_argument("[MODELS]...", required=False),
    run_pack(
        *("batch", "seq", "dtype", "channels_last", "threads"),
        several=("batch", "dtype", "threads"),
        takes_inputs=False,
    ),
    value(
        "--operators",
        "Also validate predictions from operators timed alone.",
        title=MEASURING,
        type=click.Choice(["measured"]),
    ),
    flag(
        "--designs",
        "Also validate speedups of depthwise-separable over standard convolutions.",
        title=MEASURING,
    ),
    QUICK,
    value(
        "--fail-if CONDITION",
        "Exit code 4 on 'mape>15%', 'within_10_percent<55%' ...; repeatable.",
        multiple=True,
    ),
    top_option("runs in the table", 20),
    output_pack(".json .csv .md .html .png .svg", measures=True),
)
def validate(
    models: tuple[str, ...],
    run: dict[str, Any],
    operators: str | None,
    fail_if: tuple[str, ...],
    top: int | None,
    output: Output,
    **options: Any,
) -> None:
    """Compare predicted with measured times of MODELS.

    Each model runs once for each batch size, number of threads and data type. It is predicted from
    calibration data of other families (`roofline calibrate`), then measured twice. The difference
    of the two measurements is the noise floor of predictions. Without MODELS, a list of torchvision
    models runs. Models that fail are reported and skipped.
    """
    from roofline.core.conditions import parse_conditions
    from roofline.latency.accuracy import QUANTITIES, check_thresholds
    from roofline.latency.validation import Validation

    conditions = parse_conditions(fail_if, QUANTITIES)
    output.check(Validation)
    from roofline.pipeline.validations import validate

    with progress_bar("Validating") as progress:
        result = validate(
            _each_once(models),
            operators_measured=operators == "measured",
            force=output.force,
            progress=progress,
            say=print_stderr,
            **run,
            **options,
        )
    output.present(result, View(top=top))
    check_thresholds(conditions, result.totals)
    if not result.models and not result.ratios:
        raise MeasurementError("no model could be run; nothing was validated")


@click.group("hardware")
def hardware() -> None:
    """List, show, compare and write machine profiles."""


@hardware.command("list")
def list_() -> None:
    """List the machines that --hardware takes by name."""
    from roofline.machine.catalog import entries
    from roofline.machine.report import catalog_report

    known = entries()
    print_as_tables(catalog_report(known))
    for each in known:
        if each.profile is None:
            print_stderr(f"roofline: warning: {each.error}")


def _machine_argument(name: str, metavar: str, default: str | None = None) -> click.Argument:
    return click.Argument(
        [name],
        metavar=metavar,
        required=default is None,
        shell_complete=candidates.machines,
        **({} if default is None else {"default": default}),
    )


@command("show", _machine_argument("name", "[NAME]", "host"), output_pack(_FORMATS))
def show(name: str, output: Output) -> None:
    """Show the ceilings of NAME (a name or .toml file; default: this machine) and their sources."""
    from roofline.machine.hardware import HardwareProfile

    output.check(HardwareProfile)
    profile, warnings = _known(name)
    _present(profile, warnings, output)
    if profile.device == "cuda":
        from roofline.pipeline.machines import read_times, times_file

        if (own := read_times(profile, name)) is not None:
            times = counted(sum(each.times for each in own.kernels), "measurement")
            where = f"{', '.join(own.sources)}; {times_file(profile, name)}"
            print_stderr(f"roofline: predictions for {profile.name} learned {times} ({where})")


@command(
    "diff",
    _machine_argument("first", "A"),
    _machine_argument("second", "B"),
    output_pack(".json .csv .md .html"),
)
def diff(first: str, second: str, output: Output) -> None:
    """Compare machine B with machine A: ceilings, memory levels, latencies, ridge points.

    Each is a name (`roofline hardware list`), a .toml file, or host for this machine.
    """
    from roofline.machine.difference import HardwareDifference

    output.check(HardwareDifference)
    (one, some), (other, more) = _known(first), _known(second)
    _present(HardwareDifference(first=one, second=other), (*some, *more), output)


def _present(result: Result, warnings: Iterable[str], output: Output) -> None:
    for each in dict.fromkeys(warnings):
        print_stderr(f"roofline: warning: {each}")
    output.present(result)


def _known(name: str) -> tuple[HardwareProfile, tuple[str, ...]]:
    """Return the profile of that name, and warnings on what no longer holds."""
    from roofline.machine.catalog import find_hardware, host_file, load_hardware, validate_for_host

    profile = load_hardware(name)
    if find_hardware(name) != host_file():
        return profile, ()
    from roofline.pipeline.measuring import this_host

    return validate_for_host(profile, this_host())


# hardware fit


def _count(name: str, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        digits = text.strip()
        number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0
        if not 1 <= number <= most:
            raise InputError(f"{name} must be a whole number from 1 to {most}, got '{text}'")
        return number

    return read


def _units(text: str) -> Any:
    from roofline.machine.theory.datasheet import parse_units

    return parse_units(text)


def _date(text: str) -> str:
    from roofline.machine.hardware.ceilings import check_date

    try:
        check_date("date", text)
    except ValueError as error:
        raise InputError(str(error)) from None
    return text


# Required flags: prompt and parser.
_NEEDED: dict[str, tuple[str, Callable[[str], Any]]] = {
    "cores": ("Cores, such as 16", _count("--cores", 100_000)),
    "clock": ("Clock that all cores hold, such as 3.0GHz", parse_clock),
    "units": ("Vector units and their pipes, such as avx512:2 or avx2:2 or neon:4", _units),
    "channels": ("Memory channels, such as 4", _count("--channels", 1024)),
    "transfer_rate": ("Transfers per second of a channel, such as 3200MT/s", parse_transfer_rate),
}
# Optional flags: prompt, parser and default.
_OPTIONAL: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "bus_bytes": ("Bytes that a channel transfers at once", _count("--bus-bytes", 1024), "8"),
    "reference": ("Document that the figures are from (title, publisher, address)", str.strip, ""),
    "date": ("Its date, such as 2026-01", _date, ""),
}


@command(
    "fit",
    click.Argument(["file"], type=FileName()),
    value("--cores N", "Number of cores."),
    value("--clock HZ", "Clock of the ceilings: 3.0GHz."),
    value(
        "--units UNIT:PIPES",
        "Vector unit and pipes per core: avx512:2, neon:4, avx512:2x256; repeatable.",
        multiple=True,
    ),
    value("--core NAME", 'Microarchitecture, in place of --units: "AMD Zen 4".'),
    value("--channels N", "Number of memory channels."),
    value("--transfer-rate RATE", "Transfers per second of a channel: 3200MT/s."),
    value("--bus-bytes N", "Bytes per transfer.  [default: 8]"),
    value(
        "--cache NAME=SIZE",
        "Cache: L1=32KiB/core:64 (B/cycle per core), L3=22MiB:16; repeatable.",
        to="caches",
        multiple=True,
    ),
    value("--name NAME", "Name of the profile.  [default: that of FILE]"),
    value("--reference TEXT", "Document: title, publisher, address."),
    value("--date DATE", "Date of the document: 2026-01-31, 2026-01 or 2026."),
    flag("--force", "Overwrite FILE."),
)
def fit(file: Path, force: bool, **given: Any) -> None:
    """Write a profile of a CPU from its data sheet to FILE (.toml).

    Rates are cores x clock x pipes x lanes, or channels x transfers x bytes, printed with their
    arithmetic. On a terminal, missing figures are prompted for.
    """
    from roofline.core.files import check_writable
    from roofline.machine.theory.datasheet import datasheet_profile, left_out

    if file.suffix != ".toml":
        raise InputError(f"{file}: a hardware profile must be a .toml file")
    check_writable(file, overwrite=force)
    sheet = _sheet(file, given)
    profile = datasheet_profile(sheet)
    print_as_tables(_report(profile))
    if sheet.caches:
        reason = left_out(sheet) or (
            "minimum times are valid only if every cache is given: traffic of a missing cache is"
            " charged to the next level"
        )
        print_stderr(f"roofline: warning: {reason}")
    profile.save(file, overwrite=force)
    print_written((file,))


def _sheet(file: Path, given: dict[str, Any]) -> DataSheet:
    """Return the data sheet from flags, and prompts for missing ones."""
    from roofline.machine.theory.datasheet import DataSheet, parse_cache
    from roofline.machine.theory.microarchitectures import core_named

    given["units"] = ",".join(given["units"]) or None
    if given["core"] is not None and given["units"]:
        raise InputError("--core --units: exclude each other; give one")
    missing = [
        name
        for name in _NEEDED
        if not given[name] and not (name == "units" and given["core"] is not None)
    ]
    if missing and not sys.stdin.isatty():
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        either = " (or --core in place of --units)" if "units" in missing else ""
        raise InputError(f"missing {flags}{either}; on a terminal, hardware fit prompts for them")
    found: dict[str, Any] = {"units": ()}
    for name, (question, read) in _NEEDED.items():
        if name in missing:
            found[name] = _ask(question, None, read)
        elif given[name]:
            found[name] = read(given[name])
    for name, (question, read, usual) in _OPTIONAL.items():
        is_asked = bool(missing) and given[name] is None
        found[name] = _ask(question, usual, read) if is_asked else read(given[name] or usual)
    return DataSheet(
        name=file.stem if given["name"] is None else given["name"],
        cores=found["cores"],
        clock_hz=found["clock"],
        units=found["units"],
        core=None if given["core"] is None else core_named(given["core"]),
        channels=found["channels"],
        transfer_per_s=found["transfer_rate"],
        bus_bytes=found["bus_bytes"],
        caches=tuple(map(parse_cache, given["caches"])),
        reference=found["reference"],
        date=found["date"],
    )


def _ask(question: str, default: str | None, read: Callable[[str], Any]) -> Any:
    """Prompt until the answer is valid, and return it."""

    def checked(answer: str) -> Any:
        try:
            return read(answer)
        except InputError as error:
            raise click.BadParameter(str(error)) from None

    return click.prompt(
        question, default=default, value_proc=checked, err=True, show_default=bool(default)
    )


def _report(profile: HardwareProfile) -> Report:
    """Return the report: ceilings with their arithmetic, and ridge points."""
    from roofline.core.units import format_intensity
    from roofline.machine.roof import MachineRoof, ceiling_text, ridge_flop_per_byte
    from roofline.machine.theory.datasheet import arithmetic_lines

    roof = MachineRoof(profile, profile.threads)
    memory = roof.levels[-1]
    found = (roof.compute(each) for each in dict.fromkeys(each.dtype for each in profile.compute))
    ridges = [
        f"{ceiling_text(unit.label)}: {format_intensity(ridge_flop_per_byte(unit, memory))}"
        for unit in found
        if unit
    ]
    level = ceiling_text(memory.label)
    title = f"Ridge points of {counted(profile.threads, 'core')} (FLOP/B of {level})"
    blocks = (*notes("Ceilings", arithmetic_lines(profile)), *notes(title, ridges))
    return escape_report(Report(headline=f"{profile.name}: {profile.description}", blocks=blocks))


for _each in (show, diff, fit):
    hardware.add_command(_each)
