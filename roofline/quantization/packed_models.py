"""Packed state of quantized models, and its loading into a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from roofline.core.files import cut
from roofline.core.text import printable
from roofline.errors import InputError
from roofline.quantization.packed_files import (
    InputBits,
    PackedModel,
    PackedWeight,
    pack,
    qualified_name,
    read_packed,
    unpack,
    unpack_trusted,
)
from roofline.quantization.quantized_modules import (
    attach_input_quantizer,
    input_quantizer_of,
    make_copyable,
    parametrization,
    weight_quantizer_of,
)
from roofline.quantization.quantizers import (
    PACT,
    WeightQuantizer,
    align_axis,
    integer_weights,
    widen,
)


class StoredCodes(WeightQuantizer):
    """Parametrization of a weight stored as packed codes, for inference.

    It maps the bytes from `pack` to the constant weight.
    """

    alpha: Tensor
    like: Tensor

    def __init__(
        self,
        bits: int,
        levels: int,
        *,
        shape: Sequence[int],
        alpha: Tensor,
        axis: int,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(bits, levels, per_channel=alpha.dim() > 0, axis=axis)
        self.shape = tuple(shape)
        self.register_buffer("alpha", alpha)
        # Casts with the model, like a weight.
        self.register_buffer("like", torch.empty(0, dtype=dtype), persistent=False)

    def clipping(self, weight: Tensor) -> Tensor:
        del weight
        return self.alpha

    def codes(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the codes in the shape of the weight (uint8 or int32), and α."""
        return unpack(weight, self.bits, self.shape), self.alpha

    def forward(self, weight: Tensor) -> Tensor:
        """Return the weight in the data type of the model."""
        codes = unpack_trusted(weight, self.bits, self.shape)
        step = widen(self.alpha) / (self.levels - 1)
        return (integer_weights(codes, self.levels) * align_axis(step, codes, self.axis)).to(
            self.like.dtype
        )

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Raise a NotImplementedError: the weight cannot be assigned."""
        raise NotImplementedError(
            f"weight of shape {tuple(weight.shape)}: stored codes cannot be assigned; assign it in"
            " the trained model, before packed_state"
        )


_KEPT = "parametrizations.weight.original"
_QUANTIZER = "parametrizations.weight.0."


def packed_state(model: nn.Module) -> PackedModel:
    """Return the content of a packed model file; independent of later training.

    Raises:
        InputError: nothing is quantized, a weight has no codes (NaN), or the state has non-tensors.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    weights, made = dict[str, PackedWeight](), dict[nn.Module, PackedWeight]()
    inputs = dict[str, InputBits]()
    for path, module in modules.items():
        quantizer, activations = weight_quantizer_of(module), input_quantizer_of(module)
        if quantizer is not None:
            if module not in made:
                made[module] = _packed_weight(path, quantizer, parametrization(module).original)
            weights[path] = made[module]
        if activations is not None:
            # Check α, as in a forward pass.
            activations.codes(activations.alpha.new_zeros(0))
            inputs[path] = InputBits(bits=activations.bits, signed=activations.signed)
    if not weights and not inputs:
        raise InputError(
            f"{type(model).__name__} has no quantized layers; use quantize_model first"
        )
    return PackedModel(weights=weights, inputs=inputs, rest=_rest(model, weights))


def load_packed(path: str | Path, model: nn.Module) -> nn.Module:
    """Load a packed model into a module of the same architecture, for inference.

    Weights are stored as packed codes, and unpacked in every forward pass; they cannot be trained.
    Results equal those of the packed model.

    Args:
        path: file written by `PackedModel.save`.
        model: float model, or one quantized by the same policy; with batch norms folded as in the
            packed one. Modified unless an error is raised.

    Returns:
        The model itself.

    Raises:
        FileFormatError: the file is damaged, or not a packed model.
        InputError: names, shapes or bit widths of the model differ from the file.
    """
    packed = read_packed(Path(path))
    modules = dict(model.named_modules(remove_duplicate=False))
    state = model.state_dict()
    _check(str(path), packed, modules, state)
    shared = dict[tuple[object, ...], PACT]()
    for name, bits in packed.inputs.items():
        module = modules[name]
        if input_quantizer_of(module) is not None:
            continue
        alpha = packed.rest[qualified_name(name, "input_quantizer.alpha")]
        kind = id(alpha), bits.bits, bits.signed
        if kind not in shared:
            device = next((each.device for each in module.parameters()), None)
            quantizer = PACT(bits.bits, signed=bits.signed).to(device, alpha.dtype)
            quantizer.name = name
            shared[kind] = quantizer.train(module.training)
        # A block and its layer may share a quantizer; applying it twice changes nothing.
        attach_input_quantizer(module, shared[kind])
    # Modules with two names are changed once.
    for module, weight in {modules[name]: each for name, each in packed.weights.items()}.items():
        _attach_codes(module, weight)
    model.load_state_dict(dict(packed.rest), strict=False)
    return model


# -- packing ---------------------------------------------------------------------------------------


def _packed_weight(path: str, quantizer: WeightQuantizer, original: torch.Tensor) -> PackedWeight:
    if original.is_meta:
        raise InputError(f"{path}: no values (meta device); load its weights")
    try:
        codes, alpha = quantizer.codes(original)
    except InputError as error:
        raise InputError(f"{qualified_name(path, 'weight')}: {error}") from None
    return PackedWeight(
        bits=quantizer.bits,
        levels=quantizer.levels,
        axis=quantizer.axis,
        shape=tuple(codes.shape),
        packed=pack(codes, quantizer.bits).cpu(),
        alpha=alpha.detach().cpu().clone(),
    )


def _rest(model: nn.Module, weights: Mapping[str, PackedWeight]) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    copies: dict[tuple[object, ...], torch.Tensor] = {}
    left_out = tuple(qualified_name(path, _QUANTIZER) for path in weights)
    kept = {qualified_name(path, _KEPT) for path in weights}
    for name, tensor in model.state_dict().items():
        if name in kept or name.startswith(left_out):
            continue
        if not isinstance(tensor, torch.Tensor):
            raise InputError(
                f"{name}: a {type(tensor).__name__} in the state of the model; packed models"
                " contain tensors only"
            )
        # Key of the memory location.
        key: tuple[object, ...] = (id(tensor),)
        if tensor.numel():
            key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if key not in copies:
            copies[key] = tensor.detach().cpu().clone().contiguous()
        found[name] = copies[key]
    return found


# -- loading ---------------------------------------------------------------------------------------


_FIX = "load it into a model of the same architecture, with batch norms folded as in the packed one"
_SAME_POLICY = "quantize the model with the same policy, or use the float model"


def _check(
    file: str, packed: PackedModel, modules: Mapping[str, nn.Module], state: Mapping[str, Any]
) -> None:
    def check(fits: bool, what: str, fix: str = _FIX) -> None:
        if not fits:
            # Names in the file are untrusted.
            raise InputError(printable(f"{file}: {cut(what, 300)}; {fix}"))

    shapes = _shapes(modules, state)
    due = {name: tuple(each.shape) for name, each in packed.rest.items()}
    due |= {qualified_name(path, "weight"): each.shape for path, each in packed.weights.items()}
    for path, bits in packed.inputs.items():
        quantizer = input_quantizer_of(modules[path]) if path in modules else None
        if quantizer is None:
            # The file provides it.
            due.pop(qualified_name(path, "input_quantizer.alpha"), None)
        else:
            theirs, own = _words(bits.bits, bits.signed), _words(quantizer.bits, quantizer.signed)
            what = f"'{path}' has {theirs} in the file, {own} in the model"
            check(theirs == own, what, _SAME_POLICY)
        check(path in modules, f"the model has no '{path}'")
    for name, shape in due.items():
        check(name in shapes, f"the model has no '{name}'")
        what = f"'{name}' has shape {shape} in the file, {shapes[name]} in the model"
        check(shapes[name] == shape, what)
        if name in packed.rest:
            what = f"'{name}' has floats in the file, codes in the model"
            check(name in state, what, _SAME_POLICY)
            # Loading would silently cast integers, floats and complex numbers.
            both: list[torch.Tensor] = [packed.rest[name], state[name]]
            kinds = {(each.is_floating_point(), each.is_complex()) for each in both}
            theirs, own = (str(each.dtype).removeprefix("torch.") for each in both)
            check(len(kinds) == 1, f"'{name}' is {theirs} in the file, {own} in the model")
    for name in shapes:
        check(name in due, f"the file has no '{name}'")
    for path, weight in packed.weights.items():
        quantizer = weight_quantizer_of(modules[path])
        own = weight.bits if quantizer is None else quantizer.bits
        bits = f"{weight.bits} bits in the file, {own} in the model"
        check(own == weight.bits, f"the weights of '{path}' have {bits}", _SAME_POLICY)


def _words(bits: int, signed: bool) -> str:
    return f"{'signed ' * signed}{bits}-bit inputs"


def _shapes(
    modules: Mapping[str, nn.Module], state: Mapping[str, Any]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model's tensors; quantized weights under their plain names."""
    found: dict[str, tuple[int, ...]] = {}
    quantized = [path for path, each in modules.items() if weight_quantizer_of(each) is not None]
    kept = {qualified_name(path, _KEPT): path for path in quantized}
    left_out = tuple(qualified_name(path, _QUANTIZER) for path in quantized)
    for name, tensor in state.items():
        if name in kept:
            weight: Any = modules[kept[name]].weight
            found[qualified_name(kept[name], "weight")] = tuple(weight.shape)
        elif not name.startswith(left_out) and isinstance(tensor, torch.Tensor):
            found[name] = tuple(tensor.shape)
    return found


def _attach_codes(module: nn.Module, weight: PackedWeight) -> None:
    """Replace the weight of a layer by stored codes."""
    before: Any = module.weight
    stored = StoredCodes(
        weight.bits,
        weight.levels,
        shape=weight.shape,
        alpha=weight.alpha.to(before.device),
        axis=weight.axis,
        dtype=before.dtype,
    )
    packed = weight.packed.to(before.device)
    if weight_quantizer_of(module) is not None:
        # Keep a folded batch norm after the quantizer.
        kept = parametrization(module)
        kept[0] = stored
        del kept.original
        kept.register_buffer("original", packed)
        kept.unsafe = True
        return
    del module.weight
    module.register_buffer("weight", packed)
    parametrize.register_parametrization(module, "weight", stored, unsafe=True)
    module.get_submodule("parametrizations").train(module.training)
    make_copyable(module)
