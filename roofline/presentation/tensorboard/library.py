"""TensorBoard's own messages and its writer of records, imported where a file is asked for.

Neither TensorFlow nor torch is imported with them.
"""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass
from typing import Any

from roofline.errors import InputError, said_by


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBoard:
    """What is used of the package.

    ``event``, ``graph_def`` and ``run_metadata`` are classes of messages, made when they are
    imported, so that no type checker knows them; ``scalar_summary`` and ``text_summary`` make
    messages; ``record_writer`` frames what is written to a file.
    """

    event: Any
    graph_def: Any
    run_metadata: Any
    scalar_summary: Any
    text_summary: Any
    record_writer: Any


def tensorboard() -> TensorBoard:
    """The package, imported.

    Raises:
        InputError: it is not installed, or cannot be imported.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return TensorBoard(
                event=_module("compat.proto.event_pb2").Event,
                graph_def=_module("compat.proto.graph_pb2").GraphDef,
                run_metadata=_module("compat.proto.config_pb2").RunMetadata,
                scalar_summary=_module("plugins.scalar.summary_v2").scalar_pb,
                text_summary=_module("plugins.text.summary_v2").text_pb,
                record_writer=_module("summary.writer.record_writer").RecordWriter,
            )
    # Of versions that do not fit each other, protobuf and numpy say so by errors of many kinds.
    except Exception as error:
        raise InputError(
            "event files (.tfevents) take the package tensorboard: python -m pip install"
            f" 'roofline[tensorboard]' ({said_by(error)})"
        ) from None


def _module(name: str) -> Any:
    return importlib.import_module(f"tensorboard.{name}")
