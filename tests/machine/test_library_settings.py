"""torch's settings while it is measured: the defaults, whatever the caller set, and back again."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from roofline.core.progress import silent  # noqa: E402
from roofline.machine.library import measurement  # noqa: E402
from roofline.machine.library.default_settings import default_settings  # noqa: E402

ONEDNN: Any = torch.backends.mkldnn
HAS_OPERATORS = hasattr(ONEDNN, "matmul")


def state() -> dict[str, object]:
    found = {
        "enabled": ONEDNN.enabled,
        "onednn deterministic": getattr(ONEDNN, "deterministic", False),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warn only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
    }
    if HAS_OPERATORS:
        precisions = (ONEDNN.matmul.fp32_precision, ONEDNN.conv.fp32_precision)
        return {**found, "matmul": precisions[0], "conv": precisions[1]}
    return {**found, "matmul": torch.get_float32_matmul_precision()}


@pytest.fixture(autouse=True)
def as_it_was() -> Generator[None]:
    before = state()
    yield
    torch.use_deterministic_algorithms(False)
    ONEDNN.enabled = True
    if hasattr(ONEDNN, "deterministic"):
        ONEDNN.deterministic = False
    torch.set_float32_matmul_precision("highest")
    if HAS_OPERATORS:
        ONEDNN.matmul.fp32_precision = before["matmul"]
        ONEDNN.conv.fp32_precision = before["conv"]


def medium() -> None:
    torch.set_float32_matmul_precision("medium")


def rounded_operators() -> None:
    if not HAS_OPERATORS:
        pytest.skip("this torch has one setting for all")
    ONEDNN.matmul.fp32_precision = "bf16"
    ONEDNN.conv.fp32_precision = "bf16"


def deterministic() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)


def without_onednn() -> None:
    ONEDNN.enabled = False


def deterministic_onednn() -> None:
    if not hasattr(ONEDNN, "deterministic"):
        pytest.skip("this torch has no such setting")
    ONEDNN.deterministic = True


@pytest.mark.parametrize(
    "change", [medium, rounded_operators, deterministic, without_onednn, deterministic_onednn]
)
def test_settings_of_the_caller_do_not_count_and_stay(change: Callable[[], None]) -> None:
    with default_settings():
        defaults = state()
    assert defaults["enabled"] is True
    assert defaults["deterministic"] is False
    assert defaults["matmul"] in ("ieee", "highest")
    change()
    changed = state()
    assert changed != defaults
    with pytest.raises(KeyboardInterrupt), default_settings():
        assert state() == defaults
        raise KeyboardInterrupt
    assert state() == changed


def test_no_type_is_cast_automatically() -> None:
    a = torch.ones(2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.mm(a, a).dtype == torch.bfloat16
        with default_settings():
            assert torch.mm(a, a).dtype == torch.float32
        assert torch.mm(a, a).dtype == torch.bfloat16


def test_they_hold_while_the_library_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, object]] = []

    def subjects() -> list[Any]:
        seen.append(state())
        return []

    monkeypatch.setattr(measurement, "arithmetic_subjects", subjects)
    with default_settings():
        defaults = state()
    medium()
    deterministic()
    measurement.measure_library(threads=1, budget_s=0.01, clock=time.perf_counter, progress=silent)
    assert seen == [defaults]
