"""Learns the generic CPU model, and judges it on hosts whose CPU family it does not contain.

    python benchmarks/generic_cpu.py collect HOST.toml    # once: generic_cpu_rows.json.gz
    python benchmarks/generic_cpu.py learn                # roofline/latency/generic.json
    python benchmarks/generic_cpu.py judge [FOLDER] > benchmarks/generic_cpu.md

HOST.toml is the profile of a calibrated host, next to its samples. FOLDER has public measurements,
`../shared/measurements` unless given. Nothing is timed: rows are earlier measurements.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import json
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares
from scipy.sparse import csr_matrix

from roofline.latency.calibration_set import DESIGN
from roofline.latency.generic import (
    FILE,
    OTHER,
    GenericCpu,
    GenericHost,
    kind_of,
    shipped,
    work_of,
)
from roofline.latency.samples import OperatorFeatures

HERE = Path(__file__).parent
ROWS = HERE / "generic_cpu_rows.json.gz"
Z_80 = 1.2815515655446004

PRIOR = (15e-6, 2.0, 3e-12)
"""Seconds of a call, factor on the minimum time above 1, seconds of a FLOP, before measurements."""

WIDTHS = tuple((group, kind) for group in (0.4, 0.7, 1.0) for kind in (0.2, 0.4, 0.7))
"""Deviations of logarithms: of a group from the prior, and of a kind from its group. Passes do not
tell all kinds apart, and each pair explains them by other kinds: constants are the mean."""

OPERATOR = 0.7
"""Deviation of operators of which none was timed by itself: that of a group from the prior."""

NOISE = 0.15
"""Deviation of the logarithm of a time."""

HOST_WEIGHT = 90.0
"""Weight of the passes of a host, and of its operators: hosts count alike."""

FAULTS = 0.25
"""Largest share of page faults in a pass to learn from."""


@dataclass(frozen=True)
class Host:
    """Host of measurements: its family is the unit that judging leaves out."""

    name: str
    family: str
    profile: str
    date: str
    source: str
    is_learned: bool = True


HOSTS = {
    each.name: each
    for each in (
        Host("amd-epyc-2cpu", "AMD EPYC of Zen 5", "measured profile", "2026-11-23",
             "benchmarks/latency_accuracy.json (batch 1), benchmarks/plain_torch.md (settled)"),
        Host("amd-epyc-zen4-2cpu", "AMD EPYC of Zen 4", "data sheet (`epyc-9654`)", "2026-11-23",
             "benchmarks/plain_torch.md of that day (settled)"),
        # Kept for judging.
        Host("intel-xeon-2cpu", "Intel Xeon with AMX", "measured profile", "2026-11-27",
             "roofline calibrate", is_learned=False),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A measured pass (or a single operator, without a model): its work by kind, and its time."""

    host: str
    model: str
    batch: int
    threads: int
    layout: str
    calls: int
    measured_s: float
    work: dict[str, list[float]]


class LeakError(Exception):
    """The model to judge was learned on the family of the judged host."""


# -- rows ------------------------------------------------------------------------------------------


def works(features: Iterable[tuple[OperatorFeatures, int]]) -> dict[str, list[float]]:
    """Return the sum of work by kind."""
    found: defaultdict[str, np.ndarray] = defaultdict(lambda: np.zeros(3))
    for each, calls in features:
        found[kind_of(each)[0]] += calls * np.asarray(work_of(each))
    return {kind: [float(f"{each:.6g}") for each in work] for kind, work in found.items()}


def calibrated(profile_file: Path, host: str) -> Iterable[Row]:
    """Yield the float32 passes and operators of a calibration, without their page faults."""
    from roofline.latency.store import read_runs
    from roofline.machine.catalog import load_hardware

    profile = load_hardware(str(profile_file))
    assert profile.host is not None
    found = read_runs(profile_file.with_suffix(".latency.sqlite"), profile.host)
    faults_s = profile.page_fault_s()
    for run in found[1] if found else ():
        if run.train or run.dtype != "float32":
            continue
        fault_s = faults_s.get(run.threads, 0.0)
        for each in run.operators:
            time_s = each.time_s - each.page_faults * fault_s
            if time_s > (1 - FAULTS) * each.time_s:
                work = works([(each.facts, 1)])
                yield Row(host, "", 1, run.threads, each.facts.layout, 1, time_s, work)
        settled_s = run.end_to_end_s - run.page_faults * fault_s
        if run.family != DESIGN and settled_s > (1 - FAULTS) * run.end_to_end_s:
            layout = "channels-last" if run.channels_last else "contiguous"
            work = works((each.facts, each.calls) for each in run.operators)
            yield Row(
                host, run.model, run.batch or 1, run.threads, layout, run.calls, settled_s, work
            )


class Passes:
    """Passes of models by name, each captured once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Any] = {}

    def work(self, model: str, inputs: Any, batch: int | None, profile: Any, threads: int) -> Any:
        """Return the number of calls of a pass and its work by kind on a machine."""
        from roofline.latency.features import features_of
        from roofline.pipeline.runs import capture_pass
        from roofline.placement import Roof, place
        from roofline.run import RunOptions
        from roofline.workload.operators import State

        key = model, inputs, batch
        if key not in self._known:
            self._known[key] = capture_pass(model, inputs, RunOptions(batch=batch), on="cpu")
        known = self._known[key]
        placed = place(known.capture.records, known.reuse, Roof(profile, threads))
        at_work = [each for each in placed if each.record.state is not State.FREE]
        return len(placed), works((features_of(each, threads), 1) for each in at_work)


def tabled(text: str) -> Iterable[tuple[str, int, int, float]]:
    """Yield model, batch, threads and settled seconds of the rows of plain_torch.md."""
    units = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
    for line in text.splitlines():
        cells = [each.strip() for each in line.split("|")]
        if len(cells) > 10 and cells[2].isdigit():
            number, unit = cells[5].split()
            yield cells[1], int(cells[2]), int(cells[3]), float(number) * units[unit]


ZEN_4 = "a1e0ac72"
"""Commit with the table of the host of Zen 4."""


def collect(profile_file: Path) -> list[Row]:
    """Return all rows: earlier measurements, with the work of their passes."""
    from roofline.machine.catalog import load_hardware

    passes = Passes()
    found = list(calibrated(profile_file, "intel-xeon-2cpu"))
    zen_5 = load_hardware(str(HERE / "hardware" / "two-core-cpu.toml"))
    judged: list[tuple[str, Any, tuple[str, int, int, float]]] = []
    for each in json.loads((HERE / "latency_accuracy.json").read_text())["models"]:
        # At batch 8, passes of that day had page faults that were not counted.
        if each["dtype"] == "float32" and each["batch"] == 1 and ".py:" not in each["model"]:
            key = each["model"], each["batch"], each["threads"], each["measured_s"]
            judged.append(("amd-epyc-2cpu", zen_5, key))
    text = (HERE / "plain_torch.md").read_text(encoding="utf-8")
    judged += [("amd-epyc-2cpu", zen_5, each) for each in tabled(text)]
    command = ["git", "show", f"{ZEN_4}:benchmarks/plain_torch.md"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    zen_4 = load_hardware("epyc-9654")
    judged += [("amd-epyc-zen4-2cpu", zen_4, each) for each in tabled(text)]
    for host, profile, (model, batch, threads, time_s) in judged:
        calls, work = passes.work(model, None, batch, profile, threads)
        found.append(Row(host, model, batch, threads, "contiguous", calls, time_s, work))
    return found


def rows() -> list[Row]:
    """Return the committed rows."""
    return [Row(*each) for each in json.loads(gzip.decompress(ROWS.read_bytes()))]


# -- learning --------------------------------------------------------------------------------------


def learn(known: Sequence[Row], *, deviations: tuple[float, float] = (0.0, 0.0)) -> GenericCpu:
    """Return the model of measured rows: times = calls, minimum times and FLOP, each by kind."""
    fits = [fit(known, *each) for each in WIDTHS]
    means = {name: np.mean([each[name] for each in fits], axis=0) for name in fits[0]}
    kinds = {name: [float(f"{each:.4g}") for each in means[name]] for name in means}
    (overhead_s, _, _) = kinds.pop(OVERHEAD)
    return GenericCpu(
        kinds={name: (call_s, factor, flop_s) for name, (call_s, factor, flop_s) in kinds.items()},
        overhead_s=overhead_s,
        types=("float32", "int64", "int32", "bool"),
        deviation=deviations[0],
        pass_deviation=deviations[1],
        hosts=tuple(host_of(name, known) for name in dict.fromkeys(each.host for each in known)),
        script=Path(__file__).name,
        digest=hashlib.sha256(Path(__file__).read_bytes()).hexdigest(),
    )


OVERHEAD = "overhead"


def fit(known: Sequence[Row], of_group: float, of_kind: float) -> dict[str, np.ndarray]:
    """Return the constants by kind and group, of all others, and of the overhead of a call.

    Logarithms of the three constants of a kind have a prior around those of its group.
    """
    kinds = sorted({kind for row in known for kind in row.work})
    groups = sorted({kind.split(":")[0] for kind in kinds})
    # The overhead of a call is a kind of its own, without a minimum time and FLOP.
    names, count = [*kinds, OVERHEAD], len(kinds) + 1
    place = {name: at for at, name in enumerate(names)}
    table = np.zeros((len(known), 3, count))
    for at, row in enumerate(known):
        for kind, work in row.work.items():
            table[at, :, place[kind]] = work
        # Passes have overhead between operators; operators alone have none.
        table[at, 0, -1] = row.calls if row.model else 0
    least_s = table[:, 1].sum(axis=1)
    flat = csr_matrix(table.reshape(len(known), -1))
    member = np.zeros((count, len(groups) + 1))
    for name, at in place.items():
        member[at, groups.index(name.split(":")[0]) if name != OVERHEAD else -1] = 1
    sizes: defaultdict[tuple[str, bool], int] = defaultdict(int)
    for row in known:
        sizes[row.host, bool(row.model)] += 1
    weight = np.sqrt([HOST_WEIGHT / sizes[row.host, bool(row.model)] for row in known]) / NOISE
    target = np.log([row.measured_s for row in known])
    first = np.log(np.tile(np.asarray(PRIOR)[:, None], (1, count)))
    first[0, -1] = np.log(2e-6)
    split = 3 * member.shape[1]

    def logarithms(values: np.ndarray) -> np.ndarray:
        of_groups = values[:split].reshape(3, -1) @ member.T
        return (first + of_groups + values[split:].reshape(3, -1)).ravel()

    width = np.r_[np.full(split, of_group), np.full(3 * count, of_kind)]

    def residuals(values: np.ndarray) -> np.ndarray:
        time_s = flat @ np.exp(logarithms(values)) + least_s
        return np.r_[weight * (np.log(time_s) - target), values / width]

    def slopes(values: np.ndarray) -> np.ndarray:
        factors = np.exp(logarithms(values))
        time_s = flat @ factors + least_s
        of_kinds = flat.multiply(factors[None, :]).multiply((weight / time_s)[:, None]).toarray()
        of_groups = (of_kinds.reshape(-1, 3, count) @ member).reshape(-1, split)
        return np.vstack([np.hstack([of_groups, of_kinds]), np.diag(1 / width)])

    solved = least_squares(
        residuals,
        np.zeros(split + 3 * count),
        jac=slopes,  # pyright: ignore[reportArgumentType]
        loss="soft_l1",
        f_scale=1.5,
        max_nfev=100,
    )
    of_kinds = np.exp(logarithms(solved.x).reshape(3, count))
    of_groups = np.exp(solved.x[:split].reshape(3, -1)[:, :-1] + np.log(PRIOR)[:, None])
    found = {name: of_kinds[:, at] for name, at in place.items()}
    found |= {name: of_groups[:, at] for at, name in enumerate(groups)}
    found[OTHER] = np.exp(np.log(of_groups).mean(axis=1))
    # The second constant is what is above the minimum time.
    return {name: each + np.array([0.0, 1.0, 0.0]) for name, each in found.items()}


def host_of(name: str, known: Sequence[Row]) -> GenericHost:
    """Return the provenance of the rows of a host."""
    host, of_host = HOSTS[name], [each for each in known if each.host == name]
    passes = [each for each in of_host if each.model]
    return GenericHost(
        name=name,
        family=host.family,
        threads=tuple(sorted({each.threads for each in of_host})),
        models=len({each.model for each in passes}),
        passes=len(passes),
        operators=len(of_host) - len(passes),
        date=host.date,
        source=host.source,
    )


# -- judging ---------------------------------------------------------------------------------------


def seconds(model: GenericCpu, row: Row) -> float:
    """Return the predicted time of a row."""
    found = row.calls * model.overhead_s if row.model else 0.0
    for kind, work in row.work.items():
        known = model.kinds.get(kind) or model.kinds.get(kind.split(":")[0]) or model.kinds[OTHER]
        found += sum(each * by for each, by in zip(known, work, strict=True))
    return found


def is_covered(model: GenericCpu, row: Row) -> bool:
    """Return True if the model predicts a row: images in a layout that was measured."""
    return not any("channels-last" in kind and kind not in model.kinds for kind in row.work)


def errors(model: GenericCpu, judged: Sequence[Row]) -> np.ndarray:
    """Return logarithms of predicted over measured times.

    Raises:
        LeakError: the model was learned on the family of a judged host.
    """
    for family in {HOSTS[each.host].family for each in judged if each.host in HOSTS}:
        if family in {each.family for each in model.hosts}:
            raise LeakError(f"{family}: is among the hosts that the model was learned on")
    return np.log([seconds(model, each) / each.measured_s for each in judged])


def scale(parts: Sequence[np.ndarray]) -> float:
    """Return the deviation of which 80 % intervals contain 80 % of errors; hosts count alike."""
    flat = np.abs(np.concatenate(parts))
    weight = np.concatenate([np.full(len(each), 1 / len(each)) for each in parts])
    order = np.argsort(flat)
    reached = np.cumsum(weight[order]) / weight.sum()
    return float(flat[order][np.searchsorted(reached, 0.8)] / Z_80)


def without(known: Sequence[Row], family: str, *, learned: bool) -> list[Row]:
    """Return the rows of other families than the judged one; `learned`: of the shipped model."""
    hosts = [each for each in HOSTS.values() if each.family != family]
    names = [each.name for each in hosts if each.is_learned or not learned]
    return [each for each in known if each.host in names]


def learn_with_deviations(known: Sequence[Row]) -> GenericCpu:
    """Return the model of rows, with deviations of the hosts left out in turn.

    Hosts differ by as much as a new one differs from them: the variance of a prediction from n of
    them is that of hosts times 1 + 1/n. Left out are those that n - 1 others predict.
    """
    families = {HOSTS[each.host].family for each in known}
    of_operators: list[np.ndarray] = []
    of_passes: list[np.ndarray] = []
    for family in sorted(families):
        model = learn([each for each in known if HOSTS[each.host].family != family])
        left_out = [each for each in known if HOSTS[each.host].family == family]
        for found, is_pass in ((of_operators, False), (of_passes, True)):
            if chosen := [each for each in left_out if bool(each.model) == is_pass]:
                found.append(errors(model, chosen))
    factor = deviation_factor(len(families)) / deviation_factor(len(families) - 1)
    of_operator, of_pass = (
        # No operator was timed by itself on these hosts: the deviation of the prior.
        round(factor * scale(each), 4) if each else OPERATOR
        for each in (of_operators, of_passes)
    )
    return learn(known, deviations=(of_operator, of_pass))


def deviation_factor(hosts: int) -> float:
    """Return the deviation of predictions from a number of hosts, over that between hosts."""
    return float(np.sqrt(1 + 1 / hosts))


def public(folder: Path, count: int = 60) -> list[Row]:
    """Return runs of timm on an i9-10940X, compiled, as the work of their eager passes."""
    from roofline.machine.catalog import load_hardware

    file = next((folder / "timm").glob("benchmark-infer-fp32-nchw-pt240-cpu-i9_10940x*.csv"))
    with file.open(encoding="utf-8") as content:
        published = [each for each in csv.DictReader(content) if each["infer_gmacs"]]
    random.Random(0).shuffle(published)
    profile, passes, found = load_hardware("i9-10940x"), Passes(), []
    for each in published:
        size = int(each["infer_img_size"])
        name = f"timm:{each['model']}"
        # Large models take minutes to capture.
        if len(found) == count or float(each["infer_gmacs"]) > 20:
            continue
        try:
            calls, work = passes.work(name, (1, 3, size, size), None, profile, profile.threads)
        except Exception as error:
            print(f"{name}: {error}".splitlines()[0], file=sys.stderr)
            continue
        time_s = float(each["infer_step_time"]) / 1e3
        found.append(Row("i9-10940x", name, 1, profile.threads, "contiguous", calls, time_s, work))
    return found


def figures(name: str, model: GenericCpu, judged: Sequence[Row]) -> str:
    """Return a row of the table: errors of a judged host."""
    found = errors(model, judged)
    factor = deviation_factor(len(model.hosts)) / deviation_factor(len(shipped().hosts))
    is_passes = all(each.model for each in judged)
    deviation = factor * (shipped().pass_deviation if is_passes else shipped().deviation)
    off = np.abs(np.expm1(found))
    learned = ", ".join(each.family for each in model.hosts)
    inside = np.mean(np.abs(found) <= Z_80 * deviation)
    count = len({each.model for each in judged}) if is_passes else "–"
    return (
        f"| {name} | {learned} | {count} | {len(judged)} | {np.mean(off):.1%} |"
        f" {np.median(off):.1%} | {np.median(np.expm1(found)):+.1%} | {inside:.1%} |"
    ).replace("%", " %")


HEAD = (
    "| judged host | learned on | models | rows | MAPE | median | bias | in 80 % interval |\n"
    "|---|---|---:|---:|---:|---:|---:|---:|"
)


def report(known: Sequence[Row], folder: Path | None) -> Iterable[str]:
    """Yield the lines of the table."""
    yield "# Generic CPU model: predictions without calibration\n"
    yield (
        "float32, eager, on 1 and 2 threads. Rows are earlier measurements, which"
        " `benchmarks/generic_cpu.py` names; it refuses to judge a host by a model that was learned"
        " on its CPU family. The shipped model was learned on the two hosts of AMD, in contiguous"
        " layout; its deviation is that of each of them predicted from the other, and of operators"
        " that of the prior.\n"
    )
    yield HEAD
    for name, host in HOSTS.items():
        judged = [each for each in known if each.host == name]
        # The host that the shipped model leaves out may teach the others.
        for learned in sorted({host.is_learned, False}):
            model = learn(without(known, host.family, learned=learned))
            for is_pass, what in ((True, "passes"), (False, "operators")):
                chosen = [e for e in judged if bool(e.model) == is_pass and is_covered(model, e)]
                if chosen:
                    yield figures(f"{host.family}, {host.profile}, {what}", model, chosen)
    yield ""
    if folder is not None and folder.is_dir():
        yield (
            "Published runs of timm (pytorch-image-models @ aa4b5850) on a Core i9-10940X, as its"
            " data sheet describes it. They are compiled, and the model predicts eager passes;"
            " their thread count is not published, and 14 are assumed.\n"
        )
        yield HEAD
        judged = public(folder)
        yield figures("Core i9-10940X, data sheet, compiled", shipped(), judged)


def main() -> None:
    """Collects, learns or judges."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("action", choices=("collect", "learn", "judge"))
    parser.add_argument("path", type=Path, nargs="?")
    options = parser.parse_args()
    if options.action == "collect":
        found = collect(options.path)
        text = json.dumps([list(asdict(each).values()) for each in found], separators=(",", ":"))
        ROWS.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        return
    known = rows()
    if options.action == "learn":
        model = learn_with_deviations([e for e in known if HOSTS[e.host].is_learned])
        target = HERE.parent / "roofline" / "latency" / FILE
        target.write_text(json.dumps(asdict(model)) + "\n", encoding="utf-8")
        return
    for line in report(known, options.path or HERE.parent.parent / "shared" / "measurements"):
        print(line)


if __name__ == "__main__":
    main()
