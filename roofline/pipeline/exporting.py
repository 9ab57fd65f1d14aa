"""export: a model written into files that hold what it computes, read again and compared."""

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

from roofline.core.files import check_writable, write_together
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
    """A model with its weights, what it is called with, and what it gives.

    ``expected`` are its outputs of one call, and of the call after it where these are others.
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
            # A model may raise anything.
            except Exception as error:
                raise ModelError(f"{name} failed: {_said(error)}") from error
        if not first:
            raise ModelError(f"{name} gives no tensors, so there is nothing to export")
        self.expected = [first, second] if largest_error(first, second) else [first]

    def _outputs(self, module: torch.nn.Module, *, wide: bool = False) -> list[Any]:
        """The tensors that a module gives, in their order; of float64 with `wide`."""

        def own(value: Any) -> Any:
            is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
            return value.double() if wide and is_float else value

        args, kwargs = pytree.tree_map(own, copy.deepcopy((self.args, self.kwargs)))
        # What a model draws is the same at every call.
        torch.manual_seed(0)
        leaves = pytree.tree_leaves(module(*args, **kwargs))
        return [each.detach().clone() for each in leaves if isinstance(each, torch.Tensor)]

    @contextlib.contextmanager
    def for_inference(self) -> Iterator[None]:
        """While this is open the model is in eval mode, keeps no cache, and has no gradients.

        Afterwards it is as it was, with what is in its tensors: every use begins where the first
        one did.
        """
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
                # What it keeps for the next token is no tensor, and formats have no place for it.
                config.use_cache = False
            torch.manual_seed(0)
            yield

    def error_of(self, other: torch.nn.Module) -> float:
        """The largest difference of another module's outputs, over the largest of its tensor."""
        with self.for_inference():
            try:
                found = [self._outputs(other) for _ in self.expected]
            # What runs for the model must run for the file.
            except Exception as error:
                raise ModelError(
                    f"{self.name}: what was exported does not run: {_said(error)}"
                ) from error
        return max(map(largest_error, self.expected, found))

    def own_error(self) -> float:
        """How far the model's outputs are from those in float64; 0 where it cannot run so."""
        try:
            with self.for_inference():
                exact = self._outputs(copy.deepcopy(self.module).double(), wide=True)
            error = largest_error(exact, self.expected[0])
        # Many a model is written for one type.
        except Exception:
            return 0.0
        return error if error < 1 else 0.0


def _content(subject: _Model, suffix: str, opset: int | None) -> tuple[bytes, int | None]:
    """What a file holds, and the version of its operators in ONNX."""
    if suffix == ".onnx":
        onnx_package()
    what = "torch.export cannot follow it"
    fix = "; it takes models whose ways do not depend on values"
    try:
        with subject.for_inference(), _quiet():
            program = torch.export.export(
                subject.module, subject.args, dict(subject.kwargs), strict=False
            )
        # A program shares tensors with the model: only now do they hold what they held before.
        if suffix == ".pt2":
            what, fix = "torch.export cannot save it", ""
            content = io.BytesIO()
            with _quiet():
                torch.export.save(program, content)
            return content.getvalue(), None
        what, fix = "torch.onnx cannot write it", "; try -o model.pt2"
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
    # Whatever the model's code does that torch cannot follow.
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and what.startswith("torch.onnx"):
            raise ModelError(
                f"writing .onnx takes the package {error.name}:"
                " python -m pip install 'roofline[onnx]'"
            ) from None
        raise ModelError(f"{subject.name}: {what}: {_said(error)}{fix}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """torch's exporters print how far they are, and warn of themselves."""
    with suppress_output(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield


def _said(error: BaseException) -> str:
    said = printable(error_text(error))
    said = said if len(said) <= _LONGEST else f"{said[:_LONGEST]} …"
    return f"{type(error).__name__}: {said}"


FORMATS = (".onnx", ".pt2")
"""Suffixes of what can be written."""

LIMIT = 1e-5
"""What outputs may differ by, as a fraction of the largest of them."""

_OWN_ERRORS = 4.0
"""Where the model's own rounding is larger than the limit, how many times that is allowed: both
round, in another order."""


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
    """A model for inference, written as ``.onnx`` or ``.pt2``, and what the files hold.

    Each file is read again before it gets its name: its outputs are held against the model's, and
    its operators are counted. A file whose outputs differ by more than 1e-5 of the largest value
    (or, where float32 itself is farther from float64, four times that) is not written.

    Args:
        model, inputs: as for `analyze`. Inputs set the shapes that files are fixed to, and are
            compared on; without values they are noise, and zeros as indices.
        files: where to write; the suffix says what, ``.onnx`` or ``.pt2``.
        opset: which version of ONNX's operators; None: that of torch's exporter.
        overwrite: whether files that exist are replaced.

    Raises:
        ModelError: the model is unknown, rejects its inputs, or torch cannot export it.
        InputError: files, inputs, data type or batch are wrong.
        RooflineError: what was read again gives something else.
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
            reason = f"this is torch's exporter for {path.suffix}, so try the other format"
            if len(subject.expected) > 1:
                reason = (
                    "the model gives something else at every call, as it keeps something; keep that"
                    " in a buffer and write .pt2, or take it out of forward"
                )
            raise RooflineError(
                f"{path}: not written: what it gives differs from what {subject.name} gives by"
                f" {error:.1e} of the largest value, more than {limit:.0e}; {reason}"
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
    random = (f"its weights are those that building {name} gives: random",) * is_random
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
    """The files to write, all checked before any work is done."""
    if not isinstance(files, (str, Path, Sequence)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            f"files={files!r}: must be a path such as 'model.onnx', or a list of paths"
        )
    several = [files] if isinstance(files, (str, Path)) else list(files)
    paths = tuple(map(Path, several))
    if not paths:
        raise InputError("name a file to write: -o model.onnx or -o model.pt2")
    for number, path in enumerate(paths):
        if (suffix := path.suffix.lower()) not in FORMATS:
            known = ", ".join(FORMATS)
            raise InputError(
                f"{path}: a model is written as {known}{did_you_mean(suffix, FORMATS)}"
            )
        check_writable(path, overwrite=overwrite)
        if path.resolve() in (each.resolve() for each in paths[:number]):
            raise InputError(f"{path}: is named twice; give each file once")
    if opset is not None and all(path.suffix.lower() != ".onnx" for path in paths):
        raise InputError(
            f"{argument('opset', opset)} is about .onnx files, and none is to be written"
        )
    return paths


def _subject(asked: Workload) -> _Model:
    """The model with its weights, and what it gives."""
    source = asked.source
    byte = sum(each.nbytes for each in (*source.module.parameters(), *source.module.buffers()))
    if not fits_in_memory(byte):
        raise ModelError(
            f"{source.name}: its {format_bytes(byte)} of weights are too many to export it here"
        )
    with torch.random.fork_rng(devices=[]):
        # Weights that are random are the same every time.
        torch.manual_seed(0)
        module = materialize(source.module, source.rebuild)
    if module is None:
        raise ModelError(f"{source.name}: it was given without weights, and cannot be exported")
    module = cast_model(asked, module)
    return _Model(module, example_arguments(asked.given, asked.run), source.name)
