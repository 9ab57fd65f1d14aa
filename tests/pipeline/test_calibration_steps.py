"""In which types a machine is calibrated, and in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roofline.errors import InputError
from roofline.latency.calibration_set import CalibrationCase, models
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline import calibrations
from roofline.pipeline.calibrations import (
    Step,
    calibrate,
    calibration_dtypes,
    interleave,
    pending_steps,
    thread_counts,
)
from roofline.pipeline.measuring import this_host
from tests import builders


def machine(*instruction_sets: str, threads: int = 1) -> HardwareProfile:
    host = replace(this_host(), instruction_sets=instruction_sets)
    plain = builders.profile(
        [builders.ceiling(1e11, threads=each) for each in range(1, threads + 1)],
        [
            builders.level(
                "DRAM", None, {"read": dict.fromkeys(range(1, threads + 1), 10000000000.0)}
            )
        ],
        threads=threads,
    )
    return replace(plain, host=host)


def can() -> str:
    return ""


def cannot() -> str:
    return "no kernels"


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        (("avx2",), ("float32",)),
        (("avx512_bf16",), ("float32", "bfloat16")),
        (("avx512_vnni",), ("float32", "int8")),
        (("avx_vnni",), ("float32", "int8")),
        (("amx_bf16", "amx_int8", "amx_tile"), ("float32", "bfloat16", "int8")),
    ],
)
def test_what_the_cpu_computes_in_is_learned(
    sets: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert calibration_dtypes(machine(*sets), None, can) == expected


def test_a_machine_that_nothing_is_known_of_has_floats() -> None:
    unknown = replace(machine(), host=None)
    assert calibration_dtypes(unknown, None, can) == ("float32",)


def test_without_kernels_int8_is_left_out_or_refused() -> None:
    fast = machine("amx_int8")
    assert calibration_dtypes(fast, None, cannot) == ("float32",)
    assert calibration_dtypes(fast, ("float32",), cannot) == ("float32",)
    with pytest.raises(InputError, match="dtypes='int8': no kernels"):
        calibration_dtypes(fast, ("int8", "float32"), cannot)
    # Who asks gets it on a CPU without units for it, too, and each type once.
    asked = calibration_dtypes(machine("avx2"), ("int8", "float32", "int8"), can)
    assert asked == ("int8", "float32")


@pytest.mark.parametrize("name", ["int4", "int32", "floaty"])
def test_other_types_are_refused_before_the_machine_is_looked_at(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roofline.pipeline.calibrations.bench", None)
    with pytest.raises(InputError):
        calibrate(dtypes=[name], quick=True)


def test_one_thread_and_all() -> None:
    assert thread_counts(machine()) == (1,)
    assert thread_counts(machine(threads=2)) == (2, 1)


def steps(*names: str, dtype: str = "float32") -> list[Step]:
    return [Step(case=CalibrationCase(name=each, family="x"), dtype=dtype) for each in names]


def test_int8_stands_between_the_others() -> None:
    def order(first: str, second: str, every: int) -> str:
        found = interleave(steps(*first), steps(*second), every=every)
        return "".join(each.case.name for each in found)

    assert order("abcdef", "xyz", 2) == "abxcdyefz"
    assert order("abc", "xyz", 2) == "abxcyz"
    assert order("abcdef", "x", 1) == "axbcdef"
    assert order("", "xy", 1) == "xy"
    assert order("ab", "", 1) == "ab"


def test_what_was_done_is_left_out_by_type_and_layout() -> None:
    plain = CalibrationCase(name="a", family="x")
    last = replace(plain, channels_last=True)
    done = {"a int8", "a float32 channels-last"}
    left = pending_steps((plain, last), ("float32", "int8"), done)
    assert [each.key for each in left] == ["a float32", "a int8 channels-last"]


def test_a_quick_calibration_has_one_model_of_each_kind_at_batch_1() -> None:
    def of(*, quick: bool) -> list[Step]:
        found = calibrations._steps(("float32",), set(), 0.0, 1.0, lambda: 0.0, quick=quick)
        return [each for steps in found for each in steps if not each.case.is_design]

    short, whole = of(quick=True), of(quick=False)
    assert len(short) == 9 == len({each.case.family for each in short})
    assert [each.case.batches for each in short] == [(1,)] * 9
    assert [each.case.name for each in short] == [each.name for each in models()[:9]]
    assert len(whole) > 40 and {8, 4} & {batch for each in whole for batch in each.case.batches}
