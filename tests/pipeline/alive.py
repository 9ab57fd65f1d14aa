"""Bytes of storages that are alive while torch runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Alive(TorchDispatchMode):
    """The most bytes that are alive at once, of storages that appear while this is open.

    Args:
        kept: tensors that are there already and count.
        known: tensors whose storages do not count.
    """

    def __init__(self, kept: Iterable[torch.Tensor], known: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self._known = {each.untyped_storage()._cdata for each in known}
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak_bytes = 0
        for each in kept:
            self._see(each)

    def _see(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._known:
            self._alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._alive = {key: each for key, each in self._alive.items() if not each[0].expired()}
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor):
                self._see(each)
        self.peak_bytes = max(self.peak_bytes, sum(byte for _, byte in self._alive.values()))
        return result
