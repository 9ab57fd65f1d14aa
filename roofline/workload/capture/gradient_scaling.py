"""The scaling of gradients, as `torch.amp.GradScaler` does it, without asking for values.

The scaler looks whether gradients are finite and then decides; a step that is analysed is one whose
gradients are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from roofline.workload.capture.fakes import Fakes
from roofline.workload.capture.reals import Reals
from roofline.workload.inputs import InputRequest

_AT_FIRST = 65536.0
_GROWTH, _BACKOFF, _INTERVAL = 2.0, 0.5, 2000

_unscale: Any = getattr(torch, "_amp_foreach_non_finite_check_and_unscale_")  # noqa: B009  not exported
_update: Any = getattr(torch, "_amp_update_scale_")  # noqa: B009


class GradientScale:
    """The scale of a loss, and what keeps count of the steps that it held.

    Args:
        tensors: make it.
    """

    def __init__(self, tensors: Fakes | Reals) -> None:
        number = InputRequest(shape=())
        self._scale = tensors.given(number, torch.float32).fill_(_AT_FIRST)
        self._found_inf: torch.Tensor | None = None
        self._growth = tensors.given(number, torch.int32)

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss that is differentiated."""
        return loss * self._scale

    def unscale(self, gradients: Sequence[torch.Tensor]) -> None:
        """Divides all gradients, in place, and looks whether they are finite."""
        inverse = self._scale.double().reciprocal().float()
        found_inf = torch.full((), 0.0, dtype=torch.float32, device=self._scale.device)
        # torch's scaler copies both for each device that has gradients, be it their own.
        self._found_inf = found_inf.to(device=found_inf.device, copy=True)
        inverse = inverse.to(device=inverse.device, copy=True)
        by_type: dict[torch.dtype, list[torch.Tensor]] = {}
        for each in gradients:
            by_type.setdefault(each.dtype, []).append(each)
        for same in by_type.values():
            _unscale(same, self._found_inf, inverse)

    def update(self) -> None:
        """Doubles the scale after many steps that held, halves it after one that did not."""
        _update(self._scale, self._growth, self._found_inf, _GROWTH, _BACKOFF, _INTERVAL)
        # Made anew in the next step: nothing of this one is kept.
        self._found_inf = None
