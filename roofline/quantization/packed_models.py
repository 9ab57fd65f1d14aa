"""A quantized model with its weights as packed codes: made, and put into a model again."""

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
    in_module,
    pack,
    read_packed,
    unpack,
    unpacked,
)
from roofline.quantization.quantized_modules import (
    input_quantizer_of,
    made_copyable,
    parametrization,
    put_input_quantizer,
    weight_quantizer_of,
)
from roofline.quantization.quantizers import PACT, WeightQuantizer, along, integers, widened


class StoredCodes(WeightQuantizer):
    """The parametrization of a weight that is kept as packed codes, for inference.

    What it is a parametrization of are the bytes that `pack` gave, and what it gives is the weight,
    the same for good: there is nothing to train.
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
        # Follows the model into another type, as a weight would.
        self.register_buffer("like", torch.empty(0, dtype=dtype), persistent=False)

    def clipping(self, weight: Tensor) -> Tensor:
        del weight
        return self.alpha

    def codes(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The codes in the shape of the weight, as uint8 or int32, and α."""
        return unpack(weight, self.bits, self.shape), self.alpha

    def forward(self, weight: Tensor) -> Tensor:
        """The weight, in the type that the model has."""
        codes = unpacked(weight, self.bits, self.shape)
        step = widened(self.alpha) / (self.levels - 1)
        return (integers(codes, self.levels) * along(step, codes, self.axis)).to(self.like.dtype)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Refuses: nothing is kept where a weight is assigned."""
        raise NotImplementedError(
            f"a weight of shape {tuple(weight.shape)} cannot be assigned: the layer's own is kept"
            " as codes; assign it before packed_state, in the model that was trained"
        )


_KEPT = "parametrizations.weight.original"
_QUANTIZER = "parametrizations.weight.0."


def packed_state(model: nn.Module) -> PackedModel:
    """What a file of a quantized model needs to hold; later training does not change it.

    Raises:
        InputError: nothing in the model is quantized, a weight that has no codes (NaN), or a state
            that holds more than tensors.
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
            # As in a pass: α that training drove below 0 is set back, or refused.
            activations.codes(activations.alpha.new_zeros(0))
            inputs[path] = InputBits(bits=activations.bits, signed=activations.signed)
    if not weights and not inputs:
        raise InputError(
            f"{type(model).__name__} has no quantized layers; make them with quantize_model first"
        )
    return PackedModel(weights=weights, inputs=inputs, rest=_rest(model, weights))


def load_packed(path: str | Path, model: nn.Module) -> nn.Module:
    """Puts a packed model into a module of the same architecture, for inference.

    Its weights are kept as packed codes, and unpacked whenever a layer runs: they can no more be
    trained. What the model computes then is what the packed one computed.

    Args:
        path: what `PackedModel.save` wrote.
        model: the float model, or one that was quantized as the packed one was; with its batch
            norms folded where that one's were. It is changed, unless an error is raised.

    Returns:
        The model itself.

    Raises:
        FileFormatError: a damaged file, or another than of a packed model.
        InputError: the model lacks something that the file has, or has more, or another shape or
            width of it.
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
        alpha = packed.rest[in_module(name, "input_quantizer.alpha")]
        kind = id(alpha), bits.bits, bits.signed
        if kind not in shared:
            device = next((each.device for each in module.parameters()), None)
            quantizer = PACT(bits.bits, signed=bits.signed).to(device, alpha.dtype)
            quantizer.name = name
            shared[kind] = quantizer.train(module.training)
        # A block and a layer in it may share one; what is quantized twice by it stays as it is.
        put_input_quantizer(module, shared[kind])
    # Modules with two names are changed once.
    for module, weight in {modules[name]: each for name, each in packed.weights.items()}.items():
        _put(module, weight)
    model.load_state_dict(dict(packed.rest), strict=False)
    return model


# -- making ----------------------------------------------------------------------------------------


def _packed_weight(path: str, quantizer: WeightQuantizer, original: torch.Tensor) -> PackedWeight:
    if original.is_meta:
        raise InputError(f"{path}: no values (it lies on the meta device); load its weights")
    try:
        codes, alpha = quantizer.codes(original)
    except InputError as error:
        raise InputError(f"{in_module(path, 'weight')}: {error}") from None
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
    left_out = tuple(in_module(path, _QUANTIZER) for path in weights)
    kept = {in_module(path, _KEPT) for path in weights}
    for name, tensor in model.state_dict().items():
        if name in kept or name.startswith(left_out):
            continue
        if not isinstance(tensor, torch.Tensor):
            raise InputError(
                f"{name}: a {type(tensor).__name__} in the state of the model; a packed model holds"
                " tensors alone"
            )
        # What tensors have in common that are the same.
        key: tuple[object, ...] = (id(tensor),)
        if tensor.numel():
            key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if key not in copies:
            copies[key] = tensor.detach().cpu().clone().contiguous()
        found[name] = copies[key]
    return found


# -- loading ---------------------------------------------------------------------------------------


_FIX = "load it into a model of the same architecture, with batch norms folded as in the packed one"
_SAME_POLICY = "quantize the model with the same policy, or give the float model"


def _check(
    file: str, packed: PackedModel, modules: Mapping[str, nn.Module], state: Mapping[str, Any]
) -> None:
    """Refuses a model that the file does not fit."""

    def check(fits: bool, what: str, fix: str = _FIX) -> None:
        if not fits:
            # Names are the file's, of any length.
            raise InputError(printable(f"{file}: {cut(what, 300)}; {fix}"))

    shapes = _shapes(modules, state)
    due = {name: tuple(each.shape) for name, each in packed.rest.items()}
    due |= {in_module(path, "weight"): each.shape for path, each in packed.weights.items()}
    for path, bits in packed.inputs.items():
        quantizer = input_quantizer_of(modules[path]) if path in modules else None
        if quantizer is None:
            # It comes with the file.
            due.pop(in_module(path, "input_quantizer.alpha"), None)
        else:
            theirs, own = _words(bits.bits, bits.signed), _words(quantizer.bits, quantizer.signed)
            what = f"'{path}' reads {theirs} in it, and {own} in the model"
            check(theirs == own, what, _SAME_POLICY)
        check(path in modules, f"the model has no '{path}'")
    for name, shape in due.items():
        check(name in shapes, f"the model has no '{name}'")
        what = f"'{name}' has shape {shape} in it, and {shapes[name]} in the model"
        check(shapes[name] == shape, what)
        if name in packed.rest:
            what = f"'{name}' is floats in it, and codes in the model"
            check(name in state, what, _SAME_POLICY)
            # Loading would cast whole numbers, floats and complex ones without a word.
            both: list[torch.Tensor] = [packed.rest[name], state[name]]
            kinds = {(each.is_floating_point(), each.is_complex()) for each in both}
            theirs, own = (str(each.dtype).removeprefix("torch.") for each in both)
            check(len(kinds) == 1, f"'{name}' is {theirs} in it, and {own} in the model")
    for name in shapes:
        check(name in due, f"it has no '{name}', which the model has")
    for path, weight in packed.weights.items():
        quantizer = weight_quantizer_of(modules[path])
        own = weight.bits if quantizer is None else quantizer.bits
        bits = f"{weight.bits} bits in it, and {own} in the model"
        check(own == weight.bits, f"the weights of '{path}' have {bits}", _SAME_POLICY)


def _words(bits: int, signed: bool) -> str:
    return f"{bits} bits" + (" with a sign" if signed else "")


def _shapes(
    modules: Mapping[str, nn.Module], state: Mapping[str, Any]
) -> dict[str, tuple[int, ...]]:
    """The shapes of a model's tensors, those of quantized weights under their plain names."""
    found: dict[str, tuple[int, ...]] = {}
    quantized = [path for path, each in modules.items() if weight_quantizer_of(each) is not None]
    kept = {in_module(path, _KEPT): path for path in quantized}
    left_out = tuple(in_module(path, _QUANTIZER) for path in quantized)
    for name, tensor in state.items():
        if name in kept:
            weight: Any = modules[kept[name]].weight
            found[in_module(kept[name], "weight")] = tuple(weight.shape)
        elif not name.startswith(left_out) and isinstance(tensor, torch.Tensor):
            found[name] = tuple(tensor.shape)
    return found


def _put(module: nn.Module, weight: PackedWeight) -> None:
    """Has a layer compute with stored codes, whatever it had for a weight."""
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
        # A folded batch norm stands behind the quantizer, and stays there.
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
    made_copyable(module)
