"""quantize: gain and cost of lower precision for a model, estimated and measured."""

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
from roofline.quantization.what_ifs import evaluate_policies, evaluate_policy
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
"""Upper limits of budgets: larger than any model, longer than any forward pass."""

_FIX = "write one as docs/how-to/quantizing.md shows, or save a result with -o FILE.json"


def resolve_policy(policy: Policy | str | Path | None, **parts: Any) -> Policy:
    """Return the policy: given, read from a file, or built from its fields.

    If only one of ``weights`` and ``activations`` is given, the other stays float; without both,
    they are 2.
    """
    given = {name: value for name, value in parts.items() if value is not None}
    if policy is None:
        if "weights" in given or "activations" in given:
            given = {"weights": FLOAT_BITS, "activations": FLOAT_BITS, **given}
        return Policy(**given)
    for name in given:
        raise InputError(
            f"{argument(name)} has no effect with {argument('policy')}; set it in the policy"
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
    """Return the policy in a JSON file, or in a saved result (the proposed one, if any)."""
    file, data = str(path), read_json(path, fix=_FIX)
    if not isinstance(data, Mapping):
        raise refused(file, "is not a policy: expected a table", _FIX)
    found: Any = cast("Mapping[str, Any]", data)
    if "kind" in found:
        if found["kind"] != Quantization.kind:
            raise refused(file, f"is not a policy, but of kind {found['kind']!r}", _FIX)
        check_version(found, file=file, fix=_FIX)
        try:
            proposal = (found["sensitivity"] or {}).get("proposal")
            found = proposal["policy"] if proposal else found["what_ifs"][0]["policy"]
        except (KeyError, IndexError, TypeError, AttributeError):
            found = None
        if not isinstance(found, Mapping):
            raise refused(file, "is a damaged result without a policy", _FIX)
    return schema.from_data(Policy, found, file=file)


def check_widths(sweep: Iterable[int]) -> tuple[int, ...]:
    """Return the widths of a sweep in order, checked."""
    if isinstance(sweep, (str, bytes)) or not isinstance(sweep, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        given = argument("sweep", sweep)
        raise InputError(f"{given}: expected widths in bits, such as [2, 3, 4, 8, 16]")
    widths: list[int] = []
    for width in sweep:
        check_bits(argument("sweep"), width)
        if width in widths:
            name = argument("sweep")
            raise InputError(f"{name}: {width} bits given twice; give each width once")
        widths.append(width)
    return tuple(widths)


def parse_budget(
    size: int | str | None, time: float | str | None, *, sensitivity: bool
) -> Budget | None:
    """Return the budget of a proposed policy in bytes or seconds, from numbers or text."""
    if size is None and time is None:
        return None
    of_size, of_time = argument("size_budget"), argument("time_budget")
    if not sensitivity:
        option = of_time if size is None else of_size
        raise InputError(f"{option} has no effect without {argument('sensitivity', True)}; add it")
    if size is not None and time is not None:
        raise InputError(f"{of_size} and {of_time}: give only one")
    if isinstance(size, str):
        size = parse_bytes(size, "size_budget")
    if isinstance(time, str):
        time = parse_duration(time, "time_budget")
    if size is not None and (type(size) is not int or not 1 <= size < _MOST_BYTE):
        raise InputError(
            f"{cut(argument('size_budget', size))}: must be an integer from 1, or such as 1MB"
        )
    is_number = isinstance(time, Real) and not isinstance(time, bool)
    if time is not None and not (is_number and 0 < time < _MOST_S):
        raise InputError(
            f"{cut(argument('time_budget', time))}: must be seconds above 0, or such as 5ms"
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
    """Estimate the gain and the cost of lower precision for a model on a machine.

    The layers of the model (convolutions and linear layers) are placed under the roofline with
    weights and activations at lower bit widths, with requantization, conversions and shortcuts.
    Widths without a kernel on the machine are a bandwidth-only what-if: bytes and minimum times, no
    predictions. The given module stays unchanged.

    Args:
        model, inputs: as for `analyze`; inference only.
        policy: bits of the layers, as a value, a JSON file of one, or a saved result; None: from
            the following arguments.
        weights, activations: bits from 1 to 16, or 32 for floats. If only one is given, the other
            stays float; without both, they are 2.
        first_last: minimum bits of the first and the last layer; None: 8.
        shortcut: ``"full"`` (None): layers on shortcuts, and shortcuts themselves, stay floats;
            ``"low"``: they have the bits of the others.
        per_channel: one weight scale per output channel.
        sweep: further widths of both weights and activations, with the rest of the policy.
        sensitivity: quantize one layer at a time, and rank layers by output error.
        size_budget, time_budget: maximum model size (``1_000_000`` or ``"1MB"``) or time of a
            forward pass (``0.005`` or ``"5ms"``) of a proposed policy; with `sensitivity`.
        samples: inputs for output errors, like `inputs`; None: random numbers; with `sensitivity`.
        measure: time the model in the types of torch's kernels here, interleaved with the original.
        rounds: number of timing rounds; None: 7.
        force: time despite load from other processes.
        progress: called with the fraction done and the current step.
        say: called with messages about waits.

    Returns:
        The result: a what-if of the policy, and one per width of the sweep.

    Raises:
        ModelError: the model is unknown, cannot be built or captured, or rejects its inputs.
        InputError: invalid options, no layers with weights, or an already quantized model.
        HardwareError: unknown hardware.
        MeasurementError: timings are disturbed by other processes.
    """
    check_switches(per_channel=per_channel, sensitivity=sensitivity, measure=measure, force=force)
    check_functions(progress=progress, say=say)
    options = RunOptions.of(inputs, **run)
    wanted = resolve_policy(
        policy,
        weights=weights,
        activations=activations,
        first_last=first_last,
        shortcut=shortcut,
        per_channel=per_channel or None,
    )
    widths = check_widths(sweep)
    budget = parse_budget(size_budget, time_budget, sensitivity=sensitivity)
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

    # A recorded pass may not reveal quantized modules.
    check_model(captured.model.source.module, wanted)
    analysis = place_on(captured, known, options, tell)
    predictor = load_predictor(analysis.hardware, hardware, captured.model.run)
    asked = evaluate_policies(analysis, wanted, widths, predictor)
    if measure:
        # Fail before the errors are computed, which takes minutes.
        check_bench(force=force, say=say)

    def another(policy: Policy) -> WhatIf:
        return evaluate_policy(analysis, policy, predictor)

    ranking = None
    if sensitivity:
        from roofline.pipeline.quantization_sensitivity import measure_sensitivity

        share = 0.5 if measure else 1.0
        ranking = measure_sensitivity(
            captured.model,
            asked[0],
            evaluate=another,
            samples=samples,
            budget=budget,
            progress=lambda done, what: tell(share * done, what),
        )
    found, conditions = (), ()
    if measure:
        from roofline.pipeline.native_variants import measure_variants

        begin = 0.5 if sensitivity else 0.0
        found, conditions = measure_variants(
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
