"""Workload of a declared run, its capture, and the disk cache of captures.

Captures of library models by name (torchvision, timm, transformers) are cached, never files of the
user: the second analysis of a name does not import torch. The key is a digest of everything that a
capture depends on: sources of this package, installed files of torch and the model libraries, run,
environment and CPU. Runs with tensors, functions, formulas of the user, changed settings of torch,
or editable or patched packages are not cached. Nor is any run in a process that had imported torch:
its hooks, settings and patches may have changed any model.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from roofline.analysis import InputSpec
from roofline.pipeline import cache
from roofline.run import Run, RunOptions, libraries_are_untouched
from roofline.workload.operators import Capture
from roofline.workload.residency import Residency, trace_residency

if TYPE_CHECKING:
    import torch

    from roofline.workload.inputs import Inputs
    from roofline.workload.models.building import Source

    Model = torch.nn.Module | Callable[..., Any] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model with its inputs and settings; ``notes`` explain choices for both."""

    source: Source
    given: Inputs
    specs: tuple[InputSpec, ...]
    notes: tuple[str, ...]
    options: RunOptions
    run: Run

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.source.name

    def capture(self, **how: Any) -> Capture:
        """Capture a pass; `how`: other arguments of `roofline.workload.capture.passes.capture`."""
        from roofline.workload.capture.passes import capture

        given = {"name": self.name, "rebuild": self.source.rebuild, **how}
        training = self.options.training_config()
        return capture(self.source.module, self.given, run=self.run, training=training, **given)

    def captured(self, **how: Any) -> CapturedPass:
        """Capture a pass with its residency."""
        found = self.capture(**how)
        return CapturedPass(
            name=self.name,
            inputs=self.specs,
            capture=found,
            reuse=trace_residency(found.records),
            notes=(*self.notes, *found.notes),
            workload=self,
        )


def build_workload(model: Model, inputs: Any, options: RunOptions, *, on: str = "cpu") -> Workload:
    """Return a model with its inputs and settings on a device."""
    run = options.run(on)
    from roofline.workload.inputs import resolve_inputs, to_inputs
    from roofline.workload.models import sources
    from roofline.workload.torch_dtypes import input_specs, torch_dtype

    given = to_inputs(inputs)
    seq = options.seq
    source = (
        sources.load_model(model, seq=seq)
        if isinstance(model, str)
        else sources.wrap_model(model, seq=seq)
    )
    given = resolve_inputs(
        source.module, given, source.default_inputs, name=source.name, batch=options.batch
    )
    return Workload(
        source=source,
        given=given,
        specs=input_specs(given, torch_dtype(run.dtype) if run.dtype else None),
        notes=(*source.notes, *(source.input_notes if inputs is None else ())),
        options=options,
        run=run,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedPass:
    """Captured pass of a model, ready for the ceilings of any machine.

    ``notes`` are in the order of building and running the model. ``workload`` is None for captures
    read from disk, without torch.
    """

    name: str
    inputs: tuple[InputSpec, ...]
    capture: Capture
    reuse: Residency
    notes: tuple[str, ...]
    workload: Workload | None = None

    @property
    def model(self) -> Workload:
        """Workload of a pass that was captured `with_model`."""
        assert self.workload is not None, "captured without the model"
        return self.workload


def capture_pass(
    model: Model, inputs: Any, options: RunOptions, *, on: str, with_model: bool = False
) -> CapturedPass:
    """Return a pass of the model, run once on fake tensors or read from disk.

    Args:
        on: device of the machine, unless `options` name one.
        with_model: True if the model itself is needed, which builds a library model again.
    """
    file = None
    guess = options.run(on, is_known=False)
    if not with_model and libraries_are_untouched.get():
        file = file_of(model, inputs, options, guess)
        kept = read(file) if file else None
        if kept is not None:
            name, specs, notes, capture = kept
            reuse = trace_residency(capture.records)
            return CapturedPass(name=name, inputs=specs, capture=capture, reuse=reuse, notes=notes)
    if not _is_of_library(model):
        libraries_are_untouched.set(False)
    found = build_workload(model, inputs, options, on=on).captured()
    # Libraries imported meanwhile may have changed the behavior of torch.
    if file and found.model.run == guess and has_defaults():
        keep(file, (found.name, found.inputs, found.notes, found.capture))
    return found


@contextmanager
def fixed_seed() -> Iterator[None]:
    """Fix the seed of random numbers, and restore their state afterwards."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def example_arguments(given: Inputs, run: Run) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of the model: given tensors, else noise, or zeros as indices."""
    from roofline.workload.capture.real_tensors import RealTensors
    from roofline.workload.torch_dtypes import input_dtype, torch_dtype

    reals = RealTensors(run)
    change = torch_dtype(run.dtype) if run.dtype else None
    with fixed_seed():
        return given.build(lambda each: reals.make_input(each, input_dtype(each, change)).detach())


# Captures on disk

Kept = tuple[str, tuple[InputSpec, ...], tuple[str, ...], Capture]
"""Cached content: name of the model, inputs, notes, and capture."""

_PACKAGES = ("torch", "torchvision", "timm", "transformers")
_NAME = re.compile(r"(?:(?:torchvision|timm|hf):[\w.-]+|[\w-]+)", re.ASCII)
"""Names of library models. Bare ones with a dot could be files."""

_ENVIRONMENT = re.compile(
    # Importing torch sets the places of its own caches.
    r"(?!\w*CACHE)(?:TORCH|PYTORCH|ATEN|DNNL|ONEDNN|MKL|TIMM|TRANSFORMERS|CUDA)\w*"
)
_DEFINED_BY = (
    *("workload", "core", "run.py", "errors.py"),
    *("pipeline/runs.py", "pipeline/cache.py"),
)
"""Sources of this package that a capture depends on."""


def file_of(model: object, inputs: object, options: RunOptions, run: Run) -> Path | None:
    """Return the file of a capture, which need not exist; None: it must not be cached.

    No library is imported. Installed files are compared with their packages only when a capture is
    written (`keep`).
    """
    is_declared = options.loss is None and not callable(options.optimizer)
    if (
        options.no_cache
        or cache.is_off()
        or not _is_of_library(model)
        or not is_declared
        or not _is_plain(inputs)
        or not has_defaults()
    ):
        return None
    packages = _installed()
    if packages is None:
        return None
    sizes = (options.batch, options.seq, options.scale_gradients)
    environment = sorted(each for each in os.environ.items() if _ENVIRONMENT.fullmatch(each[0]))
    parts = (model, inputs, sizes, run, environment, packages, _processor())
    return cache.file_of("capture", parts, sources=_DEFINED_BY)


def read(file: Path) -> Kept | None:
    """Return the capture in a file; None if the file is missing or damaged."""
    match cache.read(file):
        case (_, _, _, Capture()) as found:
            return cast("Kept", found)
        case _:
            return None


def keep(file: Path, kept: Kept) -> None:
    """Write a capture, if the installed packages are as published."""
    if all(map(_is_unchanged, _PACKAGES)):
        cache.keep(file, kept)


def _is_of_library(model: object) -> bool:
    return type(model) is str and _NAME.fullmatch(model) is not None


def _is_plain(value: object) -> bool:
    """Return whether a value is text, numbers, and lists or dictionaries of these."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, cast("list[object]", value)))
    if isinstance(value, dict):
        return all(map(_is_plain, (*cast("Any", value), *cast("Any", value).values())))
    return value is None or type(value) in (str, int, bool)


def has_defaults() -> bool:
    """Return True without formulas of a user and without changed settings of torch."""
    registry = sys.modules.get("roofline.workload.formulas.registry")
    formulas = registry.known().values() if registry else ()
    if any(not each.function.__module__.startswith("roofline.") for each in formulas):
        return False
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return True
    backends = torch.backends
    return (
        torch.get_default_dtype() is torch.float32
        and torch.get_default_device().type == "cpu"
        and torch.is_grad_enabled()
        and not torch.is_inference_mode_enabled()
        and not torch.is_autocast_enabled("cpu")
        and not torch.are_deterministic_algorithms_enabled()
        and backends.mkldnn.enabled
        and backends.mkldnn.is_available()
        and backends.mha.get_fastpath_enabled()
        and backends.cuda.flash_sdp_enabled()
        and backends.cuda.mem_efficient_sdp_enabled()
        and backends.cuda.math_sdp_enabled()
        and backends.cuda.cudnn_sdp_enabled()
        and not torch._C._len_torch_function_stack()
        and not torch._C._len_torch_dispatch_stack()
    )


@functools.cache
def _processor() -> tuple[str, ...]:
    """Return the CPU features by which torch selects kernels, and the version of Python."""
    flags = ""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        flags = next((line for line in text.splitlines() if line.startswith(("flags", "Feat"))), "")
    return (platform.machine(), platform.processor(), platform.system(), flags, sys.version)


@functools.cache
def _installed() -> tuple[object, ...] | None:
    """Return identifiers of the installed libraries; None if one is editable or shadowed."""
    found: list[object] = []
    for name in _PACKAGES:
        spec = find_spec(name)
        if spec is None:
            found.append(name)
            continue
        record = _record(name)
        if record is None or spec.origin not in record.sources:
            return None
        states = hashlib.sha256(record.text.encode())
        for file in record.sources:
            try:
                state = os.stat(file)  # noqa: PTH116  of five thousand files, in 20 ms
            except OSError:
                return None
            states.update(b"%d %d " % (state.st_size, state.st_mtime_ns))
        found.append((name, spec.origin, states.hexdigest()))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """Python files of a package with their digests, and its RECORD as text."""

    sources: dict[str, str]
    text: str


@functools.cache
def _record(name: str) -> _Record | None:
    """Return the record of a package; None if it has none, or is editable."""
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    text = found.read_text("RECORD")
    if text is None or '"editable"' in (found.read_text("direct_url.json") or ""):
        return None
    root = os.path.join(str(found.locate_file("")), "")  # noqa: PTH118
    return _Record(
        sources={root + file: digest for file, digest in _LISTED.findall(text)}, text=text
    )


_LISTED = re.compile(r"^\"?([^,\n\"]+\.py)\"?,([^,\n]*),", re.MULTILINE)


def _is_unchanged(name: str) -> bool:
    """Return True if the Python files of a package have the digests of its RECORD."""
    record = _record(name)
    if record is None:
        return find_spec(name) is None
    for file, expected in record.sources.items():
        try:
            found = hashlib.sha256(Path(file).read_bytes()).digest()
        except OSError:
            return False
        if expected != "sha256=" + base64.urlsafe_b64encode(found).rstrip(b"=").decode():
            return False
    return True
