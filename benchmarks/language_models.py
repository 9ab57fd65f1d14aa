"""Prefill and decode of small language models: predicted and measured times.

Run it on a quiet machine that was calibrated (`roofline calibrate`):

    python benchmarks/language_models.py /tmp/language            # resumes
    python benchmarks/language_models.py /tmp/language --only decode
    python benchmarks/language_models.py /tmp/language --table    # only the table
    python benchmarks/language_models.py /tmp/language --quick    # few passes; table in FOLDER

It writes language_models-HOST.md into its own folder. Weights are random, in float32; a decode pass
has a cache of random keys and values. Predictions use no measurement of the same model family. Each
row is measured twice, apart in time, in its own process.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimize_rows import Row, Table, about_the_machine, failed, run

from roofline.core.units import format_bytes, format_s

LLAMA = "hf:llama"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A small model: what is built, in which sizes."""

    model: str = LLAMA
    sizes: Mapping[str, int]

    @property
    def config(self) -> str:
        """As `--config` takes it."""
        return ",".join(f"{key}={value}" for key, value in self.sizes.items())


def _llama(width: int, inner: int, layers: int, heads: int, shared: int, words: int) -> Shape:
    return Shape(
        sizes={
            "hidden_size": width,
            "intermediate_size": inner,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": shared,
            "vocab_size": words,
            "max_position_embeddings": 4096,
        }
    )


SHAPES: Mapping[str, Shape] = {
    "Llama 256 × 4, 4 heads": _llama(256, 688, 4, 4, 4, 4096),
    "Llama 1024 × 6, 16 heads": _llama(1024, 2816, 6, 16, 16, 8192),
    "Llama 576 × 10, 9 heads on 3 (GQA)": _llama(576, 1536, 10, 9, 3, 16384),
    "Llama 512 × 8, 8 heads on 1 (MQA)": _llama(512, 1376, 8, 8, 1, 8192),
    "GPT-2 768 × 6, 12 heads": Shape(
        model="hf:gpt2", sizes={"n_embd": 768, "n_layer": 6, "n_head": 12, "vocab_size": 16384}
    ),
    "Mixtral 256 × 4, 2 of 8 experts": Shape(
        model="hf:mixtral",
        sizes={
            "hidden_size": 256,
            "intermediate_size": 512,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "vocab_size": 4096,
        },
    ),
}

PASSES: Sequence[tuple[str, int, int]] = (
    # The stage, the tokens of context, and the batch.
    ("prefill", 64, 1),
    ("prefill", 512, 1),
    ("decode", 128, 1),
    ("decode", 1000, 1),
    ("decode", 512, 8),
)

THREADS = (1, 2)


def _keys() -> Iterator[str]:
    for threads in THREADS:
        for stage, context, batch in PASSES:
            for name in SHAPES:
                yield f"{name}/{stage}/{context}/{batch}/t{threads}"


def _computed(key: str, quick: bool) -> Row:
    import sys

    from roofline.latency.calibration_set import family_of
    from roofline.latency.measuring.rounds import Effort
    from roofline.latency.store import Store
    from roofline.pipeline.language import cache_growth, stage_workload
    from roofline.pipeline.machines import (
        calibration_of,
        host_environment,
        host_latency_file,
        vector_lanes,
    )
    from roofline.pipeline.timing import bench, materialize_model, measure, remeasure
    from roofline.pipeline.validations import (
        RepeatedMeasurement,
        leave_one_out_predictors,
        validate_pass,
    )
    from roofline.run import RunOptions

    def tell(what: str) -> None:
        print(what, file=sys.stderr, flush=True)

    name, stage, context, batch, threads = key.split("/")
    shape, team = SHAPES[name], int(threads.removeprefix("t"))
    effort = (
        Effort(warm_ups=1, min_rounds=3, max_rounds=5, budget_s=0.2)
        if quick
        else Effort(warm_ups=2, min_rounds=7, max_rounds=30, budget_s=2.0)
    )
    with bench(force=quick, say=tell) as here:
        with Store(host_latency_file(), host_environment()) as store:
            predictor_without = leave_one_out_predictors(
                calibration_of(store.runs(), here.profile), vector_lanes(here.profile)
            )
        asked = stage_workload(
            shape.model,
            RunOptions(batch=int(batch)),
            config=shape.config,
            stage="prefill" if stage == "prefill" else "decode",
            context=int(context),
        )
        model = materialize_model(asked)
        found = measure(here, asked, model, threads=team, effort=effort)
        again = remeasure(here, asked, model, threads=team, effort=effort)
    predictor = predictor_without(family_of(shape.model), found.timed.run.core_state)
    judged = validate_pass(
        RepeatedMeasurement(dtype="float32", found=found, remeasurement=again), predictor
    )
    fields = (
        *("predicted_s", "predicted_low_s", "predicted_high_s", "predicted_usual_s", "measured_s"),
        *("remeasured_at_clock_s", "eager_min_time_s", "operators", "below_bound", "are_disturbed"),
        "samples",
    )
    return {
        **{field: getattr(judged, field) for field in fields},
        "parameters": found.passed.capture.parameters,
        "copied_bytes": cache_growth(found.passed.capture.records)[0],
        "conditions": list(found.timed.run.conditions),
    }


def _lines(rows: Sequence[Row]) -> Iterable[str]:
    good = [row for row in rows if "error" not in row]
    yield "# Prefill and decode: predicted and measured times"
    yield ""
    yield about_the_machine() + " How to rerun: `benchmarks/language_models.py`."
    yield ""
    yield "Small models of random weights in float32, eager; a shape is width × layers. Prefill"
    yield "reads that many tokens per sequence; decode generates one after that many. Predictions"
    yield "are learned from other model families. *Error*: predicted ÷ measured, less one;"
    yield "*remeasured*: the same of a second measurement. *Minimum*: eager minimum time ÷"
    yield "measured. *Cache copies*: traffic of growing the cache. Tokens/s of all sequences."
    yield ""
    yield from _summary(good)
    for threads in THREADS:
        for stage in ("prefill", "decode"):
            part = [row for row in good if _is_of(row, stage, threads)]
            if part:
                yield ""
                yield f"## {stage.capitalize()}, {threads} thread{'s' * (threads > 1)}"
                yield ""
                yield from _table(part)
    yield from _noticed(good)
    yield from failed(rows)


def _is_of(row: Row, stage: str, threads: int) -> bool:
    parts = row["key"].split("/")
    return parts[1] == stage and parts[-1] == f"t{threads}"


def _off(estimate_s: float | None, measured_s: float) -> float | None:
    return None if estimate_s is None else estimate_s / measured_s - 1


def _is_in_interval(row: Row) -> bool:
    low, high = row["predicted_low_s"], row["predicted_high_s"]
    return low is not None and high is not None and low <= row["measured_s"] <= high


def _summary(rows: Sequence[Row]) -> Iterable[str]:
    yield (
        "| stage | threads | runs | predicted | MAPE | median error | in 80 % interval |"
        " minimum ÷ measured | operators below minimum | noise floor |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for stage in ("prefill", "decode"):
        for threads in THREADS:
            part = [row for row in rows if _is_of(row, stage, threads)]
            if part:
                yield _summed(stage, threads, part)


def _summed(stage: str, threads: int, rows: Sequence[Row]) -> str:
    known = [row for row in rows if row["predicted_s"] is not None]
    errors = [abs(_off(row["predicted_s"], row["measured_s"]) or 0.0) for row in known]
    bounds = [
        row["eager_min_time_s"] / row["measured_s"] for row in rows if row["eager_min_time_s"]
    ]
    noise = [
        abs(off)
        for row in rows
        if (off := _off(row["remeasured_at_clock_s"], row["measured_s"])) is not None
    ]
    inside = sum(map(_is_in_interval, known))
    below, operators = (sum(row[name] for row in rows) for name in ("below_bound", "operators"))
    mean = f"{100 * statistics.mean(errors):.1f} %" if errors else "–"
    median = f"{100 * statistics.median(errors):.1f} %" if errors else "–"
    return (
        f"| {stage} | {threads} | {len(rows)} | {len(known)} | {mean} | {median} |"
        f" {inside} of {len(known)} | {_share(statistics.median(bounds) if bounds else None)} |"
        f" {below} of {operators} | {_share(statistics.median(noise) if noise else None)} |"
    )


def _table(rows: Sequence[Row]) -> Iterable[str]:
    yield (
        "| model | parameters | tokens | batch | measured | predicted | 80 % interval | error |"
        " remeasured | minimum | cache copies | tokens/s |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for row in rows:
        name, stage, context, batch, _ = row["key"].split("/")
        made = int(batch) * (int(context) if stage == "prefill" else 1)
        clock_s, predicted_s = row["measured_s"], row["predicted_s"]
        yield (
            f"| {name} | {row['parameters'] / 1e6:.1f} M | {context} | {batch} |"
            f" {format_s(clock_s)} | {format_s(predicted_s) if predicted_s else '–'} |"
            f" {_interval(row)} | {_percent(_off(predicted_s, clock_s))} |"
            f" {_percent(_off(row['remeasured_at_clock_s'], clock_s))} |"
            f" {_share(row['eager_min_time_s'] / clock_s if row['eager_min_time_s'] else None)} |"
            f" {format_bytes(row['copied_bytes']) if row['copied_bytes'] else '–'} |"
            f" {made / clock_s:,.0f} |"
        )


def _interval(row: Row) -> str:
    low, high = row["predicted_low_s"], row["predicted_high_s"]
    return "–" if low is None or high is None else f"{format_s(low)} … {format_s(high)}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.1f} %"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def _noticed(rows: Sequence[Row]) -> Iterable[str]:
    """Yield the measurement conditions, each once."""
    found: dict[str, Any] = {}
    for row in rows:
        for each in (*row["conditions"], *(["rounds were disturbed"] * row["are_disturbed"])):
            found[each] = found.get(each, 0) + 1
    if found:
        yield ""
        yield "Measurement conditions:"
        yield ""
        for what, count in found.items():
            yield f"* {what} ({count} row{'s' * (count > 1)})"


TABLE = Table(name="language_models", keys=tuple(_keys()), compute=_computed, lines=_lines)

if __name__ == "__main__":
    run(TABLE, __doc__)
