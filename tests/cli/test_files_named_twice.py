"""A file that is named twice is refused before anything is computed, by every command."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline.cli.main import run

COMMANDS = {
    "advise": ("advise", "no_such_model"),
    "analyze": ("analyze", "no_such_model"),
    "check": ("check", "no_such_model"),
    "compare": ("compare", "no_such_model", "other"),
    "crosscheck": ("crosscheck", "no_such_model"),
    "export": ("export", "no_such_model"),
    "diff": ("hardware", "diff", "no_such_machine", "v100"),
    "operators": ("operators",),
    "optimize": ("optimize", "no_such_model"),
    "quantize": ("quantize", "no_such_model"),
    "show": ("show", "no_such_file.json"),
    "validate": ("validate", "no_such_model"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_named_twice_is_refused_first(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / ("a.onnx" if command == "export" else "a.json")
    assert run([*COMMANDS[command], "-o", str(file), "-o", str(file)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"roofline: error: {file}: duplicate file; give it once\n"
    assert not file.exists()
