"""A module as torch.export saves it, in memory."""

from __future__ import annotations

import io
import warnings
from typing import Any

import torch

from roofline.errors import ModelError, said_by
from roofline.substitution.graphs.building import plain


def exported_program(
    module: torch.nn.Module, arguments: tuple[tuple[Any, ...], dict[str, Any]], *, name: str
) -> bytes:
    """What ``torch.export.load`` reads: the module with its weights, for inputs of these shapes.

    Args:
        module: in the mode in which it shall run.
        arguments: positional ones and keywords that it is called with.
        name: what it is called in errors.

    Raises:
        ModelError: torch cannot export it.
    """
    positional, keywords = arguments
    content = io.BytesIO()
    with warnings.catch_warnings():
        # It warns of its own deprecated parts, and of what it cannot tell apart in a graph.
        warnings.simplefilter("ignore")
        try:
            with torch.no_grad():
                program = torch.export.export(plain(module), positional, keywords)
                torch.export.save(program, content)
        except Exception as error:
            why = said_by(error)[:200]
            raise ModelError(
                f"{name}: torch.export cannot save it ({type(error).__name__}: {why}); leave the"
                " .pt2 file out, and pickle the module that roofline.optimize gives"
            ) from None
    return content.getvalue()
