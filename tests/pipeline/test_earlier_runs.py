"""analyze and predict show what was measured before: of this machine, and of nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from roofline.analysis import Analysis, read_analysis
from roofline.core.sampling import Sample
from roofline.latency.features import run_sample
from roofline.latency.predictor import Predictor
from roofline.latency.samples import Origin, PassTimes, RunMeasurement
from roofline.latency.store import Store
from roofline.machine.catalog import host_file, load_hardware, save_measured_profile
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.analyses import analyze, assemble_analysis, compare_machines
from roofline.pipeline.machines import (
    host_environment,
    host_latency_file,
    latency_file,
    load_calibrated,
)
from roofline.pipeline.measuring import this_host
from roofline.pipeline.predictions import predict
from roofline.pipeline.runs import CapturedPass
from roofline.placement import Roof, place
from roofline.run import Run
from roofline.workload.capture.passes import capture
from roofline.workload.inputs import Inputs
from roofline.workload.operators import Capture
from roofline.workload.residency import trace_residency
from tests import builders

SHAPE = (1, 4, 8, 8)


def test_the_file_lies_beside_the_profile() -> None:
    assert latency_file(Path("a/host.toml")) == Path("a/host.latency.sqlite")
    assert latency_file(Path("my.machine.toml")) == Path("my.machine.latency.sqlite")


def passed_of(captured: Capture) -> CapturedPass:
    reuse = trace_residency(captured.records)
    return CapturedPass(name="net", inputs=(), capture=captured, reuse=reuse, notes=())


def hardware(read: float = 1e10, cache_bytes: int = 32768) -> HardwareProfile:
    """This host, as if it had been measured."""
    made_up = builders.profile(
        [builders.ceiling(1e11)],
        [
            builders.level("L1", cache_bytes, {"read": {1: 10 * read}}),
            builders.level("DRAM", None, {"read": {1: read}}),
        ],
    )
    return replace(made_up, name="this", host=this_host())


@pytest.fixture
def machine() -> HardwareProfile:
    save_measured_profile(hardware(), ())
    return hardware()


def net(wide: int = 8) -> nn.Module:
    return nn.Sequential(nn.Conv2d(4, wide, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36 * wide, 5))


def timed(operators: int) -> PassTimes:
    """A pass of a millisecond; each operator took ten microseconds."""
    whole = RunMeasurement(
        end_to_end=Sample(times_s=(0.0009, 0.001, 0.0011)),
        operators_s=operators * 1e-5,
        page_faults=0,
        rounds=3,
        discarded=0,
        date="2026-03-04T10:00:00",
    )
    each = (Sample(times_s=(1e-5, 1e-5)),) * operators
    return PassTimes(run=whole, operators=each, page_faults=(0,) * operators)


def keep(
    model: nn.Module,
    *,
    shape: tuple[int, ...] = SHAPE,
    origin: Origin = "calibrate",
    run: Run | None = None,
    name: str = "known",
    family: str = "known",
    on: HardwareProfile | None = None,
) -> None:
    """Adds a run of that model to the store of this machine, without running it."""
    run = run or Run()
    records = capture(model, Inputs(torch.zeros(shape)), name=name, run=run, training=None).records
    sample = run_sample(
        place(records, trace_residency(records), Roof(on or hardware(), 1)),
        timed(len(records)),
        model=name,
        family=family,
        origin=origin,
        run=run,
        dtype="float32",
        batch=shape[0],
        threads=1,
    )
    with Store(host_latency_file(), host_environment()) as store:
        store.add(sample)


@pytest.mark.parametrize("ask", [analyze, predict])
def test_the_same_model_was_measured_before(
    ask: Callable[..., Analysis], machine: HardwareProfile, tmp_path: Path
) -> None:
    assert ask(net(), torch.zeros(SHAPE)).earlier is None
    keep(net())
    found = ask(net(), torch.zeros(SHAPE))
    earlier = found.earlier
    assert earlier is not None and found.measurement is None
    assert (earlier.origin, earlier.model, earlier.date) == (
        "calibrate",
        "known",
        "2026-03-04T10:00:00",
    )
    # The quartiles are 0.95 and 1.05 ms.
    assert (earlier.measured_s, earlier.iqr_s) == pytest.approx((1e-3, 1e-4))
    for named in ("host", "this", machine):
        assert ask(net(), torch.zeros(SHAPE), hardware=named).earlier == earlier
    found.save(tmp_path / "a.json")
    assert read_analysis(tmp_path / "a.json") == found
    keep(net(), origin="profile", name="again")
    last = ask(net(), torch.zeros(SHAPE)).earlier
    assert last is not None and (last.origin, last.model) == ("profile", "again")


def test_what_was_not_measured_has_no_time(machine: HardwareProfile) -> None:
    keep(net())
    keep(net(), run=Run(channels_last=True), name="images")
    x = torch.zeros(SHAPE)
    assert predict(net(), x).earlier is not None
    assert predict(net(9), x).earlier is None
    assert predict(net(), x, batch=2).earlier is None
    assert predict(net(), x, dtype="bfloat16").earlier is None
    assert predict(net(), x, train=True).earlier is None
    assert predict(net(), x, autocast="bfloat16").earlier is None
    assert predict(nn.Sequential(net(), nn.ReLU()), x).earlier is None
    assert analyze(net(), x, cold=True).earlier is None
    images = predict(net(), x, channels_last=True).earlier
    assert images is not None and images.model == "images"


def test_a_profile_that_was_measured_anew_keeps_them(machine: HardwareProfile) -> None:
    keep(net())
    save_measured_profile(hardware(read=3e10, cache_bytes=2**20), ())
    found = predict(net(), torch.zeros(SHAPE))
    assert found.hardware.memory[0].capacity_bytes == 2**20
    assert found.earlier is not None


def test_other_machines_have_none(machine: HardwareProfile, tmp_path: Path) -> None:
    keep(net())
    x = torch.zeros(SHAPE)
    assert predict(net(), x, hardware="10980xe").earlier is None
    renamed = replace(machine, name="that")
    assert predict(net(), x, hardware=renamed).earlier is None
    # A copy with samples of its own: they may be of another torch.
    copy = tmp_path / "elsewhere.toml"
    shutil.copy(host_file(), copy)
    shutil.copy(host_latency_file(), latency_file(copy))
    foreign = predict(net(), x, hardware=copy)
    assert foreign.prediction is not None and foreign.earlier is None
    both = compare_machines(net(), x, hardware=["10980xe", "host"]).analyses
    assert [each.earlier is not None for each in both] == [False, True]


def test_a_measured_pass_needs_no_earlier_one(machine: HardwareProfile) -> None:
    keep(net())
    asked = Inputs(torch.zeros(SHAPE))
    captured = capture(net(), asked, name="net", run=Run(), training=None)
    predictor = load_calibrated(load_hardware("host"), None, Run())
    assert predictor is not None

    def assembled(times: PassTimes | None, history: Predictor = predictor) -> Analysis:
        return assemble_analysis(
            passed_of(captured),
            Roof(machine, 1),
            notes=(),
            timed=times,
            history=history,
        )

    assert assembled(None).earlier is not None
    measured = assembled(timed(len(captured.records)))
    assert measured.measurement is not None and measured.earlier is None
    assert assembled(None, replace(predictor, is_of_host=False)).earlier is None


def test_minimum_times_beside_a_measurement_hold_at_its_clock(machine: HardwareProfile) -> None:
    """Ceilings of 3.89 GHz under a pass at 4.28: 1.1 times as high, and the predictor knows not."""
    slow = replace(
        machine, compute=tuple(replace(each, clock_hz=3.89e9) for each in machine.compute)
    )
    captured = capture(net(), Inputs(torch.zeros(SHAPE)), name="net", run=Run(), training=None)
    times = timed(len(captured.records))

    def assembled(clock_hz: float | None) -> Analysis:
        return assemble_analysis(
            passed_of(captured),
            Roof(slow, 1),
            notes=(),
            timed=replace(times, run=replace(times.run, clock_hz=clock_hz)),
        )

    def compute_s(analysis: Analysis) -> float:
        return analysis.hardware.compute[0].peak_flop_per_s

    assert compute_s(assembled(4.279e9)) == pytest.approx(1.1 * compute_s(assembled(None)))
    note = (
        "cores ran at 4.28 GHz, ceilings were measured at 3.89 GHz:"
        " clock-bound ceilings are scaled up"
    )
    assert note in assembled(4.279e9).warnings
    assert note not in assembled(3.9e9).warnings
    assert compute_s(assembled(3.5e9)) == compute_s(assembled(None))


def test_ceilings_measured_beside_other_processes_are_a_warning_not_a_minor_note() -> None:
    busy = "contention: other processes used 40.0 % of 2 CPUs; stop them and measure again"
    machine = replace(load_hardware("10980xe"), conditions=("page faults: 3", busy))
    warnings = analyze(nn.Linear(8, 8), (4, 8), hardware=machine).warnings
    assert f"ceilings of 10980xe may be too low ({busy})" in warnings
    assert next(each for each in warnings if "conditions of" in each).startswith("note: ")
