"""Widths of types, verdicts on samples, files that are whole or not there."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.dtypes import dtype
from roofline.core.files import check_writable, write_atomically, write_together
from roofline.core.sampling import Sample, quantile
from roofline.errors import InputError


@pytest.mark.parametrize(
    ("name", "elements", "byte"),
    [("float32", 3, 12), ("int4", 3, 2), ("int4", 4, 2), ("bf16", 5, 10), ("torch.int8", 7, 7)],
)
def test_bytes_are_computed_from_bits(name: str, elements: int, byte: int) -> None:
    assert dtype(name).byte(elements) == byte


def test_an_unknown_type_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'bfloat16'"):
        dtype("bfloat61")


def test_every_type_of_torch_is_known_by_itself_and_by_its_name() -> None:
    import torch

    for each in vars(torch).values():
        if isinstance(each, torch.dtype):
            name = str(each).removeprefix("torch.")
            assert dtype(each).name == dtype(str(each)).name == dtype(name).name == name
            if not name.startswith(("int", "uint", "quint")):
                assert dtype(each).bits == 8 * each.itemsize


def test_what_is_no_type_at_all() -> None:
    with pytest.raises(InputError, match="unknown dtype '7'"):
        dtype(7)


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


def _both_at_once(write: Callable[[str], None]) -> list[str]:
    """What each of two threads came to that passed the check before either of them wrote."""
    together = threading.Barrier(2)
    ends: list[str] = []

    def writer(content: str) -> None:
        together.wait()
        try:
            write(content)
            ends.append(content)
        except InputError as error:
            ends.append(str(error))

    threads = [threading.Thread(target=writer, args=(each,)) for each in ("a", "b")]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return ends


@pytest.mark.parametrize("has_links", [True, False])
def test_of_two_writers_that_may_not_overwrite_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    past_the_check = threading.Barrier(2)
    synced = os.fsync

    def wait_for_the_other(handle: int) -> None:
        # Here both have seen that there is no such file.
        past_the_check.wait()
        synced(handle)

    def no_links(*_paths: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fsync", wait_for_the_other)
    if not has_links:
        monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "result"
    ends = _both_at_once(lambda content: write_atomically(path, content, overwrite=False))
    (refused,) = [each for each in ends if "exists; add overwrite=True" in each]
    (winner,) = [each for each in ends if each != refused]
    assert path.read_text() == winner
    assert list(tmp_path.iterdir()) == [path]


def test_files_that_belong_together_are_all_refused_when_one_appears_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    synced = os.fsync

    def another_writes(handle: int) -> None:
        synced(handle)
        second.write_text("another's")

    monkeypatch.setattr(os, "fsync", another_writes)
    with pytest.raises(InputError, match=r"second: exists; add overwrite=True"):
        write_together({first: "ours", second: "ours"}, overwrite=False)
    assert second.read_text() == "another's"
    assert list(tmp_path.iterdir()) == [second]


def test_devices_are_never_replaced() -> None:
    with pytest.raises(InputError, match="not a regular file"):
        check_writable(Path("/dev/null"), overwrite=True)


def test_what_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    for path, message in (
        (tmp_path / "there", "add overwrite=True"),
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "a", "does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            check_writable(path, overwrite=False)


@pytest.mark.parametrize("name", ["a" * 300 + ".json", "a\0b", "loop", "loop/a"])
def test_names_that_no_file_can_have(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for refuse in (
        lambda path: check_writable(path, overwrite=True),
        lambda path: write_atomically(path, "x", overwrite=True),
    ):
        with pytest.raises(InputError, match=r"cannot be written|does not exist"):
            refuse(tmp_path / name)


def test_a_name_may_be_as_long_as_the_system_takes(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 250 + ".json")
    write_atomically(path, "x", overwrite=False)
    assert path.read_text() == "x"


def test_names_that_are_not_unicode_do_not_keep_a_file_from_being_written(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", "model \udcff", overwrite=False)
    assert (tmp_path / "a").read_text() == "model \\udcff"
