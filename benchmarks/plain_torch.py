"""Predictions, `validate` and `profile` against plain torch in processes that know no roofline.

    python benchmarks/plain_torch.py FOLDER                      # measure, and write plain_torch.md
    python benchmarks/plain_torch.py FOLDER --table              # the tables alone
    python benchmarks/plain_torch.py FOLDER --models resnet18,timm:rexnet_100 --rounds 1
    python benchmarks/plain_torch.py FOLDER --differences        # what else a script may do

Each model runs as a user's script runs it: a script that imports torch and its model library alone,
in a fresh process, with the allocator as it is ("default") and with thresholds under which glibc
keeps all memory ("settled"). Three rounds of processes over all settings, so that what the host
does meanwhile falls on all of them. Predictions leave the family of the model out. Where a
prediction advises settings of the allocator, processes with and without them alternate, one
setting of each model. FOLDER keeps what was measured, and the next call goes on. The machine must
be quiet, measured and calibrated; two hours on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

from roofline.core.units import format_s
from roofline.latency.calibration_set import family_of
from roofline.latency.predictor import Predictor
from roofline.latency.store import Store
from roofline.machine.catalog import load_hardware
from roofline.machine.core_state import UNKNOWN, CoreState, median_core_state
from roofline.machine.measuring.core_state_reader import core_state_reader
from roofline.machine.system.host import package_version
from roofline.machine.system.host_state import read_host_state
from roofline.pipeline.machines import (
    calibration_of,
    host_environment,
    host_latency_file,
    vector_lanes,
)
from roofline.pipeline.runs import capture_pass
from roofline.pipeline.validations import leave_one_out_predictors, validate
from roofline.placement import Placement, Roof, place
from roofline.run import RunOptions

HERE = Path(__file__).parent
MODELS = (
    *("timm:rexnet_100", "timm:mixnet_s", "timm:regnety_004", "timm:poolformer_s12"),
    *("alexnet", "resnet18", "resnet50", "densenet121", "googlenet", "squeezenet1_1"),
    *("mobilenet_v2", "mobilenet_v3_large", "mnasnet1_0", "shufflenet_v2_x1_0"),
    *("efficientnet_b0", "regnet_x_400mf", "convnext_tiny", "swin_t", "vit_b_32"),
    *("timm:deit_tiny_patch16_224", "timm:resmlp_12_224", "timm:ghostnet_100", "timm:repvgg_a0"),
    "timm:edgenext_small",
)
BATCHES, TEAMS, ROUNDS = (1, 8), (1, 2), 3
SETTLED = "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=2147483648"

SCRIPT = """
import json, resource, time
import torch
# The registry's torchvision imports only once these operators have schemas.
library = torch.library.Library("torchvision", "DEF")
library.define("nms(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
library.define("qnms(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
torch.set_num_threads({threads})
{build}
model.eval()
x = {scale} * torch.rand({batch}, 3, {size}, {size})
seconds, faults = [], []
with torch.{context}():
    begin = time.perf_counter()
    while len(seconds) < 10 or (time.perf_counter() - begin < {seconds} and len(seconds) < 500):
        time.sleep({pause_s})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        start = time.perf_counter()
        model(x)
        seconds.append(time.perf_counter() - start)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(json.dumps({{"seconds": seconds, "faults": faults}}))
"""
"""What a user writes; the passes of the first half are warm-up."""


@dataclass(frozen=True, slots=True)
class Habit:
    """How a script runs its model, besides what a setting says."""

    context: str = "no_grad"
    pause_s: float = 0.0
    scale: float = 1.0
    environment: tuple[tuple[str, str], ...] = ()


USUAL = Habit()
HABITS = {
    "`torch.inference_mode`": Habit(context="inference_mode"),
    "0.1 s between passes": Habit(pause_s=0.1),
    "inputs of 1e-40 (denormal)": Habit(scale=1e-40),
    "threads bound to cores (`OMP_PROC_BIND=true`)": Habit(
        environment=(("OMP_PROC_BIND", "true"),)
    ),
}
"""What else scripts do; each is timed against the usual one."""

_WITH_HABITS = (
    *("resnet18", "mobilenet_v2", "efficientnet_b0", "shufflenet_v2_x1_0"),
    *("convnext_tiny", "timm:deit_tiny_patch16_224"),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """A model at a batch size on a number of threads."""

    model: str
    batch: int
    threads: int

    @property
    def name(self) -> str:
        """As in files: ``"resnet18-1-2"``."""
        return f"{self.model.replace(':', '_')}-{self.batch}-{self.threads}"

    def script(self, habit: Habit) -> str:
        """The script of a user who runs it."""
        library, _, name = self.model.rpartition(":")
        if library == "timm":
            build = f"import timm\nmodel = timm.create_model({name!r})"
        else:
            build = f"import torchvision\nmodel = torchvision.models.get_model({name!r})"
        size = 299 if "inception" in name else 256 if "edgenext" in name else 224
        return SCRIPT.format(
            threads=self.threads,
            build=build,
            batch=self.batch,
            size=size,
            context=habit.context,
            pause_s=habit.pause_s,
            scale=habit.scale,
            seconds=1.5,
        )


def main() -> None:
    """Measures what is not there yet, and writes the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--differences", action="store_true")
    parser.add_argument("--models", type=lambda text: text.split(","), default=MODELS)
    parser.add_argument("--batches", type=_numbers, default=BATCHES)
    parser.add_argument("--threads", type=_numbers, default=TEAMS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    settings = [
        Setting(model, batch, threads)
        for model in options.models
        for batch in options.batches
        for threads in options.threads
    ]
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.differences:
        print(differences(options.folder, options.rounds))
        return
    if not options.table:
        for number in range(options.rounds):
            for setting in settings:
                for allocator, tunables in (("default", ""), ("settled", SETTLED)):
                    file = options.folder / f"{setting.name}.{allocator}.{number}.json"
                    _kept(file, lambda s=setting, t=tunables: plain(s, t))
        for model in options.models:
            of_model = [each for each in settings if each.model == model]
            files = [options.folder / f"{each.name}.validate.json" for each in of_model]
            if not all(file.exists() for file in files):
                found = validated(model, options.batches, options.threads)
                for file, setting in zip(files, of_model, strict=True):
                    _kept(file, lambda s=setting, f=found: f[s])
            for setting in of_model:
                file = options.folder / f"{setting.name}.profile.json"
                if setting.batch == min(options.batches):
                    _kept(file, lambda s=setting: profiled(s))
    rows = [row for each in settings if (row := Row.of(options.folder, each)) is not None]
    learned = predict(rows)
    print(report(rows, learned))
    print(advice_report(advised(rows, options.folder, None if options.table else options.rounds)))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _kept(file: Path, made: Callable[[], Any]) -> None:
    if not file.exists():
        print(time.strftime("%H:%M:%S"), file.name, file=sys.stderr, flush=True)
        file.write_text(json.dumps(made()), encoding="utf-8")


def plain(setting: Setting, tunables: str, habit: Habit = USUAL) -> dict[str, Any]:
    """Seconds and page faults of the passes of a script in its own process, and the clock then.

    Args:
        setting: what it runs.
        tunables: GLIBC_TUNABLES of the process; ``""``: none.
        habit: what else the script does.
    """
    environment = {
        k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "PYTHONPATH")
    }
    environment.update(habit.environment)
    if tunables:
        environment["GLIBC_TUNABLES"] = tunables
    with core_state_reader(read_host_state().topology.cores[: setting.threads]) as core_state:
        before = core_state()
        done = subprocess.run(
            [sys.executable, "-c", setting.script(habit)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        after = core_state()
    found = json.loads(done.stdout.splitlines()[-1])
    run = median_core_state((before, after))
    return {**found, "clock_hz": run.clock_hz, "core_to_core_latency_s": run.core_to_core_latency_s}


def profiled(setting: Setting) -> dict[str, Any]:
    """What `roofline profile` measures of it."""
    saved = subprocess.run(
        [
            *(sys.executable, "-m", "roofline", "profile", setting.model, "--no-learn"),
            *("--batch", str(setting.batch), "--threads", str(setting.threads)),
            *("--format", "json"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    measured = json.loads(saved.stdout)["measurement"]
    times_s = measured["end_to_end"]["times_s"]
    return {"measured_s": median(times_s), "page_faults": measured["page_faults"]}


def validated(
    model: str, batches: Sequence[int], threads: Sequence[int]
) -> dict[Setting, dict[str, Any]]:
    """What `validate` predicts and measures of a model at all settings."""
    found = validate([model], batch=batches, threads=threads)
    return {
        Setting(model, run.batch or 1, run.threads): {
            "predicted_s": run.predicted_s,
            "low_s": run.predicted_low_s,
            "high_s": run.predicted_high_s,
            "measured_s": run.measured_s,
            "clock_hz": run.clock_hz,
        }
        for run in found.models
    }


@dataclass(frozen=True, slots=True)
class Forecast:
    """A predicted pass: seconds with the ends of its interval, without page faults, and faults."""

    predicted_s: float
    low_s: float
    high_s: float
    settled_s: float
    page_faults: int | None
    tunables: str

    def holds(self, measured_s: float) -> bool:
        """Whether a time lies in the interval."""
        return self.low_s <= measured_s <= self.high_s


@dataclass(slots=True)
class Row:
    """A setting, what it took in each process, and what was predicted for it.

    Times and page faults are medians of the passes of a process. ``usual`` and ``clocked`` are
    predictions without and with the core state; None where something is not predicted, or
    not measured.
    """

    setting: Setting
    defaults_s: tuple[float, ...]
    settleds_s: tuple[float, ...]
    all_faults: tuple[float, ...]
    core_state: CoreState
    profile_s: float | None
    validate_s: float | None
    usual: Forecast | None = None
    clocked: Forecast | None = None

    @property
    def default_s(self) -> float:
        """Seconds of a pass, the median over processes."""
        return median(self.defaults_s)

    @property
    def settled_s(self) -> float:
        """The same with a settled allocator."""
        return median(self.settleds_s)

    @property
    def page_faults(self) -> float:
        """Page faults of a pass, the median over processes."""
        return median(self.all_faults)

    @classmethod
    def of(cls, folder: Path, setting: Setting) -> Row | None:
        """From the files of a folder; None: its passes were not measured."""
        found = {
            allocator: [
                json.loads(file.read_text())
                for file in sorted(folder.glob(f"{setting.name}.{allocator}.*.json"))
            ]
            for allocator in ("default", "settled")
        }
        if not all(found.values()):
            return None
        profile_s, validate_s = (
            json.loads(file.read_text())["measured_s"] if file.exists() else None
            for file in (folder / f"{setting.name}.{each}.json" for each in ("profile", "validate"))
        )
        core_states = [
            CoreState(
                clock_hz=each["clock_hz"], core_to_core_latency_s=each.get("core_to_core_latency_s")
            )
            for each in found["default"]
        ]
        return cls(
            setting=setting,
            defaults_s=tuple(_of_pass(each, "seconds") for each in found["default"]),
            settleds_s=tuple(_of_pass(each, "seconds") for each in found["settled"]),
            all_faults=tuple(_of_pass(each, "page_faults") for each in found["default"]),
            core_state=median_core_state(core_states),
            profile_s=profile_s,
            validate_s=validate_s,
        )


def _of_pass(process: dict[str, list[float]], what: str) -> float:
    passes = process[what]
    return median(passes[len(passes) // 2 :])


def predict(rows: Sequence[Row]) -> str:
    """Adds what is predicted of each row by what was learned from other families.

    Returns:
        The machine and what was learned from, in words.
    """
    profile = load_hardware("host")
    with Store(host_latency_file(), host_environment()) as store:
        calibration = calibration_of(store.runs(), profile)
    predictor_without = leave_one_out_predictors(calibration, vector_lanes(profile))
    for row in rows:
        setting = row.setting
        options = RunOptions(batch=setting.batch)
        captured = capture_pass(setting.model, None, options, on="cpu")
        roof = Roof(profile, setting.threads)
        placements = place(captured.capture.records, captured.reuse, roof, cache="steady")
        row.usual, row.clocked = (
            _forecast(predictor_without(family_of(setting.model), core_state), setting, placements)
            for core_state in (UNKNOWN, row.core_state)
        )
    return (
        f"{profile.name}, torch {package_version('torch')}; learned from {calibration.description}"
    )


def _forecast(
    predictor: Predictor, setting: Setting, placements: Sequence[Placement]
) -> Forecast | None:
    run = predictor.predict(placements, setting.threads).run
    if run is None:
        return None
    return Forecast(
        run.predicted_s, run.low_s, run.high_s, run.settled_s, run.page_faults, run.tunables
    )


@dataclass(frozen=True, slots=True)
class Advice:
    """Settings of the allocator that were advised for a row, and rounds without and with them."""

    row: Row
    forecast: Forecast
    ratios: tuple[float, ...]
    page_faults: float

    @property
    def predicted(self) -> float:
        """How many times as fast the pass was predicted to be with them."""
        return self.forecast.predicted_s / self.forecast.settled_s


def advised(rows: Sequence[Row], folder: Path, rounds: int | None) -> list[Advice]:
    """The first row of each model for which settings are advised, tried by the clock.

    Args:
        rows: what was predicted.
        folder: where measurements are kept.
        rounds: how many rounds are measured; None: those that are there.
    """
    first: dict[str, tuple[Row, Forecast]] = {}
    for row in rows:
        if row.usual and row.usual.tunables:
            first.setdefault(row.setting.model, (row, row.usual))
    tried: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {each: [] for each in first}
    for number in range(ROUNDS if rounds is None else rounds):
        for model, (row, forecast) in first.items():
            pair: list[dict[str, Any]] = []
            for name, tunables in (("without", ""), ("with", forecast.tunables)):
                file = folder / f"{row.setting.name}.{name}.{number}.json"
                if rounds is not None:
                    _kept(file, lambda s=row.setting, t=tunables: plain(s, t))
                if file.exists():
                    pair.append(json.loads(file.read_text()))
            if len(pair) == 2:
                tried[model].append((pair[0], pair[1]))
    return [
        Advice(
            row,
            forecast,
            tuple(
                _of_pass(one, "seconds") / _of_pass(other, "seconds") for one, other in tried[model]
            ),
            median(_of_pass(other, "page_faults") for _, other in tried[model]),
        )
        for model, (row, forecast) in first.items()
        if tried[model]
    ]


def advice_report(found: Sequence[Advice]) -> str:
    """The findings of the rule *allocator*, those predicted to save least first."""
    confirmed = sum(median(each.ratios) > 1 for each in found)
    lines = [
        "",
        f"Settings of the allocator that are advised: {confirmed} of {len(found)} are faster by the"
        " clock (median of processes that alternate).",
        "",
        "| model | batch | threads | times as fast, predicted | measured | page faults left |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for each in sorted(found, key=lambda each: each.predicted):
        setting = each.row.setting
        ratios = f"{median(each.ratios):.2f} ({min(each.ratios):.2f}–{max(each.ratios):.2f})"
        lines.append(
            f"| {setting.model} | {setting.batch} | {setting.threads} | {each.predicted:.2f} |"
            f" {ratios} | {each.page_faults:,.0f} |"
        )
    return "\n".join(lines)


def differences(folder: Path, rounds: int) -> str:
    """What other habits of scripts do to the time of a pass, on a settled allocator."""
    settings = [Setting(model, 1, threads) for model in _WITH_HABITS for threads in TEAMS]
    found: dict[tuple[Setting, str], list[dict[str, Any]]] = {}
    for number in range(rounds):
        for setting in settings:
            for which, (name, habit) in enumerate({"usual": USUAL, **HABITS}.items()):
                file = folder / f"{setting.name}.habit{which}.{number}.json"
                _kept(file, lambda s=setting, h=habit: plain(s, SETTLED, h))
                found.setdefault((setting, name), []).append(json.loads(file.read_text()))

    def ratios(name: str, threads: int) -> list[float]:
        return [
            median(
                _of_pass(one, "seconds") / _of_pass(other, "seconds")
                for one, other in zip(found[each, name], found[each, "usual"], strict=True)
            )
            for each in settings
            if each.threads == threads
        ]

    def first(threads: int) -> list[float]:
        return [
            median(one["seconds"][0] / _of_pass(one, "seconds") for one in found[each, "usual"])
            for each in settings
            if each.threads == threads
        ]

    def cell(values: Sequence[float]) -> str:
        return f"{median(values):.2f} ({min(values):.2f}–{max(values):.2f})"

    lines = [
        "",
        f"Other habits of scripts, {len(_WITH_HABITS)} models at batch 1 with a settled allocator:"
        f" time of a pass over that of the script above (median of {rounds} pairs of processes;"
        " median and range over models).",
        "",
        "| habit | " + " | ".join(f"{each} thread{'s' * (each != 1)}" for each in TEAMS) + " |",
        "|---|" + "---:|" * len(TEAMS),
        "| the first pass of a process | " + " | ".join(cell(first(t)) for t in TEAMS) + " |",
    ]
    lines += [
        f"| {name} | " + " | ".join(cell(ratios(name, t)) for t in TEAMS) + " |" for name in HABITS
    ]
    return "\n".join(lines)


def _error(predicted_s: float, measured_s: float) -> float:
    return predicted_s / measured_s - 1


def _is_near(found: float, counted: float) -> bool:
    return abs(found - counted) <= max(0.25 * counted, 100)


def _left_out(values: Sequence[float]) -> list[tuple[float, float]]:
    """Each value, and the median of the others."""
    return [
        (each, median([*values[:place], *values[place + 1 :]]))
        for place, each in enumerate(values)
        if len(values) > 1
    ]


def _fault_costs(rows: Sequence[Row], measured_s: Mapping[int, float]) -> str:
    """What a page fault took in a pass over what `roofline measure` found, where many matter."""
    ratios = [
        (row.default_s - row.settled_s) / (row.page_faults * measured_s[row.setting.threads])
        for row in rows
        if row.page_faults * measured_s[row.setting.threads] > _MANY * row.settled_s
    ]
    if len(ratios) < 4:
        return ""
    low, middle, high = quantiles(ratios, n=4)
    return (
        f"A page fault took {middle:.2f} of what `roofline measure` says (quartiles {low:.2f} and"
        f" {high:.2f}, {len(ratios)} runs in which that is more than {100 * _MANY:.0f} %)."
    )


_MANY = 0.15


def _percent(found_s: float | None, measured_s: float) -> str:
    return f"{100 * _error(found_s, measured_s):+.1f} %" if found_s else "–"


def report(rows: Sequence[Row], learned: str) -> str:
    """Figures over all rows, and the rows, those predicted worst first.

    Args:
        rows: what was measured and predicted.
        learned: the machine, and what predictions were learned from.
    """
    usual = [(row, row.usual) for row in rows if row.usual]
    clocked = [(row, row.clocked) for row in rows if row.clocked]
    lines = [
        "# Predictions against plain torch in a fresh process",
        "",
        f"{len(rows)} runs of {len({row.setting.model for row in rows})} models of"
        f" {len({family_of(row.setting.model) for row in rows})} families; each predicted without"
        " its family. Rerun: `python benchmarks/plain_torch.py FOLDER > benchmarks/plain_torch.md`",
        "",
        f"Machine: {learned}.",
        "",
        "| figure | value | runs |",
        "|---|---:|---:|",
    ]

    def figure(name: str, values: Sequence[float], of: Callable[..., Any] = mean) -> None:
        if values:
            lines.append(f"| {name} | {100 * of(values):.1f} % | {len(values)} |")

    errors = [_error(each.predicted_s, row.default_s) for row, each in usual]
    figure("MAPE, usual clock", [abs(each) for each in errors])
    figure("bias, usual clock", errors)
    figure(
        "MAPE, clock given",
        [abs(_error(each.predicted_s, row.default_s)) for row, each in clocked],
    )
    figure(
        "inside the 80 % interval, usual clock",
        [each.holds(row.default_s) for row, each in usual],
    )
    figure(
        "inside the 80 % interval, clock given",
        [each.holds(row.default_s) for row, each in clocked],
    )
    figure(
        "MAPE, settled, usual clock",
        [abs(_error(each.settled_s, row.settled_s)) for row, each in usual],
    )
    figure(
        "MAPE, settled, clock given",
        [abs(_error(each.settled_s, row.settled_s)) for row, each in clocked],
    )
    figure(
        "page faults within 25 % or 100",
        [
            _is_near(each.page_faults, row.page_faults)
            for row, each in usual
            if each.page_faults is not None
        ],
    )
    figure(
        "one process against the median of the others: page faults within 25 % or 100",
        [_is_near(*each) for row in rows for each in _left_out(row.all_faults)],
    )
    for state, times_s in (
        ("mean difference", [row.defaults_s for row in rows]),
        ("mean difference, settled", [row.settleds_s for row in rows]),
    ):
        pairs = [pair for each in times_s for pair in _left_out(each)]
        figure(
            f"one process against the median of the others: {state}",
            [abs(_error(*each)) for each in pairs],
        )
    for name, times_s in (
        ("profile", [(row.profile_s, row.default_s) for row in rows]),
        ("validate", [(row.validate_s, row.default_s) for row in rows]),
    ):
        known = [_error(measured_s, plain_s) for measured_s, plain_s in times_s if measured_s]
        figure(f"`{name}` against plain torch, median", [abs(each) for each in known], median)
        figure(f"`{name}` against plain torch, median with its sign", known, median)
    lines += [
        "",
        _fault_costs(rows, load_hardware("host").page_fault_s()),
        "",
        "| model | batch | threads | plain | settled | faults | predicted | 80 % interval | error |"
        " clock given | settled | faults | profile | validate |",
        "|---|---:|---:|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in sorted(
        rows,
        key=lambda row: -abs(_error(row.usual.predicted_s, row.default_s)) if row.usual else 0.0,
    ):
        setting, each, other = row.setting, row.usual, row.clocked
        cells = [
            setting.model,
            f"{setting.batch}",
            f"{setting.threads}",
            format_s(row.default_s),
            format_s(row.settled_s),
            f"{row.page_faults:,.0f}",
            format_s(each.predicted_s) if each else "–",
            f"{format_s(each.low_s)} – {format_s(each.high_s)}" if each else "–",
            _percent(each.predicted_s if each else None, row.default_s),
            _percent(other.predicted_s if other else None, row.default_s),
            _percent(other.settled_s if other else None, row.settled_s),
            f"{each.page_faults:,}" if each and each.page_faults is not None else "–",
            _percent(row.profile_s, row.default_s),
            _percent(row.validate_s, row.default_s),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
