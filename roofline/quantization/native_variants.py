"""A model in lower precision as torch's own kernels, or torchao's, really run it.

Nothing here is learned or trained: these are what a what-if is held against by the clock.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import torch
from torch.utils import _pytree as pytree

from roofline.errors import ModelError, RooflineError, error_text
from roofline.run import Run
from roofline.workload.capture.operands import cache_unpacked, packed_tensors, tensors_in
from roofline.workload.capture.real_tensors import RealTensors
from roofline.workload.capture.restoration import without_stack_traces
from roofline.workload.inputs import Inputs
from roofline.workload.torch_dtypes import input_dtype

VariantKind = Literal["bfloat16", "int8 static", "int8 dynamic", "int8 torchao"]
"""``bfloat16``: all of it in that type. ``int8 static``: layers and what is between them on codes,
whose scales one pass found. ``int8 dynamic``: linear layers alone, whose operands are quantized at
every call; by torch, or by torchao."""

Given = tuple[tuple[Any, ...], Mapping[str, Any]]
"""What a model is called with: by position, and by name."""

_ENGINES = ("onednn", "x86", "fbgemm", "qnnpack")
"""torch's libraries for int8, the one with kernels for most units first."""

_CODES = (torch.quint8, torch.qint8)


def why_no_int8() -> str:
    """Why torch cannot compute in int8 on this machine, in a few words; ``""``: it can."""
    try:
        importlib.import_module("torch.ao.quantization.quantize_fx")
    except ImportError:
        return f"torch {torch.__version__} has no torch.ao.quantization"
    return "" if int8_engine() else "this torch was built without kernels for int8"


def int8_engine() -> str:
    """The library that torch computes in int8 with; ``""``: there is none."""
    known = torch.backends.quantized.supported_engines
    return next((each for each in _ENGINES if each in known), "")


@contextlib.contextmanager
def int8_kernels() -> Iterator[None]:
    """Within, torch packs weights for its best library for int8 and runs them there."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = int8_engine() or before
    try:
        yield
    finally:
        torch.backends.quantized.engine = before


def variant_of(
    kind: VariantKind, model: torch.nn.Module, given: Given
) -> tuple[torch.nn.Module, Given]:
    """The model in lower precision, and what it is called with; it was run once."""
    make: Callable[[torch.nn.Module, Given], torch.nn.Module] = {
        "bfloat16": lambda model, _: model.to(torch.bfloat16),
        "int8 static": _statically,
        "int8 dynamic": _dynamically,
        "int8 torchao": _by_torchao,
    }[kind]
    try:
        with warnings.catch_warnings(), torch.no_grad(), int8_kernels(), without_stack_traces():
            # torch says at every step that torch.ao will go one day.
            warnings.simplefilter("ignore")
            made = make(copy.deepcopy(model).eval(), given)
            if kind == "bfloat16":
                given = pytree.tree_map_only(
                    torch.Tensor, lambda x: x.bfloat16() if x.is_floating_point() else x, given
                )
            args, kwargs = given
            made(*args, **kwargs)
    except (KeyboardInterrupt, RooflineError):
        raise
    # A model may raise anything when it is traced or converted.
    except Exception as error:
        said = error_text(error) or type(error).__name__
        raise ModelError(f"it cannot be made: {said[:200]}") from error
    return made, given


def in_int8(model: torch.nn.Module, inputs: Inputs) -> torch.nn.Module:
    """The model as torch.ao quantizes it, with scales of noise where no tensors were given."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        tensors = RealTensors(Run())
        given = inputs.build(
            lambda request: tensors.make_input(request, input_dtype(request, None))
        )
        return variant_of("int8 static", model, given)[0]


class _OneInput(torch.nn.Module):
    """Calls a model with its only input."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Any) -> Any:
        return self.model(x)


def _statically(model: torch.nn.Module, given: Given) -> torch.nn.Module:
    """By torch.ao's graph mode, with limits that are the least and the largest values seen."""
    from torch.ao.quantization import (
        MinMaxObserver,
        QConfig,
        default_per_channel_weight_observer,
        get_default_qconfig_mapping,
    )
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    _check(model, is_torchs=True)
    takes = inspect.signature(model.forward).parameters.values()
    if len(takes) == 1 and any(each.kind is each.VAR_POSITIONAL for each in takes):
        # torch.fx cannot follow what takes any number of inputs.
        model = _OneInput(model)
    # torch's own choice, but for observers that take seconds to search limits. Without VNNI two
    # products of eight bits overflow the sixteen that they are added in.
    least_bits = not torch.cpu._is_vnni_supported()  # pyright: ignore[reportPrivateUsage]
    activation: Any = MinMaxObserver.with_args(dtype=torch.quint8, reduce_range=least_bits)
    chosen = QConfig(activation=activation, weight=default_per_channel_weight_observer)
    mapping = get_default_qconfig_mapping(int8_engine()).set_global(chosen)
    args, kwargs = given
    prepared = prepare_fx(model, mapping, args)
    prepared(*args, **kwargs)
    return _with_codes(convert_fx(prepared))


def _dynamically(model: torch.nn.Module, given: Given) -> torch.nn.Module:
    from torch.ao.quantization import quantize_dynamic

    del given
    _check(model, is_torchs=True, needs_linear_layers=True)
    # In a container of its own, so that a model that is a linear layer itself is replaced, too.
    container = torch.nn.Sequential(model)
    made = quantize_dynamic(container, {torch.nn.Linear}, dtype=torch.qint8, inplace=True)
    return _with_codes(made[0])


def _by_torchao(model: torch.nn.Module, given: Given) -> torch.nn.Module:
    del given
    try:
        library = importlib.import_module("torchao.quantization")
        config = library.Int8DynamicActivationInt8WeightConfig()
    except (ImportError, AttributeError):
        raise ModelError("torchao is not there, or too old: pip install 'roofline[int8]'") from None
    _check(model, is_torchs=False, needs_linear_layers=True)
    container = torch.nn.Sequential(model)
    library.quantize_(container, config)
    return container[0]


def _check(model: torch.nn.Module, *, is_torchs: bool, needs_linear_layers: bool = False) -> None:
    if is_torchs and (problem := why_no_int8()):
        raise ModelError(problem)
    others = {
        str(each.dtype).removeprefix("torch.")
        for each in model.parameters()
        if each.is_floating_point() and each.dtype != torch.float32
    }
    if others:
        raise ModelError(f"models are quantized from float32, and this one has {min(others)}")
    has_linear_layers = any(isinstance(each, torch.nn.Linear) for each in model.modules())
    if needs_linear_layers and not has_linear_layers:
        raise ModelError("the model has no linear layers")


def _with_codes(model: torch.nn.Module) -> torch.nn.Module:
    """The model, where something in it was quantized."""
    with cache_unpacked():
        if not any(each.dtype in _CODES for each in packed_tensors(model.modules())):
            raise ModelError("torch.ao found no layer in it that it quantizes")
    return model


def relative_error(expected: Any, found: Any) -> float | None:
    """The norm of the difference of results over the norm of those that are expected, of all
    floating tensors together; None where they are not comparable, or nothing but zeros is expected.
    """
    pairs = [
        [each.detach().double() for each in tensors_in(result) if each.is_floating_point()]
        for result in (expected, found)
    ]
    if [each.shape for each in pairs[0]] != [each.shape for each in pairs[1]]:
        return None
    difference = sum(float(((a - b) ** 2).sum()) for a, b in zip(*pairs, strict=True))
    whole = sum(float((each**2).sum()) for each in pairs[0])
    error = math.sqrt(difference / whole) if whole else math.nan
    return error if math.isfinite(error) else None
