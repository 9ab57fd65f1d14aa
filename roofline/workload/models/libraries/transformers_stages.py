"""The two passes of a language model: prefill reads a prompt, decode adds a token to it."""

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

# No rule says what that is: the model fills one on tensors without memory, and other tensors of the
# same shapes take the place of those. So windows, shared heads, latent vectors and states of
# recurrent layers are what the model makes them.


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTemplate:
    """A cache without its tensors: what they are to be, and a blank one to put them in.

    ``attributes`` are those of each layer, with the request of a tensor in the place of every one;
    ``requests`` are all of these by their names.
    """

    blank: Any
    attributes: tuple[Mapping[str, Any], ...]
    requests: Mapping[str, InputRequest]

    def filled(self, tensors: Mapping[str, torch.Tensor]) -> Any:
        """A new cache with these tensors in it; it may grow, and they stay as they are."""

        def made(value: Any) -> Any:
            return tensors[value.name] if isinstance(value, InputRequest) else value

        cache = copy.copy(self.blank)
        cache.layers = [copy.copy(layer) for layer in self.blank.layers]
        for layer, attributes in zip(cache.layers, self.attributes, strict=True):
            vars(layer).update(pytree.tree_map(made, dict(attributes)))
        return cache

    def specs(self) -> Iterator[InputSpec]:
        """Alike tensors of all layers as one, the number of layers first."""
        alike = Counter(
            (name.partition("_")[2], request.shape, request.dtype)
            for name, request in self.requests.items()
        )
        for (kind, shape, of), layers in alike.items():
            assert of is not None
            yield InputSpec(name=f"past_{kind}", shape=(layers, *shape), dtype=of)


def _cache_template(source: Source, context: int, batch: int, run: Run) -> CacheTemplate:
    """The cache that a model has after a prompt."""
    ids = InputRequest(shape=(batch, context), dtype=dtype("int64"))
    prompt = Inputs(input_ids=ids, use_cache=True)
    result = run_on_fakes(source.module, prompt, name=source.name, run=run)
    cache = getattr(result, "past_key_values", None)
    layers = getattr(cache, "layers", None)
    kind = type(source.module).__name__
    if cache is None:
        raise ModelError(
            f"model '{source.name}': {kind} keeps nothing of a prompt, so it has no decode; stages"
            " are those of models that continue text, such as hf:llama"
        )
    if not layers:
        raise ModelError(
            f"model '{source.name}': its cache is a {type(cache).__name__}, which holds no layers"
            " of keys and values (transformers from 5.0 on has them)"
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
        # What is one number is the layer's own, such as its window.
        own = {
            name: value
            for name, value in vars(layer).items()
            if not (isinstance(value, torch.Tensor) and value.dim() == 0)
        }
        requested = functools.partial(request, number=number)
        attributes.append(pytree.tree_map_with_path(requested, own))
    if not requests:
        raise ModelError(
            f"model '{source.name}': {kind} keeps nothing of a prompt in its cache, so it has no"
            " decode"
        )
    kinds: Any = importlib.import_module("transformers.cache_utils")
    if type(cache) is kinds.DynamicCache:
        # One of the same kind that nothing was put into.
        made = kinds.DynamicCache(config=source.module.config)
        cache = made if len(made.layers) == len(layers) else cache
    return CacheTemplate(blank=cache, attributes=tuple(attributes), requests=requests)


Stage = Literal["prefill", "decode"]
STAGES: tuple[Stage, ...] = get_args(Stage)

_PADDING_ROWS = 2
"""Rows that some tables of positions, learned or made ahead, keep for what is padding."""

_MAX_CONTEXT = 2**31
"""More than any context; a larger number is a mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSource:
    """A model that runs one stage, what it is given, and what to know about it.

    ``specs`` describe the inputs; tensors of a cache that are alike in all layers are one of them,
    with the number of layers before their sizes.
    """

    source: Source
    given: Inputs
    specs: tuple[InputSpec, ...]
    notes: tuple[str, ...]


def staged_source(
    source: Source, *, stage: Stage, context: int, batch: int, run: Run
) -> StagedSource:
    """Return `source` as it runs a stage over `context` tokens of each of `batch` sequences."""
    if stage not in STAGES:
        raise InputError(f"{argument('stage', stage)}: there are {' and '.join(STAGES)}")
    for name, value in (("context", context), ("batch", batch)):
        # True is a whole number to Python.
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
    note = f"logits of all positions: {type(module).__name__} cannot leave them out"
    if kept := next((each for each in takes if each.endswith("logits_to_keep")), ""):
        options[kept] = 1
        note = f"logits of the last position alone ({kept}=1)"
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


# -- what can be asked -----------------------------------------------------------------------------


def check_decoder(module: Any, name: str) -> None:
    """Refuse what is no decoder of transformers with a cache of keys and values."""
    if not is_transformers_model(module):
        raise ModelError(
            f"model '{name}': prefill and decode are stages of transformers' language models; name"
            " one (hf:llama), or a function that makes one (file.py:function)"
        )
    if module.config.is_encoder_decoder:
        raise ModelError(
            f"model '{name}': {type(module).__name__} has an encoder beside its decoder; stages are"
            " those of models that only continue text, such as hf:llama"
        )
    takes = inspect.signature(module.forward).parameters
    missing = [each for each in ("input_ids", "past_key_values") if each not in takes]
    if missing:
        raise ModelError(
            f"model '{name}': the forward of {type(module).__name__} takes no"
            f" {' and no '.join(missing)}, so it has no prefill and decode"
        )
    if not module.can_generate():
        raise ModelError(
            f"model '{name}': {type(module).__name__} gives no tokens; stages are those of models"
            " that continue text, such as hf:llama or hf:LlamaForCausalLM"
        )


def _check_positions(module: Any, name: str) -> None:
    """Refuses positions that a pass cannot have without the values of its tensors."""
    rotary = getattr(module.config.get_text_config(), "rope_parameters", None)
    tables = [rotary, *rotary.values()] if isinstance(rotary, dict) else []
    kinds = [str(each.get("rope_type")) for each in tables if isinstance(each, dict)]
    if any("dynamic" in each for each in kinds):
        raise ModelError(
            f"model '{name}': its positions are 'dynamic', made anew as soon as a text is longer"
            " than all before; how long is a value, and only shapes are known here. Others take as"
            f" much work and memory: {argument('config')} …,rope_parameters={{"
            '"rope_type":"default","rope_theta":10000.0}'
        )


def _position_notes(module: Any, name: str, stage: Stage, context: int) -> Iterator[str]:
    """What there is to say of a context that is longer than the model was made for.

    Raises:
        InputError: the model looks positions up in a table, which ends before.
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
            f"{', the new one included' * one} ({setting}); choose at most {most - one}"
        )
    yield (
        f"{name} was made for {most} tokens ({setting}); a context of {context} is"
        " counted all the same, as its positions are computed"
    )


# -- the model -------------------------------------------------------------------------------------


def _decoding(
    model: torch.nn.Module, held: CacheTemplate, options: Mapping[str, Any]
) -> torch.nn.Module:
    """Return `model` with a forward of token and cache; its modules keep their paths."""
    decoding = copy.copy(model)

    def forward(input_ids: torch.Tensor, past: Mapping[str, torch.Tensor]) -> Any:
        # Every pass makes a cache of the tensors that it is given, since the model lets it grow.
        cache = held.filled(past)
        # Looked up at each call: while a pass is watched, the class has another one.
        whole: Any = type(decoding).forward
        return whole(decoding, input_ids=input_ids, past_key_values=cache, **options)

    vars(decoding)["forward"] = forward
    return decoding
