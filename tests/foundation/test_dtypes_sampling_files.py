"""Widths of types, verdicts on samples, files that are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.errors import InputError
from roofline.foundation.dtypes import dtype
from roofline.foundation.files import check_writable, write_atomically
from roofline.foundation.sampling import Sample, quantile


@pytest.mark.parametrize(
    ("name", "elements", "byte"),
    [("float32", 3, 12), ("int4", 3, 2), ("int4", 4, 2), ("bf16", 5, 10), ("torch.int8", 7, 7)],
)
def test_bytes_are_computed_from_bits(name: str, elements: int, byte: int) -> None:
    assert dtype(name).byte(elements) == byte


def test_an_unknown_type_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'bfloat16'"):
        dtype("bfloat61")


def test_quantiles_interpolate() -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert quantile([1.0, 2.0], 1.0) == 2.0
    assert quantile([7.0], 0.95) == 7.0


@pytest.mark.parametrize(
    ("times", "verdict", "digits"),
    [
        ((1.0,) * 5, "steady", 4),
        ((1.00, 1.01, 1.02, 1.03, 1.04), "steady", 2),
        ((1.0, 1.1, 1.2, 1.3, 1.4), "noisy", 1),
        ((1.0, 2.0, 3.0, 4.0, 5.0), "unusable", 1),
    ],
)
def test_verdicts(times: tuple[float, ...], verdict: str, digits: int) -> None:
    sample = Sample(times_s=times)
    assert (sample.verdict, sample.digits) == (verdict, digits)


@pytest.mark.parametrize("times", [(), (0.0,), (1.0, -1.0)])
def test_what_is_no_sample(times: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="positive times"):
        Sample(times_s=times)


@given(st.binary(max_size=200))
def test_files_hold_what_was_written(content: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        write_atomically(path, content, overwrite=False)
        assert path.read_bytes() == content
        assert list(Path(folder).iterdir()) == [path]


def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_text("precious")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        write_atomically(path, "new", overwrite=True)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_text("precious")

    def interrupt(_handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, "new", overwrite=True)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_files_keep_the_usual_permissions(tmp_path: Path) -> None:
    plain, ours = tmp_path / "plain", tmp_path / "ours"
    plain.write_text("x")
    write_atomically(ours, "x", overwrite=False)
    assert ours.stat().st_mode == plain.stat().st_mode


def test_a_link_keeps_pointing_to_what_was_written(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_atomically(link, "new", overwrite=True)
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_devices_are_never_replaced() -> None:
    with pytest.raises(InputError, match="not a regular file"):
        check_writable(Path("/dev/null"), overwrite=True)


def test_what_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    for path, message in (
        (tmp_path / "there", "add --force"),
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "a", "does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            check_writable(path, overwrite=False)
