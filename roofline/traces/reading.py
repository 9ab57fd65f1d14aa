"""Events of a profiler trace, read as a stream, so that a file may be larger than memory."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from roofline.core.files import refused
from roofline.core.progress import Progress
from roofline.core.text import counted
from roofline.errors import error_text

_CHUNK = 2**22
_LONGEST_VALUE = 2**26
"""Characters of one value, above which a file is taken to be damaged."""

_FIX = "record one with torch.profiler.profile(record_shapes=True).export_chrome_trace(FILE)"

_decode = json.JSONDecoder(strict=False).raw_decode
_space = re.compile(r"[\s,]*").match


class Kind(IntEnum):
    """Kinds of events that are kept."""

    OPERATOR = 0
    LAUNCH = 1
    KERNEL = 2
    COPY = 3
    MODULE = 4
    ANNOTATION = 5


_KINDS = {
    "cpu_op": Kind.OPERATOR,
    "operator": Kind.OPERATOR,
    "cuda_runtime": Kind.LAUNCH,
    "cuda_driver": Kind.LAUNCH,
    "hip_runtime": Kind.LAUNCH,
    "xpu_runtime": Kind.LAUNCH,
    "runtime": Kind.LAUNCH,
    "kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.COPY,
    "gpu_memset": Kind.COPY,
    "memcpy": Kind.COPY,
    "memset": Kind.COPY,
    "user_annotation": Kind.ANNOTATION,
}
"""Kinds by category, in lower case: older traces write ``Operator`` where newer have ``cpu_op``."""

_MODULE = "nn.Module: "
_LATEST = 1e18
"""Microseconds; no clock is that late."""

_LONGEST_US = 86_400e6
"""A day: events farther from the middle of a trace have damaged times."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Arguments of an operator call as a trace holds them, one entry for each argument.

    Older traces have shapes alone. ``list_type`` is the type of tensors in lists, which execution
    traces alone have.
    """

    dims: Any = ()
    types: tuple[str, ...] = ()
    strides: Any = ()
    values: tuple[str, ...] = ()
    list_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """Arguments of a kernel or copy: its device, bytes, and those of a collective.

    ``kernel`` is the name that a runtime call launches, where a trace has it.
    """

    device: int = 0
    bytes: int | None = None
    kernel: str = ""
    collective: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU as a trace describes it; fields are None where it does not."""

    number: int | None = None
    name: str = ""
    memory_bytes: int | None = None
    multiprocessors: int | None = None


@dataclass(frozen=True, slots=True)
class Events:
    """Events of a trace in the order of the file, a column for each property.

    Times are in microseconds since the first. ``external`` links kernels with operators,
    ``correlation`` with runtime calls, ``sequence`` operators of the forward pass with those of the
    backward pass, ``record`` with execution traces; -1 where a trace has none. ``name``, ``track``
    (a thread of a process) and ``detail`` are places in the lists of the trace.
    """

    kind: NDArray[np.int8]
    name: NDArray[np.int32]
    track: NDArray[np.int32]
    start: NDArray[np.float64]
    duration: NDArray[np.float64]
    external: NDArray[np.int64]
    correlation: NDArray[np.int64]
    sequence: NDArray[np.int64]
    record: NDArray[np.int64]
    detail: NDArray[np.int32]

    @property
    def end(self) -> NDArray[np.float64]:
        """End of each event in microseconds."""
        return self.start + self.duration

    def of(self, *kinds: Kind) -> NDArray[np.intp]:
        """Return the places of events of some kinds, by their start."""
        places = np.flatnonzero(np.isin(self.kind, kinds))
        return places[np.argsort(self.start[places], kind="stable")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace as it was read; ``notes`` name what was damaged or left out."""

    file: str
    events: Events
    names: list[str]
    tracks: list[tuple[str, str]]
    details: list[Signature | Details | None]
    devices: tuple[Device, ...] = ()
    is_execution_trace: bool = False
    notes: tuple[str, ...] = ()

    def name_of(self, place: int) -> str:
        """Return the name of an event."""
        return self.names[self.events.name[place]]


def is_trace(path: str | Path) -> bool:
    """Return whether a file begins as a trace does; false where it cannot be read."""
    if not str(path).endswith((".json", ".json.gz")):
        return False
    try:
        with Path(path).open("rb") as raw:
            head = raw.read(_HEAD)
            if head.startswith(b"\x1f\x8b"):
                head = zlib.decompressobj(31).decompress(head, _HEAD)
    except (OSError, zlib.error, ValueError):
        return False
    marks = (b'"traceEvents"', b'"deviceProperties"', b'"ph"', b"chakra")
    return any(each in head for each in marks)


_HEAD = 2**16


def read_events(path: Path, progress: Progress | None = None) -> Trace:
    """Return the events of a Kineto or execution trace, compressed or not.

    A file that was cut gives its whole events, and a note.

    Raises:
        FileFormatError: not readable, no trace, or nothing whole in it.
    """
    reader = _Reader(str(path))
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise refused(str(path), "is no regular file", "")
        with path.open("rb") as raw:
            is_packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            data = gzip.GzipFile(fileobj=raw) if is_packed else raw

            def advance() -> None:
                if progress is not None:
                    progress(min(1.0, raw.tell() / max(size, 1)), path.name)

            text = _Text(data.read1, advance)
            for key, value in _values(text):
                reader.take(key, value)
            reader.notes += dict.fromkeys(text.notes)
    except FileNotFoundError:
        raise refused(str(path), "no such file", "") from None
    except OSError as error:
        raise refused(
            str(path), f"cannot be read: {error.strerror or error_text(error)}", ""
        ) from None
    except ValueError as error:
        raise refused(str(path), f"is no trace: {error_text(error)}", _FIX) from None
    return reader.trace()


class _Text:
    """Text of a file as far as it was needed, and where its reader is."""

    def __init__(self, read: Callable[[int], bytes], advance: Callable[[], None]) -> None:
        self._read, self._advance = read, advance
        # A character may be split between two chunks.
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self.buffer = ""
        self.place = 0
        self.is_over = False
        self.notes: list[str] = []

    def more(self) -> bool:
        """Read on, and drop what was used; false at the end of the file."""
        if self.is_over:
            return False
        self._advance()
        data = bytearray()
        try:
            while len(data) < _CHUNK and (part := self._read(_CHUNK)):
                data += part
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.notes.append(_CUT)
            self.is_over = True
        self.is_over = self.is_over or len(data) < _CHUNK
        text = self._decoder.decode(bytes(data), final=self.is_over)
        self.buffer = self.buffer[self.place :] + text
        self.place = 0
        return True

    def peek(self) -> str:
        """Return the next character that is no space or comma; "" at the end."""
        while True:
            match = _space(self.buffer, self.place)
            self.place = match.end() if match else self.place
            if self.place < len(self.buffer):
                return self.buffer[self.place]
            if not self.more():
                return ""

    def find(self, pattern: re.Pattern[str]) -> None:
        """Step to the next match of a pattern; to the end where there is none."""
        while (found := pattern.search(self.buffer, self.place + 1)) is None:
            self.place = max(self.place, len(self.buffer) - _LONGEST_MARK)
            if not self.more():
                break
        self.place = found.start() if found else len(self.buffer)

    def skip(self, character: str) -> None:
        """Step over a character.

        Raises:
            ValueError: another one stands there.
        """
        if self.peek() != character:
            raise ValueError(f"expected {character!r}, got {self.peek()!r}")
        self.place += 1

    def value(self) -> Any:
        """Return the JSON value that begins here, after `peek`.

        Raises:
            EOFError: the file ends within it.
            ValueError: it is damaged.
        """
        while True:
            try:
                value, end = _decode(self.buffer, self.place)
            except json.JSONDecodeError as error:
                # A number at the end of the buffer may go on; so may anything that is not whole.
                is_cut = "Unterminated" in error.msg or error.pos >= len(self.buffer) - 8
                if is_cut and len(self.buffer) < _LONGEST_VALUE and self.more():
                    continue
                if is_cut and self.is_over:
                    raise EOFError from None
                raise
            except RecursionError:
                raise ValueError("nested too deeply") from None
            if end == len(self.buffer) and self.more():
                continue
            self.place = end
            return value


_CUT = "the file is cut or damaged: whole events were read"
_LISTS = ("traceEvents", "nodes")
_NEXT = re.compile(r'[\n,]\s*\{\s*"(?:ph|id)"|"(?:traceEvents|nodes)"\s*:')
_LONGEST_MARK = 200
"""Characters that a match of `_NEXT` may have."""


def _values(text: _Text) -> Iterator[tuple[str, Any]]:
    """Yield keys and values of the file; of lists of events, one by one.

    Raises:
        ValueError: the file is no trace.
    """
    opening = text.peek()
    if opening == "[":
        yield from _items("traceEvents", text)
        return
    if opening != "{":
        raise ValueError("neither a JSON object nor a list" if opening else "it is empty")
    text.skip("{")
    list_ = _LISTS[0]
    while text.peek() != "}":
        try:
            key = text.value()
            if isinstance(key, dict):
                # An event: the end of the list before it was none.
                yield list_, key
                continue
            text.skip(":")
            if text.peek() == "[" and key in _LISTS:
                list_ = key
                yield from _items(key, text)
            else:
                yield key, text.value()
        except EOFError:
            text.notes.append(_CUT)
            return
        except ValueError:
            text.notes.append(_CUT)
            text.find(_NEXT)


def _items(key: str, text: _Text) -> Iterator[tuple[str, Any]]:
    text.skip("[")
    yield key, None
    damaged = 0
    while text.peek() != "]":
        try:
            yield key, text.value()
        except EOFError:
            text.notes.append(_CUT)
            text.place = len(text.buffer)
            break
        except ValueError:
            damaged += 1
            text.find(_NEXT)
    else:
        text.skip("]")
    if damaged:
        text.notes.append(f"{counted(damaged, 'damaged event')} left out")


@dataclass
class _Reader:
    """Collects the events of a file."""

    file: str
    notes: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self._columns = {
            name: array("d" if name in ("start", "duration") else "q")
            for name in Events.__dataclass_fields__
        }
        self._names: dict[str, int] = {}
        self._tracks: dict[tuple[str, str], int] = {}
        self._details: list[Signature | Details | None] = [None]
        self._numbers: dict[str, int] = {}
        self._devices: tuple[Device, ...] = ()
        self._parents: dict[int, int] = {}
        self._wrong_times = self._others = self._damaged_shapes = 0
        self._is_trace = self._is_execution_trace = False

    def take(self, key: str, value: Any) -> None:
        """Keep an event, or what the file says of itself."""
        match key, value:
            case "traceEvents", dict():
                self._is_trace = True
                self._take_event(cast("dict[str, Any]", value))
            case "nodes", dict():
                self._is_trace = self._is_execution_trace = True
                self._take_node(cast("dict[str, Any]", value))
            case "deviceProperties", list():
                self._devices = tuple(map(_device, cast("list[Any]", value)))
            case _:
                self._others += key in _LISTS

    def _take_event(self, event: dict[str, Any]) -> None:
        if event.get("ph") != "X":
            return
        name = event.get("name")
        category = str(event.get("cat", "")).lower()
        kind = _KINDS.get(category)
        if kind is None:
            if category != "python_function" or not str(name).startswith(_MODULE):
                return
            kind = Kind.MODULE
        start, duration = _time(event.get("ts")), _time(event.get("dur", 0))
        if start is None or duration is None or duration < 0:
            self._wrong_times += 1
            return
        found = event.get("args")
        given: dict[str, Any] = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        track = str(event.get("pid", "")), str(event.get("tid", ""))
        self._add(
            kind,
            _name(name),
            track,
            start,
            duration,
            external=given.get("External id", given.get("external id")),
            correlation=given.get("correlation"),
            sequence=given.get("Sequence number"),
            record=given.get("Record function id"),
            detail=self._detail(kind, given),
        )

    def _add(
        self,
        kind: Kind,
        name: str,
        track: tuple[str, str],
        start: float,
        duration: float,
        *,
        detail: int,
        **links: Any,
    ) -> None:
        columns = self._columns
        columns["kind"].append(kind)
        columns["name"].append(self._names.setdefault(name, len(self._names)))
        columns["track"].append(self._tracks.setdefault(track, len(self._tracks)))
        columns["start"].append(start)
        columns["duration"].append(duration)
        columns["detail"].append(detail)
        for link in ("external", "correlation", "sequence", "record"):
            value = links.get(link)
            is_number = isinstance(value, int) and -1 <= value < 2**62
            columns[link].append(value if is_number else -1)

    def _detail(self, kind: Kind, given: Mapping[str, Any]) -> int:
        """Return the place of the arguments of an event; equal ones have one."""
        make: Callable[..., Signature | Details]
        if kind is Kind.OPERATOR:
            dims = given.get("Input Dims", given.get("Input dims"))
            rest = map(given.get, ("Input type", "Input Strides", "Concrete Inputs"))
            make, parts = _signature, (dims, *rest)
            if not dims and not parts[1]:
                return 0
        elif kind in (Kind.KERNEL, Kind.COPY) or "kernel" in given:
            collective = tuple((each, given[each]) for each in _COLLECTIVE if each in given)
            rest = map(given.get, ("device", "bytes", "kernel"))
            make, parts = _details, (*rest, collective)
        else:
            return 0
        return self._place(make, *parts)

    def _place(self, make: Callable[..., Signature | Details], *parts: Any) -> int:
        """Return the place of what `make` returns of some parts; 0 where these are damaged."""
        try:
            key = repr(parts)
            if key not in self._numbers:
                found = make(*parts)
                self._numbers[key] = len(self._details)
                self._details.append(found)
        except (ValueError, RecursionError):
            self._damaged_shapes += 1
            return 0
        return self._numbers[key]

    def _take_node(self, node: dict[str, Any]) -> None:
        """Keep an operator of an execution trace."""
        inputs, outputs = node.get("inputs"), node.get("outputs")
        if not isinstance(inputs, dict) or not isinstance(outputs, dict):
            return
        given = cast("dict[str, Any]", inputs)
        attributes = {
            str(each["name"]): each.get("value")
            for each in _each(node.get("attrs"))
            if isinstance(each, dict) and "name" in each
        }
        identity, parent = node.get("id"), node.get("ctrl_deps")
        if not isinstance(identity, int) or not 0 <= identity < _MOST:
            return
        self._parents[identity] = parent if isinstance(parent, int) else -1
        if not given.get("types") or "::" not in str(node.get("name")):
            return
        self._add(
            Kind.OPERATOR,
            _name(node["name"]),
            ("", str(attributes.get("tid", ""))),
            float(identity),
            0.0,
            external=identity,
            sequence=attributes.get("seq_id"),
            record=attributes.get("rf_id"),
            detail=self._place(
                _signature_of_node, *map(given.get, ("shapes", "types", "strides", "values"))
            ),
        )

    def _nested(self, identities: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return lengths that nest nodes of an execution trace: identities count as times."""
        last = {each: each for each in self._parents}
        for each in sorted(self._parents, reverse=True):
            parent = self._parents[each]
            if parent in last and parent != each:
                last[parent] = max(last[parent], last[each])
        # A node ends after the last that it called, and before the next.
        return np.array([last.get(int(each), each) - each + 0.5 for each in identities], float)

    def trace(self) -> Trace:
        """Return what was read.

        Raises:
            FileFormatError: it is no trace.
        """
        if not self._columns["kind"]:
            what = "is no profiler trace: it has no 'traceEvents'"
            if self._is_trace or self._others:
                what = "holds no operator and no kernel"
            raise refused(self.file, what, _FIX)
        for number, why in (
            (self._wrong_times, "left out: times are missing, negative or not finite"),
            (self._damaged_shapes, "without shapes: theirs are damaged"),
        ):
            if number:
                self.notes.append(f"{counted(number, 'event')} {why}")
        types = {"kind": np.int8, "name": np.int32, "track": np.int32, "detail": np.int32}
        columns: dict[str, Any] = {
            name: np.frombuffer(column, np.float64 if column.typecode == "d" else np.int64).astype(
                types.get(name, np.float64 if column.typecode == "d" else np.int64)
            )
            for name, column in self._columns.items()
        }
        if self._is_execution_trace:
            columns["duration"] = self._nested(columns["start"])
        middle_us = np.median(columns["start"])
        near = np.abs(columns["start"] - middle_us) + columns["duration"] < _LONGEST_US
        if not near.all():
            columns = {name: column[near] for name, column in columns.items()}
            far = counted(int((~near).sum()), "event")
            self.notes.append(f"{far} left out: more than a day from the others")
        columns["start"] -= columns["start"].min()
        return Trace(
            file=self.file,
            events=Events(**columns),
            names=list(self._names),
            tracks=list(self._tracks),
            details=self._details,
            devices=self._devices,
            is_execution_trace=self._is_execution_trace,
            notes=tuple(self.notes),
        )


_COLLECTIVE = (
    *("Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype"),
    "Process Group Name",
)
"""Arguments of kernels of NCCL and RCCL."""


def _time(value: object) -> float | None:
    """Return a time of a file as a number; None: it is none."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < _LATEST else None


_LONGEST_NAME = 4000
_MOST = 2**62
_DEEPEST = 3
"""Levels of lists in shapes: of the tensors of a list argument."""


def _name(value: object) -> str:
    """Return a name that can be printed and looked up: lone surrogates as escapes, cut."""
    return str(value)[:_LONGEST_NAME].encode("utf-8", "backslashreplace").decode("utf-8")


def _strings(value: object) -> tuple[str, ...]:
    return tuple(map(str, cast("list[Any]", value))) if isinstance(value, list) else ()


def _list(value: object, depth: int = _DEEPEST) -> tuple[Any, ...]:
    """Return a list of integers, or of such lists, as tuples.

    Raises:
        ValueError: something else, too large a number, or too many levels.
    """
    if value is None:
        return ()
    if not isinstance(value, list) or depth < 0:
        raise ValueError("not a list of shapes")
    found: list[Any] = []
    for each in cast("list[Any]", value):
        if isinstance(each, int) and not isinstance(each, bool) and abs(each) < _MOST:
            found.append(each)
        else:
            found.append(_list(each, depth - 1))
    if len({*map(type, found)}) > 1:
        raise ValueError("sizes and shapes in one list")
    return tuple(found)


def _shapes(value: object) -> tuple[Any, ...]:
    """Return shapes or strides of arguments.

    Raises:
        ValueError: something else.
    """
    found = _list(value)
    if not all(isinstance(each, tuple) for each in found):
        raise ValueError("not a list of shapes")
    return found


def _each(value: object) -> list[Any]:
    """Return a list of a file; an empty one in place of anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def _signature(dims: Any, types: Any, strides: Any, values: Any) -> Signature:
    return Signature(
        dims=_shapes(dims), types=_strings(types), strides=_shapes(strides), values=_strings(values)
    )


def _details(device: Any, byte: Any, kernel: Any, collective: Any) -> Details:
    return Details(
        kernel=_name(kernel or ""),
        device=device if isinstance(device, int) and abs(device) < _MOST else 0,
        bytes=byte if isinstance(byte, int) and 0 <= byte < _MOST else None,
        collective=collective,
    )


def _signature_of_node(dims: Any, types: Any, strides: Any, values: Any) -> Signature:
    written = _strings(types)
    lists = [each for each in written if "[Tensor" in each]
    return Signature(
        dims=_shapes(dims),
        types=tuple(map(_kineto_type, written)),
        strides=_shapes(strides),
        values=tuple(map(_concrete, _each(values), written)),
        list_type=next(map(_element_type, lists), ""),
    )


def _kineto_type(text: str) -> str:
    """Return a type of an execution trace as Kineto writes it."""
    if text.startswith("Tensor("):
        # Absent tensors are "Tensor(nullptr (uninitialized))".
        return "" if "nullptr" in text else _element_type(text)
    if text.startswith("GenericList["):
        return "TensorList" if "[Tensor" in text else "ScalarList"
    return "" if text in ("None", "String", "Device") else "Scalar"


def _element_type(text: str) -> str:
    return text.partition("Tensor(")[2].partition(")")[0]


def _concrete(value: object, type_: str) -> str:
    """Return an argument of an execution trace as Kineto writes it; "" for tensors."""
    if "Tensor" in type_ or value is None or value == "<None>":
        return ""
    return str(value)


def _device(found: object) -> Device:
    data: dict[str, Any] = cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    def number(key: str) -> int | None:
        value = data.get(key)
        return value if isinstance(value, int) and 0 <= value < _MOST else None

    return Device(
        number=number("id"),
        name=_name(data.get("name") or ""),
        memory_bytes=number("totalGlobalMem"),
        multiprocessors=number("numSms"),
    )
