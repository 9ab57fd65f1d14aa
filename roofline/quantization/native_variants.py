"""Models in the lower precision of torch's or torchao's kernels, as measured next to a what-if."""

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
"""``bfloat16``: the whole model. ``int8 static``: layers and operators between them on codes,
with scales from one forward pass. ``int8 dynamic``: linear layers with operands quantized at
every call, by torch; ``int8 torchao``: by torchao.
"""

CallArguments = tuple[tuple[Any, ...], Mapping[str, Any]]
"""Positional and keyword arguments of a model."""

_ENGINES = ("onednn", "x86", "fbgemm", "qnnpack")
"""torch's int8 libraries, the one with most optimized kernels first."""

_CODES = (torch.quint8, torch.qint8)


def int8_problem() -> str:
    """Return the reason why torch cannot compute in int8 here; ``""``: it can."""
    try:
        importlib.import_module("torch.ao.quantization.quantize_fx")
    except ImportError:
        return f"torch {torch.__version__} has no torch.ao.quantization"
    return "" if int8_engine() else "this torch was built without kernels for int8"


def int8_engine() -> str:
    known = torch.backends.quantized.supported_engines
    return next((each for each in _ENGINES if each in known), "")


@contextlib.contextmanager
def int8_kernels() -> Iterator[None]:
    """Use torch's best int8 library to pack weights and run kernels."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = int8_engine() or before
    try:
        yield
    finally:
        torch.backends.quantized.engine = before


def make_variant(
    kind: VariantKind, model: torch.nn.Module, given: CallArguments
) -> tuple[torch.nn.Module, CallArguments]:
    """Return the model in lower precision with its arguments; it has run once."""
    make: Callable[[torch.nn.Module, CallArguments], torch.nn.Module] = {
        "bfloat16": lambda model, _: model.to(torch.bfloat16),
        "int8 static": _quantize_static,
        "int8 dynamic": _quantize_dynamic,
        "int8 torchao": _quantize_torchao,
    }[kind]
    try:
        with warnings.catch_warnings(), torch.no_grad(), int8_kernels(), without_stack_traces():
            # torch.ao warns about its deprecation at every step.
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
    # Tracing and conversion may raise anything.
    except Exception as error:
        text = error_text(error) or type(error).__name__
        raise ModelError(f"conversion failed: {text[:200]}") from error
    return made, given


def quantize_int8(model: torch.nn.Module, inputs: Inputs) -> torch.nn.Module:
    """Return the model quantized by torch.ao, with scales from noise unless tensors are given."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        tensors = RealTensors(Run())
        given = inputs.build(
            lambda request: tensors.make_input(request, input_dtype(request, None))
        )
        return make_variant("int8 static", model, given)[0]


class _OneInput(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Any) -> Any:
        return self.model(x)


def _quantize_static(model: torch.nn.Module, given: CallArguments) -> torch.nn.Module:
    """Quantize by torch.ao's graph mode, with observed minimum and maximum as limits."""
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
        # torch.fx cannot trace *args.
        model = _OneInput(model)
    # torch's default, except for observers that search limits for seconds. Without VNNI, the sum of
    # two 8-bit products overflows 16 bits.
    least_bits = not torch.cpu._is_vnni_supported()  # pyright: ignore[reportPrivateUsage]
    activation: Any = MinMaxObserver.with_args(dtype=torch.quint8, reduce_range=least_bits)
    chosen = QConfig(activation=activation, weight=default_per_channel_weight_observer)
    mapping = get_default_qconfig_mapping(int8_engine()).set_global(chosen)
    args, kwargs = given
    prepared = prepare_fx(model, mapping, args)
    prepared(*args, **kwargs)
    return _check_quantized(convert_fx(prepared))


def _quantize_dynamic(model: torch.nn.Module, given: CallArguments) -> torch.nn.Module:
    from torch.ao.quantization import quantize_dynamic

    del given
    _check(model, is_torchs=True, needs_linear_layers=True)
    # In a container, so that a model that is itself a linear layer is replaced.
    container = torch.nn.Sequential(model)
    made = quantize_dynamic(container, {torch.nn.Linear}, dtype=torch.qint8, inplace=True)
    return _check_quantized(made[0])


def _quantize_torchao(model: torch.nn.Module, given: CallArguments) -> torch.nn.Module:
    del given
    try:
        library = importlib.import_module("torchao.quantization")
        config = library.Int8DynamicActivationInt8WeightConfig()
    except (ImportError, AttributeError):
        raise ModelError("torchao missing or too old: pip install 'roofline[int8]'") from None
    _check(model, is_torchs=False, needs_linear_layers=True)
    container = torch.nn.Sequential(model)
    library.quantize_(container, config)
    return container[0]


def _check(model: torch.nn.Module, *, is_torchs: bool, needs_linear_layers: bool = False) -> None:
    if is_torchs and (problem := int8_problem()):
        raise ModelError(problem)
    others = {
        str(each.dtype).removeprefix("torch.")
        for each in model.parameters()
        if each.is_floating_point() and each.dtype != torch.float32
    }
    if others:
        raise ModelError(f"requires float32 weights, got {min(others)}")
    has_linear_layers = any(isinstance(each, torch.nn.Linear) for each in model.modules())
    if needs_linear_layers and not has_linear_layers:
        raise ModelError("the model has no linear layers")


def _check_quantized(model: torch.nn.Module) -> torch.nn.Module:
    with cache_unpacked():
        if not any(each.dtype in _CODES for each in packed_tensors(model.modules())):
            raise ModelError("torch.ao found no layer to quantize")
    return model


def relative_error(expected: Any, found: Any) -> float | None:
    """Return the relative L2 error of all floating-point outputs; None: not comparable, or all
    zeros are expected.
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
