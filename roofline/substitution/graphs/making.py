"""Makes the weights that rules describe, in float64, of the model's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from roofline.errors import ModelError, said_by
from roofline.substitution.graphs.weights import Weight
from roofline.workload.torch_dtypes import torch_dtype


class Made:
    """The tensors that weights stand for, each made once.

    Args:
        tensors: the model's own, by name.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors
        self._made: dict[str, torch.Tensor] = {}

    def tensor(self, weight: Weight) -> torch.Tensor:
        """What a weight stands for: the model's own tensor, or a new one of the declared type.

        New ones take gradients where one of those that they are made of does.

        Raises:
            ModelError: the model has no such weight, or a constructor fails or gives another shape.
        """
        if weight.name:
            return self._own(weight)
        type = weight.type
        made = torch.empty_strided(type.shape, type.stride, dtype=torch_dtype(type.dtype))
        with torch.no_grad():
            made.copy_(self._exact(weight))
        if not weight.is_parameter:
            return made
        takes_gradients = weight.is_trained and made.is_floating_point()
        return torch.nn.Parameter(made, requires_grad=takes_gradients)

    def _own(self, weight: Weight) -> torch.Tensor:
        if weight.name not in self._tensors:
            raise ModelError(f"the model has no weight '{weight.name}'")
        return self._tensors[weight.name]

    def _exact(self, weight: Weight) -> torch.Tensor:
        """A weight in float64; integers as they are."""
        # Iterative: rewrites of rewrites may be nested deeper than Python's stack.
        waiting = [weight]
        while waiting:
            each = waiting[-1]
            missing = [part for part in each.of if part.made_by and part.key not in self._made]
            if each.key in self._made:
                waiting.pop()
            elif missing:
                waiting += missing
            else:
                self._made[each.key] = self._computed(each)
                waiting.pop()
        return self._made[weight.key]

    def _cast(self, weight: Weight) -> torch.Tensor:
        own = self._own(weight).detach()
        return own.to(torch.float64) if own.is_floating_point() else own

    def _computed(self, weight: Weight) -> torch.Tensor:
        # The model's own are cast each time: all of them in float64 at once may be too much.
        of = [self._made[each.key] if each.made_by else self._cast(each) for each in weight.of]
        try:
            with torch.no_grad():
                made: Any = _constructor(weight.made_by)(*of, **dict(weight.options))
        # A constructor is a user's, perhaps.
        except Exception as error:
            raise ModelError(
                f"the weight constructor '{weight.made_by}' failed: {said_by(error)}"
            ) from error
        if not isinstance(made, torch.Tensor) or tuple(made.shape) != weight.type.shape:
            given = tuple(made.shape) if isinstance(made, torch.Tensor) else type(made).__name__
            raise ModelError(
                f"the weight constructor '{weight.made_by}' gives {given}, where"
                f" {weight.type.shape} is declared"
            )
        return made


def _constructor(name: str) -> Callable[..., Any]:
    from roofline.substitution.rules.registry import constructor

    return constructor(name)
