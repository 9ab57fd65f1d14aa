"""Which parameters an optimizer should pull to zero, and which not."""

from __future__ import annotations

from typing import Any

from torch import nn

from roofline.quantization.quantizers.pact import PACT


def parameter_groups(model: nn.Module, *, weight_decay: float) -> list[dict[str, Any]]:
    """The parameters of a model for an optimizer: none of α or of norms is decayed.

    α has a decay of its own (`quantize_model`); with that of the optimizer it would have two.

    ::

        torch.optim.SGD(parameter_groups(model, weight_decay=1e-4), lr=0.1, momentum=0.9)

    Args:
        model: any module.
        weight_decay: of all other parameters.
    """
    spared = {
        id(each)
        for module in model.modules()
        if isinstance(module, PACT) or "Norm" in type(module).__name__
        for each in module.parameters(recurse=False)
    }
    every = [each for each in model.parameters() if each.requires_grad]
    groups = [
        {
            "params": [each for each in every if id(each) not in spared],
            "weight_decay": weight_decay,
        },
        {"params": [each for each in every if id(each) in spared], "weight_decay": 0.0},
    ]
    return [each for each in groups if each["params"]]
