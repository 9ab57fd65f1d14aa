"""One piece of a sweep: a design captured at one point, and placed on every machine asked for.

All of this goes to other processes and machines, and needs none of their files.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import re
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.design.sweeps.axes import Point, Value
from roofline.design.sweeps.verdicts import Cell, cell_of
from roofline.errors import RooflineError, said_by
from roofline.foundation.places import PlacedError
from roofline.foundation.text import printable
from roofline.latency.predictor import Predictor
from roofline.machine.hardware import HardwareProfile
from roofline.run import RunOptions

if TYPE_CHECKING:
    import torch

    from roofline.pipeline.runs import Workload
    from roofline.placement import Roof
    from roofline.workload.operators import Capture
    from roofline.workload.residency import Residency


_FILE = re.compile(r"(?:^|(?<=\+))\s*([^+:]*?\.py)(?=:)")
"""The file in each part of a design that is ``file.py:Block(…)``."""

_MOST_BYTE = 2**20
"""More than modules beside a model's own file have; folders of larger ones hold something else."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """A Python file as designs name it, with the other ones of its folder: content by name."""

    path: str
    name: str
    contents: tuple[tuple[str, bytes], ...]


def shipped_for(designs: Iterable[object]) -> tuple[Shipped, ...]:
    """The files that designs name and that are there; what is missing, its loader says."""
    texts = (each for each in designs if isinstance(each, str))
    paths = dict.fromkeys(path for text in texts for path in _FILE.findall(text))
    return tuple(_shipped(each) for each in paths if Path(each).is_file())


def _shipped(path: str) -> Shipped:
    file = Path(path)
    contents = {file.name: file.read_bytes()}
    beside = {
        each.name: each.read_bytes()
        for each in sorted(file.parent.glob("*.py"))
        if each != file and each.is_file() and each.stat().st_size < _MOST_BYTE
    }
    if sum(map(len, beside.values())) < _MOST_BYTE:
        contents.update(beside)
    return Shipped(path, file.name, tuple(contents.items()))


def in_reach(text: str, shipped: Sequence[Shipped]) -> str:
    """A design's text with files that are on this machine: its own if it is the same, else ours."""
    for each in shipped:
        if f"{each.path}:" in text and not _is_here(each):
            text = text.replace(f"{each.path}:", f"{_unpacked(each)}:")
    return text


@functools.cache
def _is_here(shipped: Shipped) -> bool:
    try:
        return Path(shipped.path).read_bytes() == dict(shipped.contents)[shipped.name]
    except OSError:
        return False


@functools.cache
def _unpacked(shipped: Shipped) -> str:
    folder = _folder(shipped)
    for name, content in shipped.contents:
        (folder / name).write_bytes(content)
    return str(folder / shipped.name)


@functools.cache
def _folder(shipped: Shipped) -> Path:
    """A folder that goes when this process ends."""
    import atexit
    import shutil

    folder = tempfile.mkdtemp(prefix="roofline-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def one_thread() -> AbstractContextManager[object]:
    """Products of matrices on one thread, from now on, or within the context.

    What is added up in another order differs in its last digit.
    """
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1, user_api="blas")


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A design that is swept: what it is called, what is loaded, and which variables it has."""

    name: str
    model: str | torch.nn.Module
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine, on how many threads (None: all of them), and what was learned there."""

    profile: HardwareProfile
    threads: int
    predictor: Predictor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A design at the values of those axes that change its capture."""

    design: int
    values: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A capture with what it was made of."""

    asked: Workload
    capture: Capture
    reuse: Residency


@dataclass(frozen=True, kw_only=True)
class Context:
    """All that every job of a sweep needs.

    ``machines`` are in the order of the axes of machines and threads: each job has a cell for each.
    """

    designs: tuple[Design, ...]
    machines: tuple[Machine, ...]
    options: RunOptions
    inputs: Any = None
    batch: int | None = None
    seq: int | None = None
    cold: bool = False
    shipped: tuple[Shipped, ...] = ()
    _roofs: list[Roof] = field(default_factory=list["Roof"], init=False, repr=False)

    def cells(self, job: Job) -> list[Cell]:
        """The design on every machine; of one that cannot be built, the reason."""
        try:
            passed = functools.cache(functools.partial(self.captured, job))
            devices = [each.profile.device for each in self.machines]
            return [self._cell(passed(device), i) for i, device in enumerate(devices)]
        except PlacedError as error:
            problem = error.message
        except RooflineError as error:
            problem = said_by(error)
        # Whatever a model's own code raises is a reason why that point cannot be built.
        except Exception as error:
            problem = f"{type(error).__name__}: {said_by(error)}"
        return [Cell(problem=printable(problem))] * len(self.machines)

    def captured(self, job: Job, on: str = "cpu") -> Captured:
        """The design of a job, captured for the device that it is placed on."""
        from roofline.workload.residency import residency

        options, asked = self._options(job), self.asked(job)
        found = asked.capture(
            options.run(on), options.teaching(), name=self.designs[job.design].name
        )
        return Captured(asked=asked, capture=found, reuse=residency(found.records))

    def asked(self, job: Job) -> Workload:
        """The model and inputs of a job, before it is captured."""
        from roofline.pipeline.runs import workload_of
        from roofline.run import check_counts

        design, values = self.designs[job.design], dict(job.values)
        bound = {name: values.pop(name) for name in design.variables}
        batch, seq = values.get("batch", self.batch), values.get("seq", self.seq)
        check_counts(batch=batch, seq=seq, threads=None, inputs=self.inputs)  # pyright: ignore[reportArgumentType]  checked there
        return workload_of(
            self._model(design, bound),
            self.inputs,
            run=self._options(job).run(),
            batch=batch,  # pyright: ignore[reportArgumentType]  as above
            seq=seq,  # pyright: ignore[reportArgumentType]  as above
        )

    def _options(self, job: Job) -> RunOptions:
        design = self.designs[job.design]
        of_run = {name: value for name, value in job.values if name not in design.variables}
        return with_point(self.options, of_run)

    def _model(self, design: Design, values: Point) -> str | torch.nn.Module:
        if not isinstance(design.model, str):
            return design.model
        text = in_reach(design.model, self.shipped)
        if not values:
            return text
        from roofline.workload.models.expressions.reading import bound

        return bound(text, values)

    def _cell(self, found: Captured, machine: int) -> Cell:
        from roofline.pipeline.assembly import assemble

        return cell_of(
            assemble(
                found.asked.source.name,
                found.asked.specs,
                found.capture,
                found.reuse,
                self._roof(machine),
                cold=self.cold,
                notes=(),
                predictor=self.machines[machine].predictor,
            )
        )

    def _roof(self, machine: int) -> Roof:
        """The roof of a machine, kept: it remembers what it found out of its ceilings."""
        from roofline.placement import Roof

        if not self._roofs:
            self._roofs.extend(Roof(each.profile, each.threads) for each in self.machines)
        return self._roofs[machine]


def inputs_text(asked: Workload) -> str:
    """The inputs of a design: ``"1x64x56x56 float32"``."""
    return ", ".join(f"{'x'.join(map(str, each.shape))} {each.dtype}" for each in asked.specs)


def notes_on_inputs(names: Sequence[str], asked: Sequence[Workload]) -> tuple[str, ...]:
    """A note where designs take other inputs, so that passes of unlike sizes are compared."""
    texts = [inputs_text(each) for each in asked]
    if len(set(texts)) < 2:
        return ()
    told = "; ".join(f"{name} {text}" for name, text in zip(names, texts, strict=True))
    return (f"inputs differ, and times are those of whole passes: {told}",)


def with_point(options: RunOptions, values: Point) -> RunOptions:
    """The options at a point whose axes may be options."""
    if "dtype" in values:
        options = replace(options, dtype=str(values["dtype"]))
    if "layout" in values:
        options = replace(options, channels_last=values["layout"] == "channels-last")
    return options


_turn = threading.Lock()


@functools.lru_cache(maxsize=1)
def _unpacked_context(packed: bytes) -> Context:
    """The context that a process was sent, kept as long as it is the last one."""
    one_thread()
    return pickle.loads(packed)


def work(packed: bytes, job: Job) -> tuple[Job, list[Cell]]:
    """A job of a pickled context and its cells, in any process or thread."""
    # What models print is no part of a result. A redirection holds for all threads of a process, so
    # that they take turns, as they do in captures.
    with _turn, contextlib.redirect_stdout(sys.stderr):
        return job, _unpacked_context(packed).cells(job)
