"""What a transformers model is given by default: tokens, an image, or sound, as it takes them.

The names come from the model's ``forward``, the sizes from its configuration.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from roofline.errors import InputError
from roofline.foundation.dtypes import dtype
from roofline.foundation.units import format_shape
from roofline.workload.inputs import InputRequest

DEFAULT_SEQ = 128
"""Tokens that a model is given if not told otherwise."""

_IMAGE_SIZE = 224
"""Height and width of an image for models whose configuration names none."""

_RESERVED = 2
"""Rows that some tables of positions keep for what is padding."""

_SECOND = 16_000
"""Samples of a second of sound, as models that take the waveform were trained on."""


def is_transformers_model(module: torch.nn.Module) -> bool:
    """Whether it is one of transformers' models, which need not be imported for this."""
    return any(
        each.__name__ == "PreTrainedModel" and each.__module__.startswith("transformers.")
        for each in type(module).__mro__
    )


def transformers_inputs(
    model: Any, *, name: str, seq: int | None
) -> tuple[tuple[InputRequest, ...], tuple[str, ...]]:
    """The inputs that `model` takes, batch 1, and what to know about them, one line each.

    Args:
        model: one of transformers' models, of any sizes.
        name: what messages call it.
        seq: how many tokens, for an encoder and a decoder each; None: 128, or as many as it takes.

    Returns:
        Requests by keyword, and notes. There are no requests where an input is of a kind whose
        size does not follow from the configuration (time series, frames of speech).

    Raises:
        InputError: more tokens than it takes, or it takes none.
    """
    config, notes = model.config, list[str]()
    wanted = _wanted(model, notes, name)
    shapes: dict[str, tuple[int, ...] | None] = {}
    for each in wanted:
        if each not in _TOKENS:
            shapes[each] = _shape(config, each, notes, name)
    if not any(each in _TOKENS for each in wanted) and seq is not None:
        raise _takes_no_tokens(name, seq, shapes)
    if any(shape is None for shape in shapes.values()):
        return (), ()
    if any(each in _TOKENS for each in wanted):
        tokens = _tokens(model, seq, notes, name)
        shapes.update({each: (1, tokens) for each in wanted if each in _TOKENS})
    requests = (
        InputRequest(
            name=each, shape=shapes[each] or (), dtype=dtype("int64") if each in _TOKENS else None
        )
        for each in wanted
    )
    return tuple(requests), tuple(notes)


_TOKENS = ("input_ids", "decoder_input_ids")
_BESIDE_TOKENS = ("pixel_values", "input_features", "input_values")


def _wanted(model: Any, notes: list[str], name: str) -> list[str]:
    """The names of the inputs that one pass needs."""
    takes = inspect.signature(model.forward).parameters
    wanted = [model.main_input_name]
    wanted += [
        each.name
        for each in takes.values()
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    if model.main_input_name == "input_ids":
        beside = [each for each in _BESIDE_TOKENS if each in takes]
        if not _has_places_for_images(model.config):
            wanted += beside
        elif beside:
            notes.append(
                f"only the text part of {name} runs: images and sounds enter where the values of"
                " input_ids say, which are not known"
            )
    if model.config.is_encoder_decoder and "decoder_input_ids" in takes:
        wanted.append("decoder_input_ids")
    return list(dict.fromkeys(wanted))


def _has_places_for_images(config: Any) -> bool:
    """Whether a token stands in the text for every part of an image or sound."""
    return any(
        getattr(config, f"{kind}_token_{number}", None) is not None
        for kind in ("image", "audio", "video")
        for number in ("id", "index")
    )


def _tokens(model: Any, seq: int | None, notes: list[str], name: str) -> int:
    most, setting = _most_tokens(model)
    if most is None:
        return seq or DEFAULT_SEQ
    if seq is None and most < DEFAULT_SEQ:
        notes.append(f"{name} takes at most {most} tokens ({setting}), fewer than {DEFAULT_SEQ}")
    if seq is not None and seq > most:
        raise InputError(f"--seq {seq}: {name} takes at most {most} tokens ({setting})")
    return seq or min(DEFAULT_SEQ, most)


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionLimit:
    """How many tokens a model has positions for (None: any number), by which of its settings.

    ``has_table`` says that they are looked up in a table, beyond whose end there are none; else
    they are computed, and the setting says what the model was trained for.
    """

    most: int | None
    setting: str
    has_table: bool


def position_limit(model: Any) -> PositionLimit:
    """How many tokens one of transformers' models has positions for."""
    most, setting = _most_tokens(model)
    has_table = most is not None and any(
        most <= size <= most + _RESERVED for size in _position_tables(model)
    )
    return PositionLimit(most=most, setting=setting, has_table=has_table)


def _position_tables(model: torch.nn.Module) -> Iterator[int]:
    """The rows of each table of positions, learned or made ahead."""
    for path, table in (*model.named_parameters(), *model.named_buffers()):
        name = path.removesuffix(".weight").rpartition(".")[2]
        if ("pos" in name or name == "wpe") and table.dim() == 2:
            yield table.shape[0]


def _most_tokens(model: Any) -> tuple[int | None, str]:
    """How many tokens the model's positions are enough for, and the setting that says so."""
    text = model.config.get_text_config()
    limits = [
        (value, setting)
        for setting in (
            "max_position_embeddings",
            "max_target_positions",
            "max_encoder_position_embeddings",
            "max_decoder_position_embeddings",
        )
        # XLNet says -1: as many as you like.
        if isinstance(value := getattr(text, setting, None), int) and value > 0
    ]
    if not limits:
        return None, ""
    most, setting = min(limits)
    for path, module in model.named_modules():
        # RoBERTa and its like count positions from the one after that of the padding.
        if (
            isinstance(module, torch.nn.Embedding)
            and path.endswith("position_embeddings")
            and module.padding_idx is not None
            and module.num_embeddings == most
        ):
            return most - module.padding_idx - 1, setting
    return most, setting


def _shape(config: Any, name: str, notes: list[str], model: str) -> tuple[int, ...] | None:
    """The shape of an input that is not tokens; None where the configuration does not say it."""
    match name:
        case "pixel_values":
            return _image(config, notes, model)
        case "input_values":
            return _waveform(config)
        case "input_features":
            return _spectrogram(config)
        case _:
            return None


def _image(config: Any, notes: list[str], model: str) -> tuple[int, ...]:
    """One image of the size that the configuration names; a clip where it names frames."""
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
            notes.append(f"{model} names no image size, so {height}x{width} was taken")
    frames = getattr(config, "num_frames", None)
    clip = (frames,) if isinstance(frames, int) else ()
    return (1, *clip, channels if isinstance(channels, int) else 3, height, width)


def _visual(config: Any, *settings: str) -> Any:
    """The first of these settings that the configuration has, or its part for images."""
    for part in ("", "vision_config", "image_config", "backbone_config", "encoder"):
        for setting in settings:
            value = getattr(getattr(config, part, None) if part else config, setting, None)
            if value is not None:
                return list(value) if isinstance(value, tuple) else value
    return None


def _waveform(config: Any) -> tuple[int, ...] | None:
    """A second of sound for those that start with convolutions over time (wav2vec 2.0)."""
    if hasattr(config, "num_mel_bins") and hasattr(config, "max_length"):
        # The Audio Spectrogram Transformer calls its spectrogram so too.
        return (1, config.max_length, config.num_mel_bins)
    return (1, _SECOND) if hasattr(config, "conv_stride") else None


def _spectrogram(config: Any) -> tuple[int, ...] | None:
    """All frames that Whisper's encoder has positions for, of which a convolution drops half."""
    if hasattr(config, "input_feat_per_channel") or not hasattr(config, "num_mel_bins"):
        return None
    positions = getattr(config, "max_source_positions", None)
    return (1, config.num_mel_bins, 2 * positions) if isinstance(positions, int) else None


def _takes_no_tokens(
    name: str, seq: int, shapes: Mapping[str, tuple[int, ...] | None]
) -> InputError:
    known = [f"{each} {format_shape(shape)}" for each, shape in shapes.items() if shape]
    takes = f"it takes {', '.join(known)}" if known else "say what it takes with --input"
    return InputError(f"--seq {seq}: {name} takes no tokens; {takes}")
