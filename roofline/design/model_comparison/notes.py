"""What a reader of ratios between models must know: that unlike, or equal, things are compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roofline.analysis import Analysis
from roofline.foundation.units import format_shape


def samples_of(analyses: Sequence[Analysis]) -> tuple[int, ...] | None:
    """How many samples a pass of each takes: the first size of its first input with a shape.

    None where one of them has no such input.
    """
    found: list[int] = []
    for each in analyses:
        shapes = _shapes(each)
        if not shapes or not shapes[0][0]:
            return None
        found.append(shapes[0][0])
    return tuple(found)


def differs_only_in_batch(analyses: Sequence[Analysis]) -> bool:
    """Whether the inputs differ, and in their first sizes alone."""
    return len({_shapes(each) for each in analyses}) > 1 and len(set(map(_tails, analyses))) == 1


def notes_on(
    names: Sequence[str], analyses: Sequence[Analysis], *, per_sample: bool
) -> tuple[str, ...]:
    """The lines, the weightiest first.

    Args:
        names: what the models are called.
        analyses: the models.
        per_sample: whether work and times are told for one sample.
    """
    named = list(zip(names, analyses, strict=True))
    return (*_on_runs(named), *_on_inputs(named, per_sample), *_on_machines(named), *_equal(named))


Named = Sequence[tuple[str, Analysis]]


def _on_runs(named: Named) -> Iterable[str]:
    trained = [name for name, each in named if each.run.train]
    inferred = [name for name, each in named if not each.run.train]
    if trained and inferred:
        yield (
            f"ratios are between training ({', '.join(trained)}) and inference"
            f" ({', '.join(inferred)})"
        )
    if len({each.run.device for _, each in named}) > 1:
        each_on = ", ".join(f"{name} on {each.run.device}" for name, each in named)
        yield f"operators are those of different devices: {each_on}"
    predictions = [(name, each.prediction) for name, each in named if each.prediction]
    partial = [name for name, each in predictions if each.overhead_s is None]
    if partial and len(partial) < len(predictions):
        yield (
            f"predicted for {', '.join(partial)} are the operators alone, for others also what"
            " runs between them"
        )


def _on_inputs(named: Named, per_sample: bool) -> Iterable[str]:
    analyses = [each for _, each in named]
    if per_sample:
        yield (
            "batches differ: FLOP, traffic and times are those of one sample; a pass takes"
            f" {_by_count(named, samples_of(analyses) or ())}"
        )
        if len(set(map(_tails, analyses))) == 1:
            return
    if len({_shapes(each) for each in analyses}) > 1:
        # One model may be called with several: the first tells which.
        texts = [
            f"{name} {', '.join(map(format_shape, _shapes(each)[:2])) or 'nothing'}"
            for name, each in named
        ]
        yield f"inputs differ: {', '.join(texts)}"


def _on_machines(named: Named) -> Iterable[str]:
    first = named[0][1]
    if len({each.threads for _, each in named}) > 1:
        yield f"threads differ: {_by_count(named, [each.threads for _, each in named])}"
    other = next((name for name, each in named if each.hardware != first.hardware), None)
    if other is not None:
        yield (
            f"{named[0][0]} and {other} were analysed under different profiles of"
            f" {first.hardware.name}: what was measured of it in between differs too"
        )


def _by_count(named: Named, counts: Sequence[int]) -> str:
    """Who has which count: ``"1 (a, b), 8 (c)"``."""
    found: dict[int, list[str]] = {}
    for (name, _), count in zip(named, counts, strict=True):
        found.setdefault(count, []).append(name)
    return ", ".join(f"{count} ({', '.join(names)})" for count, names in found.items())


def _equal(named: Named) -> Iterable[str]:
    seen: list[tuple[str, object]] = []
    for name, each in named:
        identity = _identity(each)
        twin = next((before for before, other in seen if other == identity), None)
        if twin is not None:
            yield f"{twin} and {name} are the same: one model, run in one way"
        seen.append((name, identity))


def _identity(analysis: Analysis) -> object:
    return (
        *(analysis.model, analysis.inputs, analysis.run, analysis.threads, analysis.hardware),
        *(analysis.prediction, analysis.measurement),
        tuple((row.op, row.module_path, row.work) for row in analysis.operators),
    )


def _shapes(analysis: Analysis) -> tuple[tuple[int, ...], ...]:
    return tuple(each.shape for each in analysis.inputs if each.shape)


def _tails(analysis: Analysis) -> object:
    return tuple(shape[1:] for shape in _shapes(analysis))
