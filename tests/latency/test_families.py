"""Which models are kin, and that what is judged on is not learned from."""

from __future__ import annotations

import pytest

from roofline.latency.calibration_set import DESIGN, designs, family_of, grid, models
from roofline.pipeline.validations import DEFAULT_MODELS


@pytest.mark.parametrize(
    ("names", "family"),
    [
        (
            ("resnet18", "resnet152", "wide_resnet50_2", "resnext101_32x8d", "timm:seresnet50"),
            "resnet",
        ),
        (
            ("timm:resnetv2_50", "timm:ecaresnet50d", "timm:skresnet18", "timm:skresnext50_32x4d"),
            "resnet",
        ),
        (
            ("timm:tf_efficientnet_b0", "efficientnet_v2_s", "timm:mixnet_s", "timm:tinynet_a"),
            "efficientnet",
        ),
        (("mobilenet_v2", "mobilenet_v3_small", "timm:tf_mobilenetv3_small_100"), "mobilenet"),
        (("inception_v3", "googlenet", "timm:inception_v4", "timm:tf_inception_v3"), "inception"),
        (("vit_b_16", "timm:deit_tiny_patch16_224", "timm:beit_base_patch16_224"), "vit"),
        (("swin_t", "swin_v2_t", "timm:swin_tiny_patch4_window7_224"), "swin"),
        (("hf:bert", "hf:distilbert", "hf:DistilBertModel", "hf:RobertaModel"), "bert"),
        (("hf:gpt2", "hf:OpenAIGPTModel", "hf:GPTNeoModel"), "gpt"),
        (("hf:t5", "hf:T5EncoderModel", "hf:MT5Model"), "t5"),
        (("vgg11", "vgg19_bn"), "vgg"),
        (("densenet121", "densenet201"), "densenet"),
        (("regnet_y_400mf", "regnet_x_32gf", "timm:regnety_002"), "regnet"),
        (("convnext_tiny", "timm:convnextv2_tiny"), "convnext"),
        (("shufflenet_v2_x0_5", "shufflenet_v2_x1_0"), "shufflenet"),
        (("squeezenet1_0", "squeezenet1_1"), "squeezenet"),
        (("mnasnet0_5", "timm:mnasnet_100"), "mnasnet"),
    ],
)
def test_kin(names: tuple[str, ...], family: str) -> None:
    for name in names:
        assert family_of(name) in (family, f"{family}y", f"{family}v")


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


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("timm:res2net50_26w_4s", "resnet"),
        ("timm:tv_resnet50", "resnet"),
        ("timm:legacy_seresnet50", "resnet"),
        ("timm:regnety_002", "regnet"),
        ("timm:convnextv2_atto", "convnext"),
        ("hf:ConvNextModel", "convnext"),
        ("hf:xlm-roberta", "bert"),
        ("timm:mobilevitv2_050", "mobilevit"),
        # Layers that are written down are no family of models.
        ("conv2d(64,64,3)@56x56", DESIGN),
        ("embedding(100,8)@1x128:int64", DESIGN),
        ("relu+gelu@1x8", DESIGN),
        ("resnet18@1x3x64x64", "resnet"),
        ("timm:mobilenetv2_100@1x3x64x64", "mobilenet"),
    ],
)
def test_the_family_of_a_name(name: str, family: str) -> None:
    assert family_of(name) == family
