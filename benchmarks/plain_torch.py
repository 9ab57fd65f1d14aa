"""Predictions, `validate` and `profile` against plain torch in processes that know no roofline.

    python benchmarks/plain_torch.py FOLDER                      # measure, and write plain_torch.md
    python benchmarks/plain_torch.py FOLDER --table              # the tables alone
    python benchmarks/plain_torch.py FOLDER --models resnet18,timm:rexnet_100 --rounds 1

Each model runs as a user's script runs it: a script that imports torch and its model library alone,
in a fresh process, with the allocator as it is ("default") and with thresholds under which glibc
keeps all memory ("settled"). Three rounds of processes over all settings, so that what the host
does meanwhile falls on all of them. Predictions leave the family of the model out. FOLDER keeps
what was measured, and the next call goes on. The machine must be quiet, measured and calibrated; an
hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from roofline.foundation.units import format_s
from roofline.latency.families import family_of
from roofline.latency.store import Store
from roofline.machine.catalog import load_hardware
from roofline.machine.measuring.pace_gauge import pace_gauge
from roofline.machine.pace import UNKNOWN, Pace
from roofline.machine.system.situation import read_situation
from roofline.pipeline.analyses import captured_pass
from roofline.pipeline.judging import Judge
from roofline.pipeline.learned import calibration_of, host_environment, host_latency_file, lanes_of
from roofline.pipeline.runs import RunOptions
from roofline.pipeline.validations import validate
from roofline.placement import Roof, place

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
x = torch.rand({batch}, 3, {size}, {size})
seconds, faults = [], []
with torch.{context}():
    begin = time.perf_counter()
    while len(seconds) < 20 or (time.perf_counter() - begin < {seconds} and len(seconds) < 500):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        start = time.perf_counter()
        model(x)
        seconds.append(time.perf_counter() - start)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(json.dumps({{"seconds": seconds, "faults": faults}}))
"""
"""What a user writes; the passes of the first half are warm-up."""


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

    @property
    def script(self) -> str:
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
            context="no_grad",
            seconds=3.0,
        )


def main() -> None:
    """Measures what is not there yet, and writes the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--table", action="store_true")
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
    if not options.table:
        for number in range(options.rounds):
            for setting in settings:
                for allocator in ("default", "settled"):
                    file = options.folder / f"{setting.name}.{allocator}.{number}.json"
                    _kept(file, lambda s=setting, a=allocator: plain(s, a))
        for setting in settings:
            _kept(options.folder / f"{setting.name}.profile.json", lambda s=setting: profiled(s))
            _kept(options.folder / f"{setting.name}.validate.json", lambda s=setting: validated(s))
    rows = [row for each in settings if (row := Row.of(options.folder, each)) is not None]
    predict(rows)
    print(report(rows))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _kept(file: Path, made: Callable[[], Any]) -> None:
    if not file.exists():
        print(time.strftime("%H:%M:%S"), file.name, file=sys.stderr, flush=True)
        file.write_text(json.dumps(made()), encoding="utf-8")


def plain(setting: Setting, allocator: str) -> dict[str, Any]:
    """Seconds and page faults of the passes of a script in its own process, and the clock then."""
    environment = {
        k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "PYTHONPATH")
    }
    if allocator == "settled":
        environment["GLIBC_TUNABLES"] = SETTLED
    with pace_gauge(read_situation().topology.cores[: setting.threads]) as pace:
        before = pace()
        done = subprocess.run(
            [sys.executable, "-c", setting.script],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        after = pace()
    found = json.loads(done.stdout.splitlines()[-1])
    clocks = [each.clock_hz for each in (before, after) if each.clock_hz]
    return {**found, "clock_hz": mean(clocks) if clocks else None}


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
    return {"measured_s": median(times_s), "faults": measured["faults"]}


def validated(setting: Setting) -> dict[str, Any]:
    """What `validate` predicts and measures of it."""
    found = validate([setting.model], batches=[setting.batch], threads=[setting.threads])
    (run,) = found.models
    return {"predicted_s": run.predicted_s, "measured_s": run.measured_s}


@dataclass(slots=True)
class Row:
    """A setting, with medians over its processes and what was predicted for it.

    ``usual`` and ``clocked`` are predictions without and with the clock: seconds, and both ends of
    the interval.
    """

    setting: Setting
    default_s: float
    settled_s: float
    faults: float
    clock_hz: float | None
    profile_s: float
    validate_s: float
    usual: tuple[float, float, float] | None = None
    clocked: tuple[float, float, float] | None = None
    usual_settled_s: float | None = None
    predicted_faults: float | None = None

    @classmethod
    def of(cls, folder: Path, setting: Setting) -> Row | None:
        """From the files of a folder; None: some of it was not measured."""
        found = {
            allocator: [
                json.loads(file.read_text())
                for file in sorted(folder.glob(f"{setting.name}.{allocator}.*.json"))
            ]
            for allocator in ("default", "settled")
        }
        files = [folder / f"{setting.name}.{each}.json" for each in ("profile", "validate")]
        if not all(found.values()) or not all(file.exists() for file in files):
            return None
        profile, validation = (json.loads(file.read_text()) for file in files)
        clocks = [each["clock_hz"] for each in found["default"] if each["clock_hz"]]
        return cls(
            setting=setting,
            default_s=median(_of_pass(each, "seconds") for each in found["default"]),
            settled_s=median(_of_pass(each, "seconds") for each in found["settled"]),
            faults=median(_of_pass(each, "faults") for each in found["default"]),
            clock_hz=median(clocks) if clocks else None,
            profile_s=profile["measured_s"],
            validate_s=validation["measured_s"],
        )


def _of_pass(process: dict[str, list[float]], what: str) -> float:
    passes = process[what]
    return median(passes[len(passes) // 2 :])


def predict(rows: Sequence[Row]) -> None:
    """Adds what is predicted of each row by what was learned from other families."""
    profile = load_hardware("host")
    with Store.open(host_latency_file(), host_environment(), say=print) as store:
        judge = Judge(all=calibration_of(store, profile), known={}, lanes=lanes_of(profile))
    options = RunOptions()
    for row in rows:
        setting = row.setting
        captured = captured_pass(
            setting.model, None, options, run=options.run(), batch=setting.batch, seq=None
        )
        roof = Roof(profile, setting.threads)
        placements = place(captured.capture.records, captured.reuse, roof, cache="steady")
        for pace in (UNKNOWN, Pace(clock_hz=row.clock_hz)):
            predictor = judge.predictor(family_of(setting.model), pace)
            run = predictor.predict(placements, setting.threads).run
            if run is None:
                continue
            found = run.predicted_s, run.low_s, run.high_s
            if pace is UNKNOWN:
                row.usual = found
            else:
                row.clocked = found


def _error(predicted_s: float, measured_s: float) -> float:
    return predicted_s / measured_s - 1


def report(rows: Sequence[Row]) -> str:
    """Figures over all rows, and the rows, those predicted worst first."""
    known = [row for row in rows if row.usual and row.clocked]
    lines = [
        "# Predictions against plain torch in a fresh process",
        "",
        f"{len(rows)} runs of {len({row.setting.model for row in rows})} models of"
        f" {len({family_of(row.setting.model) for row in rows})} families; each predicted without"
        " its family. Rerun: `python benchmarks/plain_torch.py FOLDER > benchmarks/plain_torch.md`",
        "",
        "| figure | value | runs |",
        "|---|---:|---:|",
    ]

    def figure(name: str, values: Sequence[float]) -> None:
        if values:
            lines.append(f"| {name} | {100 * mean(values):.1f} % | {len(values)} |")

    figure(
        "MAPE, usual clock",
        [abs(_error(row.usual[0], row.default_s)) for row in known if row.usual],
    )
    figure("bias, usual clock", [_error(row.usual[0], row.default_s) for row in known if row.usual])
    figure(
        "MAPE, clock given",
        [abs(_error(row.clocked[0], row.default_s)) for row in known if row.clocked],
    )
    figure(
        "inside the 80 % interval, usual clock",
        [row.usual[1] <= row.default_s <= row.usual[2] for row in known if row.usual],
    )
    profiles = [abs(_error(row.profile_s, row.default_s)) for row in rows]
    validates = [abs(_error(row.validate_s, row.default_s)) for row in rows]
    for name, errors in (("profile", profiles), ("validate", validates)):
        if errors:
            lines.append(
                f"| `{name}` against plain torch, median | {100 * median(errors):.1f} % |"
                f" {len(errors)} |"
            )
    lines += [
        "",
        "| model | batch | threads | plain | settled | faults | predicted | 80 % interval | error |"
        " clock given | profile | validate |",
        "|---|---:|---:|---:|---:|---:|---:|---|---:|---:|---:|---:|",
    ]
    for row in sorted(
        rows, key=lambda row: -abs(_error(row.usual[0], row.default_s)) if row.usual else 0.0
    ):
        setting, usual, clocked = row.setting, row.usual, row.clocked
        cells = [
            setting.model,
            f"{setting.batch}",
            f"{setting.threads}",
            format_s(row.default_s),
            format_s(row.settled_s),
            f"{row.faults:,.0f}",
            format_s(usual[0]) if usual else "–",
            f"{format_s(usual[1])} – {format_s(usual[2])}" if usual else "–",
            f"{100 * _error(usual[0], row.default_s):+.1f} %" if usual else "–",
            f"{100 * _error(clocked[0], row.default_s):+.1f} %" if clocked else "–",
            f"{100 * _error(row.profile_s, row.default_s):+.1f} %",
            f"{100 * _error(row.validate_s, row.default_s):+.1f} %",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
