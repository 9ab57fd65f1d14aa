"""Models of torchvision, timm and transformers by name: what is built, and what is said."""

from __future__ import annotations

import importlib
import socket
from pathlib import Path
from typing import Any

import pytest

from roofline.cli.main import run
from roofline.core.dtypes import dtype
from roofline.errors import InputError, ModelError
from roofline.pipeline.analyses import analyze
from roofline.workload.capture.passes import capture
from roofline.workload.inputs import InputRequest, resolve_inputs
from roofline.workload.models import sources
from roofline.workload.models.libraries.availability import library_or_reason
from roofline.workload.models.sources import load_model
from roofline.workload.operators import Capture
from tests.forked_programs import forked
from tests.workload.passes import total

for name in ("timm", "transformers"):
    if library_or_reason(name)[0] is None:  # pyright: ignore[reportArgumentType]
        pytest.skip(f"{name} is not installed", allow_module_level=True)

INT64 = dtype("int64")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever connects fails: nothing is ever downloaded."""

    def connect(*_: Any) -> None:
        raise AssertionError("something connects to somewhere")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)


def captured(name: str, **options: Any) -> Capture:
    source = load_model(name, **options)
    given = resolve_inputs(source.module, None, source.default_inputs, name=source.name, batch=None)
    return capture(source.module, given, name=source.name, rebuild=source.rebuild)


# -- bare names ------------------------------------------------------------------------------------


def test_a_name_found_in_several_says_which_was_taken() -> None:
    source = load_model("resnet50")
    assert type(source.module).__module__.startswith("torchvision.")
    assert source.notes == (
        "note: resnet50 is the model of torchvision; timm also has it (timm:resnet50)",
    )
    assert "(hf:mobilenet_v2)" in load_model("mobilenet_v2").notes[0]
    # Nothing is said where only one is meant.
    assert load_model("torchvision:resnet50").notes == load_model("alexnet").notes == ()


@pytest.mark.parametrize(
    ("name", "home", "kind"),
    [
        ("vit_tiny_patch16_224", "timm.", "VisionTransformer"),
        ("timm:resnet50", "timm.", "ResNet"),
        ("bert", "transformers.", "BertModel"),
        ("hf:resnet", "transformers.", "ResNetModel"),
        ("BertForMaskedLM", "transformers.", "BertForMaskedLM"),
    ],
)
def test_the_first_library_that_has_a_name(name: str, home: str, kind: str) -> None:
    source = load_model(name)
    assert type(source.module).__module__.startswith(home)
    assert (source.name, type(source.module).__name__) == (name, kind)
    assert {each.device.type for each in source.module.parameters()} == {"meta"}


def test_a_torchvision_model_imports_no_other_library() -> None:
    code = (
        "import sys; from roofline.workload.models.sources import load_model;"
        "load_model('resnet18');"
        "print([m for m in ('timm', 'transformers') if m in sys.modules])"
    )
    done = forked(code)
    assert done.stdout == b"[]\n", done.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vit_tiny_patch16_225", "unknown model .*; did you mean 'vit_tiny_patch16_224'"),
        ("timm:resnet5O", r"unknown timm model 'timm:resnet5O'; did you mean 'timm:resnet50'\?"),
        ("timm:", "unknown timm model 'timm:'"),
        ("timm:hf-hub:timm/resnet50.a1_in1k", "unknown timm model"),
        ("timm:resnet50.nonsense", "building it failed: .*nonsense"),
        ("hf:", r"unknown model 'hf:' \(not a type or model class of transformers"),
        ("hf:brt", r"; did you mean 'hf:bert'\?"),
        ("hf:Bert", r"; did you mean 'hf:bert'\?"),
        ("hf:BertForMaskedL", r"; did you mean 'hf:BertForMaskedLM'\?"),
        ("hf:BertConfig", "unknown model 'hf:BertConfig'.*not a type or model class"),
        (
            "hf:AutoModel",
            "an abstract class of transformers; name a type, such as hf:bert, or a model class",
        ),
        ("hf:AutoModelForCausalLM", "an abstract class"),
        ("hf:PreTrainedModel", "an abstract class"),
        ("hf:BertPreTrainedModel", "an abstract class"),
        ("hf:BartPretrainedModel", "an abstract class"),
        ("AutoModel", "an abstract class"),
        ("hf:bert-base-uncased", "did you mean 'hf:bert'.*; hub names are not supported"),
        ("hf:meta-llama/Llama-2-7b", "did you mean 'hf:llama'"),
        ("bert-base-uncased", r"did you mean 'hf:bert'\? \(hub names are not supported"),
        ("google/vit-base-patch16-224", "did you mean 'hf:vit'"),
        ("hf:depth_anything", "name a model class: hf:DepthAnythingForDepthEstimation"),
        ("hf:siglip_text_model", "no base model of this type; .*: hf:SiglipTextModel"),
    ],
)
def test_what_is_wrong_with_a_name(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as raised:
        load_model(name)
    assert "\n" not in str(raised.value)
    assert f"'{name}'" in str(raised.value)


# -- timm ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size", "parameters"),
    [
        # Counts as timm publishes them in results/model_benchmark and in its papers.
        ("timm:resnet50", 224, 25_557_032),
        ("timm:efficientnet_b0", 224, 5_288_548),
        ("swin_tiny_patch4_window7_224.ms_in1k", 224, 28_288_354),
        ("vit_base_patch16_384", 384, 86_859_496),
        ("timm:vit_base_patch16_clip_384.openai_ft_in12k_in1k", 384, 86_860_264),
        # A name of before, whose head has 21,843 classes.
        ("vit_tiny_patch16_224_in21k", 224, 5_524_416 + 193 * 21_843),
    ],
)
def test_timm_models_at_the_size_of_their_configuration(
    name: str, size: int, parameters: int
) -> None:
    source = load_model(name)
    assert source.default_inputs == (InputRequest(shape=(1, 3, size, size)),)
    assert sum(each.numel() for each in source.module.parameters()) == parameters
    assert source.notes == ()


def test_timm_and_torchvision_count_the_same_resnet50() -> None:
    """4,089,184,256 multiply-adds, worked out by hand from its layers."""
    assert total(captured("timm:resnet50")).macs == 4_089_184_256


# -- transformers ----------------------------------------------------------------------------------

PLAIN = {
    "bert": "BertModel",
    "roberta": "RobertaModel",
    "xlm-roberta": "XLMRobertaModel",
    "distilbert": "DistilBertModel",
    "albert": "AlbertModel",
    "electra": "ElectraModel",
    "deberta-v2": "DebertaV2Model",
    "camembert": "CamembertModel",
    "bert-generation": "BertGenerationEncoder",
    "t5": "T5Model",
    "bart": "BartModel",
    "mbart": "MBartModel",
    "pegasus": "PegasusModel",
    "marian": "MarianModel",
    "whisper": "WhisperModel",
    "vit": "ViTModel",
    "swin": "SwinModel",
    "convnext": "ConvNextModel",
    "resnet": "ResNetModel",
    "clip": "CLIPModel",
    "wav2vec2": "Wav2Vec2Model",
    "dinov2": "Dinov2Model",
    "deit": "DeiTModel",
    "beit": "BeitModel",
    "segformer": "SegformerModel",
}
DECODERS = {
    "gpt2": "GPT2LMHeadModel",
    "openai-gpt": "OpenAIGPTLMHeadModel",
    "gptj": "GPTJForCausalLM",
    "gpt_neo": "GPTNeoForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM",
    "opt": "OPTForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "phi": "PhiForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "falcon": "FalconForCausalLM",
    "bloom": "BloomForCausalLM",
    "mamba": "MambaForCausalLM",
}


@pytest.mark.parametrize(("kind", "model_class"), [*PLAIN.items(), *DECODERS.items()])
def test_decoders_continue_text_and_all_others_are_plain(kind: str, model_class: str) -> None:
    source = load_model(f"hf:{kind}")
    assert type(source.module).__name__ == model_class
    assert f"hf:{kind} is {model_class} of transformers with the default sizes" in source.notes[0]


def test_no_encoder_is_made_a_language_model() -> None:
    """Of every type that the library itself says reads in both directions, or has an encoder."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    from roofline.workload.models.libraries.transformers_models import _is_causal_decoder

    transformers, _ = library_or_reason("transformers")
    assert transformers is not None
    made = set[str]()
    for kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        try:
            config = transformers.CONFIG_MAPPING[kind]()
        except Exception:
            continue
        if _is_causal_decoder(kind, config, auto):
            made.add(kind)
    both = set(auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES)
    two = set(auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)
    assert not made & (both | two)
    assert len(made) > 60
    assert {"gemma3", "bert-generation"}.isdisjoint(made)


@pytest.mark.parametrize(
    ("name", "model_class"),
    [
        # Dashes and underscores are the same.
        ("hf:xlm-roberta", "XLMRobertaModel"),
        ("hf:xlm_roberta", "XLMRobertaModel"),
        ("hf:BertForMaskedLM", "BertForMaskedLM"),
        ("hf:LlamaModel", "LlamaModel"),
    ],
)
def test_classes_and_types_in_either_spelling(name: str, model_class: str) -> None:
    source = load_model(name)
    assert type(source.module).__name__ == model_class
    assert source.default_inputs == (InputRequest(name="input_ids", shape=(1, 128), dtype=INT64),)


def test_image_classifiers_tell_a_thousand_things_apart() -> None:
    """As torchvision's do: the same parameters as its ResNet-50."""
    source = load_model("hf:ResNetForImageClassification")
    assert sum(each.numel() for each in source.module.parameters()) == 25_557_032
    assert "and 1000 labels" in source.notes[0]


IDS = ("input_ids", (1, 128), INT64)
DECODER_IDS = ("decoder_input_ids", (1, 128), INT64)


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("bert", [IDS]),
        ("gpt2", [IDS]),
        ("t5", [IDS, DECODER_IDS]),
        ("bart", [IDS, DECODER_IDS]),
        ("vit", [("pixel_values", (1, 3, 224, 224), None)]),
        ("yolos", [("pixel_values", (1, 3, 512, 864), None)]),
        ("sam", [("pixel_values", (1, 3, 1024, 1024), None)]),
        ("resnet", [("pixel_values", (1, 3, 224, 224), None)]),
        ("maskformer", [("pixel_values", (1, 3, 384, 384), None)]),
        ("timesformer", [("pixel_values", (1, 8, 3, 224, 224), None)]),
        ("clip", [("input_ids", (1, 77), INT64), ("pixel_values", (1, 3, 224, 224), None)]),
        ("whisper", [("input_features", (1, 80, 3000), None), DECODER_IDS]),
        ("wav2vec2", [("input_values", (1, 16000), None)]),
        ("audio-spectrogram-transformer", [("input_values", (1, 1024, 128), None)]),
        ("llava", [IDS]),
        # What does not follow from the configuration is asked for.
        ("patchtst", []),
        ("speech_to_text", []),
        ("encodec", []),
        ("perceiver", []),
    ],
)
def test_default_inputs(kind: str, inputs: list[tuple[str, tuple[int, ...], Any]]) -> None:
    asked = [
        (each.name, each.shape, each.dtype) for each in load_model(f"hf:{kind}").default_inputs
    ]
    assert asked == inputs


@pytest.mark.parametrize(
    ("kind", "note"),
    [
        ("clip", "sequence length 77, the maximum of hf:clip (max_position_embeddings)"),
        ("resnet", "image size 224x224: the configuration of hf:resnet has none"),
        ("llava", "only the text part of hf:llava runs"),
    ],
)
def test_what_was_decided_is_said(kind: str, note: str) -> None:
    assert any(each.startswith(note) for each in load_model(f"hf:{kind}").input_notes)


def test_what_was_decided_is_not_said_of_other_inputs() -> None:
    for inputs in (None, {"pixel_values": "1x3x64x64"}):
        warnings = analyze("hf:resnet", inputs, hardware="10980xe").warnings
        assert any("224" in each for each in warnings) is (inputs is None)


@pytest.mark.parametrize(
    "kind",
    [
        *("bert", "distilbert", "t5", "bart", "gpt2", "opt", "bloom", "vit", "swin", "convnext"),
        *("clip", "wav2vec2", "beit", "segformer", "dinov2", "layoutlm"),
    ],
)
def test_default_inputs_are_taken(kind: str) -> None:
    """From the first operator to the last; on fake tensors."""
    assert (total(captured(f"hf:{kind}")).macs or 0) > 1e8


def test_parameters_of_known_models() -> None:
    """As their papers and cards say: BERT-base without its pooler's twin, GPT-2, Llama-7B, T5."""
    found = {
        kind: sum(each.numel() for each in load_model(f"hf:{kind}").module.parameters())
        for kind in ("bert", "gpt2", "llama")
    }
    assert found == {"bert": 109_482_240, "gpt2": 124_439_808, "llama": 6_738_415_616}


# -- tokens ----------------------------------------------------------------------------------------


def test_seq_sets_how_many_tokens() -> None:
    shapes = [each.shape for each in load_model("hf:t5", seq=64).default_inputs]
    assert shapes == [(1, 64), (1, 64)]
    assert load_model("hf:bert", seq=512).default_inputs[0].shape == (1, 512)


@pytest.mark.parametrize(
    ("name", "seq", "message"),
    [
        ("hf:bert", 513, r"seq=513: hf:bert has at most 512 tokens \(max_position_"),
        # Its positions begin after that of the padding, which is 1.
        ("hf:roberta", 511, "has at most 510 tokens"),
        ("hf:clip", 128, "has at most 77 tokens"),
        ("hf:whisper", 449, r"has at most 448 tokens \(max_target_positions\)"),
        (
            "hf:vit",
            64,
            "seq=64: hf:vit has no token inputs; its inputs are pixel_values 1x3x224x224",
        ),
        ("hf:patchtst", 64, "has no token inputs; use inputs"),
        ("resnet18", 64, "seq=64 has no effect on resnet18: its inputs are images"),
        ("timm:resnet18", 64, "seq=64 has no effect on timm:resnet18: its inputs are images"),
        ("torch.nn:Identity", 64, "are not known; use inputs"),
    ],
)
def test_what_is_wrong_with_seq(name: str, seq: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_model(name, seq=seq)


@pytest.mark.parametrize("seq", [0, -1, 2**50, 1.5, "x"])
def test_seq_is_a_whole_number(seq: Any) -> None:
    with pytest.raises(InputError, match=f"seq={seq!r}: must be a whole number from 1"):
        analyze("hf:bert", hardware="10980xe", seq=seq)


def test_seq_and_inputs_exclude_each_other() -> None:
    with pytest.raises(InputError, match="seq=64 has no effect next to inputs"):
        analyze("hf:bert", {"input_ids": "1x32:int64"}, hardware="10980xe", seq=64)


def test_seq_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved = str(tmp_path / "a.json")
    base = ["--hardware", "10980xe", "--seq", "16"]
    assert run(["analyze", "hf:distilbert", *base, "-o", saved]) == 0
    assert "input_ids int64 1x16" in capsys.readouterr().out
    assert run(["analyze", "hf:distilbert", *base, "--batch", "3"]) == 0
    assert "input_ids int64 3x16" in capsys.readouterr().out
    assert run(["compare", "hf:distilbert", "hf:electra", *base]) == 0
    assert "1x16 int64" in capsys.readouterr().out
    assert run(["compare", saved, "hf:electra", *base]) == 2
    assert "--seq cannot change a saved analysis" in capsys.readouterr().err


# -- the user's own --------------------------------------------------------------------------------

OWN = """
import transformers

def small():
    sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
    return transformers.BertModel(transformers.BertConfig(**sizes, max_position_embeddings=48))
"""


def test_a_transformers_model_of_ones_own_needs_no_input(tmp_path: Path) -> None:
    """As large a default as its positions allow, and --seq."""
    (tmp_path / "own.py").write_text(OWN)
    name = f"{tmp_path}/own.py:small"
    assert load_model(name).default_inputs[0].shape == (1, 48)
    assert load_model(name, seq=20).default_inputs[0].shape == (1, 20)
    with pytest.raises(InputError, match="has at most 48 tokens"):
        load_model(name, seq=49)
    given = sources.wrap_model(load_model(name).module, seq=7)
    assert (given.name, given.default_inputs[0].shape) == ("BertModel", (1, 7))


def test_a_timm_model_of_ones_own_needs_no_input() -> None:
    source = load_model("timm:vit_tiny_patch16_384")
    assert sources.wrap_model(source.module).default_inputs[0].shape == (1, 3, 384, 384)
    # Built without weights, it can be built with them.
    assert source.rebuild is not None
    assert {each.device.type for each in source.rebuild().parameters()} == {"cpu"}


# -- quiet -----------------------------------------------------------------------------------------


def test_building_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Some types complain of their own defaults, some modules print what their authors forgot."""
    transformers, _ = library_or_reason("transformers")
    assert transformers is not None
    constants = importlib.import_module("huggingface_hub.constants")
    before = transformers.logging.get_verbosity(), constants.HF_HUB_OFFLINE
    for name in ("hf:bert", "hf:musicgen", "hf:ctrl", "hf:starcoder2", "hf:BertLMHeadModel"):
        try:
            load_model(name)
        except ModelError as error:
            assert "\n" not in str(error)
    assert capfd.readouterr() == ("", "")
    assert (transformers.logging.get_verbosity(), constants.HF_HUB_OFFLINE) == before


# -- absent and broken -----------------------------------------------------------------------------

TELL = """
import sys
from roofline.errors import ModelError
from roofline.workload.models.sources import load_model
for name in sys.argv[1:]:
    try:
        source = load_model(name)
        print(type(source.module).__module__.split(".")[0], *source.notes, sep=" | ")
    except ModelError as error:
        print(error)
"""


def told(*models: str, before: str = "") -> list[str]:
    """What loading these says, a line each, in a process of its own that runs `before` first."""
    done = forked(f"{before}\n{TELL}", models)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert len(lines) == len(models), done.stdout
    return lines


def without(*libraries: str) -> str:
    return f"import sys; sys.modules.update(dict.fromkeys({libraries!r}))"


def broken(tmp_path: Path, library: str, init: str) -> str:
    (tmp_path / library).mkdir()
    (tmp_path / library / "__init__.py").write_text(init)
    return f"import sys; sys.path.insert(0, {str(tmp_path)!r})"


def test_missing_libraries_name_the_command_that_installs_them() -> None:
    missing = without("timm", "transformers")
    timm, hf, bare, known = told("timm:resnet18", "hf:bert", "bert", "resnet18", before=missing)
    for said, library in ((timm, "timm"), (hf, "transformers")):
        assert f"{library} is not available: it is not installed; install it with: " in said
        assert said.endswith("-m pip install 'roofline[models]'")
    assert "unknown model 'bert'" in bare
    assert "for models of timm and transformers: " in bare
    assert bare.endswith("-m pip install 'roofline[models]')")
    assert known == "torchvision"


def test_without_torchvision_the_others_stand_in() -> None:
    """resnet50 becomes timm's, and that is said with the reason."""
    first, second, third, own = told(
        "resnet50",
        "bert",
        "torchvision:resnet50",
        "torch.nn:Identity",
        before=without("torchvision"),
    )
    assert first.startswith("timm | torchvision is not available: it is not installed")
    assert "resnet50 is taken from timm" in first
    assert second.startswith("transformers | torchvision is not available")
    assert "torchvision is not available: it is not installed" in third
    assert own == "torch"


@pytest.mark.parametrize(
    ("init", "reason"),
    [
        ("raise RuntimeError('operator torchvision::roi_align is\\nbroken')", "RuntimeError: oper"),
        ("raise OSError('libcudart.so.13: cannot open')", "OSError: libcudart.so.13: cannot open"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import no_such_package_at_all", "ModuleNotFoundError: No module named 'no_such_package"),
        ("raise RuntimeError('operator torchvision::nms does not exist')", "torchvision::nms does"),
        ("this is no python", "SyntaxError: invalid syntax"),
        ("assert False", "importing it failed: AssertionError"),
    ],
)
def test_a_broken_torchvision_is_told_in_one_line(tmp_path: Path, init: str, reason: str) -> None:
    (said,) = told("torchvision:resnet18", before=broken(tmp_path, "torchvision", init))
    start = "model 'torchvision:resnet18': torchvision is not available: importing it failed: "
    assert said.startswith(start)
    assert reason in said


def test_a_broken_torchvision_breaks_nothing_else(tmp_path: Path) -> None:
    """All other models still work; a user's own import of it says what it always said."""
    before = broken(tmp_path, "torchvision", "1 / 0")
    after = "try: import torchvision\nexcept ZeroDivisionError: print('as before')"
    done = forked(f"{before}\n{TELL}\n{after}", ["resnet18", "timm:resnet18", "hf:vit"])
    bare, timm, hf, own = done.stdout.decode().splitlines()
    assert bare.startswith("timm | torchvision is not available: importing it failed: ZeroDivision")
    assert timm == "timm"
    assert hf.startswith("transformers | note: hf:vit is ViTModel of transformers")
    assert own == "as before"


def test_where_nothing_is_there_own_models_still_work(tmp_path: Path) -> None:
    before = f"{without('timm', 'transformers')}\n{broken(tmp_path, 'torchvision', '1 / 0')}"
    bare, own = told("resnet50", "torch.nn:Identity", before=before)
    assert bare.startswith("model 'resnet50': torchvision is not available: importing it failed: ")
    assert "your own models: package.module:factory or file.py:Model" in bare
    assert own == "torch"


@pytest.mark.parametrize("init", ["raise SystemExit(3)", "raise OSError('a\\nb')", "import no"])
def test_a_broken_library_is_told_in_one_line(tmp_path: Path, init: str) -> None:
    before = "\n".join(broken(tmp_path, library, init) for library in ("timm", "transformers"))
    timm, hf = told("timm:resnet18", "hf:bert", before=before)
    for said, asked in ((timm, "timm:resnet18'"), (hf, "hf:bert'")):
        assert said.startswith(f"model '{asked}: ")
        assert " is not available: importing it failed: " in said
