"""A model as torch's exporters write it, read again; and what both give of the same inputs."""

from __future__ import annotations

import contextlib
import copy
import io
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.errors import ModelError, said_by
from roofline.foundation.quiet import quiet
from roofline.foundation.text import printable
from roofline.pipeline.runs import Workload

if TYPE_CHECKING:
    import torch

    from roofline.workload.models.building import Source

_LONGEST = 300


@dataclass(slots=True, kw_only=True)
class ExportedModel:
    """A model with its weights, what it is called with, and what it gives: ``expected`` of one
    call, ``expected_again`` of the call after it where that gives something else.

    ``notes`` say what was changed of it for the export.
    """

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    name: str
    expected: list[Any]
    expected_again: list[Any] | None = None
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        module: torch.nn.Module,
        arguments: tuple[tuple[Any, ...], dict[str, Any]],
        *,
        name: str,
        is_random: bool,
    ) -> ExportedModel:
        """The model, once it has run.

        Args:
            module: with its weights; it is left as it was.
            arguments: positional ones and keywords.
            name: what messages call it.
            is_random: whether its weights were made here.

        Raises:
            ModelError: it rejects its inputs.
        """
        from roofline.substitution.proof import largest_error

        args, kwargs = arguments
        notes = (f"its weights are those that building {name} gives: random",) if is_random else ()
        made = cls(module=module, args=args, kwargs=kwargs, name=name, expected=[], notes=notes)
        with made.for_inference():
            try:
                made.expected = _outputs(module, args, kwargs)
                again = _outputs(module, args, kwargs)
            # A model may raise anything.
            except Exception as error:
                raise ModelError(f"{name} failed: {_said(error)}") from error
        if not made.expected:
            raise ModelError(f"{name} gives no tensors, so there is nothing to export")
        if largest_error(made.expected, again):
            made.expected_again = again
        return made

    @contextlib.contextmanager
    def for_inference(self) -> Iterator[None]:
        """While this is open the model is in eval mode, keeps no cache, and has no gradients.

        Afterwards it is as it was, with what is in its tensors: every use begins where the first
        one did.
        """
        import torch

        from roofline.workload.capture.restoration import (
            left_as_it_was,
            process_left_as_it_was,
            tensors_left_as_they_were,
        )

        given = (self.args, dict(self.kwargs))
        with (
            process_left_as_it_was(),
            left_as_it_was(self.module, *given),
            tensors_left_as_they_were(self.module, *given),
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
        """The largest difference of another module's outputs, over the largest of its tensor.

        Where the model gives something else at its next call, that call is compared as well.
        """
        from roofline.substitution.proof import largest_error

        with self.for_inference():
            try:
                found = _outputs(other, self.args, self.kwargs)
                again = None
                if self.expected_again is not None:
                    again = _outputs(other, self.args, self.kwargs)
            # What runs for the model must run for the file.
            except Exception as error:
                raise ModelError(
                    f"{self.name}: what was exported does not run: {_said(error)}"
                ) from error
        error = largest_error(self.expected, found)
        return error if again is None else max(error, largest_error(self.expected_again, again))

    def own_error(self) -> float:
        """How far the model's outputs are from those in float64; 0 where it cannot run so."""
        import torch

        from roofline.substitution.proof import largest_error

        def wide(value: Any) -> Any:
            is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
            return value.double() if is_float else value

        from torch.utils import _pytree as pytree

        try:
            with self.for_inference():
                exact = _outputs(
                    copy.deepcopy(self.module).double(),
                    pytree.tree_map(wide, self.args),
                    pytree.tree_map(wide, dict(self.kwargs)),
                )
            error = largest_error(exact, self.expected)
        # Many a model is written for one type.
        except Exception:
            return 0.0
        return error if error < 1 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A file in memory, and the model that was read from it."""

    content: bytes
    source: Source
    opset: int | None

    @property
    def module(self) -> torch.nn.Module:
        """What runs."""
        return self.source.module

    def workload(self, asked: Workload) -> Workload:
        """The same work, for what was read."""
        return replace(asked, source=self.source)


def file_of(subject: ExportedModel, suffix: str, *, opset: int | None, name: str) -> WrittenFile:
    """The model in a format, read again.

    Args:
        subject: the model.
        suffix: ``".onnx"`` or ``".pt2"``.
        opset: of ONNX's operators; None: the exporter's own.
        name: what the file is called.

    Raises:
        ModelError: torch cannot export it.
        FileFormatError: what was written cannot be read.
    """
    from roofline.workload.models.files.reading import file_source

    content, version = _ONNX_OR_PROGRAM[suffix](subject, opset)
    with tempfile.TemporaryDirectory(prefix="roofline-export-") as folder:
        path = Path(folder) / f"model{suffix}"
        path.write_bytes(content)
        source = file_source(str(path))
    return WrittenFile(content=content, source=replace(source, name=name), opset=version)


def _program(subject: ExportedModel) -> Any:
    import torch

    try:
        with subject.for_inference(), _quiet():
            return torch.export.export(
                subject.module, subject.args, dict(subject.kwargs), strict=False
            )
    # Whatever its code does that torch cannot follow.
    except Exception as error:
        raise ModelError(
            f"{subject.name}: torch.export cannot follow it: {_said(error)}; it takes models whose"
            " ways do not depend on values"
        ) from error


def _as_program(subject: ExportedModel, _opset: int | None) -> tuple[bytes, None]:
    import torch

    program = _program(subject)
    content = io.BytesIO()
    try:
        with _quiet():
            torch.export.save(program, content)
    except Exception as error:
        raise ModelError(f"{subject.name}: torch.export cannot save it: {_said(error)}") from error
    return content.getvalue(), None


def _as_onnx(subject: ExportedModel, opset: int | None) -> tuple[bytes, int]:
    import torch

    from roofline.workload.models.files.onnx_models import onnx_package

    onnx_package()
    program = _program(subject)
    try:
        with subject.for_inference(), _quiet():
            made: Any = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=opset,
                verbose=False,
                external_data=False,
            )
            proto = made.model_proto
    except ModuleNotFoundError as error:
        raise ModelError(
            f"writing .onnx takes the package {error.name}: python -m pip install 'roofline[onnx]'"
        ) from None
    except Exception as error:
        raise ModelError(
            f"{subject.name}: torch.onnx cannot write it: {_said(error)}; try -o model.pt2"
        ) from error
    versions = {each.domain: each.version for each in proto.opset_import}
    try:
        return proto.SerializeToString(), versions.get("", 0)
    except ValueError as error:
        raise ModelError(
            f"{subject.name}: more than 2 GiB, which one .onnx file cannot have; try -o model.pt2"
        ) from error


_ONNX_OR_PROGRAM: Mapping[str, Callable[[ExportedModel, int | None], tuple[bytes, int | None]]] = {
    ".onnx": _as_onnx,
    ".pt2": _as_program,
}


def _outputs(module: torch.nn.Module, args: Any, kwargs: Any) -> list[Any]:
    """The tensors that a module gives, in their order."""
    import torch
    from torch.utils import _pytree as pytree

    given = copy.deepcopy((args, dict(kwargs)))
    # What a model draws is the same at every call.
    torch.manual_seed(0)
    result = module(*given[0], **given[1])
    leaves = pytree.tree_leaves(result)
    return [each.detach().clone() for each in leaves if isinstance(each, torch.Tensor)]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """torch's exporters print how far they are, and warn of themselves."""
    with quiet(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield


def _said(error: BaseException) -> str:
    said = printable(said_by(error))
    said = said if len(said) <= _LONGEST else f"{said[:_LONGEST]} …"
    return f"{type(error).__name__}: {said}"
