"""The layers and models that int8 is learned from: convolutions and linear layers on codes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from roofline.latency.curriculum import (
    POOLED,
    Subject,
    convolutions,
    image_design,
    layer_design,
    model_subject,
)

_INT8_MODELS = (
    *("resnet18", "mobilenet_v2", "squeezenet1_1", "googlenet", "vgg11", "shufflenet_v2_x1_0"),
    *("densenet121", "regnet_y_800mf", "mnasnet1_0", "alexnet", "inception_v3", "resnet50"),
)
"""Those that torch.fx can trace: torch quantises no others with codes from layer to layer."""

_LINEARS = (
    # Width, results, tokens, batch.
    *((64, 64, 16, 1), (128, 512, 50, 1), (192, 768, 197, 1), (256, 256, 1, 64), (320, 80, 128, 4)),
    *((384, 1536, 50, 1), (448, 1000, 1, 8), (512, 512, 1, 1), (512, 2048, 64, 1)),
    *((640, 160, 197, 4), (768, 768, 50, 1), (768, 3072, 128, 1), (1024, 1000, 1, 1)),
    *((1024, 1024, 1, 64), (1280, 1000, 1, 4), (1536, 384, 256, 1), (2048, 1000, 1, 8)),
    *((2048, 512, 100, 1), (4096, 1000, 1, 1), (3072, 768, 200, 4), (4096, 4096, 1, 1)),
)
_JOINED = (
    *((16, 32, 1), (24, 56, 4), (48, 28, 1), (64, 56, 1), (96, 14, 8), (160, 20, 1)),
    *((192, 10, 4), (256, 14, 1), (384, 7, 8), (512, 8, 1)),
)
_ENTRANCES = (
    # Channels, kernel, stride, pixels, batch.
    *((16, 3, 2, 192, 1), (24, 3, 2, 256, 1), (32, 3, 1, 128, 1), (40, 3, 2, 160, 4)),
    *((48, 7, 2, 192, 1), (64, 7, 2, 240, 1), (96, 11, 4, 200, 1), (96, 7, 2, 256, 4)),
    *((56, 3, 1, 200, 1), (64, 3, 2, 256, 1)),
)
_POOLED_CODES = ((24, 96, 1), (80, 40, 1), (116, 30, 4), (288, 32, 1))
"""Beside those of `POOLED`: widths that fill no register."""


def int8_models() -> tuple[Subject, ...]:
    """Models that are measured in int8, each at one batch, once all others were in their types."""
    return tuple(model_subject(name, (1,)) for name in _INT8_MODELS)


def int8_designs() -> tuple[Subject, ...]:
    """Layers that are measured in int8: the same ones every time, their kinds mixed.

    Their images have their channels last, as int8 convolutions write them; what a model is given
    lies as it is, so entrances have theirs in front.
    """
    inner = dict.fromkeys([*convolutions(), *_joined(), *_pools()])
    found = [replace(each, channels_last=True) for each in inner]
    found += [*_entrances(), *_linears()]
    return tuple(_evenly(found))


def _evenly(subjects: Sequence[Subject]) -> list[Subject]:
    """The subjects with each kind spread over all of the list: a calibration may end anywhere."""
    kinds: dict[tuple[str, bool], list[Subject]] = {}
    for each in subjects:
        kinds.setdefault((each.kind, each.channels_last), []).append(each)
    placed: list[tuple[float, Subject]] = []
    for alike in kinds.values():
        random.Random(18).shuffle(alike)
        placed += [((place + 0.5) / len(alike), each) for place, each in enumerate(alike)]
    return [each for _, each in sorted(placed, key=lambda pair: pair[0])]


def _entrances() -> Iterator[Subject]:
    """Convolutions of images of three colours, with which models begin."""
    for out, kernel, stride, pixels, batch in _ENTRANCES:
        yield image_design("standard", (3, out, kernel, stride), 3, pixels, batch)


def _linears() -> Iterator[Subject]:
    for wide, out, tokens, batch in _LINEARS:
        yield layer_design(
            "linear", (wide, out), (batch, tokens, wide) if tokens > 1 else (batch, wide)
        )


def _joined() -> Iterator[Subject]:
    """Sums and concatenations, whose operands have codes of different scales."""
    for wide, pixels, batch in _JOINED:
        yield image_design("residual", (wide,), wide, pixels, batch)
        yield image_design("branches", (wide, wide // 2), wide, pixels, batch)
        yield image_design("limited", (wide, 2 * wide), wide, pixels, batch)


def _pools() -> Iterator[Subject]:
    """Pooling of what a layer has made codes of: torch leaves that of floats as it is."""
    for wide, pixels, batch in (*POOLED, *_POOLED_CODES):
        yield image_design("max_pool_of", (wide, 3, 2), wide, pixels, batch)
        yield image_design("average_pool_of", (wide, 2, 2), wide, pixels, batch)
        yield image_design("global_pool_of", (wide,), wide, pixels, batch)
    for wide, pixels, batch in _POOLED_CODES:
        yield image_design("average_pool_of", (wide, 3, 1), wide, pixels, batch)
