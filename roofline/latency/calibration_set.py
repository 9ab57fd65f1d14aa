"""Calibration set: models of many families, designs of their layers, and int8 variants."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from roofline.core.rows import grouped

DESIGN = "design"
"""Family of designs."""

_FAMILIES = (
    # Prefix of names, and family; the first match counts.
    (r"(tv_|legacy_|gc|eca|se|sk|wide_)*(resnet|resnext|res2net|res2next)", "resnet"),
    (r"(tf_)?(efficientnet|mixnet)|tinynet", "efficientnet"),
    (r"(tf_)?mobilenet", "mobilenet"),
    (r"mobilevit", "mobilevit"),
    (r"regnet", "regnet"),
    (r"convnext", "convnext"),
    (r"(google|inception|tf_inception)", "inception"),
    (r"(deit|vit|beit|eva|cait)", "vit"),
    (r"(mixer|resmlp|gmlp|gmixer)", "mixer"),
    (r"swin", "swin"),
    (r"(bert|roberta|distilbert|mobilebert|albert|electra|xlm-?roberta|deberta|camembert)", "bert"),
    (r"(gpt|openaigpt|distilgpt)", "gpt"),
    (r"(t5|mt5|umt5|longt5)", "t5"),
    (r"(llama|mistral|qwen|gemma|phi|olmo|mixtral)", "llama"),
)


def family_of(model: str) -> str:
    """Return the family of a model by its name: ``"resnet"`` of ``"timm:wide_resnet50_2"``.

    Other models have the first word of their name, expressions of layers `DESIGN`.
    """
    written = model.partition("@")[0]
    if "(" in written or "+" in written:
        return DESIGN
    model = written
    name = model.rpartition(":")[2].lower() if not model.endswith(".py") else model
    for pattern, family in _FAMILIES:
        if re.match(pattern, name):
            return family
    word = re.match(r"[a-z]+", name.lstrip("_"))
    return word.group() if word else name


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationCase:
    """A model by name, or a design by kind, sizes and input shape, to measure.

    ``batches`` are the batch sizes to measure; ``channels_last`` is the memory format.
    """

    name: str
    family: str
    batches: tuple[int, ...] = (1,)
    kind: str = ""
    sizes: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    channels_last: bool = False

    @property
    def is_design(self) -> bool:
        """True for a design, False for a model."""
        return bool(self.kind)


_MODELS: tuple[tuple[str, tuple[int, ...]], ...] = (
    # The first minute: one of each kind of kernel.
    ("resnet18", (1, 8)),
    ("mobilenet_v2", (1, 8)),
    ("timm:deit_tiny_patch16_224", (1, 8)),
    ("googlenet", (1, 8)),
    ("efficientnet_b0", (1, 8)),
    ("regnet_y_800mf", (1, 8)),
    ("hf:distilbert", (1,)),
    ("convnext_tiny", (1,)),
    ("shufflenet_v2_x1_0", (1, 8)),
    # The rest of five.
    ("squeezenet1_1", (1, 8)),
    ("densenet121", (1, 4)),
    ("swin_t", (1, 4)),
    ("resnet50", (1, 4)),
    ("vgg11", (1,)),
    ("mnasnet1_0", (1, 8)),
    ("timm:resmlp_12_224", (1, 4)),
    ("hf:T5EncoderModel", (1, 8)),
    ("mobilenet_v3_large", (1, 8)),
    ("regnet_x_1_6gf", (1, 4)),
    ("timm:repvgg_a0", (1, 8)),
    ("vit_b_32", (1, 4)),
    ("hf:gpt2", (1,)),
    ("timm:hrnet_w18_small", (1,)),
    ("timm:mobilevit_s", (1, 4)),
    ("timm:ghostnet_100", (1, 8)),
    ("alexnet", (1, 8)),
    ("timm:dla34", (1, 4)),
    ("timm:pvt_v2_b1", (1, 4)),
    ("inception_v3", (1, 4)),
    ("efficientnet_v2_s", (1, 4)),
    ("timm:poolformer_s12", (1, 4)),
    ("maxvit_t", (1,)),
    ("timm:edgenext_small", (1, 4)),
    ("timm:darknet53", (1,)),
    ("vgg13_bn", (1,)),
    ("timm:gmlp_s16_224", (1,)),
    ("timm:xception41", (1,)),
    ("hf:bert", (1,)),
    ("regnet_y_3_2gf", (1,)),
    ("swin_v2_t", (1,)),
)

_CHANNELS_LAST = {
    "shufflenet_v2_x1_0": ("squeezenet1_1", "googlenet", "mobilenet_v2", "resnet18"),
    "swin_v2_t": (
        *("shufflenet_v2_x1_0", "densenet121", "inception_v3", "efficientnet_b0", "vgg11"),
        *("mnasnet1_0", "alexnet", "regnet_y_800mf"),
    ),
}
"""Models measured also in channels-last format, which selects other kernels, by the model before
them."""

_CHANNELS = (12, 24, 40, 48, 80, 96, 112, 160, 192, 224, 320, 384, 448, 640, 768, 1024)
_PIXELS = (5, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 120)
"""Sizes of models and sizes between them, without those of validation (`grid`)."""

_MAX_MACS = 2_000_000_000
_CONVOLUTIONS = 110
_WIDE_KERNELS_UP_TO = 192

_TOKENS = (
    # Width, heads, tokens, batch.
    *((192, 3, 50, 1), (256, 4, 197, 1), (320, 5, 128, 1), (384, 6, 197, 1), (512, 8, 64, 1)),
    *((512, 8, 256, 1), (640, 10, 128, 1), (768, 12, 50, 1), (768, 12, 200, 1)),
    *((1024, 16, 100, 1), (1280, 20, 64, 1), (256, 4, 64, 8), (384, 6, 197, 4)),
    *((512, 8, 128, 4), (768, 12, 1, 1), (1024, 16, 1, 1), (2048, 32, 1, 1), (512, 8, 1, 8)),
)
_FEW_ROWS = (
    # Width, tokens, batch: linear layers in decode, and for short prompts.
    *((320, 1, 8), (384, 1, 1), (448, 1, 16), (512, 1, 4), (640, 1, 2), (640, 1, 32), (896, 1, 8)),
    *((896, 24, 1), (1152, 1, 1), (1280, 1, 8), (1536, 1, 2), (1536, 1, 16), (1792, 1, 4)),
    *((384, 100, 1), (640, 300, 1), (1152, 80, 2)),
    # Weights beyond the L3 of most hosts: decode reads them from DRAM.
    *((2304, 1, 1), (2560, 1, 8), (2816, 1, 2), (3072, 1, 1), (3584, 1, 16)),
)
_CACHES = (
    # Heads, cached tokens, head size, batch.
    *((3, 300, 64, 1), (6, 200, 64, 4), (8, 800, 64, 1), (8, 250, 64, 8), (10, 1500, 64, 1)),
    *((4, 700, 128, 4), (14, 350, 64, 8), (20, 600, 64, 2), (20, 400, 64, 8), (24, 150, 128, 1)),
    *((1, 900, 64, 8), (2, 450, 128, 16), (16, 1200, 128, 8), (24, 1800, 64, 8)),
)
_RECURRENT = ((128, 128, 32, 1), (256, 512, 50, 1), (256, 256, 50, 8), (64, 128, 100, 4))
_POOLED = ((32, 112, 1), (64, 112, 1), (96, 55, 4), (192, 28, 8), (256, 13, 1), (512, 14, 8))
"""Channels, pixels and batch of pooled images."""

_POOLS: tuple[tuple[str, tuple[int, ...]], ...] = (
    *(("max_pool", (3, 2)), ("max_pool", (2, 2)), ("average_pool", (2, 2))),
    *(("average_pool", (3, 1)), ("global_pool", ()), ("upsample", ()), ("upsample_bilinear", ())),
)


def models() -> tuple[CalibrationCase, ...]:
    """Return the models, the most informative first; some again in channels-last format."""
    batches = dict(_MODELS)
    found: list[CalibrationCase] = []
    for name in batches:
        found.append(_model(name, batches[name]))
        others = _CHANNELS_LAST.get(name, ())
        found += [replace(_model(each, batches[each]), channels_last=True) for each in others]
    return tuple(found)


def _model(name: str, batches: tuple[int, ...]) -> CalibrationCase:
    return CalibrationCase(name=name, family=family_of(name), batches=batches)


def designs() -> tuple[CalibrationCase, ...]:
    """Return layers of many sizes, in fixed mixed order; those of images in both formats."""
    pools = [
        _image(kind, sizes, wide, pixels, batch)
        for wide, pixels, batch in _POOLED
        for kind, sizes in _POOLS
    ]
    # A size may be drawn twice.
    found = list(dict.fromkeys([*convolutions(), *_of_tokens(), *pools]))
    random.Random(1).shuffle(found)
    images = (replace(each, channels_last=True) for each in found if len(each.shape) == 4)
    return (*found, *images)


def convolutions() -> Iterator[CalibrationCase]:
    """Yield standard, separable and grouped convolutions of many fixed sizes."""
    choose = random.Random(3)
    left = _CONVOLUTIONS
    while left:
        wide, pixels = choose.choice(_CHANNELS), choose.choice(_PIXELS)
        out = choose.choice((wide, wide, choose.choice(_CHANNELS)))
        kernel, stride = choose.choice((3, 3, 3, 1, 1, 5, 7)), choose.choice((1, 1, 1, 2))
        batch = choose.choice((1, 1, 1, 4, 8))
        kind = choose.choice(("standard", "separable", "separable"))
        is_large = kernel > 3 and wide > _WIDE_KERNELS_UP_TO
        taken = kernel**2 * wide * out * pixels**2 * batch // stride**2
        if is_large or taken > _MAX_MACS:
            continue
        left -= 1
        if kind == "separable" and kernel == 1:
            kernel = 3
        yield _image(kind, (wide, out, kernel, stride), wide, pixels, batch)
    for width in (8, 16, 24, 32, 48):
        for pixels in (7, 14, 28, 56):
            wide = width * choose.choice((4, 8, 12))
            sizes = (wide, wide, 3, 1, wide // width)
            yield _image("standard", sizes, wide, pixels, choose.choice((1, 4)))


def _of_tokens() -> Iterator[CalibrationCase]:
    for wide, heads, tokens, batch in _TOKENS:
        shape = (batch, tokens, wide)
        yield _layer("feed_forward", (wide,), shape)
        yield _layer("attention", (wide, heads), shape)
        if tokens > 1:
            yield _layer("self_attention", (wide, heads), shape)
            yield _layer("encoder", (wide, heads, tokens % 2), shape)
    for wide, tokens, batch in _FEW_ROWS:
        yield _layer("gated", (wide,), (batch, tokens, wide))
        yield _layer("feed_forward", (wide,), (batch, tokens, wide))
    for heads, tokens, head, batch in _CACHES:
        yield _layer("cached_attention", (), (2, batch, heads, tokens, head))
    for wide, hidden, tokens, batch in _RECURRENT:
        for kind in ("lstm", "gru"):
            yield _layer(kind, (wide, hidden), (batch, tokens, wide))


def _image(
    kind: str, sizes: tuple[int, ...], wide: int, pixels: int, batch: int
) -> CalibrationCase:
    """Return a design for square images."""
    return _layer(kind, sizes, (batch, wide, pixels, pixels))


def _layer(kind: str, sizes: tuple[int, ...], shape: tuple[int, ...]) -> CalibrationCase:
    """Return a design by kind, sizes and input shape."""
    return CalibrationCase(
        name=f"{kind}({', '.join(map(str, sizes))})@{'x'.join(map(str, shape))}",
        family=DESIGN,
        batches=(shape[0],),
        kind=kind,
        sizes=sizes,
        shape=shape,
    )


def grid() -> tuple[tuple[CalibrationCase, CalibrationCase], ...]:
    """Return the designs for validation: standard and separable convolutions of equal size.

    16 to 960 channels at 7 to 112 pixels; `designs` has no convolution of these sizes.
    """
    return tuple(
        (
            _image("standard", (wide, wide), wide, pixels, 1),
            _image("separable", (wide, wide), wide, pixels, 1),
        )
        for wide in (16, 32, 64, 128, 256, 512, 960)
        for pixels in (7, 14, 28, 56, 112)
        if 9 * wide**2 * pixels**2 <= 3 * _MAX_MACS
    )


_INT8_MODELS = (
    *("resnet18", "mobilenet_v2", "squeezenet1_1", "googlenet", "vgg11", "shufflenet_v2_x1_0"),
    *("densenet121", "regnet_y_800mf", "mnasnet1_0", "alexnet", "inception_v3", "resnet50"),
)
"""Models that torch.fx can trace, which torch needs to quantize from layer to layer."""

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
    # Convolutions of images of three colors: channels, kernel, stride, pixels, batch.
    *((16, 3, 2, 192, 1), (24, 3, 2, 256, 1), (32, 3, 1, 128, 1), (40, 3, 2, 160, 4)),
    *((48, 7, 2, 192, 1), (64, 7, 2, 240, 1), (96, 11, 4, 200, 1), (96, 7, 2, 256, 4)),
    *((56, 3, 1, 200, 1), (64, 3, 2, 256, 1)),
)
_POOLED_CODES = ((24, 96, 1), (80, 40, 1), (116, 30, 4), (288, 32, 1))
"""In addition to those of `_POOLED`: widths that fill no register."""


def int8_models() -> tuple[CalibrationCase, ...]:
    """Return the models measured in int8 at one batch, after all other types."""
    return tuple(_model(name, (1,)) for name in _INT8_MODELS)


def int8_designs() -> tuple[CalibrationCase, ...]:
    """Return the layers measured in int8, in fixed mixed order.

    Images are channels-last, as int8 convolutions write them, except inputs of a model.
    """
    inner = dict.fromkeys([*convolutions(), *_of_codes()])
    found = [replace(each, channels_last=True) for each in inner]
    for out, kernel, stride, pixels, batch in _ENTRANCES:
        found.append(_image("standard", (3, out, kernel, stride), 3, pixels, batch))
    for wide, out, tokens, batch in _LINEARS:
        shape = (batch, tokens, wide) if tokens > 1 else (batch, wide)
        found.append(_layer("linear", (wide, out), shape))
    # Each kind is spread over the list, because a calibration may end anywhere.
    kinds = grouped(found, lambda each: (each.kind, each.channels_last))
    placed: list[tuple[float, CalibrationCase]] = []
    for alike in kinds.values():
        random.Random(18).shuffle(alike)
        placed += [((place + 0.5) / len(alike), each) for place, each in enumerate(alike)]
    return tuple(each for _, each in sorted(placed, key=lambda pair: pair[0]))


def _of_codes() -> Iterator[CalibrationCase]:
    """Yield sums and concatenations of operands with different scales, and pooling of quantized
    activations (torch does not quantize pooling of floats)."""
    for wide, pixels, batch in _JOINED:
        yield _image("residual", (wide,), wide, pixels, batch)
        yield _image("branches", (wide, wide // 2), wide, pixels, batch)
        yield _image("limited", (wide, 2 * wide), wide, pixels, batch)
    for wide, pixels, batch in (*_POOLED, *_POOLED_CODES):
        yield _image("max_pool_of", (wide, 3, 2), wide, pixels, batch)
        yield _image("average_pool_of", (wide, 2, 2), wide, pixels, batch)
        yield _image("global_pool_of", (wide,), wide, pixels, batch)
    for wide, pixels, batch in _POOLED_CODES:
        yield _image("average_pool_of", (wide, 3, 1), wide, pixels, batch)
