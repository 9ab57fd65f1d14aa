"""The modules of a model as a pass met them, in the order of their first calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from roofline.workload.capture.packed import unpacked
from roofline.workload.modules import Module


def modules_in(model: torch.nn.Module) -> tuple[Module, ...]:
    """Every module of `model`, before it is called, each with the parameters that are its own.

    Packed parameters are counted too. What several modules share is the first one's.
    """
    seen: set[int] = set()
    found: list[Module] = []
    for path, module in model.named_modules():
        elements = 0
        for each in (*module._parameters.values(), *_packed(module)):
            if each is not None and id(each) not in seen:
                seen.add(id(each))
                elements += each.numel()
        kind = type(module).__name__
        found.append(Module(path=path, kind=kind, calls=0, parameters=elements))
    return tuple(found)


def _packed(module: torch.nn.Module) -> Iterable[torch.Tensor | None]:
    for value in module.__dict__.values():
        if type(value) is torch.ScriptObject:
            yield from unpacked(value) or ()


def in_order(modules: Iterable[Module], calls: Mapping[str, int]) -> tuple[Module, ...]:
    """Every module that ran, in the order of `calls`, then those of `modules` that did not.

    Args:
        modules: those of the model; what was made during the pass is named by its class.
        calls: how often each module ran, by its path.
    """
    known = {each.path: each for each in modules}
    ran: list[Module] = []
    for path, count in calls.items():
        module = known.pop(path, None)
        kind = module.kind if module else path.rpartition(".")[2].strip("<>")
        parameters = module.parameters if module else 0
        ran.append(Module(path=path, kind=kind, calls=count, parameters=parameters))
    return (*ran, *known.values())
