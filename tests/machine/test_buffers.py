"""Buffers: alignment, content and layout."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.errors import MeasurementError
from roofline.machine.measuring.crew import allocate, extent_bytes, fill, huge_page_bytes, lay_out


def test_buffers_are_aligned_and_filled_with_finite_noise() -> None:
    buffer = allocate(3_000_000)
    assert buffer.size == 3_000_000
    assert buffer.ctypes.data % (2 << 20) == 0
    fill(buffer, lambda: False)
    values = buffer.view(np.float32)
    assert np.isfinite(values).all()
    assert abs(float(values.mean())) < 0.01
    assert 0.9 < float(values.std()) < 1.1


def test_memory_that_the_system_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_options: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(MeasurementError, match=r"does not give 64 MiB of memory .*; raise"):
        allocate(64 << 20)


def test_filling_ends_when_told() -> None:
    buffer = allocate(4 << 20)
    answers = iter([False, True])
    fill(buffer, lambda: next(answers))
    assert buffer[:100].any()
    assert not buffer[2 << 20 :].any()


@given(
    total=st.integers(3 * 512, 1 << 24),
    streams=st.integers(1, 3),
    block=st.sampled_from([128, 512]),
)
def test_streams_do_not_overlap_and_do_not_alias(total: int, streams: int, block: int) -> None:
    layout = lay_out(total, streams, block)
    assert layout.length % block == 0
    assert total - streams * block < layout.length * streams <= total
    assert layout.starts[0] == 0
    for before, after in zip(layout.starts, layout.starts[1:], strict=False):
        assert after >= before + layout.length
        assert after % 64 == 0
    assert layout.starts[-1] + layout.length <= extent_bytes(total, 3)
    # No two streams at the same place of a 4 KiB page.
    assert len({start % 4096 for start in layout.starts}) == streams


def test_too_little_memory_for_a_layout() -> None:
    with pytest.raises(ValueError, match="too few"):
        lay_out(1000, 3, 512)


def test_huge_pages_are_read_where_the_system_reports_them(tmp_path: Path) -> None:
    memory = allocate(8 << 20)
    start = memory.ctypes.data
    assert huge_page_bytes([memory], tmp_path) is None
    file = tmp_path / "proc/self/smaps"
    file.parent.mkdir(parents=True)
    neighbour = "7f0000-7f1000 rw-p 00000000 00:00 0\nAnonHugePages:    4096 kB\n"

    def said(huge: str) -> int | None:
        mapping = f"{start:x}-{start + (9 << 20):x} rw-p 00000000 00:00 0\n"
        file.write_text(f"{neighbour}{mapping}AnonHugePages: {huge}\n{neighbour}", encoding="utf-8")
        return huge_page_bytes([memory], tmp_path)

    assert said("6144 kB") == 6 << 20
    assert said("0 kB") == 0
    assert said("9216 kB") == 8 << 20  # what is beside the buffer in its mapping is not its own
    assert said("lots") is None
