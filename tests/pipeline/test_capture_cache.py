"""Captures of library models that are kept on disk, and those that must not be."""

from __future__ import annotations

import base64
import hashlib
import io
import pickle
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import roofline
from roofline.latency.store import Store
from roofline.pipeline import cache, runs
from roofline.pipeline.runs import file_of
from roofline.run import RunOptions, libraries_are_untouched
from roofline.workload.formulas import registry
from roofline.workload.models.files.formats import StoredModel

MACHINE = "10980xe"


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep captures, which tests of everything else do not, though torch is imported here."""
    monkeypatch.delenv("ROOFLINE_NO_CACHE")
    runs._installed.cache_clear()
    runs._record.cache_clear()
    before = libraries_are_untouched.set(True)
    yield
    libraries_are_untouched.reset(before)


def place(model: object = "resnet18", inputs: object = None, **options: Any) -> Path | None:
    chosen = RunOptions(**options)
    return file_of(model, inputs, chosen, chosen.run("cpu"))


@pytest.mark.parametrize(
    "call",
    [
        "analyze('resnet18', hardware='10980xe')",
        "analyze('resnet18', hardware='h100', autocast='float16')",
        "analyze('resnet18', hardware='10980xe', train=True, batch=2)",
        "predict('resnet18', inputs='2x3x64x64', hardware='10980xe')",
        "compare('resnet18', 'torchvision:alexnet', hardware='10980xe')",
        "advise('alexnet', hardware='10980xe')",
    ],
)
def test_a_kept_capture_gives_the_same_bytes_without_torch(call: str) -> None:
    # In processes of their own, as users have them.
    script = f"""
import sys, roofline
text = roofline.{call}.to_json()
print('torch' in sys.modules)
print(text)
"""
    outputs = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    imported, texts = zip(*(each.stdout.split("\n", 1) for each in outputs), strict=True)
    assert imported == ("True", "False")
    assert set(texts) == {f"{eval(f'roofline.{call}').to_json()}\n"}


def test_a_call_after_torch_was_imported_reads_and_keeps_nothing() -> None:
    """Hooks and patches of whoever imported it may change any model."""
    kept = roofline.analyze("alexnet", hardware=MACHINE)
    (file,) = cache.folder("capture").iterdir()
    libraries_are_untouched.set(None)
    with torch.nn.modules.module.register_module_forward_hook(lambda *given: given[-1] * 2):
        hooked = roofline.analyze("alexnet", hardware=MACHINE)
        file.unlink()
        assert roofline.analyze("alexnet", hardware=MACHINE) == hooked
    assert len(hooked.operators) > len(kept.operators)
    assert not list(cache.folder("capture").iterdir())


def test_a_command_keeps_its_models_until_it_runs_code_of_the_user(tmp_path: Path) -> None:
    model = tmp_path / "net.py"
    model.write_text("import torch\nNet = torch.nn.ReLU\n")

    def compare(*models: str) -> int:
        command = [sys.executable, "-m", "roofline", "compare", *models, "--hardware", MACHINE]
        subprocess.run(command, capture_output=True, check=True)
        return (
            len(list(cache.folder("capture").iterdir())) if cache.folder("capture").exists() else 0
        )

    assert compare(f"{model}:Net", "alexnet", "--input", "1x3x64x64") == 0
    assert compare("alexnet", "resnet18") == 2


def test_no_cache_reads_and_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    roofline.analyze("alexnet", hardware=MACHINE, no_cache=True)
    assert not cache.folder("capture").exists()
    roofline.analyze("alexnet", hardware=MACHINE)
    assert len(list(cache.folder("capture").iterdir())) == 1
    monkeypatch.setattr(runs, "read", lambda _: pytest.fail("was read"))
    roofline.analyze("alexnet", hardware=MACHINE, no_cache=True)


def test_every_part_of_a_run_has_its_own_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [
        place(),
        place("resnet34"),
        place("timm:resnet18"),
        place(inputs=["1x3x64x64"]),
        place(batch=2),
        place(dtype="bfloat16"),
        place(train=True),
        place(train=True, optimizer="sgd"),
        place(train=True, scale_gradients=True),
        place(autocast="bfloat16"),
        place(channels_last=True),
        place(device="meta"),
        place("hf:bert"),
        place("hf:bert", seq=64),
    ]
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    places.append(place())
    monkeypatch.delenv("ATEN_CPU_CAPABILITY")
    monkeypatch.setattr(runs, "_processor", lambda: ("another",))
    places.append(place())
    monkeypatch.undo()
    monkeypatch.delenv("ROOFLINE_NO_CACHE", raising=False)
    assert None not in places
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        ("models.py:Net", None),
        ("package.module:factory", None),
        ("model.pt2", None),
        ("conv2d(3,8,3)@8x8", None),
        (StoredModel("resnet18"), None),
        (torch.nn.Linear(2, 2), (1, 2)),
        ("resnet18", torch.zeros(1, 3, 64, 64)),
        ("resnet18", [object()]),
    ],
)
def test_models_and_inputs_of_the_user_are_never_kept(model: Any, inputs: Any) -> None:
    assert place(model, inputs) is None


def test_functions_of_the_user_are_never_kept() -> None:
    assert place(train=True, loss=lambda output: output.sum()) is None
    assert place(train=True, optimizer=torch.optim.SGD) is None


@pytest.mark.parametrize(
    ("change", "restore"),
    [
        (
            lambda: torch.set_default_dtype(torch.float64),
            lambda: torch.set_default_dtype(torch.float32),
        ),
        (
            lambda: torch.backends.cuda.enable_math_sdp(False),
            lambda: torch.backends.cuda.enable_math_sdp(True),
        ),
        (
            lambda: torch.use_deterministic_algorithms(True),
            lambda: torch.use_deterministic_algorithms(False),
        ),
        (lambda: torch.set_grad_enabled(False), lambda: torch.set_grad_enabled(True)),
        (
            lambda: torch.backends.mha.set_fastpath_enabled(False),
            lambda: torch.backends.mha.set_fastpath_enabled(True),
        ),
    ],
)
def test_changed_settings_of_torch_keep_nothing(
    change: Callable[[], object], restore: Callable[[], object]
) -> None:
    assert place() is not None
    change()
    try:
        assert place() is None
    finally:
        restore()
    assert place() is not None


def test_formulas_of_the_user_keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_formulas", dict(registry._formulas))

    @roofline.formula("mylib.kept")
    def count(**_: Any) -> roofline.Flop:
        return roofline.Flop()

    assert place() is None


def _installed_package(folder: Path, *, digest: str = "", link: str = "") -> Path:
    source = folder / "timm" / "__init__.py"
    source.parent.mkdir(parents=True)
    source.write_text("value = 1\n")
    right = base64.urlsafe_b64encode(hashlib.sha256(source.read_bytes()).digest())
    listed = digest or right.rstrip(b"=").decode()
    info = folder / "timm-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: timm\nVersion: 1.0\n")
    (info / "RECORD").write_text(
        f"timm/__init__.py,sha256={listed},10\ntimm-1.0.dist-info/RECORD,,\n"
    )
    if link:
        (info / "direct_url.json").write_text(link)
    return source


@pytest.mark.parametrize(
    ("package", "is_kept"),
    [
        ({}, True),
        ({"digest": "A" * 43}, False),
        ({"link": '{"dir_info": {"editable": true}, "url": "file:///src"}'}, False),
    ],
    ids=["published", "patched", "editable"],
)
def test_only_packages_as_they_were_published_are_kept(
    package: dict[str, str], is_kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _installed_package(tmp_path, **package)
    monkeypatch.setattr(runs, "_PACKAGES", ("timm",))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    known = runs._installed()
    assert (known is not None and runs._is_unchanged("timm")) == is_kept


def test_a_changed_file_of_a_package_has_another_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _installed_package(tmp_path)
    monkeypatch.setattr(runs, "_PACKAGES", ("timm",))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    before = place()
    source.write_text("value = 2\n")
    runs._installed.cache_clear()
    assert before != place() is not None
    assert not runs._is_unchanged("timm")


class _Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("ran",))


def _packed(value: object) -> bytes:
    data = zlib.compress(pickle.dumps(value))
    return hashlib.sha256(data).digest() + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 40,
        _packed(_Hostile()),
        _packed({"no": "capture"}),
        _packed(Path("roofline")),
        hashlib.sha256(b"no zlib").digest() + b"no zlib",
    ],
)
def test_damaged_and_hostile_files_are_captured_again(content: bytes) -> None:
    fresh = roofline.analyze("alexnet", hardware=MACHINE)
    (file,) = cache.folder("capture").iterdir()
    good = file.read_bytes()
    file.write_bytes(content)
    assert runs.read(file) is None
    file.write_bytes(good[: len(good) // 2])
    assert runs.read(file) is None
    assert roofline.analyze("alexnet", hardware=MACHINE) == fresh
    assert file.read_bytes() == good


def test_no_class_is_read_that_does_something_when_it_is_made() -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"roofline\.latency\.store\.Store"):
        cache._Reader(io.BytesIO(pickle.dumps(Store))).load()


def test_the_folder_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    roofline.analyze("resnet18", hardware=MACHINE)
    (first,) = cache.folder("capture").iterdir()
    monkeypatch.setitem(cache.MAX_BYTES, "capture", first.stat().st_size)
    roofline.analyze("alexnet", hardware=MACHINE)
    (second,) = cache.folder("capture").iterdir()
    assert first != second


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.folder("capture").parent.mkdir(parents=True)
    cache.folder("capture").write_text("a file")
    assert roofline.analyze("alexnet", hardware=MACHINE).operators


def test_who_needs_the_model_builds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    options = RunOptions()
    runs.capture_pass("alexnet", None, options, on="cpu")
    assert runs.capture_pass("alexnet", None, options, on="cpu").workload is None
    assert runs.capture_pass("alexnet", None, options, on="cpu", with_model=True).model
