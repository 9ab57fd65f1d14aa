"""quantize: what fewer bits would be worth for a model, what they cost, and what really runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from roofline.core import schema
from roofline.core.files import cut, read_json, refused
from roofline.core.progress import Progress, Say, monotonic
from roofline.core.schema import check_version
from roofline.core.units import parse_bytes, parse_duration
from roofline.errors import InputError, argument
from roofline.pipeline.analyses import place_on, resolve_machines
from roofline.pipeline.machines import load_predictor
from roofline.pipeline.measured_comparisons import check_here
from roofline.pipeline.optimization_machine import check_bench
from roofline.pipeline.runs import capture_pass
from roofline.quantization.policy import FLOAT_BITS, Policy, Shortcut, check_bits
from roofline.quantization.result import Quantization, WhatIf
from roofline.quantization.sensitivity import Budget
from roofline.quantization.what_ifs import what_if, what_ifs
from roofline.run import (
    InferenceKeywords,
    RunOptions,
    check_functions,
    check_rounds,
    check_switches,
    takes,
)

if TYPE_CHECKING:
    from roofline.pipeline.runs import Model


_MOST_BYTE, _MOST_S = 2**60, 1e9
"""No model has as many bytes, and no pass takes 30 years."""

_FIX = "write one as docs/how-to/quantizing.md shows, or save a result with -o FILE.json"


def policy_of(policy: Policy | str | Path | None, **parts: Any) -> Policy:
    """The policy that is meant: given, read from a file, or put together from its fields.

    Where only one of ``weights`` and ``activations`` is given the other stays float; with neither
    both are 2.
    """
    given = {name: value for name, value in parts.items() if value is not None}
    if policy is None:
        if "weights" in given or "activations" in given:
            given = {"weights": FLOAT_BITS, "activations": FLOAT_BITS, **given}
        return Policy(**given)
    for name in given:
        raise InputError(
            f"{argument(name)} has no effect beside {argument('policy')}; write it into the policy"
        )
    if isinstance(policy, Policy):
        return policy
    if not isinstance(policy, (str, Path)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            "policy: expected a roofline.quantization.Policy or the file of one,"
            f" got {type(policy).__name__}"
        )
    return read_policy(Path(policy))


def read_policy(path: Path) -> Policy:
    """The policy of a JSON file: its own, or that of a saved result (the proposed one, if any)."""
    file, data = str(path), read_json(path, fix=_FIX)
    if not isinstance(data, Mapping):
        raise refused(file, "is no policy: it must be a table", _FIX)
    found: Any = cast("Mapping[str, Any]", data)
    if "kind" in found:
        if found["kind"] != Quantization.kind:
            raise refused(file, f"is no policy but a file of kind {found['kind']!r}", _FIX)
        check_version(found, file=file, fix=_FIX)
        try:
            proposal = (found["sensitivity"] or {}).get("proposal")
            found = proposal["policy"] if proposal else found["what_ifs"][0]["policy"]
        except (KeyError, IndexError, TypeError, AttributeError):
            found = None
        if not isinstance(found, Mapping):
            raise refused(file, "holds a damaged result without a policy", _FIX)
    return schema.from_data(Policy, found, file=file)


def widths_of(sweep: Iterable[int]) -> tuple[int, ...]:
    """The widths of a sweep, in the order in which they were given."""
    if isinstance(sweep, (str, bytes)) or not isinstance(sweep, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        given = argument("sweep", sweep)
        raise InputError(f"{given}: expected widths in bits, such as [2, 3, 4, 8, 16]")
    widths: list[int] = []
    for width in sweep:
        check_bits(argument("sweep"), width)
        if width in widths:
            name = argument("sweep")
            raise InputError(f"{name}: {width} bits are given twice; give each width once")
        widths.append(width)
    return tuple(widths)


def budget_of(
    size: int | str | None, time: float | str | None, *, sensitivity: bool
) -> Budget | None:
    """The budget of a proposed policy, in bytes or seconds, or as text; None: none was given."""
    if size is None and time is None:
        return None
    of_size, of_time = argument("size_budget"), argument("time_budget")
    if not sensitivity:
        option = of_time if size is None else of_size
        raise InputError(f"{option} has no effect without {argument('sensitivity', True)}; add it")
    if size is not None and time is not None:
        raise InputError(f"{of_size} and {of_time}: give one of both")
    if isinstance(size, str):
        size = parse_bytes(size, "size_budget")
    if isinstance(time, str):
        time = parse_duration(time, "time_budget")
    if size is not None and (type(size) is not int or not 1 <= size < _MOST_BYTE):
        raise InputError(
            f"{cut(argument('size_budget', size))}: must be a whole number of bytes from 1, or 1MB"
        )
    is_number = isinstance(time, Real) and not isinstance(time, bool)
    if time is not None and not (is_number and 0 < time < _MOST_S):
        raise InputError(
            f"{cut(argument('time_budget', time))}: must be a number of seconds above 0, or 5ms"
        )
    return Budget(size_bytes=size, time_s=None if time is None else float(time))


@takes(InferenceKeywords)
def quantize(
    model: Model,
    inputs: Any = None,
    *,
    policy: Policy | str | Path | None = None,
    weights: int | None = None,
    activations: int | None = None,
    first_last: int | None = None,
    shortcut: Shortcut | None = None,
    per_channel: bool = False,
    sweep: Sequence[int] = (),
    sensitivity: bool = False,
    size_budget: int | str | None = None,
    time_budget: float | str | None = None,
    samples: Any = None,
    measure: bool = False,
    rounds: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
    **run: Unpack[InferenceKeywords],
) -> Quantization:
    """What fewer bits would be worth for a model on a machine, and what they cost.

    The layers of the model (convolutions and linear layers) are put under the roof again with their
    weights and activations in few bits. Requantization, conversions and shortcuts stand on their
    own. Widths for which the machine has no kernel are a bandwidth-only what-if: bytes and bounds,
    and no times. A module that is given is left as it was.

    Args:
        model, inputs: as for `analyze`; inference only.
        policy: bits for all layers and for single ones, as a value or as the JSON file of one, or
            of a saved result; None: as the next ones say.
        weights, activations: bits from 1 to 16, or 32 for floats; where only one is given the other
            stays float, and with neither both are 2.
        first_last: bits of the first and the last layer, where all others have fewer; None: 8.
        shortcut: ``"full"`` (None): layers on shortcuts, and what shortcuts carry, stay floats;
            ``"low"``: they have the bits of the others.
        per_channel: weights have a scale for each output channel.
        sweep: further widths, each for weights and activations, with the rest of the policy.
        sensitivity: quantizes one layer at a time and ranks them by the error that it makes.
        size_budget, time_budget: bytes of the model (``1_000_000`` or ``"1MB"``) or seconds of a
            pass (``0.005`` or ``"5ms"``), within which a policy with bits for each layer is
            proposed; with `sensitivity`.
        samples: what errors are computed with, as `inputs`; None: random numbers; with
            `sensitivity`.
        measure: runs the model in the types for which torch has kernels here, in turn with it.
        rounds: how often these are timed; None: 7.
        force: times although others compute.
        progress: told how far it is.
        say: told, in words, what is waited for.

    Returns:
        The result: a what-if for the policy, and one for each width of the sweep.

    Raises:
        ModelError: the model is unknown, cannot be built or captured, or rejects its inputs.
        InputError: an option is wrong, the model has no layers with weights, or is quantized.
        HardwareError: unknown hardware.
        MeasurementError: something is to be timed, and others compute.
    """
    check_switches(per_channel=per_channel, sensitivity=sensitivity, measure=measure, force=force)
    check_functions(progress=progress, say=say)
    options = RunOptions.of(inputs, **run)
    wanted = policy_of(
        policy,
        weights=weights,
        activations=activations,
        first_last=first_last,
        shortcut=shortcut,
        per_channel=per_channel or None,
    )
    widths = widths_of(sweep)
    budget = budget_of(size_budget, time_budget, sensitivity=sensitivity)
    if samples is not None and not sensitivity:
        raise InputError(f"samples have no effect without {argument('sensitivity', True)}; add it")
    if rounds is not None:
        check_rounds(rounds)
        if not measure:
            raise InputError(
                f"{argument('rounds', rounds)} has no effect without {argument('measure', True)};"
                " add it"
            )
    hardware = options.hardware
    if measure:
        check_here(hardware, "measure")
    (known,) = resolve_machines([hardware], options.threads)
    tell = monotonic(progress)
    captured = capture_pass(model, inputs, options, on=known.device, with_model=True)
    from roofline.quantization.quantizing import check_model

    # A pass may not tell of modules that are quantized already.
    check_model(captured.model.source.module, wanted)
    analysis = place_on(captured, known, options, tell)
    predictor = load_predictor(analysis.hardware, hardware, captured.model.run)
    asked = what_ifs(analysis, wanted, widths, predictor)
    if measure:
        # Before minutes go into errors of layers beside which nothing could be timed.
        check_bench(force=force, say=say)

    def another(policy: Policy) -> WhatIf:
        return what_if(analysis, policy, predictor)

    ranking = None
    if sensitivity:
        from roofline.pipeline.quantization_sensitivity import sensitivity_of

        share = 0.5 if measure else 1.0
        ranking = sensitivity_of(
            captured.model,
            asked[0],
            ask=another,
            samples=samples,
            budget=budget,
            progress=lambda done, what: tell(share * done, what),
        )
    found, conditions = (), ()
    if measure:
        from roofline.pipeline.native_variants import native_variants

        begin = 0.5 if sensitivity else 0.0
        found, conditions = native_variants(
            model,
            inputs,
            options=options,
            analysis=analysis,
            what_if_of=another,
            rounds=rounds,
            force=force,
            progress=lambda done, what: tell(begin + (1 - begin) * done, what),
            say=say,
        )
    return Quantization(
        model=analysis.model,
        analysis=analysis,
        what_ifs=asked,
        native_variants=found,
        sensitivity=ranking,
        warnings=(*analysis.warnings, *conditions),
    )
