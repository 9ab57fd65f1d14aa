"""Every operator of the models that people use is known: coverage is 100 %."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from roofline.workload.models.libraries.availability import library_or_reason
from roofline.workload.models.sources import load_model
from roofline.workload.operators import Capture, State
from tests.workload.passes import passed, total

torchvision, _reason = library_or_reason("torchvision")
assert torchvision is not None
# These two import only where torchvision does. timm announces what moved within itself.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import timm
    import transformers
    from torchvision.models import regnet

CLASSIFIERS: list[str] = torchvision.models.list_models(module=torchvision.models)

TIMM = (
    *("beit_base_patch16_224", "cait_xxs24_224", "coat_lite_tiny", "coatnet_pico_rw_224"),
    *("convit_tiny", "convnextv2_atto", "crossvit_9_240", "cs3darknet_s", "davit_tiny"),
    *("deit_tiny_patch16_224", "dla46_c", "dpn48b", "edgenext_xx_small", "efficientformer_l1"),
    *("efficientformerv2_s0", "efficientnet_b0", "efficientvit_b0", "efficientvit_m0"),
    *("ese_vovnet19b_slim_dw", "eva02_tiny_patch14_224", "fasternet_t0", "fastvit_t8"),
    *("focalnet_tiny_srf", "gcvit_xxtiny", "ghostnet_050", "gmlp_s16_224", "hardcorenas_a"),
    *("hgnetv2_b0", "hiera_tiny_224", "inception_next_atto", "lambda_resnet26t", "levit_128"),
    *("mambaout_femto", "mixer_s32_224", "mobilenetv3_small_050", "mobilevit_xxs"),
    *("mobilevitv2_050", "mvitv2_tiny", "naflexvit_base_patch16_gap", "nextvit_small"),
    *("nf_regnet_b0", "pit_ti_224", "poolformer_s12", "pvt_v2_b0", "qwen3_vit_88m", "regnetz_b16"),
    *("repvgg_a0", "repvit_m0_9", "res2net50_26w_4s", "resmlp_12_224", "resnest14d", "resnet26t"),
    *("resnetv2_50", "rexnet_100", "sam2_hiera_tiny", "selecsls42b", "sequencer2d_s", "shvit_s1"),
    *("skresnet18", "starnet_s1", "swiftformer_xs", "swin_tiny_patch4_window7_224"),
    *("swinv2_tiny_window8_256", "tiny_vit_5m_224", "tresnet_m", "twins_svt_small"),
    *("visformer_tiny", "vit_relpos_small_patch16_rpn_224", "vit_small_patch14_dinov2"),
    *("volo_d1_224", "xception41", "xcit_nano_12_p16_224"),
)
"""A small one of most files in timm/models."""


def check(captured: Capture) -> None:
    """All operators are counted or free, and none can do with more than it is said to take."""
    unknown = {each.op for each in captured.records if each.state is State.UNKNOWN}
    assert not unknown
    work = total(captured)
    assert work.macs is not None
    assert work.macs > 0
    for record in captured.records:
        assert 0 <= (record.work.min_flop or 0) <= (record.work.flop or 0), record.op


@pytest.fixture
def cheap_regnets(monkeypatch: pytest.MonkeyPatch) -> None:
    """RegNets take their widths from tensors; these real, no gigabytes of weights need be."""
    original = regnet.BlockParams.from_init_params

    def real_widths(*args: Any, **options: Any) -> Any:
        with torch.device("cpu"):
            return original(*args, **options)

    monkeypatch.setattr(regnet.BlockParams, "from_init_params", real_widths)


@pytest.mark.usefixtures("cheap_regnets")
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_torchvision(name: str) -> None:
    """All of its classifiers."""
    check(passed(load_model(name).module, (1, 3, 224, 224)))


def test_sixty_timm_architectures() -> None:
    """At least sixty, of different files of timm."""
    assert len({timm.models.get_arch_name(name) for name in TIMM}) == len(TIMM) >= 60
    files = {timm.models.model_entrypoint(name).__module__ for name in TIMM}
    assert len(files) >= 60


@pytest.mark.parametrize("name", TIMM)
def test_timm(name: str) -> None:
    """At the size that it was made for."""
    with torch.device("meta"):
        model = timm.create_model(name)
    size: Any = timm.get_pretrained_cfg(name)
    check(passed(model, (1, *size.input_size)))


SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
}
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 16}
TEXT = {"input_ids": "1x16:int64"}
PAIR = {**TEXT, "decoder_input_ids": "1x8:int64"}
IMAGE = {"pixel_values": "1x3x224x224"}
SHORT = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 64, "vocab_size": 100}


@dataclasses.dataclass(frozen=True)
class Transformer:
    """A class of transformers, what its configuration changes, and what it takes."""

    model: str
    config: str
    inputs: Mapping[str, str]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    change: str = ""

    def __str__(self) -> str:
        return self.model

    def build(self) -> torch.nn.Module:
        config = getattr(transformers, self.config)(**self.options)
        with torch.device("meta"):
            return getattr(transformers, self.model)(config)


STATES = {**SMALL, "state_size": 8}
HEADS = {**STATES, "num_heads": 8, "head_dim": 16, "n_groups": 2}
EXPERTS = {**GROUPED, "num_local_experts": 4}
POSITIONS = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}

TRANSFORMERS = (
    Transformer("BertModel", "BertConfig", TEXT, SMALL),
    Transformer("RobertaModel", "RobertaConfig", TEXT, SMALL),
    Transformer("DistilBertModel", "DistilBertConfig", TEXT),
    Transformer("AlbertModel", "AlbertConfig", TEXT, SMALL),
    Transformer("ElectraModel", "ElectraConfig", TEXT, SMALL),
    Transformer("DebertaV2Model", "DebertaV2Config", TEXT, {**SMALL, **POSITIONS}),
    Transformer("ModernBertModel", "ModernBertConfig", TEXT, {**SMALL, "pad_token_id": 0}),
    Transformer("GPT2LMHeadModel", "GPT2Config", TEXT, {"n_layer": 2}),
    Transformer("GPTNeoXForCausalLM", "GPTNeoXConfig", TEXT, SMALL),
    Transformer("OPTForCausalLM", "OPTConfig", TEXT, {"num_hidden_layers": 2}),
    Transformer("BloomForCausalLM", "BloomConfig", TEXT, {"n_layer": 2}),
    Transformer("LlamaForCausalLM", "LlamaConfig", TEXT, GROUPED),
    Transformer("MistralForCausalLM", "MistralConfig", TEXT, GROUPED),
    Transformer("Qwen2ForCausalLM", "Qwen2Config", TEXT, GROUPED),
    Transformer("Qwen3ForCausalLM", "Qwen3Config", TEXT, GROUPED),
    Transformer("GemmaForCausalLM", "GemmaConfig", TEXT, GROUPED),
    Transformer("Gemma2ForCausalLM", "Gemma2Config", TEXT, GROUPED),
    Transformer("Phi3ForCausalLM", "Phi3Config", TEXT, {**GROUPED, "pad_token_id": 0}),
    Transformer("FalconForCausalLM", "FalconConfig", TEXT, SMALL),
    Transformer("MixtralForCausalLM", "MixtralConfig", TEXT, EXPERTS, change="bfloat16"),
    Transformer("MambaForCausalLM", "MambaConfig", TEXT, STATES),
    Transformer("Mamba2ForCausalLM", "Mamba2Config", TEXT, HEADS),
    Transformer("RwkvForCausalLM", "RwkvConfig", TEXT, {**SMALL, "attention_hidden_size": 64}),
    Transformer("T5Model", "T5Config", PAIR, {"num_layers": 2}),
    Transformer("BartModel", "BartConfig", PAIR, SHORT),
    Transformer("MarianModel", "MarianConfig", PAIR, {**SHORT, "pad_token_id": 0}),
    Transformer(
        "WhisperModel",
        "WhisperConfig",
        {"input_features": "1x80x3000", "decoder_input_ids": "1x8:int64"},
    ),
    Transformer("Wav2Vec2Model", "Wav2Vec2Config", {"input_values": "1x16000"}, SMALL),
    Transformer("CLIPModel", "CLIPConfig", {**TEXT, **IMAGE}),
    Transformer("ViTModel", "ViTConfig", IMAGE, {"num_hidden_layers": 2}),
    Transformer("Dinov2Model", "Dinov2Config", IMAGE, {"num_hidden_layers": 2}),
    Transformer("SwinModel", "SwinConfig", IMAGE),
    Transformer("ConvNextModel", "ConvNextConfig", IMAGE),
    Transformer("SegformerModel", "SegformerConfig", IMAGE),
    Transformer("MobileViTModel", "MobileViTConfig", {"pixel_values": "1x3x256x256"}),
    Transformer("DetrModel", "DetrConfig", IMAGE, {"encoder_layers": 2, "decoder_layers": 2}),
)


@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=str)
def test_transformers(transformer: Transformer) -> None:
    """Encoders, decoders, both, state spaces, speech and images."""
    check(passed(transformer.build(), change=transformer.change, **transformer.inputs))
