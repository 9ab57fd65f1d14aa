"""Jobs of a sweep: one design captured at one point, and placed on all machines.

Jobs run in other processes and machines, without their files.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import pickle
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.analysis import InputSpec
from roofline.core.source_errors import PlacedError
from roofline.core.text import printable
from roofline.design.comparison.axes import Value
from roofline.design.comparison.cells import Cell, cell_of
from roofline.errors import RooflineError, error_text
from roofline.latency.prediction import MachinePredictor
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.analyses import assemble_analysis
from roofline.pipeline.runs import CapturedPass, Workload, build_workload
from roofline.placement import Roof
from roofline.run import RunOptions

if TYPE_CHECKING:
    import torch

_FILE = re.compile(r"(?:^|(?<=\+))\s*([^+:]*?\.py)(?=:)")
"""File of each part ``file.py:Block(…)`` of a design."""

_MOST_BYTE = 2**20
"""Maximum size of sent files."""


@dataclass(frozen=True, slots=True)
class ShippedFile:
    """Python file of a design with the other Python files of its folder: content by name."""

    path: str
    name: str
    contents: tuple[tuple[str, bytes], ...]


def files_of_designs(designs: Iterable[object]) -> tuple[ShippedFile, ...]:
    """Return the existing files of designs; missing ones are reported by their loader."""
    texts = (each for each in designs if isinstance(each, str))
    found: list[ShippedFile] = []
    for path in dict.fromkeys(path for text in texts for path in _FILE.findall(text)):
        file = Path(path)
        if not file.is_file():
            continue
        beside = {
            each.name: each.read_bytes()
            for each in sorted(file.parent.glob("*.py"))
            if each != file and each.is_file() and each.stat().st_size < _MOST_BYTE
        }
        is_little = sum(map(len, beside.values())) < _MOST_BYTE
        contents = {file.name: file.read_bytes(), **(beside if is_little else {})}
        found.append(ShippedFile(path, file.name, tuple(contents.items())))
    return tuple(found)


def with_local_files(text: str, shipped: Sequence[ShippedFile]) -> str:
    """Return a design's text with files of this machine, or sent copies if they differ."""
    for each in shipped:
        if f"{each.path}:" in text and not _is_here(each):
            text = text.replace(f"{each.path}:", f"{_unpacked(each)}:")
    return text


@functools.cache
def _is_here(shipped: ShippedFile) -> bool:
    try:
        return Path(shipped.path).read_bytes() == dict(shipped.contents)[shipped.name]
    except OSError:
        return False


@functools.cache
def _unpacked(shipped: ShippedFile) -> Path:
    """Return the file in a temporary folder of this process."""
    folder = tempfile.mkdtemp(prefix="roofline-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, content in shipped.contents:
        (Path(folder) / name).write_bytes(content)
    return Path(folder) / shipped.name


def one_thread() -> AbstractContextManager[object]:
    """Limit matrix products to one thread, for reproducible rounding."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1, user_api="blas")


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Design of a sweep: name, model and variables."""

    name: str
    model: str | torch.nn.Module
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Machine with threads and predictor."""

    profile: HardwareProfile
    threads: int
    predictor: MachinePredictor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Capture of a design at values of its axes."""

    design: int
    values: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, kw_only=True)
class Context:
    """Common data of all jobs; each job has a cell per machine."""

    designs: tuple[Design, ...]
    machines: tuple[Machine, ...]
    options: RunOptions
    inputs: Any = None
    shipped: tuple[ShippedFile, ...] = ()

    @functools.cached_property
    def _roofs(self) -> list[Roof]:
        """Rooflines of the machines, which cache their ceilings."""
        return [Roof(each.profile, each.threads) for each in self.machines]

    def cells(self, job: Job) -> list[Cell]:
        """Return the cells of a design by machine, with the reason if it cannot be built."""
        try:
            passed = functools.cache(functools.partial(self.captured, job))
            return [
                self._cell(passed(each.profile.device), i) for i, each in enumerate(self.machines)
            ]
        except PlacedError as error:
            problem = error.message
        except RooflineError as error:
            problem = error_text(error)
        # Any exception of a model's code.
        except Exception as error:
            problem = f"{type(error).__name__}: {error_text(error)}"
        return [Cell(problem=printable(problem))] * len(self.machines)

    def _cell(self, found: CapturedPass, machine: int) -> Cell:
        return cell_of(
            assemble_analysis(
                found,
                self._roofs[machine],
                cold=self.options.cold,
                notes=(),
                predictor=self.machines[machine].predictor,
            )
        )

    def captured(self, job: Job, on: str = "cpu") -> CapturedPass:
        """Return the captured design of a job for a device."""
        return self.asked(job, on).captured()

    def asked(self, job: Job, on: str = "cpu") -> Workload:
        """Return the model and inputs of a job."""
        design, options = self.designs[job.design], self._options(job)
        model, values = design.model, dict(job.values)
        if isinstance(model, str):
            model = with_local_files(model, self.shipped)
            if design.variables:
                from roofline.workload.models.expressions.reading import bind_variables

                model = bind_variables(model, {name: values[name] for name in design.variables})
        return build_workload(model, self.inputs, options, on=on)

    def _options(self, job: Job) -> RunOptions:
        """Return the run options at a point."""
        variables = self.designs[job.design].variables
        changed: dict[str, Any] = {n: each for n, each in job.values if n not in variables}
        if "layout" in changed:
            changed["channels_last"] = changed.pop("layout") == "channels-last"
        return replace(self.options, **changed)


Inputs = Sequence[InputSpec]


def notes_on_inputs(names: Sequence[str], inputs: Sequence[Inputs]) -> tuple[str, ...]:
    """Return a note if the inputs of designs differ."""
    texts = list(map(inputs_text, inputs))
    if len(set(texts)) < 2:
        return ()
    shown = ", ".join(f"{name} {text}" for name, text in zip(names, texts, strict=True))
    return (f"inputs differ, times are per pass: {shown}",)


def inputs_text(inputs: Inputs) -> str:
    """Return the inputs of a design as text: ``"1x64x56x56 float32"``."""
    return ", ".join(f"{'x'.join(map(str, each.shape))} {each.dtype}" for each in inputs)


_stdout_lock = threading.Lock()


@functools.lru_cache(maxsize=1)
def _unpacked_context(packed: bytes) -> Context:
    """Return the unpickled context; the last one is cached."""
    one_thread()
    return pickle.loads(packed)


def work(packed: bytes, job: Job) -> tuple[Job, list[Cell]]:
    """Run a job of a pickled context and return it with its cells, in any process or thread."""
    # Output of models goes to stderr. A redirection affects all threads, hence the lock.
    with _stdout_lock, contextlib.redirect_stdout(sys.stderr):
        return job, _unpacked_context(packed).cells(job)
