"""The cache of a language model behind a prompt: what is in it, by layer, as the model makes it.

No rule says what that is: the model fills one on tensors without memory, and other tensors of the
same shapes take the place of those. So windows, shared heads, latent vectors and states of
recurrent layers are what the model makes them.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from roofline.errors import ModelError
from roofline.foundation.dtypes import dtype
from roofline.workload.capture.unrecorded import result_on_fakes
from roofline.workload.inputs import InputRequest, Inputs
from roofline.workload.models.building import Source
from roofline.workload.runs import Run
from roofline.workload.tensors import InputSpec
from roofline.workload.torch_dtypes import dtype_of


@dataclass(frozen=True, slots=True)
class _Part:
    """The place of a tensor in a cache, by the name of the input that is put there."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A cache without its tensors: what they are to be, and a blank one to put them in.

    ``attributes`` are those of each layer, with a `_Part` in the place of every tensor.
    """

    blank: Any
    attributes: tuple[Mapping[str, Any], ...]
    requests: Mapping[str, InputRequest]

    def filled(self, tensors: Mapping[str, torch.Tensor]) -> Any:
        """A new cache with these tensors in it; it may grow, and they stay as they are."""
        cache = copy.copy(self.blank)
        cache.layers = [copy.copy(layer) for layer in self.blank.layers]
        for layer, attributes in zip(cache.layers, self.attributes, strict=True):
            for name, value in attributes.items():
                setattr(layer, name, _made(value, tensors))
        return cache

    def specs(self) -> Iterator[InputSpec]:
        """Alike tensors of all layers as one, the number of layers first."""
        alike: dict[tuple[str, tuple[int, ...], Any], int] = {}
        for name, request in self.requests.items():
            key = (name.partition("_")[2], request.shape, request.dtype)
            alike[key] = alike.get(key, 0) + 1
        for (kind, shape, of), layers in alike.items():
            assert of is not None
            yield InputSpec(name=f"past_{kind}", shape=(layers, *shape), dtype=of)


def past_of(source: Source, context: int, batch: int, run: Run) -> Past:
    """The cache that a model has after a prompt.

    Args:
        source: a model of transformers, which is left as it was.
        context: tokens of each sequence.
        batch: how many sequences.
        run: in which types it is run.

    Raises:
        ModelError: the model raised, needs values, or keeps no cache with layers.
    """
    ids = InputRequest(shape=(batch, context), dtype=dtype("int64"))
    prompt = Inputs(input_ids=ids, use_cache=True)
    result = result_on_fakes(source.module, prompt, name=source.name, run=run)
    cache = getattr(result, "past_key_values", None)
    layers = getattr(cache, "layers", None)
    if cache is None:
        raise ModelError(
            f"model '{source.name}': {type(source.module).__name__} keeps nothing of a prompt, so"
            " it has no decode; stages are those of models that continue text, such as hf:llama"
        )
    if not layers:
        raise ModelError(
            f"model '{source.name}': its cache is a {type(cache).__name__}, which holds no layers"
            " of keys and values (transformers from 5.0 on has them)"
        )
    requests: dict[str, InputRequest] = {}
    attributes = tuple(
        {
            name: _taken_apart(value, f"{number}_{name}", requests)
            for name, value in vars(layer).items()
            # What is one number is the layer's own, such as its window.
            if not (isinstance(value, torch.Tensor) and value.dim() == 0)
        }
        for number, layer in enumerate(layers)
    )
    if not requests:
        raise ModelError(
            f"model '{source.name}': {type(source.module).__name__} keeps nothing of a prompt in"
            " its cache, so it has no decode"
        )
    return Past(blank=_blank(cache, source.module), attributes=attributes, requests=requests)


def _blank(cache: Any, module: Any) -> Any:
    """A cache of the same kind that nothing was put into."""
    kinds: Any = importlib.import_module("transformers.cache_utils")
    if type(cache) is kinds.DynamicCache:
        blank = kinds.DynamicCache(config=module.config)
        if len(blank.layers) == len(cache.layers):
            return blank
    return cache


def _taken_apart(value: Any, name: str, requests: dict[str, InputRequest]) -> Any:
    """`value` with a part in the place of every tensor, which is asked for under its name."""
    if isinstance(value, torch.Tensor):
        requests[name] = InputRequest(shape=tuple(value.shape), dtype=dtype_of(value.dtype))
        return _Part(name)
    if type(value) in (list, tuple):
        return type(value)(
            _taken_apart(each, f"{name}_{place}", requests) for place, each in enumerate(value)
        )
    if type(value) is dict:
        return {key: _taken_apart(each, f"{name}_{key}", requests) for key, each in value.items()}
    return value


def _made(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """`value` with its tensors; lists and tables are new ones."""
    if isinstance(value, _Part):
        return tensors[value.name]
    if type(value) in (list, tuple):
        return type(value)(_made(each, tensors) for each in value)
    if type(value) is dict:
        return {key: _made(each, tensors) for key, each in value.items()}
    return value
