"""Prefill and decode passes of a transformers language model."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch.utils import _pytree as pytree

from roofline.core.dtypes import dtype
from roofline.errors import InputError, ModelError, argument
from roofline.run import Run
from roofline.workload.capture.passes import run_on_fakes
from roofline.workload.inputs import InputRequest, Inputs
from roofline.workload.models.building import Source
from roofline.workload.models.libraries.transformers_models import (
    is_transformers_model,
    max_tokens,
)
from roofline.workload.tensors import InputSpec
from roofline.workload.torch_dtypes import dtype_of

# The model itself fills a KV cache on fake tensors, which are then replaced by others of the same
# shapes. So windows, KV heads, latent vectors and recurrent states are those of the model.


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTemplate:
    """A KV cache without tensors.

    ``attributes`` are those of each layer, with requests in the place of tensors; ``requests`` are
    all of these by name.
    """

    blank: Any
    attributes: tuple[Mapping[str, Any], ...]
    requests: Mapping[str, InputRequest]

    def filled(self, tensors: Mapping[str, torch.Tensor]) -> Any:
        """Return a new cache with these tensors; it may grow without changing them."""

        def made(value: Any) -> Any:
            return tensors[value.name] if isinstance(value, InputRequest) else value

        cache = copy.copy(self.blank)
        cache.layers = [copy.copy(layer) for layer in self.blank.layers]
        for layer, attributes in zip(cache.layers, self.attributes, strict=True):
            vars(layer).update(pytree.tree_map(made, dict(attributes)))
        return cache

    def specs(self) -> Iterator[InputSpec]:
        """Yield a spec per group of equal tensors, with the number of layers as dimension 0."""
        alike = Counter(
            (name.partition("_")[2], request.shape, request.dtype)
            for name, request in self.requests.items()
        )
        for (kind, shape, of), layers in alike.items():
            assert of is not None
            yield InputSpec(name=f"past_{kind}", shape=(layers, *shape), dtype=of)


def _cache_name(module: Any) -> str:
    """Return the name of the KV cache as argument and output; transformers 5.24 changed it."""
    takes = inspect.signature(module.forward).parameters
    return "cache" if "cache" in takes else "past_key_values"


def _cache_template(source: Source, context: int, batch: int, run: Run) -> CacheTemplate:
    """Return the cache of a model after a prompt."""
    ids = InputRequest(shape=(batch, context), dtype=dtype("int64"))
    prompt = Inputs(input_ids=ids, use_cache=True)
    result = run_on_fakes(source.module, prompt, name=source.name, run=run)
    cache = getattr(result, _cache_name(source.module), None)
    layers = getattr(cache, "layers", None)
    kind = type(source.module).__name__
    if cache is None:
        raise ModelError(
            f"model '{source.name}': {kind} returns no KV cache, so it has no decode stage; use a"
            " causal language model, such as hf:llama"
        )
    if not layers:
        raise ModelError(
            f"model '{source.name}': its cache {type(cache).__name__} has no layers of keys and"
            " values; use transformers 5.0 or later"
        )
    requests: dict[str, InputRequest] = {}

    def request(path: Any, value: Any, number: int) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        keys = (str(getattr(each, "key", getattr(each, "idx", each))) for each in path)
        name = "_".join((str(number), *keys))
        shape = tuple(value.shape)
        requests[name] = InputRequest(name=name, shape=shape, dtype=dtype_of(value.dtype))
        return requests[name]

    attributes: list[dict[str, Any]] = []
    for number, layer in enumerate(layers):
        # Single numbers, such as a window, belong to the layer.
        own = {
            name: value
            for name, value in vars(layer).items()
            if not (isinstance(value, torch.Tensor) and value.dim() == 0)
        }
        requested = functools.partial(request, number=number)
        attributes.append(pytree.tree_map_with_path(requested, own))
    if not requests:
        raise ModelError(
            f"model '{source.name}': the KV cache of {kind} stays empty, so it has no decode stage"
        )
    kinds: Any = importlib.import_module("transformers.cache_utils")
    if type(cache) is kinds.DynamicCache:
        # A new cache of the same kind.
        made = kinds.DynamicCache(config=source.module.config)
        cache = made if len(made.layers) == len(layers) else cache
    return CacheTemplate(blank=cache, attributes=tuple(attributes), requests=requests)


Stage = Literal["prefill", "decode"]
STAGES: tuple[Stage, ...] = get_args(Stage)

_PADDING_ROWS = 2
"""Extra rows for padding in some position tables."""

_MAX_CONTEXT = 2**31
"""Larger than any context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSource:
    """A model that runs one stage, with its inputs and notes.

    ``specs`` describe the inputs; equal cache tensors of all layers are one spec, with the number
    of layers as dimension 0.
    """

    source: Source
    given: Inputs
    specs: tuple[InputSpec, ...]
    notes: tuple[str, ...]


def staged_source(
    source: Source, *, stage: Stage, context: int, batch: int, run: Run
) -> StagedSource:
    """Return `source` prepared for a stage with `context` tokens in each of `batch` sequences."""
    if stage not in STAGES:
        raise InputError(f"{argument('stage', stage)}: expected {' or '.join(STAGES)}")
    for name, value in (("context", context), ("batch", batch)):
        # In Python True is an int.
        if type(value) is not int or not 1 <= value < _MAX_CONTEXT:
            raise InputError(f"{argument(name, value)}: must be a whole number from 1")
    module: Any = source.module
    check_decoder(module, source.name)
    _check_positions(module, source.name)
    notes = [*source.notes, *_position_notes(module, source.name, stage, context)]
    tokens = context if stage == "prefill" else 1
    ids = InputRequest(shape=(batch, tokens), dtype=dtype("int64"))
    options: dict[str, Any] = {"use_cache": True}
    takes = inspect.signature(module.forward).parameters
    note = f"logits of all positions: {type(module).__name__} has no option to omit them"
    if kept := next((each for each in takes if each.endswith("logits_to_keep")), ""):
        options[kept] = 1
        note = f"logits of the last position only ({kept}=1)"
    if tokens > 1:
        notes.append(note)
    specs = (InputSpec(name="input_ids", shape=ids.shape, dtype=dtype("int64")),)
    given = Inputs(input_ids=ids, **options)
    if stage == "decode":
        past = _cache_template(source, context, batch, run)
        given = Inputs(input_ids=ids, past=dict(past.requests))
        specs = (*specs, *past.specs())
        decoding = functools.partial(_decoding, held=past, options=options)
        rebuild = source.rebuild
        again = None if rebuild is None else lambda: decoding(rebuild())
        source = replace(source, module=decoding(module), rebuild=again)
    return StagedSource(source=source, given=given, specs=specs, notes=tuple(notes))


# -- checks ----------------------------------------------------------------------------------------


def check_decoder(module: Any, name: str) -> None:
    """Reject models that are not transformers decoders with a KV cache."""
    if not is_transformers_model(module):
        raise ModelError(
            f"model '{name}': prefill and decode need a transformers language model, such as"
            " hf:llama, or a function that returns one (file.py:function)"
        )
    if module.config.is_encoder_decoder:
        raise ModelError(
            f"model '{name}': {type(module).__name__} is an encoder-decoder; prefill and decode"
            " need a decoder-only model, such as hf:llama"
        )
    takes = inspect.signature(module.forward).parameters
    missing = [each for each in ("input_ids", _cache_name(module)) if each not in takes]
    if missing:
        raise ModelError(
            f"model '{name}': forward of {type(module).__name__} has no argument"
            f" {' or '.join(missing)}, so it has no prefill and decode"
        )
    if not module.can_generate():
        raise ModelError(
            f"model '{name}': {type(module).__name__} generates no tokens; use a causal language"
            " model, such as hf:llama or hf:LlamaForCausalLM"
        )


def _check_positions(module: Any, name: str) -> None:
    """Reject position encodings that depend on tensor values."""
    rotary = getattr(module.config.get_text_config(), "rope_parameters", None)
    tables = [rotary, *rotary.values()] if isinstance(rotary, dict) else []
    kinds = [str(each.get("rope_type")) for each in tables if isinstance(each, dict)]
    if any("dynamic" in each for each in kinds):
        raise ModelError(
            f"model '{name}': 'dynamic' RoPE depends on tensor values, and only shapes are known;"
            f" use default RoPE, of equal cost: {argument('config')} …,rope_parameters={{"
            '"rope_type":"default","rope_theta":10000.0}'
        )


def _position_notes(module: Any, name: str, stage: Stage, context: int) -> Iterator[str]:
    """Yield a note on a context longer than the model's maximum.

    Raises:
        InputError: the model has a position table, which is shorter.
    """
    most, setting = max_tokens(module)
    one = int(stage == "decode")
    if most is None or context + one <= most:
        return
    tables = (
        table
        for path, table in (*module.named_parameters(), *module.named_buffers())
        if "pos" in (last := path.removesuffix(".weight").rpartition(".")[2]) or last == "wpe"
    )
    if any(each.dim() == 2 and most <= each.shape[0] <= most + _PADDING_ROWS for each in tables):
        raise InputError(
            f"{argument('context', context)}: {name} has positions for {most} tokens"
            f"{', the new one included' * one} ({setting}); use at most {most - one}"
        )
    yield (
        f"context {context} exceeds the {most} tokens of {name} ({setting}); counted anyway, as"
        " positions are computed"
    )


# -- the model -------------------------------------------------------------------------------------


def _decoding(
    model: torch.nn.Module, held: CacheTemplate, options: Mapping[str, Any]
) -> torch.nn.Module:
    """Return `model` with a forward of token and KV cache; module paths stay the same."""
    decoding = copy.copy(model)
    name = _cache_name(model)

    def forward(input_ids: torch.Tensor, past: Mapping[str, torch.Tensor]) -> Any:
        # A new cache for every pass, as the model appends to it.
        cache = held.filled(past)
        # Looked up at each call: capture replaces the method of the class.
        whole: Any = type(decoding).forward
        return whole(decoding, input_ids=input_ids, **{name: cache}, **options)

    vars(decoding)["forward"] = forward
    return decoding
