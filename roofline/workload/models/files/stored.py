"""A model's name that carries what files have to do with it: its weights, and whether to trust."""

from __future__ import annotations

from pathlib import Path
from typing import Self


class StoredModel(str):
    """The name of a model, wherever one is taken, with the file of its weights.

    It is a text, so that it goes where names go: into results, messages and other processes.

    Args:
        name: a file (``"model.pt2"``, ``"model.pt"``, ``"model.onnx"``), or with ``weights`` what
            makes the model (``"file.py:Model"``).
        weights: a file with a ``state_dict``.
        allow_pickle: whether what can only be unpickled may be; that runs what the file says.
    """

    weights: Path | None
    allow_pickle: bool

    def __new__(
        cls, name: str, *, weights: str | Path | None = None, allow_pickle: bool = False
    ) -> Self:
        made = super().__new__(cls, name)
        made.weights = Path(weights) if weights is not None else None
        made.allow_pickle = allow_pickle
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return _made, (str(self), self.weights, self.allow_pickle)


def _made(name: str, weights: Path | None, allow_pickle: bool) -> StoredModel:
    return StoredModel(name, weights=weights, allow_pickle=allow_pickle)
