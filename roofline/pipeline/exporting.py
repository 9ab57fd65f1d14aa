"""Entry point `export`: a model as .onnx or .pt2, read again and verified."""

from __future__ import annotations

import contextlib
import copy
import io
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch.utils import _pytree as pytree

from roofline.core.files import check_named_once, check_writable, write_together
from roofline.core.progress import suppress_output
from roofline.core.text import printable
from roofline.core.units import format_bytes
from roofline.design.export import Export, ExportedFile, changes_between, sums_of
from roofline.errors import (
    InputError,
    ModelError,
    RooflineError,
    argument,
    did_you_mean,
    error_text,
)
from roofline.pipeline.optimization_machine import cast_model
from roofline.pipeline.runs import Workload, build_workload, example_arguments
from roofline.run import RunOptions, ShapeKeywords, takes
from roofline.substitution.proof import largest_error
from roofline.workload.capture.passes import fits_in_memory, materialize
from roofline.workload.capture.restoration import (
    restore_process_state,
    restore_state,
    restore_tensors,
)
from roofline.workload.models.files.onnx_models import onnx_package
from roofline.workload.models.files.reading import file_source

if TYPE_CHECKING:
    from roofline.pipeline.analyses import Model

_LONGEST = 300


class _Model:
    """Model with weights, arguments and expected outputs.

    ``expected`` are the outputs of one call, and of a second call if they differ.
    """

    def __init__(
        self, module: torch.nn.Module, arguments: tuple[tuple[Any, ...], dict[str, Any]], name: str
    ) -> None:
        self.module = module
        self.args, self.kwargs = arguments
        self.name = name
        with self.for_inference():
            try:
                first, second = (self._outputs(module) for _ in range(2))
            # Models can raise any exception.
            except Exception as error:
                raise ModelError(f"{name} failed: {_said(error)}") from error
        if not first:
            raise ModelError(f"{name} returns no tensors, nothing to export")
        self.expected = [first, second] if largest_error(first, second) else [first]

    def _outputs(self, module: torch.nn.Module, *, wide: bool = False) -> list[Any]:
        """Return the output tensors of a module in order; `wide`: with float64 inputs."""

        def own(value: Any) -> Any:
            is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
            return value.double() if wide and is_float else value

        args, kwargs = pytree.tree_map(own, copy.deepcopy((self.args, self.kwargs)))
        # Equal random numbers in every call.
        torch.manual_seed(0)
        leaves = pytree.tree_leaves(module(*args, **kwargs))
        return [each.detach().clone() for each in leaves if isinstance(each, torch.Tensor)]

    @contextlib.contextmanager
    def for_inference(self) -> Iterator[None]:
        """Run in eval mode, without KV cache and gradients, and restore the state afterwards."""
        given = (self.args, dict(self.kwargs))
        with (
            restore_process_state(),
            restore_state(self.module, *given),
            restore_tensors(self.module, *given),
            torch.no_grad(),
        ):
            with contextlib.suppress(NotImplementedError):
                self.module.eval()
            config: Any = getattr(self.module, "config", None)
            if getattr(config, "use_cache", None):
                # Formats cannot store a KV cache object.
                config.use_cache = False
            torch.manual_seed(0)
            yield

    def error_of(self, other: torch.nn.Module) -> float:
        """Return the largest output difference of another module, relative to the largest value."""
        with self.for_inference():
            try:
                found = [self._outputs(other) for _ in self.expected]
            # The file must accept the model's inputs.
            except Exception as error:
                raise ModelError(
                    f"{self.name}: the exported model fails: {_said(error)}"
                ) from error
        return max(map(largest_error, self.expected, found))

    def own_error(self) -> float:
        """Return the output error against float64; 0 if the model cannot run in float64."""
        try:
            with self.for_inference():
                exact = self._outputs(copy.deepcopy(self.module).double(), wide=True)
            error = largest_error(exact, self.expected[0])
        # Many models support one type only.
        except Exception:
            return 0.0
        return error if error < 1 else 0.0


def _content(subject: _Model, suffix: str, opset: int | None) -> tuple[bytes, int | None]:
    """Return the content of a file, and its ONNX operator set version."""
    if suffix == ".onnx":
        onnx_package()
    what = "torch.export failed"
    fix = "; control flow must not depend on values"
    try:
        with subject.for_inference(), _quiet():
            program = torch.export.export(
                subject.module, subject.args, dict(subject.kwargs), strict=False
            )
        # A program shares tensors with the model, which are restored now.
        if suffix == ".pt2":
            what, fix = "torch.export.save failed", ""
            content = io.BytesIO()
            with _quiet():
                torch.export.save(program, content)
            return content.getvalue(), None
        what, fix = "torch.onnx failed", "; try -o model.pt2"
        with subject.for_inference(), _quiet():
            options: Any = {"opset_version": opset, "verbose": False, "external_data": False}
            made: Any = torch.onnx.export(program, dynamo=True, **options)
            versions = {each.domain: each.version for each in made.model_proto.opset_import}
            version = versions.get("", 0)
            if opset is not None and version != opset:
                raise InputError(
                    f"{argument('opset', opset)}: torch's exporter writes {version} instead; use"
                    f" {argument('opset', version)}"
                )
            return made.model_proto.SerializeToString(), version
    except InputError:
        raise
    # Any failure of the model's code in torch.export.
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and what.startswith("torch.onnx"):
            raise ModelError(
                f"writing .onnx requires package {error.name}; install it: python -m pip install"
                " 'roofline[onnx]'"
            ) from None
        raise ModelError(f"{subject.name}: {what}: {_said(error)}{fix}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress progress and warnings of torch's exporters."""
    with suppress_output(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield


def _said(error: BaseException) -> str:
    said = printable(error_text(error))
    said = said if len(said) <= _LONGEST else f"{said[:_LONGEST]} …"
    return f"{type(error).__name__}: {said}"


FORMATS = (".onnx", ".pt2")
"""Suffixes of exported files."""

LIMIT = 1e-5
"""Maximum output difference, relative to the largest value."""

_OWN_ERRORS = 4.0
"""Maximum multiple of the model's own rounding error, if that exceeds the limit."""


@takes(ShapeKeywords)
def export(
    model: Model,
    inputs: Any = None,
    *,
    files: str | Path | Sequence[str | Path],
    opset: int | None = None,
    overwrite: bool = False,
    **run: Unpack[ShapeKeywords],
) -> Export:
    """Write a model for inference as ``.onnx`` or ``.pt2``, and verify the files.

    Each file is read again before it gets its name: its outputs are compared with the model's, and
    its operators are counted. Files are not written if outputs differ by more than 1e-5 of the
    largest value (or four times the model's float32 rounding error).

    Args:
        model, inputs: as for `analyze`. Inputs fix the shapes of the files; without values they
            are random numbers, and zeros as indices.
        files: names ending in ``.onnx`` or ``.pt2``.
        opset: ONNX operator set version; None: that of torch's exporter.
        overwrite: replace existing files.

    Raises:
        ModelError: unknown model, or one that rejects its inputs or cannot be exported.
        InputError: invalid files, inputs, data type or batch.
        RooflineError: outputs of the file differ.
    """
    paths = checked_paths(files, opset=opset, overwrite=overwrite)
    options = RunOptions.of(inputs, **run)
    asked = build_workload(model, inputs, options)
    before = asked.capture()
    records = before.records
    subject = _subject(asked)
    contents: dict[Path, bytes] = {}
    found: list[ExportedFile] = []
    for path in paths:
        suffix = path.suffix.lower()
        contents[path], version = _content(subject, suffix, opset)
        with tempfile.TemporaryDirectory(prefix="roofline-export-") as folder:
            written = Path(folder) / f"model{suffix}"
            written.write_bytes(contents[path])
            read = replace(file_source(str(written)), name=path.name)
        error = subject.error_of(read.module)
        limit = LIMIT if error <= LIMIT else max(LIMIT, _OWN_ERRORS * subject.own_error())
        if not error <= limit:
            reason = f"torch's exporter for {path.suffix} is inexact here; try the other format"
            if len(subject.expected) > 1:
                reason = (
                    "the model's outputs change between calls; keep its state in a buffer and write"
                    " .pt2, or remove it from forward"
                )
            raise RooflineError(
                f"{path}: not written: outputs differ from {subject.name} by {error:.1e} of the"
                f" largest value, more than {limit:.0e}; {reason}"
            )
        after = replace(asked, source=read).capture().records
        macs, flop, unknown = sums_of(after)
        found.append(
            ExportedFile(
                path=str(path),
                format=suffix.removeprefix("."),
                opset=version,
                size_bytes=len(contents[path]),
                largest_error=error,
                limit=limit,
                macs=macs,
                flop=flop,
                unknown_operators=unknown,
                changes=changes_between(records, after),
            )
        )
    write_together(contents, overwrite=overwrite)
    macs, flop, unknown = sums_of(records)
    name = asked.source.name
    is_random = asked.source.rebuild is not None
    random = (f"{name} is exported with random weights",) * is_random
    return Export(
        model=name,
        inputs=asked.specs,
        macs=macs,
        flop=flop,
        unknown_operators=unknown,
        files=tuple(found),
        warnings=tuple(dict.fromkeys((*asked.notes, *before.notes, *random))),
    )


def checked_paths(
    files: str | Path | Sequence[str | Path], *, opset: int | None, overwrite: bool
) -> tuple[Path, ...]:
    """Return the files to write; errors are raised before any work."""
    if not isinstance(files, (str, Path, Sequence)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            f"files={files!r}: must be a path such as 'model.onnx', or a list of paths"
        )
    several = [files] if isinstance(files, (str, Path)) else list(files)
    paths = tuple(map(Path, several))
    if not paths:
        raise InputError("no file to write; add -o model.onnx or -o model.pt2")
    for path in paths:
        if (suffix := path.suffix.lower()) not in FORMATS:
            known = ", ".join(FORMATS)
            raise InputError(
                f"{path}: models are written as {known}{did_you_mean(suffix, FORMATS)}"
            )
        check_writable(path, overwrite=overwrite)
    check_named_once(paths)
    if opset is not None and all(path.suffix.lower() != ".onnx" for path in paths):
        raise InputError(
            f"{argument('opset', opset)} has no effect without an .onnx file; leave it out"
        )
    return paths


def _subject(asked: Workload) -> _Model:
    """Return the model with weights and expected outputs."""
    source = asked.source
    byte = sum(each.nbytes for each in (*source.module.parameters(), *source.module.buffers()))
    if not fits_in_memory(byte):
        raise ModelError(
            f"{source.name}: {format_bytes(byte)} of weights exceed the available memory"
        )
    with torch.random.fork_rng(devices=[]):
        # Reproducible random weights.
        torch.manual_seed(0)
        module = materialize(source.module, source.rebuild)
    if module is None:
        raise ModelError(f"{source.name}: export requires weights, the model has none")
    module = cast_model(asked, module)
    return _Model(module, example_arguments(asked.given, asked.run), source.name)
