"""transformers models by type or class, with their inputs: no weights, never a download."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import io
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch

from roofline.core.dtypes import dtype
from roofline.core.text import NOTE
from roofline.core.units import format_shape
from roofline.errors import InputError, ModelError, argument, did_you_mean
from roofline.workload.inputs import InputRequest
from roofline.workload.models.building import Source, build
from roofline.workload.models.libraries.availability import describe_error
from roofline.workload.models.libraries.names import (
    is_abstract,
    names_of,
    nearest_type,
    transformers_classes,
    transformers_type,
)
from roofline.workload.models.libraries.transformers_config import (
    Settings,
    build_config,
    describe_sizes,
)

# Input names come from the model's ``forward``, sizes from its configuration.

DEFAULT_SEQ = 128
"""Default sequence length."""

_IMAGE_SIZE = 224
"""Height and width of an image if the configuration has none."""

_AUDIO_SAMPLES = 16_000
"""Samples of a second of audio, at the usual rate of waveform models."""


def is_transformers_model(module: torch.nn.Module) -> bool:
    """Return whether a module is a transformers model, without importing transformers."""
    return any(
        each.__name__ == "PreTrainedModel" and each.__module__.startswith("transformers.")
        for each in type(module).__mro__
    )


def transformers_inputs(
    model: Any, *, name: str, seq: int | None
) -> tuple[tuple[InputRequest, ...], tuple[str, ...]]:
    """Return the default inputs of a model, batch 1 (none if a size is unknown), and notes."""
    config, notes = model.config, list[str]()
    wanted = _input_names(model, notes, name)
    shapes = {each: _shape(config, each, notes, name) for each in wanted if each not in _TOKENS}
    with_tokens = [each for each in wanted if each in _TOKENS]
    if not with_tokens and seq is not None:
        known = [f"{each} {format_shape(shape)}" for each, shape in shapes.items() if shape]
        takes = f"its inputs are {', '.join(known)}" if known else f"use {argument('inputs')}"
        raise InputError(f"{argument('seq', seq)}: {name} has no token inputs; {takes}")
    # The configuration does not determine sizes of time series and frames of speech.
    if any(shape is None for shape in shapes.values()):
        return (), ()
    if with_tokens:
        shapes |= dict.fromkeys(with_tokens, (1, _tokens(model, seq, notes, name)))
    int64 = dtype("int64")
    requests = (
        InputRequest(name=each, shape=shapes[each] or (), dtype=int64 if each in _TOKENS else None)
        for each in wanted
    )
    return tuple(requests), tuple(notes)


_TOKENS = ("input_ids", "decoder_input_ids")
_MEDIA_INPUTS = ("pixel_values", "input_features", "input_values")


def _input_names(model: Any, notes: list[str], name: str) -> list[str]:
    """Return the names of the inputs of one pass."""
    takes = inspect.signature(model.forward).parameters
    wanted = [model.main_input_name]
    wanted += [
        each.name
        for each in takes.values()
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    if model.main_input_name == "input_ids":
        media = [each for each in _MEDIA_INPUTS if each in takes]
        # Placeholder tokens in the text may represent parts of an image or audio.
        has_places = any(
            getattr(model.config, f"{kind}_token_{number}", None) is not None
            for kind in ("image", "audio", "video")
            for number in ("id", "index")
        )
        if not has_places:
            wanted += media
        elif media:
            notes.append(
                f"only the text part of {name} runs: values of input_ids place images and audio,"
                " and only shapes are known"
            )
    if model.config.is_encoder_decoder and "decoder_input_ids" in takes:
        wanted.append("decoder_input_ids")
    return list(dict.fromkeys(wanted))


def _tokens(model: Any, seq: int | None, notes: list[str], name: str) -> int:
    most, setting = max_tokens(model)
    if most is None:
        return seq or DEFAULT_SEQ
    if seq is None and most < DEFAULT_SEQ:
        notes.append(f"sequence length {most}, the maximum of {name} ({setting})")
    if seq is not None and seq > most:
        raise InputError(f"{argument('seq', seq)}: {name} has at most {most} tokens ({setting})")
    return seq or min(DEFAULT_SEQ, most)


def max_tokens(model: Any) -> tuple[int | None, str]:
    """Return the largest sequence length (None: any), and the setting that limits it."""
    text = model.config.get_text_config()
    limits = [
        (value, setting)
        for setting in (
            "max_position_embeddings",
            "max_target_positions",
            "max_encoder_position_embeddings",
            "max_decoder_position_embeddings",
        )
        # -1 in XLNet: no limit.
        if isinstance(value := getattr(text, setting, None), int) and value > 0
    ]
    if not limits:
        return None, ""
    most, setting = min(limits)
    for path, module in model.named_modules():
        # RoBERTa and similar models count positions from the one after the padding index.
        if (
            isinstance(module, torch.nn.Embedding)
            and path.endswith("position_embeddings")
            and module.padding_idx is not None
            and module.num_embeddings == most
        ):
            return most - module.padding_idx - 1, setting
    return most, setting


def _shape(config: Any, name: str, notes: list[str], model: str) -> tuple[int, ...] | None:
    """Return the shape of an input other than tokens; None if the configuration lacks it."""
    has_bins = hasattr(config, "num_mel_bins")
    match name:
        case "pixel_values":
            return _image(config, notes, model)
        case "input_values" if has_bins and hasattr(config, "max_length"):
            # The spectrogram of the Audio Spectrogram Transformer.
            return (1, config.max_length, config.num_mel_bins)
        case "input_values" if hasattr(config, "conv_stride"):
            # Models that start with convolutions over time (wav2vec 2.0).
            return (1, _AUDIO_SAMPLES)
        case "input_features" if has_bins and not hasattr(config, "input_feat_per_channel"):
            # All frames with positions in Whisper's encoder; a convolution halves them.
            positions = getattr(config, "max_source_positions", None)
            is_known = isinstance(positions, int)
            return (1, config.num_mel_bins, 2 * positions) if is_known else None
        case _:
            return None


def _image(config: Any, notes: list[str], model: str) -> tuple[int, ...]:
    """Return the shape of an image, or of a clip if the configuration has frames."""
    channels = _visual(config, "num_channels", "in_channels", "in_chans")
    match _visual(config, "image_size", "input_size"):
        case int(size):
            height, width = size, size
        case (int(height), int(width)):
            pass
        case {"height": int(height), "width": int(width)}:
            pass
        case _:
            height, width = _IMAGE_SIZE, _IMAGE_SIZE
            notes.append(f"image size {height}x{width}: the configuration of {model} has none")
    frames = getattr(config, "num_frames", None)
    clip = (frames,) if isinstance(frames, int) else ()
    return (1, *clip, channels if isinstance(channels, int) else 3, height, width)


def _visual(config: Any, *settings: str) -> Any:
    """Return the first of these settings in the configuration or its vision part."""
    for part in ("", "vision_config", "image_config", "backbone_config", "encoder"):
        for setting in settings:
            value = getattr(getattr(config, part, None) if part else config, setting, None)
            if value is not None:
                return list(value) if isinstance(value, tuple) else value
    return None


LABELS = 1000
"""Classes of image classifiers, as in torchvision; the configuration's default is 2."""


def transformers_model(
    transformers: ModuleType,
    model: str,
    title: str,
    *,
    seq: int | None = None,
    settings: Settings | None = None,
) -> Source:
    """Return the model of a type (``bert``) or class (``BertForMaskedLM``)."""
    around = functools.partial(_quiet_and_offline, transformers)
    with around():
        make, config_notes = _maker(transformers, model, title, settings)
    source = build(title, make, around)
    module: Any = source.module
    inputs, input_notes = transformers_inputs(module, name=title, seq=seq)
    kind, of = type(module).__name__, type(module.config)
    sizes = (
        f"the default sizes of {of.__name__}" if settings is None else describe_sizes(settings, of)
    )
    what = f"{NOTE}{title} is {kind} of transformers with {sizes}"
    if kind.endswith("ForImageClassification"):
        what += f" and {LABELS} labels"
    notes = [what, *config_notes]
    kinds = {each.dtype for each in module.parameters() if each.is_floating_point()}
    if len(kinds) == 1 and (weights := kinds.pop()) is not torch.get_default_dtype():
        weights_are = str(weights).removeprefix("torch.")
        notes.append(f"{NOTE}weights are {weights_are}, as in the configuration")
    notes += source.notes
    return replace(source, default_inputs=inputs, input_notes=input_notes, notes=tuple(notes))


def _maker(
    transformers: ModuleType, model: str, title: str, settings: Settings | None
) -> tuple[Callable[[], Any], tuple[str, ...]]:
    """Return the factory of `model`, and notes on its configuration."""
    kind = transformers_type(model)
    if kind is not None:
        config, notes = _config_of(transformers.CONFIG_MAPPING[kind], title, settings)
        auto = importlib.import_module("transformers.models.auto.modeling_auto")
        if _is_causal_decoder(kind, config, auto):
            return lambda: transformers.AutoModelForCausalLM.from_config(config), notes
        if kind in auto.MODEL_MAPPING_NAMES:
            return lambda: transformers.AutoModel.from_config(config), notes
        begin = re.sub(r"\W|_", "", kind).lower()
        found = [
            each
            for each in dir(transformers)
            if each.lower().startswith(begin) and re.search("Model$|For[A-Z]", each)
            if not is_abstract(each)
        ]
        shown = f": {' or '.join(f'hf:{each}' for each in found[:3])}" if found else ""
        raise ModelError(
            f"model '{title}': transformers has no base model of this type;"
            f" name a model class{shown}"
        )
    model_class = _model_class(transformers, model) if model.isidentifier() else None
    if model_class is None:
        raise unknown_name_error(model, title)
    if model_class.forward is torch.nn.Module.forward:
        # An abstract class without the usual name.
        raise abstract_class_error(title)
    labels = {"num_labels": LABELS} if model.endswith("ForImageClassification") else {}
    config, notes = _config_of(model_class.config_class, title, settings, **labels)
    if settings is not None:
        # Unlike the class itself, this uses the data type in the configuration.
        return functools.partial(model_class._from_config, config), notes
    return functools.partial(model_class, config), notes


def _config_of(
    config_class: Any, title: str, settings: Settings | None, **labels: int
) -> tuple[Any, tuple[str, ...]]:
    """Return the configuration with the requested sizes, and notes on it."""
    notes: tuple[str, ...] = ()
    if settings is not None:
        sizes = replace(settings, base={**labels, **settings.base}) if labels else settings
        config, notes = build_config(config_class, sizes, title=title)
    else:
        try:
            config = config_class(**labels)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise ModelError(
                f"model '{title}': no default configuration: {describe_error(error)};"
                " build it in Python: file.py:function"
            ) from error
    # Older versions download the weights of a backbone.
    if getattr(config, "use_pretrained_backbone", False):
        config.use_pretrained_backbone = False
    return config, notes


def _is_causal_decoder(kind: str, config: Any, auto: ModuleType) -> bool:
    """Return whether models of a type are decoder-only language models.

    transformers also builds causal language models of encoders (`BertLMHeadModel`) and of decoders
    of encoder-decoders (`BartForCausalLM`). Excluded are therefore: encoder-decoders; types with a
    masked language model, which are bidirectional; types whose base model is an encoder; and types
    whose causal language model takes images (``…ForConditionalGeneration``).
    """
    causal = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind, "")
    return (
        bool(causal)
        and not causal.endswith("ForConditionalGeneration")
        and not config.is_encoder_decoder
        and kind not in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
        and not str(auto.MODEL_MAPPING_NAMES.get(kind, "")).endswith("Encoder")
    )


def _model_class(transformers: ModuleType, name: str) -> Any:
    """Return the model class of that name, or None."""
    try:
        found: Any = getattr(transformers, name, None)
        if not isinstance(found, type) or not issubclass(found, transformers.PreTrainedModel):
            return None
        return found if found.config_class is not None else None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ModelError(
            f"model 'hf:{name}': importing it failed: {describe_error(error)}"
        ) from error


def abstract_class_error(title: str) -> ModelError:
    """Return the error for an abstract class of transformers."""
    return ModelError(
        f"model '{title}': an abstract class of transformers; name a type, such as hf:bert, or a"
        " model class, such as hf:BertForMaskedLM"
    )


def unknown_name_error(model: str, title: str) -> ModelError:
    """Return the error for an unknown name, with a suggestion."""
    if is_abstract(model):
        return abstract_class_error(title)
    if model.isidentifier() and transformers_type(model.lower()) is None:
        names = names_of("transformers") if model.islower() else transformers_classes()
        near = did_you_mean(model, sorted(names), prefix="hf:")
    else:
        kind = nearest_type(model)
        near = f"; did you mean 'hf:{kind}'?" if kind else ""
    return ModelError(
        f"unknown model '{title}'{near} (not a type or model class of transformers; hub names are"
        " not supported: nothing is downloaded)"
    )


@contextlib.contextmanager
def _quiet_and_offline(transformers: ModuleType) -> Iterator[None]:
    """Silence transformers and turn off downloads; restore its settings afterwards."""
    constants: Any = importlib.import_module("huggingface_hub.constants")
    log = transformers.logging
    before = log.get_verbosity(), constants.HF_HUB_OFFLINE
    log.set_verbosity(log.CRITICAL)
    constants.HF_HUB_OFFLINE = True
    try:
        # Some of its modules print notes for their authors.
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        log.set_verbosity(before[0])
        constants.HF_HUB_OFFLINE = before[1]
