"""The modules of a model as a pass met them, in the order of their first calls."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from roofline.workload.capture.packed import unpacked
from roofline.workload.modules import Module


def own_parameters(model: torch.nn.Module) -> dict[str, int]:
    """The elements of the parameters that each module has itself, packed ones too, by its path.

    What several modules share is the first one's.
    """
    seen: set[int] = set()
    found: dict[str, int] = {}
    for path, module in model.named_modules():
        found[path] = 0
        packed = [each for value in module.__dict__.values() for each in unpacked(value) or ()]
        for each in (*module._parameters.values(), *packed):
            if each is not None and id(each) not in seen:
                seen.add(id(each))
                found[path] += each.numel()
    return found


def modules_of(
    model: torch.nn.Module, calls: Mapping[str, int], parameters: Mapping[str, int]
) -> tuple[Module, ...]:
    """Every module that ran, in the order of `calls`, then those that did not.

    Args:
        model: what ran.
        calls: how often each module did, by its path.
        parameters: as `own_parameters` found them before.
    """
    kinds = {path: type(module).__name__ for path, module in model.named_modules()}
    # What was made during the pass is named by its class.
    kinds.update({path: path.rpartition(".")[2].strip("<>") for path in calls if path not in kinds})
    return tuple(
        Module(
            path=path,
            kind=kinds[path],
            calls=calls.get(path, 0),
            parameters=parameters.get(path, 0),
        )
        for path in dict.fromkeys((*calls, *kinds))
    )
