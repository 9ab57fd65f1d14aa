"""Where models come from, and what is said when they do not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

import roofline
from roofline.errors import InputError, ModelError
from roofline.workload.inputs import InputRequest, resolve_inputs
from roofline.workload.models import sources
from roofline.workload.models.sources import load_model
from tests.forked_programs import forked

# -- torchvision -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["resnet18", "torchvision:resnet18", "googlenet", "inception_v3", "quantized_googlenet"],
)
def test_torchvision_models_are_built_without_weights(name: str) -> None:
    """On the meta device; the last three would spend seconds on initial weights, and warn."""
    source = load_model(name)
    assert source.name == name.rpartition(":")[2]
    assert {each.device.type for each in source.module.parameters()} == {"meta"}
    assert not any("built with weights" in note for note in source.notes)


def test_a_model_that_needs_values_is_built_for_real_and_says_so() -> None:
    """RegNet reads numbers while it is built."""
    source = load_model("regnet_y_400mf")
    assert "was built with weights: building it on the meta device failed" in source.notes[-1]
    assert source.rebuild is None
    assert {each.device.type for each in source.module.parameters()} == {"cpu"}


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("resnet50", (1, 3, 224, 224)),
        ("inception_v3", (1, 3, 299, 299)),
        ("efficientnet_b1", (1, 3, 240, 240)),
        ("efficientnet_b7", (1, 3, 600, 600)),
        ("efficientnet_v2_s", (1, 3, 384, 384)),
        ("swin_v2_t", (1, 3, 256, 256)),
        ("vit_h_14", (1, 3, 224, 224)),  # 518 after fine-tuning end to end
        ("fcn_resnet50", (1, 3, 520, 520)),
        ("r3d_18", (1, 3, 16, 112, 112)),
        ("mvit_v2_s", (1, 3, 16, 224, 224)),
    ],
)
def test_default_sizes(name: str, shape: tuple[int, ...]) -> None:
    """The smallest size that the published weights are evaluated at."""
    source = load_model(name)
    assert source.default_inputs == (InputRequest(shape=shape),)


def test_models_whose_input_is_not_one_batch_have_no_default() -> None:
    """Optical flow takes two images; the message says what forward takes."""
    with pytest.raises(InputError, match=r"one shape for each .*: image1, image2"):
        source = load_model("raft_small")
        resolve_inputs(source.module, None, source.default_inputs, name=source.name, batch=None)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("resnet51", "; did you mean 'resnet"),
        ("mobilnet_v2", "; did you mean 'mobilenet_v2'"),
        ("torchvision:resnet52", "; did you mean 'resnet"),
        # What is like nothing gets the forms that there are.
        ("qqqqqqq", r" \(models of torchvision, timm and .*package"),
    ],
)
def test_unknown_names_suggest_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(ModelError, match=f"unknown (torchvision )?model '{name}'{hint}"):
        load_model(name)


# -- packages --------------------------------------------------------------------------------------


def test_a_class_or_function_in_a_package() -> None:
    """Called without arguments."""
    source = load_model("torch.nn:Identity")
    assert isinstance(source.module, torch.nn.Identity)
    assert (source.name, source.default_inputs) == ("torch.nn:Identity", ())


def test_the_working_folder_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when Python runs a script there."""
    (tmp_path / "made_for_this_test.py").write_text("import torch\nnet = torch.nn.ReLU()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    assert isinstance(load_model("made_for_this_test:net").module, torch.nn.ReLU)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_package:make", "package 'no_such_package' is not installed"),
        ("torch.no_such_part:make", "package 'torch.no_such_part' is not installed"),
        ("torch.nn:Identiti", "'Identiti' not found; did you mean 'Identity'"),
        ("torch.nn:", "'' not found"),
        (
            "torch:pi",
            "'pi' has type float, expected a torch.nn.Module or a function that returns one",
        ),
        ("torch.nn:Linear", "requires the arguments in_features, out_features"),
        ("torch:get_num_threads", "expected a torch.nn.Module, the factory returned int"),
        ("a/b:make", "'a/b' is neither a package nor a .py file"),
        ("my-package:make", "'my-package' is neither a package nor a .py file"),
        (":make", "'' is neither a package nor a .py file"),
        ("model.py", "no class or function named; write model.py:Model"),
        ("folder/model.py", "no class or function named; write folder/model.py:Model"),
    ],
)
def test_what_is_wrong_with_a_name(name: str, message: str) -> None:
    """The message quotes it and says what would be right; it is the user's, exit code 2."""
    with pytest.raises(ModelError, match=message) as raised:
        load_model(name)
    assert str(raised.value).startswith(f"model '{name}'")
    assert raised.value.exit_code == 2


# -- files -----------------------------------------------------------------------------------------

FILE = """
from __future__ import annotations
from dataclasses import dataclass
import torch

@dataclass
class Config:
    width: int = 4

class Model(torch.nn.Module):
    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear((config or Config()).width, 2)

def make() -> Model:
    from sibling import WIDTH
    return Model(Config(WIDTH))

def fails():
    raise ValueError("no\\nweights")

def leaves():
    raise SystemExit(5)

ready = Model()
number = 3
def returns_a_number():
    return number

def normalize(x, y, *rest, scale=1):
    return x / y
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "sibling.py").write_text("WIDTH = 7\n")
    path = tmp_path / "torch_model.py"
    path.write_text(FILE)
    return path


def test_what_a_file_makes(file: Path) -> None:
    """A class, also of dataclasses, which look their module up; a function; a module as it is.

    A file finds its neighbors when it is imported and when its factory runs; the path is then as
    before.
    """
    before = list(sys.path)
    source = load_model(f"{file}:Model")
    assert type(source.module).__name__ == "Model"
    assert next(source.module.parameters()).device.type == "meta"
    assert next(load_model(f"{file}:make").module.parameters()).shape == (2, 7)
    assert next(load_model(f"{file}:ready").module.parameters()).device.type == "cpu"
    assert sys.path == before


def test_a_file_named_like_a_library(file: Path) -> None:
    """It does not become that library."""
    path = file.with_name("random.py")
    path.write_text(FILE)
    before = sys.modules["random"]
    load_model(f"{path}:Model")
    assert sys.modules["random"] is before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Modl", "'Modl' not found; did you mean 'Model'"),
        ("fails", "building it failed: ValueError: no weights"),
        ("leaves", "building it failed: SystemExit: 5"),
        ("number", "'number' has type int, expected a"),
        ("returns_a_number", "the factory returned int"),
        ("normalize", "'normalize' requires the arguments x, y"),
    ],
)
def test_what_is_wrong_with_a_factory(file: Path, name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as raised:
        load_model(f"{file}:{name}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("def broken(:\n", "importing it failed: SyntaxError"),
        ("import no_such_thing_here\n", "ModuleNotFoundError: No module named 'no_such_thing"),
        ("raise SystemExit(2)\n", "importing it failed: SystemExit: 2"),
        ("1 / 0\n", "importing it failed: ZeroDivisionError"),
        # Before 3.11.4 Python says ValueError.
        ("\0", "importing it failed: (SyntaxError|ValueError): source code"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, content: str, message: str) -> None:
    """Said with its name, in one line; nothing of it stays imported."""
    path = tmp_path / "broken.py"
    path.write_text(content)
    before = set(sys.modules)
    with pytest.raises(ModelError, match=message) as raised:
        load_model(f"{path}:Model")
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)
    assert not {each for each in set(sys.modules) - before if "broken" in each}


def test_a_file_that_changes_within_a_second_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    written = None
    for channels in (4, 5):
        file.write_text(f"import torch\ndef Net():\n    return torch.nn.Conv2d(3, {channels}, 3)\n")
        written = written or file.stat()
        os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))
        assert load_model(f"{file}:Net").module.out_channels == channels
    assert [each.name for each in tmp_path.iterdir()] == ["model.py"]


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    for path in ("nowhere/model.py", tmp_path / "folder.py"):
        with pytest.raises(ModelError, match=f"{path}: no such file"):
            load_model(f"{path}:Model")


# -- modules ---------------------------------------------------------------------------------------


def test_a_module_that_is_given() -> None:
    """It is called by its class; anything else is refused."""
    assert sources.wrap_model(torch.nn.ReLU()).name == "ReLU"
    with pytest.raises(
        ModelError, match=r"expected a torch\.nn\.Module, a function or a model name, got"
    ):
        sources.wrap_model(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ModelError, match=r"got the class ReLU; create an instance: ReLU\(…\)"):
        sources.wrap_model(torch.nn.ReLU)


def test_a_function_that_is_given() -> None:
    """It is a model of its name; a method brings its module along."""

    class Autoencoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = torch.nn.Linear(4, 2)

        def encode(self, x: torch.Tensor) -> torch.Tensor:
            return self.encoder(x)

    assert sources.wrap_model(torch.nn.functional.gelu).name == "gelu"
    analysis = roofline.analyze(Autoencoder().encode, (3, 4), hardware="10980xe")
    assert analysis.model == "encode"
    assert analysis.totals.parameters == 10
    assert {row.module_path for row in analysis.operators} == {"Autoencoder.encoder"}


def test_a_function_that_refers_to_what_is_assigned_later() -> None:
    """An empty cell of a closure holds no module, and is no error."""
    layer = torch.nn.Linear(4, 2)

    def model(x: torch.Tensor) -> torch.Tensor:
        return layer(x) if x.dim() else after(x)

    analysis = roofline.analyze(model, torch.zeros(1, 4), hardware="10980xe")
    assert analysis.totals.parameters == 10
    after = layer


@pytest.mark.parametrize("where", ["at the top", "in the factory"])
def test_a_users_file_may_import_torchvision_beside_a_cpu_only_torch(
    where: str, tmp_path: Path
) -> None:
    """Its own import of torchvision works wherever the named models do."""
    first = "import torchvision" if where == "at the top" else ""
    path = tmp_path / "mine.py"
    path.write_text(
        f"{first}\ndef make():\n    import torchvision\n    return torchvision.models.alexnet()\n"
    )
    name = f"{path}:make"
    code = (
        f"from roofline.workload.models.sources import load_model as l; print(l({name!r}).module)"
    )
    done = forked(code)
    assert done.returncode == 0, done.stderr
    assert b"AlexNet" in done.stdout
