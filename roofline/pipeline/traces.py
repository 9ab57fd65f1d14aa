"""read_trace: a profiler trace under the ceilings of its machine."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from roofline.analysis import row_of
from roofline.core.files import refused
from roofline.core.progress import Progress
from roofline.core.sampling import Sample
from roofline.core.text import counted as counted_words
from roofline.core.units import sum_known
from roofline.errors import HardwareError, InputError, argument
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.machines import Hardware, resolve_hardware, threads_on
from roofline.placement import Roof
from roofline.run import Run
from roofline.traces.linking import Links, Nesting, link, on_host, signature_of
from roofline.traces.reading import Device, Kind, Signature, Trace, read_events
from roofline.traces.result import (
    HOST_TRANSFER,
    OTHER_MACHINE,
    KernelTime,
    LinkShare,
    TraceAnalysis,
    Unmodeled,
)
from roofline.traces.timeline import Step, Timeline, main_device, steps_of, timeline
from roofline.workload.operators import OperatorRecord, Phase, State
from roofline.workload.residency import trace_residency

if TYPE_CHECKING:
    from roofline.workload.capture.logged_calls import LoggedCalls

_US = 1e-6
_CLOCK_US = 100.0
"""How much earlier than its launch a kernel may start where clocks agree."""
_SAME_MEMORY = 0.1
"""Difference of memory sizes, above which two devices are not the same."""


def read_trace(
    path: str | Path,
    *,
    hardware: Hardware | None = None,
    step: int | str | None = None,
    capture: str | Path | None = None,
    execution: str | Path | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> TraceAnalysis:
    """Return a profiler trace under the ceilings of its machine.

    Args:
        path: a trace of torch.profiler (``.json``, ``.json.gz``), or an execution trace.
        hardware: machine that the trace was recorded on; None: by the properties in the trace.
        step: number of a profiler step; None or ``"all"``: all of them, medians of equal ones.
        capture: trace of the capture of the graphs that are launched in it.
        execution: execution trace of the same run, for the shapes that `path` lacks.
        threads: compute threads, of traces of a CPU.
        progress: called with the fraction that was read.

    Raises:
        FileFormatError: a file that is no trace, or has nothing whole in it.
        HardwareError: the machine is not known from the trace.
        InputError: no such step.
    """
    trace = read_events(Path(path), progress)
    captured, executed = (
        read_events(Path(each), progress) if each is not None else None
        for each in (capture, execution)
    )
    warnings = [*trace.notes]
    for other in (captured, executed):
        warnings += [f"{Path(other.file).name}: {note}" for note in other.notes] if other else []
    if executed is not None:
        _take_shapes(trace, executed)
    _check_is_of_one_process(trace)
    nesting = Nesting(trace)
    of_capture = Nesting(captured) if captured is not None else None
    links = link(nesting, of_capture)
    warnings += _warnings(nesting, links, has_capture=capture is not None)
    has_device = bool(len(links.kernels))
    if not has_device:
        from roofline.workload.capture.logged_calls import is_counted, is_opaque

        links = on_host(nesting, functools.cache(is_counted), functools.cache(is_opaque))
    device = main_device(links) if has_device else None
    profile, source = _machine(trace, hardware, device)
    roof = Roof(profile, threads_on(profile, threads, alone=True))
    steps = _chosen(steps_of(nesting, links), step)
    counted = _Counted(nesting, of_capture, links, roof)
    return counted.result(steps, source, warnings)


def _warnings(nesting: Nesting, links: Links, *, has_capture: bool) -> Iterator[str]:
    """Yield what makes links and gaps of a trace doubtful."""
    events = nesting.trace.events
    launched = links.launch >= 0
    early = events.start[links.launch[launched]] - events.start[links.kernels[launched]]
    if number := int((early > _CLOCK_US).sum()):
        kernels = counted_words(number, "kernel")
        yield (
            f"{kernels} before their launch: the clocks of host and device differ, and idle and"
            " host-bound times are not reliable"
        )
    if has_capture:
        left = links.path.count("graph")
        of = left + links.path.count("graph capture")
        if not of:
            yield "no graph is launched in the trace: its capture was not needed"
        elif left:
            yield f"{left} of {of} kernels of graphs are not in the capture: without an operator"


def _check_is_of_one_process(trace: Trace) -> None:
    """Refuse traces of several ranks in one file: the same ids name different operators."""
    events = trace.events
    places = events.of(Kind.OPERATOR)
    process: dict[int, str] = {}
    for place in places[events.external[places] > 0].tolist():
        name = trace.tracks[events.track[place]][0]
        if process.setdefault(int(events.external[place]), name) != name:
            names = f"{process[int(events.external[place])]} and {name}"
            raise refused(
                trace.file,
                f"holds operators of several processes with the same ids ({names})",
                "give the trace of one rank",
            )


def _take_shapes(trace: Trace, execution: Trace) -> None:
    """Give operators without shapes those that the execution trace has under the same number.

    Raises:
        FileFormatError: it is no execution trace, or one of another run.
    """
    events, others = trace.events, execution.events
    fix = "record both in one torch.profiler.profile(execution_trace_observer=…)"
    if not execution.is_execution_trace:
        raise refused(execution.file, "is no execution trace", fix)
    known = {int(number): place for place, number in enumerate(others.record) if number > 0}
    found = 0
    for place in events.of(Kind.OPERATOR).tolist():
        other = known.get(int(events.record[place]), -1)
        if other >= 0 and trace.name_of(place) == execution.name_of(other):
            found += 1
            if not events.detail[place]:
                events.detail[place] = len(trace.details)
                trace.details.append(execution.details[others.detail[other]])
    if not found:
        raise refused(execution.file, f"has no operator of {trace.file}", fix)


def _chosen(steps: Sequence[Step], step: int | str | None) -> Sequence[Step]:
    if step in (None, "all"):
        return steps
    chosen = [each for each in steps if each.name == f"step {step}"]
    if not chosen:
        known = [each.name.removeprefix("step ") for each in steps if each.name.startswith("step ")]
        has = f"has steps {', '.join(known)}" if known else "marks no steps; leave it out"
        raise InputError(f"{argument('step', step)}: no such step; the trace {has}")
    return chosen


def _machine(
    trace: Trace, hardware: Hardware | None, number: int | None
) -> tuple[HardwareProfile, str]:
    """Return the machine of a trace, and how it was found; `number` is that of its device."""
    devices = {each.number: each for each in trace.devices}
    if hardware is not None:
        profile = resolve_hardware(hardware)[0]
        given = devices.get(number)
        if number is None and profile.device != "cpu" and not trace.is_execution_trace:
            return profile, f"{OTHER_MACHINE} CPU"
        if given is not None and not _may_be(given, profile):
            return profile, f"{OTHER_MACHINE} {given.name or 'device'}"
        return profile, ""
    if number is None:
        return resolve_hardware(None)[0], "this machine: a trace does not name its CPU"
    option = f"name it with {argument('hardware')}"
    if not trace.devices:
        why = "".join(f" ({note})" for note in trace.notes[:1])
        raise HardwareError(f"{trace.file}: the trace does not name its device{why}; {option}")
    device = devices.get(number, trace.devices[0])
    if device.name:
        try:
            return catalog.load_hardware(device.name), f"device '{device.name}'"
        except HardwareError:
            pass
    fitting = [
        each.profile
        for each in catalog.entries()
        if each.profile is not None and _fits(device, each.profile)
    ]
    parts = [f"{device.multiprocessors} multiprocessors"] if device.multiprocessors else []
    parts += [f"{device.memory_bytes / 1e9:.0f} GB"] if device.memory_bytes else []
    what = ", ".join(parts) or "no properties"
    named = f"device '{device.name}'" if device.name else "a device without a name"
    if len(fitting) == 1:
        return fitting[0], f"inferred from {what}"
    if fitting:
        names = ", ".join(sorted(each.name for each in fitting))
        raise HardwareError(f"{trace.file}: {named} may be {names}; {option}")
    raise HardwareError(f"{trace.file}: {named} ({what}) is not known; {option}")


def _fits(device: Device, profile: HardwareProfile) -> bool:
    known = (profile.multiprocessors, profile.memory_capacity_bytes)
    return None not in (device.multiprocessors, device.memory_bytes, *known) and _may_be(
        device, profile
    )


def _may_be(device: Device, profile: HardwareProfile) -> bool:
    """Return False if a device has other multiprocessors or memory than a profile."""
    pairs = (
        (device.multiprocessors, profile.multiprocessors, 0.0),
        (device.memory_bytes, profile.memory_capacity_bytes, _SAME_MEMORY),
    )
    return all(not one or not other or abs(one / other - 1) <= by for one, other, by in pairs)


_ELEMENT = re.compile(r"OpaqueType<(\d+)|\b(BFloat16|bfloat16|Half|half|float|double|long|int)\b")
_OF_BYTES = {"1": "bool", "2": "BFloat16", "4": "float", "8": "long int"}
_OF_NAMES = {"bfloat16": "BFloat16", "half": "Half", "long": "long int"}


def element_type(kernel: str) -> str:
    """Return the type of the elements that a kernel moves, by its name; "" if it has none."""
    match = _ELEMENT.search(kernel)
    # Kernels that convert types name one of them.
    if match is None or "WithCast" in kernel:
        return ""
    return _OF_BYTES.get(match[1], "") if match[1] else _OF_NAMES.get(match[2], match[2])


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of an operator in a step: its name, arguments, module and phase."""

    operator: str
    signature: Signature | None
    module_path: str
    phase: Phase
    element: str
    is_over_link: bool

    @property
    def operands(self) -> tuple[Any, ...]:
        """The call without values, such as step sizes, which change from step to step."""
        of = self.signature
        shapes = (of.dims, of.types, of.strides) if of is not None else ()
        return self.operator, shapes, self.module_path, self.phase


class _Counted:
    """Operators of a trace, each counted once for equal arguments."""

    def __init__(self, nesting: Nesting, capture: Nesting | None, links: Links, roof: Roof) -> None:
        from roofline.workload.capture.logged_calls import LoggedCalls, is_counted

        self._nesting, self._capture, self._links, self._roof = nesting, capture, links, roof
        device = "cuda" if roof.profile.device != "cpu" else "cpu"
        self._run = Run(device=device)
        self._calls: LoggedCalls = LoggedCalls(self._run)
        self._is_counted = functools.cache(is_counted)
        self._records: dict[tuple[str, Any, str], OperatorRecord | str] = {}
        self._forward: dict[int, int] = {}
        events = nesting.trace.events
        for place in events.of(Kind.OPERATOR).tolist():
            if (number := int(events.sequence[place])) >= 0:
                self._forward.setdefault(number, place)
        self._chosen: dict[tuple[bool, int], int] = {}
        self._types: dict[Any, set[str]] = {}
        for of in (nesting, capture):
            for each in of.trace.details if of is not None else ():
                if isinstance(each, Signature):
                    for dims, logged in zip(each.dims, each.types, strict=False):
                        if dims and "List" not in logged and "Scalar" not in logged:
                            self._types.setdefault(dims, set()).add(logged)

    def result(
        self, steps: Sequence[Step], machine_source: str, warnings: list[str]
    ) -> TraceAnalysis:
        """Return the result of some steps."""
        trace = self._nesting.trace
        times = [timeline(self._nesting, self._links, step) for step in steps]
        by_step = [self._step(step) for step in steps]
        # Steps that ran the same operators are repetitions of one measurement.
        keys = [tuple(call.operands for call, _ in each) for each in by_step]
        # Where none is like another, the one of median time stands for them.
        ordered = sorted(range(len(steps)), key=lambda n: times[n].times.time_s)
        middle_key = keys[ordered[(len(steps) - 1) // 2]]
        calls = Counter(keys)
        most = max(calls, key=lambda key: (calls[key], key == middle_key))
        alike = [n for n, key in enumerate(keys) if key == most]
        if len(alike) < len(steps):
            others = ", ".join(each.name for n, each in enumerate(steps) if n not in alike)
            warnings.append(f"{others} ran other operators than the rest, and are left out")
        chosen: list[Timeline] = [times[n] for n in alike]
        kept = [steps[n] for n in alike]
        rows, unmodeled = self._rows([by_step[n] for n in alike])
        middle = sorted(chosen, key=lambda each: each.times.time_s)[(len(chosen) - 1) // 2]
        logged = [signature_of(trace, place) for place in trace.events.of(Kind.OPERATOR).tolist()]
        if not any(logged):
            what = "operators have no shapes" if logged else "there are no operators"
            warnings.append(f"{what}: record with torch.profiler.profile(record_shapes=True)")
        elif not any(each.types for each in logged if each):
            warnings.append(
                "types and values of arguments were not logged: types follow from kernel names;"
                " operators without one, and those that need values, have no count"
            )
        return TraceAnalysis(
            trace=Path(trace.file).name,
            hardware=self._roof.profile,
            machine_source=machine_source,
            threads=self._roof.threads,
            run=self._run,
            steps=() if trace.is_execution_trace else tuple(each.times for each in chosen),
            operators=tuple(rows),
            unmodeled=tuple(unmodeled),
            kernels=() if trace.is_execution_trace else tuple(self._kernels(kept)),
            links=() if trace.is_execution_trace else tuple(self._shares()),
            gaps=() if trace.is_execution_trace else middle.gaps,
            copies=middle.copies,
            collectives=middle.collectives,
            warnings=tuple(warnings),
        )

    def _step(self, step: Step) -> list[tuple[_Call, float]]:
        """Return the calls of a step in the order of their start, with their kernel seconds."""
        links, events = self._links, self._nesting.trace.events
        times: dict[tuple[bool, int], float] = {}
        elements: dict[tuple[bool, int], set[str]] = {}
        over_link: dict[tuple[bool, int], bool] = {}
        for number in step.kernels.tolist():
            if (operator := int(links.operator[number])) < 0:
                continue
            in_capture = links.path[number] == "graph capture"
            place = in_capture, self._outermost(operator, in_capture=in_capture)
            kernel = int(links.kernels[number])
            times[place] = times.get(place, 0.0) + float(events.duration[kernel]) * _US
            name = self._nesting.trace.name_of(kernel)
            elements.setdefault(place, set()).add(element_type(name))
            over_link[place] = over_link.get(place, True) and ("HtoD" in name or "DtoH" in name)
        ordered = sorted(
            times,
            key=lambda each: (each[0], self._of(in_capture=each[0]).trace.events.start[each[1]]),
        )
        return [
            (self._call(each, elements[each] - {""}, is_over_link=over_link[each]), times[each])
            for each in ordered
        ]

    def _of(self, *, in_capture: bool) -> Nesting:
        return self._capture if in_capture and self._capture is not None else self._nesting

    def _outermost(self, operator: int, *, in_capture: bool) -> int:
        """Return the outermost operator around one that is counted as a whole; else itself."""
        key = in_capture, operator
        if key not in self._chosen:
            nesting = self._of(in_capture=in_capture)
            trace, found = nesting.trace, operator
            for place in nesting.around(operator):
                if trace.events.kind[place] != Kind.OPERATOR or signature_of(trace, place) is None:
                    continue
                if self._is_counted(trace.name_of(place)):
                    found = place
            self._chosen[key] = found
        return self._chosen[key]

    def _call(self, of: tuple[bool, int], elements: set[str], *, is_over_link: bool) -> _Call:
        in_capture, place = of
        nesting = self._of(in_capture=in_capture)
        trace = nesting.trace
        phase, module = nesting.phase(place), nesting.module_path(place)
        if phase == "backward" and not in_capture:
            for each in nesting.around(place):
                forward = self._forward.get(int(trace.events.sequence[each]), -1)
                if forward >= 0 and forward != each:
                    module = nesting.module_path(forward)
                    break
        signature = signature_of(trace, place)
        element = elements.pop() if len(elements) == 1 else ""
        if signature is not None and not signature.types and element:
            types = tuple(element if dims else "" for dims in signature.dims)
            signature = replace(signature, types=types)
        return _Call(trace.name_of(place), signature, module, phase, element, is_over_link)

    def _record(self, call: _Call) -> OperatorRecord | str:
        signature = call.signature
        if signature is None:
            return "no shapes were recorded"
        lists = self._type_of_lists(signature, call.element)
        key = call.operator, signature, lists
        if key not in self._records:
            self._records[key] = self._calls.record(
                call.operator,
                dims=signature.dims,
                types=signature.types,
                strides=signature.strides,
                values=signature.values,
                list_dtype=lists,
            )
        return self._records[key]

    def _type_of_lists(self, signature: Signature, element: str) -> str:
        """Return the type of tensors in lists, which traces leave out; "" if it is not known.

        It is the one that the kernel moves, by its name, else that of all other tensors in the
        trace that have the shape of one in the list.
        """
        lists = [
            dims
            for dims, logged in zip(signature.dims, signature.types, strict=False)
            if "TensorList" in logged or "GenericList" in logged
        ]
        if not lists or signature.list_type or element:
            return signature.list_type or element if lists else ""
        found = {kind for shapes in lists for shape in shapes for kind in self._of_shape(shape)}
        return found.pop() if len(found) == 1 else ""

    def _of_shape(self, shape: Any) -> set[str]:
        return self._types.get(shape, set()) if isinstance(shape, tuple) else set()

    def _rows(
        self, steps: Sequence[Sequence[tuple[_Call, float]]]
    ) -> tuple[list[Any], list[Unmodeled]]:
        """Return rows of counted operators, and the others by name and shapes."""
        rows: list[Any] = []
        others: dict[tuple[str, str, str], list[float | None]] = {}
        placed: dict[int, Any] = {}
        is_untimed = self._nesting.trace.is_execution_trace
        for number, (call, _) in enumerate(steps[0] if steps else ()):
            times = () if is_untimed else tuple(each[number][1] for each in steps)
            record = self._record(call)
            if not isinstance(record, str) and record.state is State.UNKNOWN:
                record = "no formula counts it; add one with @roofline.formula"
            if isinstance(record, str):
                shapes = _shapes(call.signature)
                others.setdefault((call.operator, shapes, record), []).append(
                    median(times) if times else None
                )
                continue
            if id(record) not in placed:
                reuses = trace_residency([record]).steady[0]
                placed[id(record)] = self._roof.place(record, reuses)
            is_timed = bool(times) and min(times) > 0
            row = row_of(placed[id(record)], sample=Sample(times_s=times) if is_timed else None)
            type_ = HOST_TRANSFER if call.is_over_link else row.type
            where = {"module_path": call.module_path, "phase": call.phase, "type": type_}
            rows.append(replace(row, index=len(rows), **where))
        unmodeled = [
            Unmodeled(
                operator=name,
                shapes=shapes,
                calls=len(times),
                time_s=sum_known(times),
                reason=reason,
            )
            for (name, shapes, reason), times in others.items()
        ]
        return rows, sorted(unmodeled, key=lambda each: -(each.time_s or 0.0))

    def _kernels(self, steps: Sequence[Step]) -> list[KernelTime]:
        """Return kernels by operator and inputs; also those launched before the trace began."""
        links, trace = self._links, self._nesting.trace
        found: dict[tuple[str, str, str], list[list[float]]] = {}
        for position, step in enumerate(steps):
            earlier = np.flatnonzero(
                (links.launch < 0)
                & (links.operator < 0)
                & (trace.events.end[links.kernels] > step.start)
                & (trace.events.start[links.kernels] < step.end)
            )
            for number in np.union1d(step.kernels, earlier).tolist():
                kernel, operator = int(links.kernels[number]), int(links.operator[number])
                named = inputs = ""
                if operator >= 0:
                    in_capture = links.path[number] == "graph capture"
                    place = self._outermost(operator, in_capture=in_capture)
                    of = self._of(in_capture=in_capture).trace
                    named, inputs = of.name_of(place), _shapes(signature_of(of, place))
                key = trace.name_of(kernel), named, inputs
                times = found.setdefault(key, [[] for _ in steps])
                times[position].append(float(trace.events.duration[kernel]) * _US)
        kernels = [
            KernelTime(
                kernel=kernel,
                operator=operator,
                inputs=inputs,
                calls=max(map(len, times)),
                times_s=tuple(map(sum, times)),
            )
            for (kernel, operator, inputs), times in found.items()
        ]
        return sorted(kernels, key=lambda each: -each.time_s)

    def _shares(self) -> list[LinkShare]:
        links, trace = self._links, self._nesting.trace
        times = trace.events.duration[links.kernels] * _US
        whole = float(times.sum())
        paths = np.array(links.path)
        has_shapes = np.array(
            [
                operator >= 0
                and signature_of(self._of(in_capture=path == "graph capture").trace, operator)
                is not None
                for operator, path in zip(links.operator.tolist(), links.path, strict=True)
            ],
            bool,
        )
        shares = [
            LinkShare(
                evidence=evidence,
                kernels=int((paths == evidence).sum()),
                time_s=float(times[paths == evidence].sum()),
                share=_share(float(times[paths == evidence].sum()), whole),
                with_shapes=_share(float(times[(paths == evidence) & has_shapes].sum()), whole),
            )
            for evidence in dict.fromkeys(links.path)
        ]
        return sorted(shares, key=lambda each: -each.time_s)


def _share(part: float, whole: float) -> float:
    """Return a share of a sum; sums of many parts differ in the last digits."""
    return round(part / whole, 9) if whole else 0.0


def _shapes(signature: Signature | None) -> str:
    def text(dims: Any) -> str:
        if any(isinstance(each, tuple) for each in dims):
            return f"[{', '.join(map(text, dims))}]"
        return "x".join(map(str, dims))

    return ", ".join(text(dims) for dims in signature.dims if dims) if signature else ""
