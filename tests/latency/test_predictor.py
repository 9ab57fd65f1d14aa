"""Predicted passes: the settled time, and the page faults of the process that will run them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from roofline.latency import predictor as predictor_module
from roofline.latency.allocator import Allocator
from roofline.latency.calibration import Calibration
from roofline.latency.features import features_of
from roofline.latency.prediction import RunPrediction
from roofline.latency.predictor import Predictor
from roofline.pipeline import machines as learned_of
from roofline.placement import Placement, Roof, place
from roofline.workload.glibc_heap import MallocSettings
from roofline.workload.operators import State
from roofline.workload.page_faults import PageFaults, count_page_faults
from roofline.workload.residency import trace_residency
from tests.analysis.examples import full_profile
from tests.builders import ceiling, level, profile
from tests.latency.samples import run_of as sampled_run
from tests.latency.samples import sample_of
from tests.workload.passes import passed

FAULT_S = 1e-6

SETTLED = RunPrediction(
    predicted_s=0.02, low_s=0.016, high_s=0.025, operators_s=0.018, overhead_s=0.002,
    calibration="",
)  # fmt: skip


def placements() -> tuple[Placement, ...]:
    """Three results of 48 MiB: by default glibc never takes as much from its heap."""
    found = passed(lambda x: x.exp().sin().cos(), (12 * 2**20,))
    roof = Roof(profile([ceiling(1e11)], [level("DRAM", None, {"read": {1: 1e10}})]), 1)
    return tuple(place(found.records, trace_residency(found.records), roof, cache="steady"))


def learned(known: tuple[Placement, ...], page_fault_s: dict[int, float]) -> Calibration:
    facts = [features_of(each, 1) for each in known if each.record.state is not State.FREE]
    run = sampled_run(sample_of(each, 5 * each.eager_min_time_s) for each in facts)
    return Calibration([run], page_fault_s=page_fault_s)


def run_of(predictor: Predictor, known: tuple[Placement, ...]) -> tuple[RunPrediction, str]:
    found = predictor.predict(known, 1)
    assert found.run is not None
    return found.run, " ".join(found.notes)


def test_page_faults_of_the_default_allocator_are_part_of_a_pass() -> None:
    known = placements()
    run, notes = run_of(Predictor(calibration=learned(known, {1: FAULT_S})), known)
    simulated = count_page_faults([each.record for each in known])
    assert simulated.page_faults > 1000
    assert run.page_faults == simulated.page_faults
    assert abs(run.predicted_s - run.settled_s - simulated.page_faults * FAULT_S) < 1e-9
    assert run.allocator == "default"
    assert run.tunables.startswith("glibc.malloc.mmap_threshold=")
    assert not notes


def test_the_cost_of_a_page_fault_is_that_of_the_process_that_will_run() -> None:
    known = placements()
    calibration = learned(known, {1: FAULT_S})
    small, _ = run_of(Predictor(calibration=calibration), known)
    huge, _ = run_of(Predictor(calibration=calibration, page_fault_s={1: 3 * FAULT_S}), known)
    assert huge.settled_s == small.settled_s
    assert huge.predicted_s - huge.settled_s == pytest.approx(
        3 * (small.predicted_s - small.settled_s)
    )


def test_without_costs_or_for_another_allocator_there_are_none_and_that_is_said() -> None:
    known = placements()
    settled, notes = run_of(Predictor(calibration=learned(known, {})), known)
    assert settled.page_faults is None
    assert settled.predicted_s == settled.settled_s
    assert "predicted times exclude page faults: their cost is unknown" in notes
    other = Predictor(
        calibration=learned(known, {1: FAULT_S}),
        allocator=Allocator(library="libjemalloc.so.2", settings=None),
    )
    run, notes = run_of(other, known)
    assert replace(run, calibration=settled.calibration) == settled
    assert "exclude page faults: libjemalloc.so.2 is not simulated" in notes


def test_the_interval_of_a_pass_knows_the_number_of_its_faults_and_their_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = placements()
    predictor = Predictor(calibration=learned(known, {1: FAULT_S}))

    def added(count: int, low: int, high: int) -> RunPrediction:
        page_faults = PageFaults(page_faults=count, low=low, high=high, page_bytes=4096)
        monkeypatch.setattr(predictor_module, "count_page_faults", lambda *_, **__: page_faults)
        return predictor.with_faults(SETTLED, known, 1)[0]

    none, certain, unsure = added(0, 0, 0), added(1000, 1000, 1000), added(1000, 0, 8000)
    assert (none.predicted_s, none.low_s) == pytest.approx((SETTLED.predicted_s, SETTLED.low_s))
    assert certain.predicted_s == unsure.predicted_s == pytest.approx(0.021)
    assert SETTLED.settled_s == certain.settled_s
    # In seconds it is wider by what is not known of their cost, and no wider.
    grown_s = (certain.high_s - certain.low_s) - (none.high_s - none.low_s)
    assert 0 < grown_s < 1000 * FAULT_S
    # Where their number is not certain, it is as wide as that alone at the least.
    assert unsure.high_s - unsure.low_s > 0.9 * 8000 * FAULT_S


def test_settings_are_advised_where_nearly_every_process_has_page_faults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = placements()
    predictor = Predictor(calibration=learned(known, {1: FAULT_S}))

    def tunables(low: int) -> str:
        page_faults = PageFaults(page_faults=5000, low=low, high=6000, page_bytes=4096)
        monkeypatch.setattr(predictor_module, "count_page_faults", lambda *_, **__: page_faults)
        return predictor.with_faults(SETTLED, known, 1)[0].tunables

    # 3 % of 20 ms are 600 faults.
    assert not tunables(0)
    assert not tunables(590)
    assert tunables(610).startswith("glibc.malloc.mmap_threshold=")


@pytest.mark.parametrize(
    ("system", "is_glibc"),
    [
        ("Debian GNU/Linux 12 (bookworm), Linux 6.18", True),
        ("Ubuntu 24.04, Linux 6.8", True),
        ("Alpine Linux v3.20, Linux 6.6", False),
        ("Darwin 24.1.0", False),
    ],
)
def test_other_machines_have_glibc_where_their_system_has(system: str, is_glibc: bool) -> None:
    host = full_profile().host
    assert host is not None
    found = learned_of._usual_allocator(replace(host, operating_system=system))  # pyright: ignore[reportPrivateUsage]
    assert (found.settings is not None) == is_glibc
    assert (found.library == "glibc") == is_glibc


def test_settings_that_keep_all_memory_are_those_of_the_environment() -> None:
    known = placements()
    calibration = learned(known, {1: FAULT_S})
    default, _ = run_of(Predictor(calibration=calibration), known)
    sizes = [int(each.rpartition("=")[2]) for each in default.tunables.split(":")]
    mmap_bytes, trim_bytes = sizes
    settings = MallocSettings(
        mmap_threshold_bytes=mmap_bytes, trim_threshold_bytes=trim_bytes, is_dynamic=False
    )
    kept = Allocator(settings=settings, changed=tuple(default.tunables.split(":")))
    run, _ = run_of(Predictor(calibration=calibration, allocator=kept), known)
    assert (run.page_faults, run.tunables) == (0, "")
    assert run.predicted_s == default.settled_s
    assert "mmap_threshold" in run.allocator


def test_a_pass_on_tensors_that_the_heap_keeps_has_no_faults() -> None:
    found = passed(torch.relu, (1000,))
    roof = Roof(profile([ceiling(1e11)], [level("DRAM", None, {"read": {1: 1e10}})]), 1)
    known = tuple(place(found.records, trace_residency(found.records), roof, cache="steady"))
    run, _ = run_of(Predictor(calibration=learned(known, {1: FAULT_S})), known)
    assert (run.page_faults, run.tunables) == (0, "")
