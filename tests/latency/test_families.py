"""Which models are kin, and that what is judged on is not learned from."""

from __future__ import annotations

import pytest

from roofline.latency.calibration_set import DESIGN, designs, family_of, grid, models
from roofline.pipeline.validations import DEFAULT_MODELS

FAMILIES = {
    "resnet": (
        "resnet18 resnet152 wide_resnet50_2 resnext101_32x8d timm:seresnet50 timm:resnetv2_50"
        " timm:ecaresnet50d timm:skresnet18 timm:skresnext50_32x4d timm:res2net50_26w_4s"
        " timm:tv_resnet50 timm:legacy_seresnet50 resnet18@1x3x64x64"
    ),
    "efficientnet": "timm:tf_efficientnet_b0 efficientnet_v2_s timm:mixnet_s timm:tinynet_a",
    "mobilenet": (
        "mobilenet_v2 mobilenet_v3_small timm:tf_mobilenetv3_small_100"
        " timm:mobilenetv2_100@1x3x64x64"
    ),
    "mobilevit": "timm:mobilevitv2_050",
    "inception": "inception_v3 googlenet timm:inception_v4 timm:tf_inception_v3",
    "vit": "vit_b_16 timm:deit_tiny_patch16_224 timm:beit_base_patch16_224",
    "swin": "swin_t swin_v2_t timm:swin_tiny_patch4_window7_224",
    "bert": "hf:bert hf:distilbert hf:DistilBertModel hf:RobertaModel hf:xlm-roberta",
    "gpt": "hf:gpt2 hf:OpenAIGPTModel hf:GPTNeoModel",
    "t5": "hf:t5 hf:T5EncoderModel hf:MT5Model",
    "vgg": "vgg11 vgg19_bn",
    "densenet": "densenet121 densenet201",
    "regnet": "regnet_y_400mf regnet_x_32gf timm:regnety_002",
    "convnext": "convnext_tiny timm:convnextv2_tiny timm:convnextv2_atto hf:ConvNextModel",
    "shufflenet": "shufflenet_v2_x0_5 shufflenet_v2_x1_0",
    "squeezenet": "squeezenet1_0 squeezenet1_1",
    "mnasnet": "mnasnet0_5 timm:mnasnet_100",
    # Layers that are written down are no family of models.
    DESIGN: "conv2d(64,64,3)@56x56 embedding(100,8)@1x128:int64 relu+gelu@1x8",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_kin(family: str) -> None:
    for name in FAMILIES[family].split():
        assert family_of(name) == family, name


def test_what_is_no_kin() -> None:
    families = [family_of(name) for name in ("resnet18", "resmlp_12_224", "densenet121", "vgg11")]
    assert len(set(families)) == 4


@pytest.mark.parametrize("name", ["", "_", "7", "hf:", "Model", "path/to/model.py:Net", "é"])
def test_any_name_has_a_family(name: str) -> None:
    assert isinstance(family_of(name), str)


def test_designs_that_are_judged_on_are_not_learned_from() -> None:
    # Those of several groups are other operators.
    learned = {(each.kind, each.sizes[:2], each.shape) for each in designs() if len(each.sizes) < 5}
    for pair in grid():
        for each in pair:
            assert (each.kind, each.sizes[:2], each.shape) not in learned
    pixels = {each.shape[-1] for pair in grid() for each in pair}
    assert pixels == {7, 14, 28, 56, 112}
    assert {each.shape[1] for pair in grid() for each in pair} >= {16, 960}


def test_the_order_is_the_same_every_time_and_names_and_layouts_tell_subjects_apart() -> None:
    assert designs() == designs()
    names = [(each.name, each.channels_last) for each in (*models(), *designs())]
    doubles = {name for name in names if names.count(name) > 1}
    assert doubles == set()
    assert all(each.family == DESIGN and each.is_design for each in designs())
    assert not any(each.is_design for each in models())


def test_every_default_family_can_be_predicted_from_others() -> None:
    learned = {each.family for each in models()}
    for name in DEFAULT_MODELS:
        assert len(learned - {family_of(name)}) >= 20
