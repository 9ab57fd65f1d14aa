"""Every model that torchvision, timm and transformers have, counted, and counted again by others.

    python benchmarks/zoo.py > benchmarks/zoo.md        # all of them, some twenty minutes
    python benchmarks/zoo.py --sample                   # one of many families, a minute

Each model is built by its name without weights and captured at inference, each tenth in training as
well. Nothing may fail, no operator may be without a formula, and the multiply-adds must be those of
an independent count: torch's own `FlopCounterMode`, on the meta device, where layers come as their
parts and its zeros for the CPU's fused kernels play no part. What that counter has no rule for, or
a wrong one, is listed with the model, and the difference must be that to the last digit.

Exits with 1 where something fails, is unknown or is not explained.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import os
import resource
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psutil
import torch
from torch.utils.flop_counter import FlopCounterMode

from roofline.errors import RooflineError
from roofline.run import Run
from roofline.workload.capture.passes import capture
from roofline.workload.capture.training import TrainingConfig
from roofline.workload.fusion import fused_traffic
from roofline.workload.inputs import InputRequest, Inputs, resolve_inputs
from roofline.workload.models.building import Source
from roofline.workload.models.libraries.availability import library_or_reason
from roofline.workload.models.libraries.names import PREFIX, Library, names_of
from roofline.workload.models.sources import load_model
from roofline.workload.operators import Capture, OperatorRecord, State
from roofline.workload.residency import trace_residency
from roofline.workload.torch_dtypes import input_dtype

TRAINED = 10
"""One in so many is counted in training too."""

REAL_BYTE = 2**30
"""Weights up to this size are made, where the other counter needs them."""


@dataclass(frozen=True)
class Job:
    """One model to be counted, at inference or in training; ``is_alone``: by nobody else."""

    library: Library
    name: str
    train: bool = False
    is_alone: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of it; ``other`` is twice the multiply-adds that the other counter found."""

    job: Job
    said: str = ""
    calls: int = 0
    unknown: Mapping[str, int] = field(default_factory=dict[str, int])
    macs: int = 0
    other: int | None = None
    no_other: str = ""
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    count_s: float = 0.0
    resident_bytes: int = 0

    @property
    def is_of_values(self) -> bool:
        """Whether it ran for real: then what it does may depend on the values of its weights."""
        return any("ran for real" in note for note in self.notes)

    @property
    def is_explained(self) -> bool:
        """Whether both counts are the same, apart from what the reasons say."""
        same = self.other is None or not self.difference
        return same or bool(self.reasons) or self.is_of_values

    @property
    def difference(self) -> int:
        return 2 * self.macs - (self.other or 0)


# -- the other counter -----------------------------------------------------------------------------


def of_torch(source: Source, inputs: Inputs, train: bool) -> tuple[int, str]:
    """Twice the multiply-adds by `FlopCounterMode`, and the device: meta, or the CPU if it must."""
    try:
        return _counted(source.module, inputs, "meta", train), "meta"
    except Exception as error:
        if "BF16" in str(error):
            # Products of groups exist for this type alone there; how many are done is the same.
            return _counted(source.module.bfloat16(), inputs, "meta", train, torch.bfloat16), "meta"
        byte = sum(each.nbytes for each in source.module.parameters())
        if byte > REAL_BYTE:
            raise
        rebuilt = source.rebuild() if source.rebuild else source.module
        return _counted(rebuilt, inputs, "cpu", train), "cpu"


def _counted(
    model: torch.nn.Module,
    inputs: Inputs,
    device: str,
    train: bool,
    change: torch.dtype | None = None,
) -> int:
    def made(request: InputRequest) -> torch.Tensor:
        kind = input_dtype(request, change)
        if request.like is not None:
            return request.like.to(device)
        return torch.zeros(request.shape, dtype=kind, device=device)

    args, kwargs = inputs.build(made)
    model.train(train)
    if not train:
        # Parameters that are a module's inputs fail in its tracker of modules otherwise.
        model.requires_grad_(False)
    with torch.set_grad_enabled(train), FlopCounterMode(display=False) as counter:
        result = model(*args, **kwargs)
        if train:
            floating = [each for each in _tensors(result) if each.requires_grad]
            torch.stack([each.sum() for each in floating]).sum().backward()
    model.zero_grad(set_to_none=True)
    return counter.get_total_flops()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


# -- why the counts differ -------------------------------------------------------------------------


def _no_rule(*operators: str) -> Callable[[OperatorRecord], int]:
    keys = {f"aten.{each}" for each in operators}

    def missed(record: OperatorRecord) -> int:
        return 2 * (record.work.macs or 0) if record.op in keys else 0

    return missed


def _groups_dropped(record: OperatorRecord) -> int:
    """Of a grouped convolution's backward pass it counts the gradient of the weights ungrouped."""
    groups = record.attributes.get("groups", 1)
    if record.op != "aten.convolution_backward" or groups == 1:
        return 0
    mask = record.attributes["output_mask"]
    if not mask[1]:
        return 0
    each = (record.work.macs or 0) // (mask[0] + mask[1])
    return 2 * each * (1 - groups)


def _scores_again(record: OperatorRecord) -> int:
    """Of the five products of fused attention's backward pass, on meta there are but four."""
    if record.op != "aten._scaled_dot_product_flash_attention_for_cpu_backward":
        return 0
    return 2 * (record.work.macs or 0) // 5


REASONS: Mapping[str, Callable[[OperatorRecord], int]] = {
    "it has no rule for products with a vector (mv, dot)": _no_rule("mv", "dot", "vdot", "addmv"),
    "it has no rule for outer products (addr)": _no_rule("addr"),
    "it has no rule for products of groups (_grouped_mm)": _no_rule("_grouped_mm"),
    "it has no rule for _trilinear": _no_rule("_trilinear"),
    "it has no rule for affine_grid_generator": _no_rule("affine_grid_generator"),
    "it has no rule for _euclidean_dist": _no_rule("_euclidean_dist"),
    "it has no rule for addbmm": _no_rule("addbmm"),
    "it takes the gradient of grouped weights as ungrouped": _groups_dropped,
}
"""What the other counter leaves out of a call, or adds to it, in FLOP of products."""

OF_DEVICE: Mapping[str, Mapping[str, Callable[[OperatorRecord], int]]] = {
    "meta": {
        "the CPU's fused attention computes its scores again in the backward pass": _scores_again
    },
    "cpu": {
        "asked on the CPU, it has no rule for fused attention": _no_rule(
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_flash_attention_for_cpu_backward",
        ),
        "asked on the CPU, it has no rule for fused layers": _no_rule(
            "_native_multi_head_attention", "_transformer_encoder_layer_fwd"
        ),
        "asked on the CPU, it has no rule for fused LSTMs": _no_rule(
            "mkldnn_rnn_layer", "mkldnn_rnn_layer_backward"
        ),
    },
}
"""What depends on the device that the other counter was asked on."""


def reasons_for(difference: int, records: Sequence[OperatorRecord], device: str) -> tuple[str, ...]:
    """The reasons that together are the difference; none if they are not."""
    rules = {**REASONS, **OF_DEVICE[device]}
    amounts = {why: sum(map(missed, records)) for why, missed in rules.items()}
    found = {why: amount for why, amount in amounts.items() if amount}
    return tuple(found) if found and sum(found.values()) == difference else ()


# -- one model -------------------------------------------------------------------------------------


def count(job: Job) -> Outcome:
    """Counts one model, and has it counted."""
    name = f"{PREFIX[job.library]}:{job.name}"
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            return _count(job, name)
        except RooflineError as error:
            return Outcome(job, said=str(error))
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{frame.name}, line {frame.lineno}"
            return Outcome(job, said=f"CRASH {type(error).__name__}: {error} ({where})")


def _count(job: Job, name: str) -> Outcome:
    start = time.perf_counter()
    source = load_model(name)
    # Norms over a batch of one with one place each have no variance: torch refuses to train those.
    batch = 2 if job.train else None
    inputs = resolve_inputs(source.module, None, source.default_inputs, name=name, batch=batch)
    captured = capture(
        source.module,
        inputs,
        name=name,
        run=Run(train=job.train),
        training=TrainingConfig() if job.train else None,
        rebuild=source.rebuild,
    )
    trace_residency(captured.records)
    fused_traffic(captured.records)
    count_s = time.perf_counter() - start
    return _compared(job, source, inputs, captured, count_s)


def _compared(
    job: Job, source: Source, inputs: Inputs, captured: Capture, count_s: float
) -> Outcome:
    working = [each for each in captured.records if each.state is not State.FREE]
    macs = sum(each.work.macs or 0 for each in working)
    other, no_other, reasons = None, "", ()
    try:
        if not job.is_alone:
            other, device = of_torch(source, inputs, job.train)
            reasons = reasons_for(2 * macs - other, captured.records, device)
    except Exception as error:
        no_other = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:80]}"
    return Outcome(
        job,
        calls=len(working),
        unknown=Counter(each.op for each in working if each.state is State.UNKNOWN),
        macs=macs,
        other=other,
        no_other=no_other,
        reasons=reasons,
        notes=captured.notes,
        count_s=count_s,
        resident_bytes=psutil.Process().memory_info().rss,
    )


# -- all of them -----------------------------------------------------------------------------------


def torchvision_jobs() -> list[str]:
    """Classification, segmentation and video models; detection and flow are other things."""
    torchvision, reason = library_or_reason("torchvision")
    if torchvision is None:
        raise SystemExit(f"torchvision cannot be imported: {reason}")
    rooms = (torchvision.models, torchvision.models.segmentation, torchvision.models.video)
    return [name for room in rooms for name in torchvision.models.list_models(module=room)]


def jobs(libraries: Iterable[Library], *, is_sample: bool) -> list[Job]:
    """All models, or one of each family; every tenth in training too."""
    found: list[Job] = []
    for library in libraries:
        names = torchvision_jobs() if library == "torchvision" else sorted(names_of(library))
        if is_sample:
            names = sample(library, names)
        chosen = names[1::4] if is_sample else names[::TRAINED]
        found += [Job(library, name) for name in names]
        found += [Job(library, name, train=True) for name in chosen]
    return found


def sample(library: Library, names: Sequence[str]) -> list[str]:
    """The first of some families, so few that a sample is quick."""
    first: dict[str, str] = {}
    for name in names:
        family = "".join(each for each in name.partition("_")[0] if not each.isdigit())
        first.setdefault(family, name)
    # Of transformers' models every third cannot be built from its name alone; here most can.
    chosen = {"torchvision": (0, 4), "timm": (0, 12), "transformers": (20, 36)}
    begin, step = chosen[library]
    return list(first.values())[begin::step]


def _start(max_bytes: int) -> None:
    torch.set_num_threads(1)
    # A model that asks for more is told no, and does not take the machine down.
    resource.setrlimit(resource.RLIMIT_DATA, (max_bytes, max_bytes))


def outcomes(wanted: Sequence[Job], processes: int) -> Iterator[Outcome]:
    """What becomes of each, by processes that live until all is done."""
    context = multiprocessing.get_context("spawn")
    max_bytes = psutil.virtual_memory().available // (processes + 1)
    with context.Pool(processes, initializer=_start, initargs=(max_bytes,)) as pool:
        for done, outcome in enumerate(pool.imap_unordered(count, wanted, chunksize=1)):
            if sys.stderr.isatty() or done % 50 == 0:
                print(f"{done + 1} of {len(wanted)}: {outcome.job.name}", file=sys.stderr)
            yield outcome


def failures(found: Iterable[Outcome]) -> list[Outcome]:
    """Those that crashed, have operators without a formula, or are not explained."""
    return [
        each
        for each in found
        if each.unknown or not each.is_explained or each.said.startswith("CRASH")
    ]


# -- the table -------------------------------------------------------------------------------------


def report(found: Sequence[Outcome], wall_s: Mapping[str, float]) -> list[str]:
    """The table in Markdown."""
    lines = [
        "# Every model of torchvision, timm and transformers",
        "",
        *(__doc__ or "").split("\n\n")[2].splitlines(),
        "",
        f"Rerun: `python benchmarks/zoo.py{''.join(f' {each}' for each in sys.argv[1:])}`",
        "",
        "| library | run | models | counted | refused | calls without a formula |"
        " same count as torch's | explained | not explained | torch cannot count it |"
        " median to count |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    groups = sorted({(each.job.library, each.job.train) for each in found})
    for library, train in groups:
        those = [e for e in found if (e.job.library, e.job.train) == (library, train)]
        counted = [each for each in those if not each.said]
        compared = [each for each in counted if each.other is not None]
        same = sum(not each.difference for each in compared)
        explained = sum(bool(each.difference and each.is_explained) for each in compared)
        times = sorted(each.count_s for each in counted)
        cells = (
            library,
            "training" if train else "inference",
            *(len(those), len(counted), len(those) - len(counted)),
            sum(sum(each.unknown.values()) for each in counted),
            *(same, explained, len(compared) - same - explained, len(counted) - len(compared)),
            f"{times[len(times) // 2]:.2f} s" if times else "-",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += ["", *(f"{what}: {seconds / 60:.1f} minutes." for what, seconds in wall_s.items())]
    lines += _memory(found)
    lines += _listed(
        "## Differences that are explained",
        "`FlopCounterMode` is wrong there, or has no rule; the amounts add up to the last FLOP.",
        [
            f"{_title(each)}: {each.difference:+,} FLOP: {'; '.join(each.reasons)}"
            for each in found
            if each.difference and each.reasons and each.other is not None
        ],
    )
    lines += _listed(
        "## Differences that are not explained",
        "",
        [
            f"{_title(each)}: ours {2 * each.macs:,}, torch's {each.other:,}"
            for each in found
            if not each.is_explained
        ],
    )
    lines += _listed(
        "## Differences of values",
        "They ask for values, and how much they do depends on them: two runs, two counts.",
        [
            f"{_title(each)}: ours {2 * each.macs:,}, torch's {each.other:,}"
            for each in found
            if each.other is not None and each.difference and not each.reasons and each.is_explained
        ],
    )
    lines += _listed(
        "## Refused",
        "Models that cannot be built or run from their name alone, and what is said of them.",
        [f"{_title(each)}: {each.said}" for each in found if each.said],
    )
    unknown = Counter[str]()
    for each in found:
        unknown.update(each.unknown)
    lines += _listed(
        "## Operators without a formula",
        "",
        [f"{name}: {calls} calls" for name, calls in unknown.most_common()],
    )
    lines += _listed(
        "## Counted by us alone",
        "torch's counter fails on them without weights; with them they fail or are too large.",
        [f"{_title(each)}: {each.no_other}" for each in found if each.no_other],
    )
    lines += _listed(
        "## Run for real",
        "They ask for values; it is said with their result.",
        [_title(each) for each in found if each.is_of_values],
    )
    return lines


def _memory(found: Sequence[Outcome]) -> list[str]:
    """What the processes had in memory after their first models, and after their last."""
    counted = [each.resident_bytes for each in found if each.resident_bytes]
    if len(counted) < 200:
        return []
    tenth = len(counted) // 10
    parts = [sorted(counted[i * tenth : (i + 1) * tenth])[tenth // 2] for i in range(10)]
    shown = ", ".join(f"{byte / 1e9:.2f}" for byte in parts)
    return ["", f"Resident memory of a process, GB, median of each tenth of the run: {shown}."]


def _title(each: Outcome) -> str:
    return f"{PREFIX[each.job.library]}:{each.job.name}{' (training)' if each.job.train else ''}"


def _listed(title: str, words: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return []
    return [
        "",
        title,
        "",
        *([words, ""] if words else []),
        *(f"* {line}" for line in sorted(lines)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--sample", action="store_true", help="one model of each family")
    parser.add_argument("--library", action="append", choices=list(PREFIX))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--inference-only", action="store_true")
    parser.add_argument("--alone", action="store_true", help="no second count: how long ours takes")
    asked = parser.parse_args()
    libraries: list[Library] = asked.library or list(PREFIX)
    found: list[Outcome] = []
    wall_s: dict[str, float] = {}
    for library in libraries:
        wanted = jobs([library], is_sample=asked.sample)
        if asked.inference_only:
            wanted = [each for each in wanted if not each.train]
        wanted = [replace(each, is_alone=asked.alone) for each in wanted]
        start, before = time.perf_counter(), len(found)
        with contextlib.suppress(KeyboardInterrupt):
            # What came until then stays in the list.
            found.extend(outcomes(wanted, asked.processes))
        counters = "ours" if asked.alone else "ours and torch's"
        done = len(found) - before
        cut = "" if done == len(wanted) else f" of {len(wanted)}, interrupted"
        what = f"{library}, {done} runs{cut}, {counters}, {asked.processes} processes"
        wall_s[what] = time.perf_counter() - start
    print("\n".join(report(found, wall_s)))
    sys.exit(1 if failures(found) else 0)


if __name__ == "__main__":
    main()
