"""Which counters there are, and one of them asked: whatever goes wrong in it becomes one line."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from roofline.counters.conventions import deepspeed, flop_counter_mode, fvcore, torchlens
from roofline.counters.peers.isolation import isolated
from roofline.counters.peers.subject import Subject
from roofline.counters.reasons import differences, in_our_unit
from roofline.counters.result import CountedBy, Outcome
from roofline.counters.rules import Convention, Reported
from roofline.errors import said_by
from roofline.workload.operators import OperatorRecord


class NotRunError(Exception):
    """A counter is not run on this model, for the reason given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A counter: its name, the package that has it, what its numbers mean, and how it is asked.

    ``adapter`` is the module here whose ``count`` gives one `Reported` a convention.
    """

    name: str
    package: str
    install: str
    conventions: tuple[Convention, ...]
    adapter: str
    needs_weights: bool = True


PEERS = (
    Peer(
        name="torch FlopCounterMode",
        package="torch",
        install="pip install torch",
        conventions=(flop_counter_mode.FLOP,),
        adapter="flop_counter_mode",
        needs_weights=False,
    ),
    Peer(
        name="fvcore",
        package="fvcore",
        install="pip install fvcore",
        conventions=(fvcore.FLOPS,),
        adapter="fvcore_counter",
    ),
    Peer(
        name="DeepSpeed",
        package="deepspeed",
        install="DS_BUILD_OPS=0 pip install deepspeed",
        conventions=(deepspeed.MACS, deepspeed.FLOPS),
        adapter="deepspeed_counter",
    ),
    Peer(
        name="torchlens",
        package="torchlens",
        install="pip install torchlens",
        conventions=(torchlens.MACS, torchlens.FLOPS),
        adapter="torchlens_counter",
    ),
)


def ask(
    peer: Peer, subject: Callable[[Peer], Subject], records: Iterable[OperatorRecord]
) -> tuple[CountedBy, ...]:
    """What a counter says, one value for each of its numbers.

    Args:
        peer: the counter.
        subject: makes the model that it is given, or raises `NotRunError`.
        records: the operators that we saw, from which its number is explained.
    """
    if not _is_installed(peer.package):
        return _without_number(peer, "not installed", f"not installed ({peer.install})")
    try:
        with isolated():
            count = importlib.import_module(f"roofline.counters.peers.{peer.adapter}").count
            reported: tuple[Reported, ...] = count(subject(peer))
    except KeyboardInterrupt:
        raise
    except NotRunError as reason:
        return _without_number(peer, "not run", f"not run: {said_by(reason)}")
    # Counters and models may raise anything, SystemExit too.
    except BaseException as error:
        said = said_by(error)
        kind = type(error).__name__
        return _without_number(peer, "failed", f"failed: {kind}: {_short(said)}" if said else kind)
    seen = list(records)
    return tuple(
        CountedBy(
            counter=peer.name,
            version=_version(peer.package),
            outcome="counted",
            number_name=convention.number_name,
            meaning=convention.meaning,
            measure=convention.measure,
            per_unit=convention.per_unit,
            number=each.number,
            in_our_unit=in_our_unit(each, convention),
            differences=differences(seen, each, convention),
            no_rule_for=dict(each.no_rule_for),
        )
        for convention, each in zip(peer.conventions, reported, strict=True)
    )


def _without_number(peer: Peer, outcome: Outcome, note: str) -> tuple[CountedBy, ...]:
    # One line says it, however many numbers the counter would have given.
    convention = peer.conventions[0]
    return (
        CountedBy(
            counter=peer.name,
            version="" if outcome == "not installed" else _version(peer.package),
            outcome=outcome,
            note=note,
            number_name=convention.number_name,
            meaning=convention.meaning,
            measure=convention.measure,
            per_unit=convention.per_unit,
        ),
    )


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


_LONGEST = 160
"""Of what a counter says when it fails, so many characters are shown."""
