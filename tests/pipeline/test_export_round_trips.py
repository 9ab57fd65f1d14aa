"""Models written as .pt2 and .onnx, read again: the same outputs and the same multiply-adds."""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import roofline
from roofline.errors import FileFormatError, InputError, ModelError, RooflineError
from roofline.pipeline import exporting
from roofline.result import result_from_data
from roofline.workload.models.sources import load_model
from tests.exported_models import MODELS, made

MACHINE = "10980xe"


@pytest.fixture(scope="module", autouse=True)
def operators_of_onnx_are_read_once() -> Iterator[None]:
    """torch compiles the source of each operator that ONNX may have anew for every file."""
    try:
        registry: Any = importlib.import_module(
            "torch.onnx._internal.exporter._registration"
        ).ONNXRegistry
        made = registry.from_torchlib
    except (ImportError, AttributeError):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "from_torchlib", staticmethod(functools.cache(made)))
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A model in files of both formats, and what was said of it."""

    files: Mapping[str, Path]
    found: roofline.Export
    eager: roofline.Analysis


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Exported]:
    """A model of `MODELS`, exported once for all tests of it."""

    @functools.cache
    def of(name: str) -> Exported:
        model, inputs = made(name)
        folder = tmp_path_factory.mktemp("exported")
        formats = ["pt2", "onnx"] if importlib.util.find_spec("onnxscript") else ["pt2"]
        files = {each: folder / f"a.{each}" for each in formats}
        return Exported(
            files=files,
            found=roofline.export(model, inputs, files=list(files.values())),
            eager=roofline.analyze(model, inputs, hardware=MACHINE),
        )

    return of


@pytest.mark.parametrize("format", ["pt2", "onnx"])
@pytest.mark.parametrize("name", MODELS)
def test_round_trips(name: str, format: str, exported: Callable[[str], Exported]) -> None:
    if format == "onnx":
        pytest.importorskip("onnxscript")
    found, eager = exported(name).found, exported(name).eager
    path = exported(name).files[format]
    (file,) = (each for each in found.files if each.path == str(path))
    assert file.largest_error < 1e-5
    assert file.macs == found.macs > 0
    assert file.unknown_operators == 0
    assert [each.op for each in file.changes if not each.reason] == []
    # The differences that are listed are all there are.
    changed = sum((each.flop_after or 0) - (each.flop_before or 0) for each in file.changes)
    assert found.flop + changed == file.flop
    # What export says of the file is what analyze says of it.
    again = roofline.analyze(str(path), hardware=MACHINE)
    assert again.totals.macs == eager.totals.macs
    assert again.totals.flop == file.flop
    if format == "pt2":
        assert again.totals.parameters == eager.totals.parameters


def test_what_a_file_gives_without_us(tmp_path: Path) -> None:
    """torch's own loader, and ONNX's reference implementation, on another input."""
    onnx: Any = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    import warnings

    model, inputs = made("segmenting")
    files = [tmp_path / "a.pt2", tmp_path / "a.onnx"]
    roofline.export(model, inputs, files=files)
    x = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = model(x)
        found = torch.export.load(files[0]).module()(x)
    torch.testing.assert_close(found, expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluator = importlib.import_module("onnx.reference").ReferenceEvaluator(
            onnx.load(files[1])
        )
        (result,) = evaluator.run(None, {evaluator.input_names[0]: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(result), expected, rtol=1e-4, atol=1e-5)


def test_the_model_is_left_as_it_was(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)).train()
    model[0].eval()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    roofline.export(model, "2x4", files=tmp_path / "a.pt2")
    assert [each.training for each in model] == [False, True]
    assert model.training
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


def test_what_differs_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exporter that is wrong, made up: it writes another model."""
    right = exporting._content

    def wrong(subject: Any, suffix: str, opset: int | None) -> Any:
        subject.module[0].bias.data += 0.01
        try:
            return right(subject, suffix, opset)
        finally:
            subject.module[0].bias.data -= 0.01

    monkeypatch.setattr(exporting, "_content", wrong)
    path = tmp_path / "a.pt2"
    with pytest.raises(RooflineError, match=r"not written: outputs differ .* by \d") as said:
        roofline.export(nn.Sequential(nn.Linear(4, 3)), "2x4", files=path)
    assert said.value.exit_code == 1
    assert not path.exists()


class Depends(nn.Module):
    """Another way for other values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of a table."""
        return x + 1 if x.sum() > 0 else x - 1


def test_models_that_cannot_be_exported(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"torch\.export failed") as said:
        roofline.export(Depends(), "2x4", files=tmp_path / "a.pt2")
    assert "\n" not in str(said.value)
    assert not (tmp_path / "a.pt2").exists()


@pytest.mark.parametrize(
    ("files", "options", "words"),
    [
        ("a.h5", {}, r"models are written as \.onnx, \.pt2"),
        ("missing/a.pt2", {}, "does not exist; create it first"),
        ([], {}, "no file to write"),
        ("a.pt2", {"opset": 18}, r"opset=18 has no effect without an"),
    ],
)
def test_what_cannot_be_written(
    files: Any, options: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=words):
        roofline.export(nn.Linear(2, 2), "1x2", files=files, **options)


def test_files_that_exist_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.pt2"
    path.write_bytes(b"mine")
    with pytest.raises(InputError, match="exists; add overwrite=True"):
        roofline.export(nn.Linear(2, 2), "1x2", files=path)
    assert path.read_bytes() == b"mine"


def test_modules_keep_their_names_in_a_program(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 2)))
    roofline.export(model, "2x4", files=tmp_path / "a.pt2")
    found = roofline.analyze(str(tmp_path / "a.pt2"), hardware=MACHINE)
    paths = [each.module_path for each in found.operators if each.op == "aten.addmm"]
    assert paths == ["0", "1.1"]


def test_what_is_told_of_a_file(tmp_path: Path) -> None:
    """Batch norms are folded into convolutions: their FLOP go, a bias comes."""
    pytest.importorskip("onnxscript")
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)).eval()
    found = roofline.export(model, "1x3x6x6", files=tmp_path / "a.onnx")
    (file,) = found.files
    # 4 × 4 × 4 results of 27 multiply-adds; a bias is one addition each.
    assert file.macs == found.macs == 64 * 27
    reasons = {each.op: each.reason for each in file.changes}
    assert "folded into the preceding layer" in reasons["aten.native_batch_norm"]
    assert file.flop == 2 * 64 * 27 + (64 if "aten.convolution" in reasons else 0)
    told = json.loads(found.to_json())
    assert result_from_data(told, file="a.json") == found
    assert told["files"][0]["macs"] == 1728
    assert "folded into the preceding layer" in str(found)


# -- weights ---------------------------------------------------------------------------------------

MAKER = """
from torch import nn

def net():
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
"""


@pytest.fixture
def maker(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(MAKER)
    return f"{tmp_path / 'mine.py'}:net"


def test_weights_are_put_into_what_makes_the_model(maker: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    torch.save(model.state_dict(), tmp_path / "w.pt")
    source = load_model(roofline.StoredModel(maker, weights=tmp_path / "w.pt"))
    assert torch.equal(source.module[0].weight, model[0].weight)  # pyright: ignore
    assert source.notes[-1] == "note: weights from w.pt"
    torch.save({"epoch": 3, "state_dict": model.state_dict()}, tmp_path / "checkpoint.pt")
    source = load_model(roofline.StoredModel(maker, weights=tmp_path / "checkpoint.pt"))
    assert torch.equal(source.module[0].weight, model[0].weight)  # pyright: ignore


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (nn.Linear(4, 3).state_dict(), r"7 weights of .* are missing \('0\.weight'\)"),
        ({"epoch": 3}, "'epoch': expected a tensor, got int"),
        ({}, "expected weights, got"),
        (
            nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)).state_dict(),
            r"'0\.weight' has shape 3x5, .* expects 3x4",
        ),
        (
            {
                f"module.{name}": each
                for name, each in nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
                .state_dict()
                .items()
            },
            r"all of these begin with 'module\.': save the weights without it",
        ),
    ],
)
def test_weights_that_do_not_fit(weights: Any, words: str, maker: str, tmp_path: Path) -> None:
    torch.save(weights, tmp_path / "w.pt")
    with pytest.raises(ModelError, match=words) as said:
        load_model(roofline.StoredModel(maker, weights=tmp_path / "w.pt"))
    assert "\n" not in str(said.value)


def test_weights_that_must_be_unpickled(maker: str, tmp_path: Path) -> None:
    torch.save(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), tmp_path / "whole.pt")
    with pytest.raises(FileFormatError, match="a pickle that imports"):
        load_model(roofline.StoredModel(maker, weights=tmp_path / "whole.pt"))
    trusted = roofline.StoredModel(maker, weights=tmp_path / "whole.pt", allow_pickle=True)
    assert load_model(trusted).notes[-1] == "note: weights from whole.pt"


def test_weights_alone_are_no_model(tmp_path: Path) -> None:
    torch.save(nn.Linear(4, 3).state_dict(), tmp_path / "w.pt")
    with pytest.raises(
        ModelError, match=r"weights without a model; .*\(file\.py:Model\), and weights='w\.pt'"
    ):
        load_model(str(tmp_path / "w.pt"))


def test_a_name_with_weights_goes_into_other_processes(tmp_path: Path) -> None:
    import pickle

    named = roofline.StoredModel("a.py:net", weights=tmp_path / "w.pt", allow_pickle=True)
    again = pickle.loads(pickle.dumps(named))
    assert (again, again.weights, again.allow_pickle) == ("a.py:net", tmp_path / "w.pt", True)
