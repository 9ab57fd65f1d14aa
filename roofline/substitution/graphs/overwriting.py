"""What lies where while a program is converted, and what of it was written over."""

from __future__ import annotations

from collections.abc import Callable

from roofline.substitution.graphs.graph import Value
from roofline.substitution.graphs.outcomes import end_byte
from roofline.substitution.graphs.programs import NotExpressibleError
from roofline.substitution.graphs.weights import TensorType, Weight


class Overwriting:
    """The tensors of a program in their storages, and what stands for those written over.

    Args:
        type_of: gives the type of a tensor.
    """

    def __init__(self, type_of: Callable[[Value | Weight], TensorType]) -> None:
        self._type_of = type_of
        self._places: dict[Value | Weight, tuple[int, int]] = {}
        self._now: dict[Value | Weight, Value] = {}
        self._stale: set[Value | Weight] = set()

    def put(
        self, tensor: Value | Weight, base: Value | Weight | None = None, offset_byte: int = 0
    ) -> None:
        """Puts a tensor so many bytes behind the beginning of `base`, or into a storage of its own;
        one that is there stays."""
        storage, begin_byte = (len(self._places), 0) if base is None else self._places[base]
        self._places.setdefault(tensor, (storage, begin_byte + offset_byte))

    def view(self, old: Value | Weight, new: Value) -> None:
        """From now on, `new` stands for `old`, whose elements stay.

        Raises:
            NotExpressibleError: they do not lie in one storage.
        """
        self._now[old] = new
        if self._places[new][0] != self._places[old][0]:
            raise NotExpressibleError("it gives a tensor another storage")

    def write(self, old: Value | Weight, new: Value) -> None:
        """From now on, `new` stands for `old`; what else lies there cannot be taken.

        Raises:
            NotExpressibleError: they are of different types.
        """
        before, after = self._type_of(old), self._type_of(new)
        self._now[old] = new
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise NotExpressibleError("it overwrites a tensor with another type")
        storage, begin_byte = self._places[old]
        end = end_byte(before, begin_byte)
        for other, (its_storage, its_begin) in self._places.items():
            if (
                its_storage == storage
                and other not in (old, new)
                and other not in self._now
                and its_begin < end
                and begin_byte < end_byte(self._type_of(other), its_begin)
            ):
                self._stale.add(other)
        self._places[new] = storage, begin_byte

    def current(self, tensor: Value | Weight) -> Value | Weight:
        """What lies there by now.

        Raises:
            NotExpressibleError: a part of it was written over.
        """
        while tensor in self._now:
            tensor = self._now[tensor]
        if tensor in self._stale:
            raise NotExpressibleError("it overwrites a part of a tensor and then takes all of it")
        return tensor
