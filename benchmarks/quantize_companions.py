"""The what-if of `roofline quantize` against the clock, for the widths that torch has kernels for.

Run it on a quiet machine that was calibrated (`roofline calibrate`, with int8):

    python benchmarks/quantize_companions.py /tmp/companions            # goes on where it was
    python benchmarks/quantize_companions.py /tmp/companions --only /t1
    python benchmarks/quantize_companions.py /tmp/companions --table    # only the table
    python benchmarks/quantize_companions.py /tmp/companions --quick    # 2 rounds; table in there

It writes quantize_companions-HOST.md beside itself. Each model is run as it is and in bfloat16 or
int8 by turns, in a new process for each type. Nothing is predicted from what was measured of models
of its own family.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from optimize_rows import Row, Table, about_the_machine, failed, interval, ratio, run

from roofline.core.units import format_s
from roofline.latency.calibration_set import family_of

CIFAR = f"{Path(__file__).parent / 'networks/cifar_resnet.py'}:ResNet20"

MODELS: Mapping[str, tuple[str, str]] = {
    # The name in the table: what is built, and what it is given.
    **{
        name: (name, "1x3x224x224")
        for name in (
            *("resnet34", "mobilenet_v2", "squeezenet1_0", "vgg11", "shufflenet_v2_x1_0"),
            *("densenet121", "regnet_y_400mf", "googlenet", "vit_b_16"),
        )
    },
    "ResNet-20 (CIFAR)": (CIFAR, "1x3x32x32"),
    "ResNet-20 (CIFAR), batch 32": (CIFAR, "32x3x32x32"),
}

CLEAR = 1.05
"""A speed-up nearer to 1 is neither a gain nor a loss."""


def _keys() -> Iterator[str]:
    for threads in (1, 2):
        for name in MODELS:
            yield f"{name}/t{threads}"


def _computed(key: str, quick: bool) -> Row:
    from roofline.analysis import Analysis
    from roofline.machine import catalog
    from roofline.pipeline.analyses import assemble_analysis
    from roofline.pipeline.machines import load_predictor
    from roofline.pipeline.native_variants import measure_variants
    from roofline.pipeline.runs import build_workload
    from roofline.placement import Roof
    from roofline.quantization.policy import Policy
    from roofline.quantization.result import WhatIf
    from roofline.quantization.what_ifs import evaluate_policy
    from roofline.run import RunOptions

    name, _, threads = key.rpartition("/t")
    model, shape = MODELS[name]
    profile = catalog.load_hardware(catalog.HOST)
    predictor = _without(_family(name), load_predictor(profile, None, RunOptions().run()))
    passed = build_workload(model, shape, RunOptions()).captured()
    analysis: Analysis = assemble_analysis(
        passed, Roof(profile, int(threads)), notes=(), predictor=predictor
    )

    def what_if_of(policy: Policy) -> WhatIf:
        return evaluate_policy(analysis, policy, predictor)

    found, conditions = measure_variants(
        model,
        shape,
        options=RunOptions(),
        analysis=analysis,
        what_if_of=what_if_of,
        rounds=2 if quick else None,
        force=quick,
    )
    fields = (
        *("way", "before_s", "after_s", "speedup", "speedup_low", "speedup_high", "error"),
        *("predicted_before_s", "predicted_s", "why_not"),
    )
    return {
        "ways": [{field: getattr(each, field) for field in fields} for each in found],
        "conditions": conditions,
    }


def _family(name: str) -> str:
    return "resnet" if name.startswith("ResNet") else family_of(name)


def _without(family: str, predictor: Any) -> Any:
    """What was learned of this machine, but for models of a family."""
    from dataclasses import replace

    from roofline.latency.calibration import Calibration

    if predictor is None:
        raise SystemExit("this machine was not calibrated: run `roofline calibrate`")
    learned = predictor.calibration
    less = Calibration(learned.runs, without=family, page_fault_s=learned.page_fault_s)
    return replace(predictor, calibration=less)


def _lines(rows: Sequence[Row]) -> Iterable[str]:
    good = [row for row in rows if "error" not in row]
    yield "# What-ifs against the clock"
    yield ""
    yield about_the_machine() + " How to rerun: `benchmarks/quantize_companions.py`."
    yield ""
    yield "Models as they are (float32) and in lower precision, eager, by turns in a process, with"
    yield "the interval of the speed-up from 10 to 90 % of rounds. Predictions are those of"
    yield "`roofline quantize` for the same bits, from designs and from models of other families."
    yield "*Off*: prediction over clock, less one. *Output error*: relative, L2, of random weights"
    yield "and noise: random weights leave MobileNetV2 1e-8 at its end, below the least scale that"
    yield "torch's quantizers take, and ViT-B/16 nothing. Dynamic int8 looks for its scales at"
    yield "every call; its what-if is given them."
    yield ""
    yield from _summary(good)
    for threads in (1, 2):
        part = [row for row in good if row["key"].endswith(f"/t{threads}")]
        if part:
            yield ""
            yield f"## {threads} thread{'s' * (threads > 1)}"
            yield ""
            yield from _table(part)
    yield from _left_out(good)
    yield from failed(rows)


def _timed(rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        yield from (each for each in row["ways"] if each["after_s"] is not None)


def _off(predicted_s: float | None, measured_s: float) -> float | None:
    return None if predicted_s is None else predicted_s / measured_s - 1


def _summary(rows: Sequence[Row]) -> Iterable[str]:
    yield "| way | runs | predicted | mean error | median error | speed-up off | right direction |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    before = {
        row["key"]: _off(each["predicted_before_s"], each["before_s"])
        for row in rows
        for each in _timed([row])
    }
    yield _summed("float32 (as it is)", len(before), list(before.values()), [], "–")
    ways = dict.fromkeys(each["way"] for each in _timed(rows))
    for way in ways:
        timed = [each for each in _timed(rows) if each["way"] == way]
        known = [each for each in timed if each["predicted_s"] and each["predicted_before_s"]]
        gains = [each["predicted_before_s"] / each["predicted_s"] for each in known]
        offs = [gain / each["speedup"] - 1 for gain, each in zip(gains, known, strict=True)]
        pairs = [(gain, each) for gain, each in zip(gains, known, strict=True) if _is_clear(each)]
        right = sum((gain > 1) == (each["speedup"] > 1) for gain, each in pairs)
        errors = [_off(each["predicted_s"], each["after_s"]) for each in known]
        yield _summed(way, len(timed), errors, offs, f"{right} of {len(pairs)}")


def _summed(
    way: str, runs: int, errors: Sequence[float | None], offs: Sequence[float], right: str
) -> str:
    sizes = [abs(each) for each in errors if each is not None]
    mean = f"{100 * statistics.mean(sizes):.1f} %" if sizes else "–"
    median = f"{100 * statistics.median(sizes):.1f} %" if sizes else "–"
    speedup = f"{100 * statistics.mean(map(abs, offs)):.1f} %" if offs else "–"
    return f"| {way} | {runs} | {len(sizes)} | {mean} | {median} | {speedup} | {right} |"


def _is_clear(timed: Mapping[str, Any]) -> bool:
    """Whether the clock says surely that it is faster, or that it is slower."""
    speedup, low, high = timed["speedup"], timed["speedup_low"], timed["speedup_high"]
    if low is None or high is None:
        return False
    return (speedup > CLEAR and low > 1.0) or (speedup < 1 / CLEAR and high < 1.0)


def _table(rows: Sequence[Row]) -> Iterable[str]:
    yield (
        "| model | way | float32 | off | lower | predicted | off | speed-up | interval |"
        " predicted | output error |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for row in rows:
        name = row["key"].rpartition("/t")[0]
        for each in _timed([row]):
            before_s, after_s = each["predicted_before_s"], each["predicted_s"]
            gain = before_s / after_s if before_s and after_s else None
            error = each["error"]
            yield (
                f"| {name} | {each['way']} | {format_s(each['before_s'])} |"
                f" {_percent(_off(before_s, each['before_s']))} | {format_s(each['after_s'])} |"
                f" {format_s(after_s) if after_s else '–'} |"
                f" {_percent(_off(after_s, each['after_s']))} | {ratio(each['speedup'])} |"
                f" {interval(each['speedup_low'], each['speedup_high'])} | {ratio(gain)} |"
                f" {f'{100 * error:.2f} %' if error is not None else '–'} |"
            )


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.1f} %"


def _left_out(rows: Sequence[Row]) -> Iterable[str]:
    """Ways that were not timed, and why, each reason once."""
    models: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for each in row["ways"]:
            if each["why_not"]:
                names = models.setdefault((each["way"], each["why_not"]), [])
                names.append(row["key"].rpartition("/t")[0])
    if models:
        yield ""
        yield "Not timed:"
        yield ""
        for (way, why), names in models.items():
            yield f"* {way}: {why} ({', '.join(dict.fromkeys(names))})"


TABLE = Table(name="quantize_companions", keys=tuple(_keys()), compute=_computed, lines=_lines)

if __name__ == "__main__":
    run(TABLE, __doc__)
