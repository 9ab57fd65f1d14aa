"""Sweeps of designs: what is captured, what is refused, and that numbers are those of analyze."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import roofline
from roofline.design.comparison.axes import grid_of
from roofline.design.comparison.balance import KnownMachine, balance_points
from roofline.design.comparison.result import Comparison
from roofline.errors import HardwareError, InputError
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.runs import CapturedPass
from roofline.pipeline.sweeps import sweeping as balances
from roofline.pipeline.sweeps.execution import (
    ExecutionTarget,
    duration_text,
    estimate_s,
    needs_consent,
)
from roofline.pipeline.sweeps.jobs import Context, Job
from roofline.pipeline.sweeps.planning import plan_of
from roofline.run import RunOptions
from tests.builders import ceiling, level, profile

STANDARD = "conv2d({channels},{channels},3,padding=1,bias=false)@{size}x{size}"
SEPARABLE = (
    "conv2d({channels},{channels},3,padding=1,groups={channels},bias=false)"
    "+conv2d({channels},{channels},1,bias=false)@{size}x{size}"
)
NAMES = ("standard", "separable")


def bound_to(text: str, channels: object, size: object) -> str:
    return text.replace("{channels}", str(channels)).replace("{size}", str(size))


@pytest.fixture
def machine() -> HardwareProfile:
    """1 and 2 TFLOP/s on 1 and 2 threads, a cache of 1 MB at 100 GB/s, DRAM at 10 GB/s."""
    return profile(
        [ceiling(1e12), ceiling(2e12, threads=2), ceiling(3e12, of="bfloat16", threads=2)],
        [
            level("L2", 10**6, {"read": {1: 1e11}}),
            level("DRAM", None, {"read": {1: 1e10, 2: 1.5e10}}),
        ],
        threads=2,
    )


def test_every_cell_is_what_analyze_says(machine: HardwareProfile) -> None:
    result = roofline.sweep(
        STANDARD, SEPARABLE, axes="channels=8|32,size=7|14", hardware=machine, names=NAMES
    )
    assert result.points[1] == {"channels": 8, "size": 14}
    for point, cells in zip(result.points, result.cells, strict=True):
        for text, cell in zip((STANDARD, SEPARABLE), cells, strict=True):
            design = bound_to(text, point["channels"], point["size"])
            alone = roofline.analyze(design, hardware=machine).totals
            assert (cell.flop, cell.eager_min_time_s) == (alone.flop, alone.eager_min_time_s)
            assert (cell.traffic_bytes, cell.parameters) == (alone.traffic_bytes, alone.parameters)
            assert cell.ceiling and cell.ceiling_share and 0 < cell.ceiling_share <= 1
    # By hand: 2 x 14 x 14 x 8 x 8 x 9 FLOP, and 8 x 8 x 9 parameters.
    assert result.cells[1][0].flop == 225792
    assert result.cells[1][0].parameters == 576
    # Nothing was learned of that machine, and that is said.
    assert {each.basis for each in result.verdicts} == {"bound"}
    assert any("no calibration" in each for each in result.warnings)


def test_one_capture_serves_all_machines_and_threads(
    machine: HardwareProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Job] = []
    before = Context.captured

    def counted(self: Context, job: Job, on: str) -> CapturedPass:
        asked.append(job)
        return before(self, job, on)

    monkeypatch.setattr(Context, "captured", counted)
    plan = plan_of(
        (STANDARD, "conv2d(4,4,1)@{size}x{size}"),
        grid_of("channels=8|16|32,size=7|14,threads=1|2"),
        hardware=machine,
        options=RunOptions(),
    )
    # The second design has no channels.
    assert (plan.grid.count, plan.design_points, plan.job_count) == (12, 24, 6 + 2)
    from roofline.pipeline.sweeps.sweeping import carry_out

    result = carry_out(replace(plan, job_s=(0.1, 0.1)), ExecutionTarget(kind="local"))
    assert len(asked) == 8
    assert result.threads is None
    point = {
        tuple(each.values()): cells for each, cells in zip(result.points, result.cells, strict=True)
    }
    one, two = point[32, 14, 1][0].eager_min_time_s, point[32, 14, 2][0].eager_min_time_s
    assert one is not None and two is not None and one > two
    assert point[8, 14, 1][1] == point[32, 14, 1][1]


def test_options_are_axes_of_models_by_name_too(machine: HardwareProfile) -> None:
    result = roofline.sweep(
        nn.Linear(64, 64),
        nn.Linear(64, 16),
        inputs="1x64",
        axes={"batch": [1, 4], "dtype": ["float32", "bfloat16"]},
        names=("wide", "narrow"),
        hardware=machine,
        threads=2,
    )
    flop = [cells[0].flop for cells in result.cells]
    byte = [cells[0].traffic_bytes for cells in result.cells]
    # 64 x 64 multiply-adds and as many biases as outputs, once for each row of the batch.
    assert flop == [8192 + 64] * 2 + [4 * (8192 + 64)] * 2
    assert byte[0] == 2 * (byte[1] or 0)
    assert result.names == ("wide", "narrow")


def test_layout_and_several_machines_are_axes(machine: HardwareProfile) -> None:
    result = roofline.sweep(
        "conv2d(8,8,3)@9x9",
        "conv2d(8,8,1)@9x9",
        axes="layout=contiguous|channels-last",
        hardware=[machine, "h100"],
    )
    assert [each.name for each in result.grid.axes] == ["layout", "hardware"]
    assert result.points[1] == {"layout": "contiguous", "hardware": "h100"}
    assert [each.name for each in result.hardware] == ["test", "h100"]
    here, there = result.cells[0][0], result.cells[1][0]
    assert here.flop == there.flop and here.eager_min_time_s != there.eager_min_time_s
    same = roofline.sweep(
        "conv2d(8,8,3)@9x9", "conv2d(8,8,1)@9x9", axes="hardware=h100|a100", names=("x", "y")
    )
    assert same.cells[0][0].eager_min_time_s == there.eager_min_time_s


def test_a_point_that_cannot_be_built_is_a_reason_and_no_crash(machine: HardwareProfile) -> None:
    result = roofline.sweep(
        "conv2d({c},{c},3)@9x9",
        "conv2d({c},{c},3,groups=3)@9x9",
        axes="c=8|9|12",
        hardware=machine,
        names=("plain", "grouped"),
    )
    assert [cells[1].is_built for cells in result.cells] == [False, True, True]
    assert "divi" in result.cells[0][1].problem
    assert result.verdicts[0].winner is None
    assert len(result.problems) == 1 and "1 of 3 points" in result.problems[0]


@pytest.mark.parametrize(
    ("designs", "axes", "said"),
    [
        ((STANDARD, SEPARABLE), "chanels=8,size=7", "did you mean 'channels'"),
        ((STANDARD, SEPARABLE), "channels=8", "the variable 'size' of .* has no axis"),
        ((STANDARD, STANDARD), "channels=8,size=7", "duplicate design"),
        ((STANDARD,), "channels=8,size=7", "requires at least two designs, got 1"),
        ((STANDARD, "saved.json"), "channels=8,size=7", "cannot be swept"),
        ((STANDARD, SEPARABLE), "channels=8,size=7,batch=0|1", "whole numbers from 1"),
        ((STANDARD, SEPARABLE), "channels=8,size=7,dtype=int8", "floating-point type"),
        ((STANDARD, SEPARABLE), "channels=8,size=7,layout=nhwc", "contiguous or channels-last"),
        ((STANDARD, SEPARABLE), "channels=8,size=7,threads=9", "choose 1 to 2"),
        ((STANDARD, "conv3d({channels}"), "channels=8,size=7", "unclosed"),
        ((STANDARD, "no-such-model"), "channels=8|9,size=7", "no-such-model: unknown model"),
        ((STANDARD, "linear(3,{channels})@1x4"), "channels=8|9|10,size=7", "linear"),
    ],
)
def test_what_does_not_fit_is_said_before_the_work(
    designs: tuple[str, ...], axes: str, said: str, machine: HardwareProfile
) -> None:
    with pytest.raises(InputError, match=said):
        roofline.sweep(*designs, axes=axes, hardware=machine)


def test_what_is_an_axis_is_not_an_option_as_well(machine: HardwareProfile) -> None:
    with pytest.raises(InputError, match="hardware is also an axis"):
        roofline.sweep(STANDARD, SEPARABLE, axes="hardware=v100,channels=8,size=7", hardware="h100")
    for option in ({"batch": 2}, {"threads": 1}, {"dtype": "float32"}):
        (name,) = option
        value = "float32" if name == "dtype" else 1
        with pytest.raises(InputError, match=f"^{name} is also an axis of axes"):
            roofline.sweep(
                STANDARD,
                SEPARABLE,
                axes={"channels": 8, "size": 7, name: [value]},
                hardware=machine,
                **option,  # pyright: ignore[reportArgumentType]
            )


def test_a_million_points_are_counted_and_estimated_without_being_made(
    machine: HardwareProfile,
) -> None:
    plan = plan_of(
        (STANDARD, SEPARABLE),
        grid_of("channels=1:1000000:1,size=1:1000:1"),
        hardware=machine,
        options=RunOptions(),
    )
    assert plan.job_count == plan.design_points == 2 * 10**9
    seconds = estimate_s(plan, ExecutionTarget(kind="processes", count=2))
    assert seconds is not None and seconds > 1e5
    assert needs_consent(plan, None)
    few = plan_of(
        (STANDARD, SEPARABLE), grid_of("channels=8,size=7"), hardware=machine, options=RunOptions()
    )
    assert not needs_consent(few, 1.0)
    assert needs_consent(few, 1000.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 second"),
        (75, "80 seconds"),
        (100, "2 minutes"),
        (7200, "2 hours"),
        (1e6, "12 days"),
    ],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert duration_text(seconds) == f"about {text}"


@pytest.mark.parametrize(
    ("executor", "jobs", "said"),
    [
        ("proceses", None, "did you mean 'processes'"),
        ("local", 4, "has no effect"),
        (None, 0, "from 1"),
        ("dask:tcp://x:1", 2, "has no effect"),
        (3, None, "concurrent.futures.Executor"),
    ],
)
def test_executors_that_there_are_not(executor: object, jobs: int | None, said: str) -> None:
    with pytest.raises(InputError, match=said):
        ExecutionTarget.of(executor, jobs)  # pyright: ignore[reportArgumentType]


def test_short_sweeps_stay_here_and_long_ones_take_processes() -> None:
    where = ExecutionTarget.of(None, None)
    assert where.resolved(1.0).kind == "local"
    assert where.resolved(1000.0).kind == ("processes" if where.count > 1 else "local")
    assert ExecutionTarget.of(None, 1).kind == "local"
    assert (ExecutionTarget.of(None, 3).kind, ExecutionTarget.of(None, 3).count) == ("processes", 3)


def test_the_users_file_goes_with_the_work(
    machine: HardwareProfile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from roofline.pipeline.sweeps.jobs import files_of_designs, with_local_files

    (tmp_path / "block.py").write_text(
        "from torch import nn\nfrom beside import wide\n"
        "def Block(n): return nn.Conv2d(n, wide(n), 1)\n"
    )
    (tmp_path / "beside.py").write_text("def wide(n): return 2 * n\n")
    monkeypatch.chdir(tmp_path)
    text = "block.py:Block({n})@1x{n}x5x5"
    shipped = files_of_designs([text, "conv2d({n},{n},1)@5x5", nn.ReLU()])
    assert [each.path for each in shipped] == ["block.py"]
    assert with_local_files(text, shipped) == text
    # On a machine that has no such file, and on one that has another of that name.
    for there in (tmp_path / "elsewhere", tmp_path / "other"):
        there.mkdir()
        monkeypatch.chdir(there)
        if there.name == "other":
            (there / "block.py").write_text("raise RuntimeError('not this one')\n")
        from roofline.pipeline.sweeps import jobs

        jobs._is_here.cache_clear()  # pyright: ignore[reportPrivateUsage]
        found = with_local_files(text, shipped)
        assert found != text and found.endswith("block.py:Block({n})@1x{n}x5x5")
        analysis = roofline.analyze(found.replace("{n}", "3"), hardware=machine)
        assert analysis.totals.parameters == 3 * 6 + 6


# -- over machines ---------------------------------------------------------------------------------


def bounds(result: Comparison) -> list[tuple[float, ...]]:
    """The bounds of designs on hypothetical machines."""
    return [each.times_s for each in balance_points(result) if not each.machine]


def ratios(result: Comparison) -> list[tuple[float, ...]]:
    return [each.over(result.reference) for each in balance_points(result) if not each.machine]


def known(result: Comparison) -> dict[str, tuple[KnownMachine, tuple[float, ...]]]:
    """Known machines with their bounds, by name."""
    return {e.machine.name: (e.machine, e.times_s) for e in balance_points(result) if e.machine}


def test_a_sweep_over_balances_is_the_classic_model(machine: HardwareProfile) -> None:
    texts = [
        each.replace("{channels}", "64").replace("{size}", "56") for each in (STANDARD, SEPARABLE)
    ]
    result = roofline.sweep(*texts, axes="balance=0.001:1000000:x10", hardware=machine, names=NAMES)
    assert result.balance
    assert (result.balance.dtype, result.threads) == ("float32", 2)
    alone = [roofline.analyze(each, hardware=machine).totals for each in texts]
    # Where bytes are free, least FLOP alone count; where they are dear, traffic alone does.
    least = [each.min_flop / 2e12 for each in alone]
    assert bounds(result)[0] == pytest.approx(least)
    by_traffic = alone[1].traffic_bytes / alone[0].traffic_bytes
    assert ratios(result)[-1][1] == pytest.approx(by_traffic)
    assert bounds(result)[-1][0] == pytest.approx(alone[0].traffic_bytes / (2e12 / 1e6))
    # Each bound falls with bandwidth.
    for design in range(2):
        times = [each[design] for each in bounds(result)]
        assert times == sorted(times)


def test_crossings_are_where_bounds_are_equal(machine: HardwareProfile) -> None:
    texts = [
        each.replace("{channels}", "64").replace("{size}", "56") for each in (STANDARD, SEPARABLE)
    ]
    result = roofline.sweep(*texts, axes="balance=1:1024:x2", hardware=machine, names=NAMES)
    assert result.balance
    (crossing,) = result.balance.crossings
    assert (crossing.before, crossing.after) == (1, 0)
    beside = roofline.sweep(
        *texts,
        axes={"balance": [crossing.balance * 0.999, crossing.balance * 1.001]},
        hardware=machine,
        names=NAMES,
    )
    low, high = (each[1] for each in ratios(beside))
    assert low < 1 < high and math.isclose(low, high, rel_tol=0.01)


def test_designs_of_other_inputs_are_said_to_be_so(machine: HardwareProfile) -> None:
    few, many = "linear(8,8)@1x8", "linear(8,n)@4x8"
    said = f"inputs differ, times are per pass: {few} 1x8 float32, {many} 4x8"
    found = roofline.sweep(few, many, axes="n=8|16", hardware=machine)
    assert any(each.startswith(said) for each in found.warnings)
    ridge = roofline.sweep(few, many, axes="n=8,balance=1:4:x2", hardware=machine)
    assert any(each.startswith(said) for each in ridge.warnings)
    alike = roofline.sweep(few, "linear(8,n)@1x8", axes="n=8|16", hardware=machine)
    assert not any("inputs differ" in each for each in alike.warnings)


def test_known_machines_stand_at_their_own_balance(machine: HardwareProfile) -> None:
    result = roofline.sweep(
        "conv2d(64,64,3)@30x30", "conv2d(64,64,1)@30x30", axes="balance=1:256:x2", hardware=machine
    )
    found = known(result)
    v100 = roofline.load_hardware("v100")
    memory = v100.memory[-1]
    peak = max(
        each.peak_flop_per_s
        for each in v100.compute
        if each.dtype.name == "float32" and each.kind == "hardware"
    )
    balance = peak / max(each.peak_bytes_per_s for each in memory.bandwidth)
    assert found["v100"][0].balance == pytest.approx(balance)
    own = [
        roofline.analyze(each, hardware="v100").totals.eager_min_time_s
        for each in ("conv2d(64,64,3)@30x30", "conv2d(64,64,1)@30x30")
    ]
    assert found["v100"][1] == pytest.approx(own)
    assert list(found) == sorted(found, key=lambda name: found[name][0].balance)
    assert result.balance
    assert any("v100-article" in each for each in result.balance.left_out)


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ("balance=1:8:x2,channels=8|16", "cannot vary with"),
        ("balance=4", "two or more numbers"),
        ("balance=0:4:1", "above 0"),
        ("balance=a|b", "above 0"),
    ],
)
def test_balances_that_are_none(axes: str, said: str, machine: HardwareProfile) -> None:
    with pytest.raises(InputError, match=said):
        roofline.sweep("conv2d({channels},8,1)@9x9", "relu()@9x9", axes=axes, hardware=machine)


def test_a_single_value_may_stand_beside_balance(machine: HardwareProfile) -> None:
    result = roofline.sweep(
        "conv2d({c},8,1)@9x9", "conv2d({c},4,1)@9x9", axes="balance=1|2,c=8", hardware=machine
    )
    assert result.run == "1x8x9x9 float32"
    with pytest.raises(InputError, match="no ceilings for float64"):
        roofline.sweep(
            "conv2d(8,8,1)@9x9",
            "conv2d(8,4,1)@9x9",
            axes="balance=1|2",
            hardware="v100-article",
            dtype="float64",
        )


def test_a_bound_that_is_not_known_is_not_0(
    machine: HardwareProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    designs = ("linear(64,64)@8x64", "linear(64,32)@8x64")
    whole = balances.place

    def without_the_first(*args: Any, **kwargs: Any) -> Any:
        first, *rest = whole(*args, **kwargs)
        return (replace(first, eager_min_time_s=None), *rest)

    def only_on_machines_that_there_are(records: Any, reuse: Any, roof: Any) -> Any:
        there = whole if roof.profile.name.startswith(machine.name) else without_the_first
        return there(records, reuse, roof)

    monkeypatch.setattr(balances, "place", without_the_first)
    with pytest.raises(HardwareError, match="no ceilings for some operators of these designs"):
        roofline.sweep(*designs, hardware=machine, axes={"balance": [1, 2]})
    monkeypatch.setattr(balances, "place", only_on_machines_that_there_are)
    found = roofline.sweep(*designs, hardware=machine, axes={"balance": [1, 2]})
    assert found.balance and "h100" not in known(found)
    assert "h100 (no ceilings for some operators)" in found.balance.left_out
