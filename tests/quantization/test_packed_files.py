"""Files of packed models that are damaged, forged, or none at all."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roofline.errors import FileFormatError
from roofline.quantization.packed_files import file_content, read_packed
from roofline.quantization.packed_models import load_packed, packed_state
from tests.quantization.quantized_examples import (
    plain,
    saved,
    small,
)


def refusal(path: Path) -> str:
    """What is said of a file; that it is one line."""
    target = plain()
    state = copy.deepcopy(target.state_dict())
    with pytest.raises(FileFormatError) as raised:
        load_packed(path, target)
    message = str(raised.value)
    assert "\n" not in message
    assert str(path) in message
    assert all(torch.equal(tensor, state[name]) for name, tensor in target.state_dict().items())
    return message


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    assert "no such file" in refusal(path)
    assert "cannot be read" in refusal(tmp_path)
    for content in (b"", b"hello", b"PK\x03\x04 and so on"):
        path.write_bytes(content)
        assert "is no packed model" in refusal(path)
    for value in (plain().state_dict(), [1, 2], plain(), {"format": "another"}):
        torch.save(value, path)
        assert "is no packed model" in refusal(path)


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"format": "roofline packed model", "version": 2}, path)
    assert "version 2" in refusal(path)
    content = torch.load(saved(small(), tmp_path, "sound.pt"), weights_only=True)
    torch.save({**content, "version": "x"}, path)
    assert "damaged" in refusal(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.floats(0, 1), st.integers(1, 255))
def test_a_changed_byte_is_found(tmp_path: Path, where: float, by: int) -> None:
    path = tmp_path / "model.pt"
    content = bytearray(file_content(packed_state(small())))
    place = int(where * (len(content) - 1))
    content[place] ^= by
    path.write_bytes(content)
    try:
        found = read_packed(path)
    except FileFormatError as error:
        assert "\n" not in str(error)
        return
    # A byte of the container that says nothing: what it holds is whole.
    assert file_content(found) == file_content(packed_state(small()))


@pytest.mark.parametrize("part", [0.05, 0.3, 0.6, 0.9, 0.99])
def test_a_file_that_was_cut_short_is_found(part: float, tmp_path: Path) -> None:
    path = saved(small(), tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    assert "is no packed model, or is damaged" in refusal(path)


def forged(path: Path, change: Any) -> None:
    """Writes the file of `small` with another table, and a checksum that is right."""
    from roofline.quantization import packed_files

    content = torch.load(io.BytesIO(file_content(packed_state(small()))), weights_only=True)
    table = json.loads(content["table"])
    change(table)
    content["table"] = json.dumps(table)
    content["crc32"] = packed_files._sum_of(content["table"], content["payload"])
    torch.save(content, path)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.pop("rest"),
        lambda table: table["rest"].pop(),
        lambda table: table["rest"].pop(0),
        lambda table: table["weights"][0].update(bits=99),
        lambda table: table["weights"][0].update(bits=4),
        lambda table: table["weights"][0].update(levels=3),
        lambda table: table["weights"][0].update(levels="four"),
        lambda table: table["weights"][0].update(axis=7),
        lambda table: table["weights"][0].update(shape=[10**9, 10**9]),
        lambda table: table["weights"][0].update(shape=[-1, -54]),
        lambda table: table["weights"][0]["alpha"].update(shape=[2]),
        lambda table: table["weights"][0].update(same_as="nobody"),
        lambda table: table["inputs"][0].update(bits=0),
        lambda table: table["inputs"][0].update(name="nobody"),
        lambda table: table["rest"][0].update(dtype="Tensor"),
        lambda table: table["rest"][0].update(name=3),
        lambda table: table.update(weights=3),
    ],
)
def test_tables_that_fit_nothing_are_refused(change: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    forged(path, change)
    assert "is damaged" in refusal(path)


def test_a_table_of_more_bytes_than_there_are_says_so(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    forged(path, lambda table: table["weights"][0].update(shape=[10**9, 10**9]))
    assert "more bytes than there are" in refusal(path)
