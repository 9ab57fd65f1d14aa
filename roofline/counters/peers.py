"""Other FLOP counters, each run in isolation; a failure becomes one line of the report.

Counters are imported when they run. Their output is suppressed, and their patches of torch are
undone.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from roofline.core.progress import suppress_output
from roofline.counters.conventions import (
    ADDEND,
    DEEPSPEED_FLOPS,
    DEEPSPEED_MACS,
    FLOP_COUNTER_MODE,
    FVCORE,
    RECURRENT,
    TORCHLENS_FLOPS,
    TORCHLENS_MACS,
    Convention,
    Reported,
)
from roofline.counters.reasons import differences, in_our_unit
from roofline.counters.result import CountedBy, Outcome
from roofline.counters.subject import Subject
from roofline.errors import error_text
from roofline.workload.operators import OperatorRecord

_LONGEST = 160
"""Maximum characters of a counter's error message."""


def count_flop_counter_mode(subject: Subject) -> tuple[Reported, ...]:
    """Return the count of torch.utils.flop_counter."""
    from torch.utils.flop_counter import FlopCounterMode

    with subject.mode, FlopCounterMode(display=False) as counter:
        subject.run()
    counts = counter.get_flop_counts().get("Global", {})
    product = {str(operator).removeprefix("aten."): count for operator, count in counts.items()}
    return (Reported(number=counter.get_total_flops(), product=product),)


def count_fvcore(subject: Subject) -> tuple[Reported, ...]:
    """Return the count of fvcore."""
    from fvcore.nn import FlopCountAnalysis

    analysis = FlopCountAnalysis(subject.model, subject.inputs)
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    analysis.tracer_warnings("none")
    counts = {label: _whole(count) for label, count in analysis.by_operator().items()}
    labels = {label for rule in FVCORE.rules if rule.portion == "rest" for label in rule.labels}
    return (
        Reported(
            number=_whole(analysis.total()),
            product={label: count for label, count in counts.items() if label not in labels},
            rest={label: count for label, count in counts.items() if label in labels},
            no_rule_for={
                label.removeprefix("aten::"): calls
                for label, calls in analysis.unsupported_ops().items()
            },
        ),
    )


def _whole(count: Any) -> int:
    """Return a count, which may be a numpy float, as a whole number."""
    return round(float(count)) if not isinstance(count, int) else count


def count_deepspeed(subject: Subject) -> tuple[Reported, ...]:
    """Return the MACs and the FLOP of DeepSpeed's profiler."""
    profiler: Any = importlib.import_module("deepspeed.profiling.flops_profiler.profiler")
    breakdown = _DeepSpeedBreakdown(profiler)
    # Hooks run in registration order: ours reads the counts before DeepSpeed's drops them.
    hooks = [
        module.register_forward_hook(breakdown.read)
        for module in subject.model.modules()
        if type(module) not in profiler.MODULE_HOOK_MAPPING
    ]
    counter = profiler.FlopsProfiler(subject.model)
    counter.start_profile()
    try:
        subject.model(*subject.inputs)
        macs, flops = int(counter.get_total_macs()), int(counter.get_total_flops())
        recurrent = sum(
            int(getattr(module, "__flops__", 0))
            for module in subject.model.modules()
            if type(module) in profiler.MODULE_HOOK_MAPPING
        )
    finally:
        counter.end_profile()
        for hook in hooks:
            hook.remove()
    return breakdown.reported(macs, flops, recurrent)


class _DeepSpeedBreakdown:
    """Sums of DeepSpeed's counts by called function."""

    def __init__(self, profiler: Any) -> None:
        self._profiler = profiler
        self._macs: Counter[str] = Counter()
        self._flops: Counter[str] = Counter()

    def read(self, _module: torch.nn.Module, _args: Any, _output: Any) -> None:
        """Add the counts of a module that has just run."""
        for into, stack in (
            (self._macs, self._profiler.module_mac_count),
            (self._flops, self._profiler.module_flop_count),
        ):
            for name, count in stack[-1] if stack else ():
                into[_function_name(name)] += int(count)

    def reported(self, macs: int, flops: int, recurrent: int) -> tuple[Reported, ...]:
        """Return both numbers with their breakdowns."""
        # einsum has FLOP and no MACs.
        einsum = self._flops.pop("einsum", 0)
        product = {label: 2 * count for label, count in self._macs.items()}
        beside = sum(
            count - product.get(label, 0)
            for label, count in self._flops.items()
            if label in product
        )
        rest = {label: count for label, count in self._flops.items() if label not in product}
        if beside:
            rest[ADDEND] = beside
        if recurrent:
            rest[RECURRENT] = recurrent
        left_out = {"einsum": einsum // 2} if einsum else {}
        if einsum:
            product["einsum"] = einsum
        return (
            Reported(number=macs, product=dict(self._macs), left_out=left_out),
            Reported(number=flops, product=product, rest=rest),
        )


def _function_name(name: Any) -> str:
    """Return the function of DeepSpeed's label, a bound ``__str__``."""
    function = getattr(name, "__self__", name)
    return str(getattr(function, "__name__", function))


def count_torchlens(subject: Subject) -> tuple[Reported, ...]:
    """Return the MACs and the FLOP of torchlens."""
    torchlens: Any = importlib.import_module("torchlens")
    report: Any = importlib.import_module("torchlens.report")
    wrappers: Any = importlib.import_module("torchlens.backends.torch.wrappers")
    try:
        trace = torchlens.trace(subject.model, list(subject.inputs))
        rows = report.compute_aggregation(trace).rows
        macs, flops = int(trace.total_macs_forward), int(trace.total_flops_forward)
    finally:
        wrappers.unwrap_torch()
    return _of_torchlens(rows, macs, flops)


def _of_torchlens(rows: Any, macs: int, flops: int) -> tuple[Reported, ...]:
    """Return both numbers from rows with ``func_name``, ``fma_macs`` and ``flops_fma2``."""
    products: Counter[str] = Counter()
    rest: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for row in rows:
        name = str(row.func_name)
        if row.flops_fma2 is None:
            if row.coverage_class == "unknown":
                unknown[name] += 1
            continue
        product = int(row.fma_macs or 0)
        products[name] += product
        rest[name] += int(row.flops_fma2) - 2 * product
    without_zeros = {name: count for name, count in products.items() if count}
    return (
        Reported(number=macs, product=without_zeros, no_rule_for=dict(unknown)),
        Reported(
            number=flops,
            product={name: 2 * count for name, count in without_zeros.items()},
            rest={name: count for name, count in rest.items() if count},
            no_rule_for=dict(unknown),
        ),
    )


_PATCHED = (
    *(torch, torch.Tensor, torch.nn.functional, torch.nn.init, torch.nn.Module),
    *(torch.nn.modules.module, torch.linalg, torch.fft, torch.special),
)
"""Objects whose attributes counters patch."""

_MISSING = object()


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Suppress output, logs and warnings within, and undo patches."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        suppress_output(),
        _unpatched(),
        torch.random.fork_rng(devices=[]),
        torch.no_grad(),
    ):
        torch.manual_seed(0)
        yield


@contextlib.contextmanager
def _unpatched() -> Iterator[None]:
    """Restore the attributes of torch's namespaces, and global module hooks."""
    places: list[Any] = [
        *_PATCHED,
        *(sys.modules[name] for name in ("einops",) if name in sys.modules),
    ]
    before = [(place, dict(vars(place))) for place in places]
    hooks = [
        (each, dict(each))
        for name, each in vars(torch.nn.modules.module).items()
        if name.startswith("_global_") and isinstance(each, dict)
    ]
    try:
        yield
    finally:
        for place, attributes in before:
            _restore(place, attributes)
        for each, content in hooks:
            each.clear()
            each.update(content)


def _restore(place: Any, attributes: dict[str, Any]) -> None:
    for name, value in list(vars(place).items()):
        old = attributes.get(name, _MISSING)
        # Newly imported submodules are no patches.
        if old is _MISSING:
            if callable(value) and not isinstance(value, type) and isinstance(place, type):
                delattr(place, name)
        elif old is not value:
            with contextlib.suppress(AttributeError, TypeError):
                setattr(place, name, old)


class NotRunError(Exception):
    """A counter is not run on this model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCounter:
    """Counter of another package; ``count`` returns one `Reported` per convention."""

    name: str
    package: str
    install: str = ""
    conventions: tuple[Convention, ...]
    count: Callable[[Subject], tuple[Reported, ...]]
    needs_weights: bool = True


PEERS = (
    PeerCounter(
        name="torch FlopCounterMode",
        package="torch",
        conventions=(FLOP_COUNTER_MODE,),
        count=count_flop_counter_mode,
        needs_weights=False,
    ),
    PeerCounter(name="fvcore", package="fvcore", conventions=(FVCORE,), count=count_fvcore),
    PeerCounter(
        name="DeepSpeed",
        package="deepspeed",
        install="DS_BUILD_OPS=0 pip install deepspeed",
        conventions=(DEEPSPEED_MACS, DEEPSPEED_FLOPS),
        count=count_deepspeed,
    ),
    PeerCounter(
        name="torchlens",
        package="torchlens",
        conventions=(TORCHLENS_MACS, TORCHLENS_FLOPS),
        count=count_torchlens,
    ),
)


def run_counter(
    peer: PeerCounter, subject: Callable[[PeerCounter], Subject], records: Iterable[OperatorRecord]
) -> tuple[CountedBy, ...]:
    """Return the numbers of a counter, with differences explained from our records.

    `subject` returns the model to count, or raises `NotRunError`.
    """
    if not _is_installed(peer.package):
        install = peer.install or f"pip install {peer.package}"
        return _without_number(peer, "not installed", f"not installed ({install})")
    try:
        with isolated():
            reported = peer.count(subject(peer))
    except KeyboardInterrupt:
        raise
    except NotRunError as reason:
        return _without_number(peer, "not run", f"not run: {error_text(reason)}")
    # Counters and models may raise any exception, including SystemExit.
    except BaseException as error:
        said = error_text(error)
        kind = type(error).__name__
        said = said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"
        return _without_number(peer, "failed", f"failed: {kind}: {said}" if said else kind)
    seen = list(records)
    return tuple(
        CountedBy(
            **_of(peer, convention),
            outcome="counted",
            number=each.number,
            in_our_unit=in_our_unit(each, convention),
            differences=differences(seen, each, convention),
            no_rule_for=dict(each.no_rule_for),
        )
        for convention, each in zip(peer.conventions, reported, strict=True)
    )


def _of(peer: PeerCounter, convention: Convention) -> dict[str, Any]:
    try:
        installed = version(peer.package)
    except PackageNotFoundError:
        installed = ""
    names = ("number_name", "meaning", "measure", "per_unit")
    of_convention = {name: getattr(convention, name) for name in names}
    return {"counter": peer.name, "version": installed, **of_convention}


def _without_number(peer: PeerCounter, outcome: Outcome, note: str) -> tuple[CountedBy, ...]:
    # One line for all numbers of the counter.
    return (CountedBy(**_of(peer, peer.conventions[0]), outcome=outcome, note=note),)


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False
