"""transformers' models by type or class: default sizes, no weights, and never a download."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch

from roofline.errors import ModelError, nearest
from roofline.workload.models.building import Source, build
from roofline.workload.models.libraries.availability import said
from roofline.workload.models.libraries.model_settings import Settings
from roofline.workload.models.libraries.names import (
    is_abstract,
    nearest_type,
    transformers_classes,
    transformers_type,
    transformers_types,
)
from roofline.workload.models.libraries.transformers_config import configured, what_sizes
from roofline.workload.models.libraries.transformers_inputs import transformers_inputs

LABELS = 1000
"""What image classifiers tell apart, as torchvision's do; their configurations say 2."""


def transformers_model(
    transformers: ModuleType,
    model: str,
    asked: str,
    *,
    seq: int | None = None,
    settings: Settings | None = None,
) -> Source:
    """The model of a type (``bert``) or class (``BertForMaskedLM``), in the sizes asked for.

    Of a type that only continues text it is the causal language model, of all others the plain
    model, without a head.

    Args:
        transformers: the library.
        model: the type, ``-`` and ``_`` being the same, or the class.
        asked: what messages and results call the model.
        seq: how many tokens it is given; None: 128, or as many as it takes.
        settings: its sizes; None: the default ones.

    Raises:
        ModelError: no such type or class, or one that cannot be built from its configuration.
        InputError: more tokens than it takes, or it takes none; wrong sizes.
    """
    around = functools.partial(_quiet_and_offline, transformers)
    with around():
        make, config_notes = _maker(transformers, model, asked, settings)
    source = build(asked, make, around)
    module: Any = source.module
    inputs, input_notes = transformers_inputs(module, name=asked, seq=seq)
    kind, of = type(module).__name__, type(module.config)
    sizes = f"the default sizes of {of.__name__}" if settings is None else what_sizes(settings, of)
    what = f"{asked} is transformers' {kind} with {sizes}"
    if kind.endswith("ForImageClassification"):
        what += f" and {LABELS} labels"
    notes = (what, *config_notes, *_type_of_weights(module), *source.notes)
    return replace(source, default_inputs=inputs, input_notes=input_notes, notes=notes)


def _maker(
    transformers: ModuleType, model: str, asked: str, settings: Settings | None
) -> tuple[Callable[[], Any], tuple[str, ...]]:
    """What builds `model`, and what to know about its configuration."""
    kind = transformers_type(model)
    if kind is not None:
        config, notes = _config_of(transformers.CONFIG_MAPPING[kind], asked, settings)
        auto = importlib.import_module("transformers.models.auto.modeling_auto")
        if _continues_text(kind, config, auto):
            return lambda: transformers.AutoModelForCausalLM.from_config(config), notes
        if kind in auto.MODEL_MAPPING_NAMES:
            return lambda: transformers.AutoModel.from_config(config), notes
        raise ModelError(
            f"model '{asked}': transformers has no plain model of this type;"
            f" write the class that you mean{_classes_for(type(config))}"
        )
    model_class = _model_class(transformers, model) if model.isidentifier() else None
    if model_class is None:
        raise unknown_to_transformers(model, asked)
    if model_class.forward is torch.nn.Module.forward:
        # Other classes build on it; the names of a few do not show that.
        raise no_model_of_its_own(asked)
    labels = {"num_labels": LABELS} if model.endswith("ForImageClassification") else {}
    config, notes = _config_of(model_class.config_class, asked, settings, **labels)
    if settings is not None:
        # Unlike the class itself, this builds weights of the type that the configuration names.
        return functools.partial(model_class._from_config, config), notes
    return functools.partial(model_class, config), notes


def _config_of(
    config_class: Any, asked: str, settings: Settings | None, **labels: int
) -> tuple[Any, tuple[str, ...]]:
    """The configuration of the sizes asked for, and what to know about it."""
    if settings is None:
        return _default_config(asked, functools.partial(config_class, **labels)), ()
    if labels:
        settings = replace(settings, base={**labels, **settings.base})
    config, notes = configured(config_class, settings, asked=asked)
    return _without_weights(config), notes


def _type_of_weights(module: torch.nn.Module) -> Iterator[str]:
    """The type of the weights, where the configuration says another than torch's default."""
    kinds = {each.dtype for each in module.parameters() if each.is_floating_point()}
    if len(kinds) == 1 and (kind := kinds.pop()) is not torch.get_default_dtype():
        yield f"its weights are {str(kind).removeprefix('torch.')}, as its configuration says"


def _continues_text(kind: str, config: Any, auto: ModuleType) -> bool:
    """Whether models of a type are decoders alone, whose one task is to continue text.

    transformers can make a causal language model of many an encoder (`BertLMHeadModel`), and of the
    decoder of an encoder-decoder (`BartForCausalLM`). So of the types that have one, these are not
    meant: those whose configuration has both parts; those that have a masked language model too,
    because they read text in both directions; one whose plain model is called an encoder; and those
    whose causal language model takes images as well (``…ForConditionalGeneration``).
    """
    causal = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind, "")
    return (
        bool(causal)
        and not causal.endswith("ForConditionalGeneration")
        and not config.is_encoder_decoder
        and kind not in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
        and not str(auto.MODEL_MAPPING_NAMES.get(kind, "")).endswith("Encoder")
    )


def _default_config(asked: str, make: Callable[[], Any]) -> Any:
    try:
        return _without_weights(make())
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ModelError(
            f"model '{asked}': it has no default configuration: {said(error)};"
            " build it from one of yours: file.py:function"
        ) from error


def _without_weights(config: Any) -> Any:
    """Older versions fetch the weights of a backbone, though those of the model are not asked."""
    if getattr(config, "use_pretrained_backbone", False):
        config.use_pretrained_backbone = False
    return config


def _model_class(transformers: ModuleType, name: str) -> Any:
    """The class of that name, if it is one of models that have a configuration."""
    try:
        found: Any = getattr(transformers, name, None)
        if not isinstance(found, type) or not issubclass(found, transformers.PreTrainedModel):
            return None
        return found if found.config_class is not None else None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ModelError(f"model 'hf:{name}': importing it failed: {said(error)}") from error


def _classes_for(config_class: type) -> str:
    """The clause ``": hf:A or hf:B"`` for the model classes of a configuration, or ``""``."""
    try:
        home = importlib.import_module(
            config_class.__module__.replace("configuration_", "modeling_")
        )
    except Exception:
        return ""
    found = [
        f"hf:{name}"
        for name, value in vars(home).items()
        if isinstance(value, type) and vars(value).get("config_class") is config_class
        if not name.endswith("PreTrainedModel")
    ]
    return f": {' or '.join(found[:3])}" if found else ""


def no_model_of_its_own(asked: str) -> ModelError:
    """Says that a class stands for many models, and that one of these must be named."""
    return ModelError(
        f"model '{asked}': in transformers that is no model of its own (Auto… and …PreTrainedModel"
        " stand for many); name a type, such as hf:bert, or the class of a model, such as"
        " hf:BertForMaskedLM"
    )


def unknown_to_transformers(model: str, asked: str) -> ModelError:
    """Says that a name is neither a type nor a class, and what could be meant."""
    if is_abstract(model):
        return no_model_of_its_own(asked)
    if model.isidentifier() and transformers_type(model.lower()) is None:
        names = transformers_types() if model.islower() else transformers_classes()
        near = nearest(model, sorted(names), prefix="hf:")
    else:
        kind = nearest_type(model)
        near = f"; did you mean 'hf:{kind}'?" if kind else ""
    return ModelError(
        f"unknown model '{asked}'{near} (neither a type nor a model class of transformers;"
        " nothing is downloaded, so names on the hub are not taken)"
    )


@contextlib.contextmanager
def _quiet_and_offline(transformers: ModuleType) -> Iterator[None]:
    """Building says nothing and fetches nothing; settings are then as they were."""
    constants: Any = importlib.import_module("huggingface_hub.constants")
    log = transformers.logging
    before = log.get_verbosity(), constants.HF_HUB_OFFLINE
    log.set_verbosity(log.CRITICAL)
    constants.HF_HUB_OFFLINE = True
    try:
        # Some of its modules print what their authors should know.
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.set_verbosity(before[0])
        constants.HF_HUB_OFFLINE = before[1]
