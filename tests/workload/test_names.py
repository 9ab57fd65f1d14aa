"""The index of names is what the libraries themselves say, without importing them."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from roofline.workload.models.libraries import names
from roofline.workload.models.libraries.availability import library_or_reason


def library(name: Any) -> Any:
    module, reason = library_or_reason(name)
    if module is None:
        pytest.skip(f"{name}: {reason}")
    return module


def test_names_are_those_that_the_libraries_list() -> None:
    assert names.names_of("torchvision") == set(library("torchvision").models.list_models())
    assert names.names_of("timm") == set(library("timm").list_models())
    assert names.names_of("transformers") == set(library("transformers").CONFIG_MAPPING.keys())


def test_transformers_classes_exist() -> None:
    """Every class that auto classes know by name, and nothing that is none."""
    library("transformers")
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    said = {
        each
        for table, entries in vars(auto).items()
        if table.endswith("_NAMES") and hasattr(entries, "values") and "CONFIG" not in table
        for value in entries.values()
        for each in ([value] if isinstance(value, str) else value)
    }
    assert names.transformers_classes() >= said
    assert not {each for each in names.transformers_classes() - said if "For" in each}


def test_abstract_classes_of_transformers() -> None:
    """What it exports as Auto classes of models and as bases without a forward; no model is one."""
    transformers = library("transformers")
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    made_of_others = {
        name
        for name, value in vars(auto).items()
        if name.startswith("Auto") and hasattr(value, "_model_mapping")
    }
    bases = [transformers.PreTrainedModel, transformers.BertPreTrainedModel]
    assert all(each.forward is torch.nn.Module.forward for each in bases)
    abstract = {*made_of_others, *(each.__name__ for each in bases)}
    assert len(abstract) > 30
    assert {each for each in abstract if not names.is_abstract(each)} == set()
    assert {each for each in names.transformers_classes() if names.is_abstract(each)} == set()
    assert not names.is_abstract("AutoformerModel")
    assert not names.is_abstract("AutoConfig")


def test_deprecated_timm_names_are_found_and_not_listed() -> None:
    timm = library("timm")
    deprecated = (
        set(timm.get_deprecated_models())
        if hasattr(timm, "get_deprecated_models")
        else {"vit_tiny_patch16_224_in21k"}
    )
    assert {each for each in deprecated if not names.has_model("timm", each)} == set()
    assert "vit_tiny_patch16_224_in21k" not in names.names_of("timm")


@pytest.mark.parametrize(
    ("home", "name", "is_there"),
    [
        ("torchvision", "resnet50", True),
        ("torchvision", "quantized_resnet50", True),
        ("torchvision", "vit_tiny_patch16_224", False),
        ("timm", "resnet50", True),
        ("timm", "swin_tiny_patch4_window7_224.ms_in1k", True),
        ("timm", "bert", False),
        ("transformers", "bert", True),
        ("transformers", "xlm_roberta", True),
        ("transformers", "xlm-roberta", True),
        ("transformers", "BertForMaskedLM", True),
        ("transformers", "bert-base-uncased", False),
    ],
)
def test_where_a_name_is(home: Any, name: str, is_there: bool) -> None:
    assert names.has_model(home, name) == is_there


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bert-base-uncased", "bert"),
        ("meta-llama/Llama-2-7b-hf", "llama"),
        ("openai-community/gpt2-xl", "gpt2"),
        ("google/vit-base-patch16-224", "vit"),
        ("FacebookAI/xlm-roberta-base", "xlm-roberta"),
        ("distilbert-base-cased", "distilbert"),
        ("zz-top", None),
    ],
)
def test_names_on_a_hub_begin_with_a_type(name: str, kind: str | None) -> None:
    """The longest that fits: distilbert is no bert."""
    assert names.nearest_type(name) == kind


def names_after(before: str, asked: str = "list(names.all_names())") -> Any:
    """What the index answers in a process of its own that runs `before` first."""
    code = f"{before}\nfrom roofline.workload.models.libraries import names\nprint({asked})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ast.literal_eval(done.stdout)


def test_no_library_is_imported_for_it() -> None:
    names = "len([*names.all_names(), *names.transformers_classes()])"
    used = f"{names}, names.has_model('timm', 'resnet50')"
    imported = "[m for m in ('torch', 'torchvision', 'timm', 'transformers') if m in sys.modules]"
    count, is_there, modules = names_after("import sys", f"({used}, {imported})")
    assert (count > 2000, is_there, modules) == (True, True, [])


@pytest.mark.parametrize(
    "content",
    ["raise RuntimeError('broken')", "", "this is no python", None],
)
def test_a_package_that_is_something_else_or_not_there_has_no_names(
    tmp_path: Path, content: str | None
) -> None:
    for name in names.LIBRARIES if content is not None else ():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(content or "")
    before = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
    if content is None:
        before = f"import sys; sys.modules.update(dict.fromkeys({names.LIBRARIES!r}))"
    asked = (
        "list(names.all_names()), names.has_model('timm', 'resnet50'), names.nearest_type('bert')"
    )
    assert names_after(before, f"({asked})") == ([], False, None)


def test_decorators_are_read_in_every_form(tmp_path: Path) -> None:
    """With a name or without, with other decorators between, and over several lines."""
    package = tmp_path / "torchvision" / "models" / "more"
    package.mkdir(parents=True)
    (tmp_path / "torchvision" / "__init__.py").touch()
    (package / "a.py").write_text(
        "@register_model\ndef plain(): ...\n"
        "@register_model()\n@other(\n    weights=1,\n)\ndef called(): ...\n"
        '@register_model(name="named_so")\ndef otherwise(): ...\n'
        "@register_model('short')  # a remark\n@f\ndef long(): ...\n"
        "def register_model(fn): ...\n"
        "#@register_model\ndef not_at_all(): ...\n"
    )
    before = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
    found = names_after(before, "sorted(names.names_of('torchvision'))")
    assert found == ["called", "named_so", "plain", "short"]
