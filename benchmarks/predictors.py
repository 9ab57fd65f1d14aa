"""Which way of learning predicts best: the same samples, every family predicted without itself.

It takes what `roofline calibrate` and `roofline profile` kept on this machine:

    python benchmarks/predictors.py

and writes predictors.md beside itself. Boosted and random trees are held against the others where
scikit-learn is installed (`pip install scikit-learn`); roofline itself does not need it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roofline.latency.calibration import Calibration
from roofline.latency.learning import Example, GroupModel
from roofline.latency.samples import OperatorFeatures
from roofline.latency.store import Store
from roofline.machine.catalog import load_hardware
from roofline.pipeline.machines import calibration_of, host_environment, host_latency_file

Learner = Callable[[Sequence[Example], Sequence[OperatorFeatures]], np.ndarray]
CALL_S = 1e-6


def floor_s(facts: Sequence[OperatorFeatures]) -> np.ndarray:
    """The bounds, and what any call takes."""
    return np.asarray([each.eager_min_time_s + CALL_S for each in facts])


def numbers(facts: Sequence[OperatorFeatures]) -> np.ndarray:
    """Sizes, as binary logarithms."""
    return np.asarray([(*each.numbers, np.log2(each.eager_min_time_s + CALL_S)) for each in facts])


def bound(_: Sequence[Example], facts: Sequence[OperatorFeatures]) -> np.ndarray:
    """The bound itself."""
    return floor_s(facts)


def constant(examples: Sequence[Example], facts: Sequence[OperatorFeatures]) -> np.ndarray:
    """One efficiency for each variant of a kind: the median."""
    ratios: dict[str, list[float]] = {}
    for each in examples:
        of = each.time_s / (each.facts.eager_min_time_s + CALL_S)
        ratios.setdefault(each.facts.variant, []).append(of)
        ratios.setdefault("", []).append(of)
    chosen = [statistics.median(ratios.get(each.variant, ratios[""])) for each in facts]
    return np.asarray(chosen) * floor_s(facts)


def neighbours(examples: Sequence[Example], facts: Sequence[OperatorFeatures]) -> np.ndarray:
    """Three nearest neighbours of the same variant, in log-shape space, of time over bound."""
    found = np.empty(len(facts))
    for place, each in enumerate(facts):
        kin = [one for one in examples if one.facts.variant == each.variant] or list(examples)
        distance = np.sqrt(
            ((numbers([one.facts for one in kin]) - numbers([each])) ** 2).sum(axis=1)
        )
        nearest = np.argsort(distance)[:3]
        weight = 1.0 / (distance[nearest] + 0.05) ** 2
        values = [np.log(kin[i].time_s / (kin[i].facts.eager_min_time_s + CALL_S)) for i in nearest]
        found[place] = np.exp((weight * values).sum() / weight.sum())
    return found * floor_s(facts)


def linear(examples: Sequence[Example], facts: Sequence[OperatorFeatures]) -> np.ndarray:
    """Seconds per call, per second of bound, and per byte kept and moved, none below 0."""

    def terms(many: Sequence[OperatorFeatures]) -> np.ndarray:
        # Of the shared numbers: work, kept, read and written bytes, those from DRAM.
        sizes = 2.0 ** np.asarray([each.numbers[-7:-2] for each in many])
        return np.column_stack(
            [np.ones(len(many)), [each.eager_min_time_s for each in many], sizes]
        )

    left, right = terms([each.facts for each in examples]), terms(facts)
    weight = 1.0 / np.asarray([each.time_s for each in examples])
    scale = (left * weight[:, None]).max(axis=0)
    scale[scale == 0] = 1.0
    left, right = left * weight[:, None] / scale, right / scale
    # Terms that would count against the time are left out, the worst first.
    kept = list(range(left.shape[1]))
    while True:
        solution = np.linalg.lstsq(left[:, kept], np.ones(len(left)), rcond=None)[0]
        if (solution >= 0).all():
            return right[:, kept] @ solution
        kept.pop(int(solution.argmin()))


def process(examples: Sequence[Example], facts: Sequence[OperatorFeatures]) -> np.ndarray:
    """The Gaussian process that roofline has."""
    return np.asarray([each.predicted_s for each in GroupModel(examples).predict(facts)])


def trees(make: Callable[[], Any]) -> Learner:
    """Trees of scikit-learn on the same facts."""

    def learn(examples: Sequence[Example], facts: Sequence[OperatorFeatures]) -> np.ndarray:
        labels: dict[str, int] = {}

        def rows(many: Sequence[OperatorFeatures]) -> np.ndarray:
            codes = [labels.setdefault(each.variant, len(labels)) for each in many]
            return np.column_stack([numbers(many), codes])

        known = [each.facts for each in examples]
        values = np.log([each.time_s for each in examples]) - np.log(floor_s(known))
        model = make().fit(rows(known), values)
        return np.exp(model.predict(rows(facts))) * floor_s(facts)

    return learn


def learners() -> dict[str, Learner]:
    """What is compared."""
    found: dict[str, Learner] = {
        "bound": bound,
        "one efficiency for each variant": constant,
        "non-negative linear": linear,
        "nearest neighbours (3)": neighbours,
        "Gaussian process (roofline's)": process,
    }
    try:
        from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
    except ImportError:
        return found
    found["extra trees (60)"] = trees(lambda: ExtraTreesRegressor(60, max_features=0.6))
    found["boosted trees (200)"] = trees(
        lambda: HistGradientBoostingRegressor(max_iter=200, min_samples_leaf=5)
    )
    return found


def judged(whole: Calibration, learner: Learner) -> tuple[list[float], float]:
    """Errors of whole models, and the time-weighted one of operators, without their families."""
    errors: list[float] = []
    runs = whole.runs
    wrong_s = all_s = 0.0
    for family in sorted({each.family for each in runs} - {"design"}):
        known = Calibration(whole.runs, without=family, page_fault_s=whole.page_fault_s)
        tested = [each for each in runs if each.family == family]
        facts = list({one.facts for each in tested for one in each.operators})
        kinds: dict[tuple[str, str, int], list[OperatorFeatures]] = {}
        for each in facts:
            kinds.setdefault((each.group, each.dtype, each.threads), []).append(each)
        predicted: dict[OperatorFeatures, float] = {}
        for key, chosen in kinds.items():
            examples = known.examples(*key)
            if examples:
                times_s = learner(examples, chosen)
                predicted |= dict(zip(chosen, map(float, times_s), strict=True))
        for run in tested:
            there = [each for each in run.operators if each.facts in predicted]
            if len(there) < len(run.operators):
                continue
            overhead_s = known.overhead_s(run.threads, calls=run.calls)
            total_s = sum(each.calls * predicted[each.facts] for each in there) + overhead_s
            errors.append(total_s / run.end_to_end_s - 1)
            for each in there:
                wrong_s += each.calls * abs(predicted[each.facts] - each.time_s)
                all_s += each.calls * each.time_s
    return errors, wrong_s / all_s


def main() -> None:
    """Compares them, and writes the table."""
    with Store(host_latency_file(), host_environment()) as store:
        whole = calibration_of(store.runs(), load_hardware("host"))
    runs = whole.runs
    lines = [
        "# Ways to predict an operator's time",
        "",
        f"{len(runs)} runs of {len({each.model for each in runs})} models and designs, kept by"
        f" `roofline calibrate` on this machine ({runs[0].date}); every family"
        " predicted without itself, on one and two threads. Made by"
        " `python benchmarks/predictors.py`.",
        "",
        "| method | MAPE | median | bias | within 10 % | within 20 % | operators, by time | s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, learner in learners().items():
        begin = time.perf_counter()
        errors, of_operators = judged(whole, learner)
        far = np.abs(errors)
        line = (
            f"| {name} | {far.mean():.1%} | {np.median(far):.1%} | {np.median(errors):+.1%} |"
            f" {(far <= 0.1).mean():.0%} | {(far <= 0.2).mean():.0%} | {of_operators:.1%} |"
            f" {time.perf_counter() - begin:.0f} |"
        )
        print(line, flush=True)
        lines.append(line)
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
