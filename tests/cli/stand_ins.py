"""What stands for functions of the pipeline, so that commands take no time; and refusals."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field
from typing import Any

import pytest

from roofline.cli.main import run


@dataclass
class StandIn:
    """Remembers what it was asked for, talks as models and measurements do, and answers."""

    answer: Any
    says: str = "waiting for a quiet machine"
    error: BaseException | None = None
    asked: list[tuple[Any, dict[str, Any]]] = field(default_factory=list[Any])

    def __call__(self, *given: Any, progress: Any, say: Any = None, **options: Any) -> Any:
        self.asked.append((given, options))
        print("what the model says")
        progress(0.5, "net")
        if say is not None:
            say(self.says)
        if self.error is not None:
            raise self.error
        return self.answer

    @property
    def given(self) -> dict[str, Any]:
        """The last model and its options; nothing before the first call."""
        if not self.asked:
            return {}
        (model,), options = self.asked[-1]
        return {"model": model, **options}


def stand_in(
    patch: pytest.MonkeyPatch, module: str, function: str, answer: Any, **how: Any
) -> StandIn:
    """Put a stand-in in the place of a module of the pipeline."""
    made = StandIn(answer, **how)
    of_pipeline = types.ModuleType(f"roofline.pipeline.{module}")
    of_pipeline.__dict__[function] = made
    patch.setitem(sys.modules, of_pipeline.__name__, of_pipeline)
    return made


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """The one line that a failing call says on stderr."""
    assert run(list(arguments)) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.strip().splitlines()
    assert line.startswith("roofline: error: ")
    assert "Traceback" not in captured.err
    return line
