"""profile, calibrate, validate and predict, on a small machine that is made up."""

from __future__ import annotations

import copy
import csv
import json
import shutil
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from roofline.analysis import Analysis, minimum_times_of
from roofline.errors import HardwareError, InputError, MeasurementError, ModelError
from roofline.latency.calibration_set import CalibrationCase
from roofline.latency.measuring.rounds import Effort, Gauges
from roofline.latency.samples import RunSample
from roofline.latency.store import Store
from roofline.machine.catalog import host_file, save_measured_profile, user_folder
from roofline.machine.hardware import HardwareProfile
from roofline.machine.hardware.profiles import profile_to_toml
from roofline.pipeline import (
    calibrations,
    machines,
    profiles,
    timing,
    validations,
)
from roofline.pipeline.analyses import analyze
from roofline.pipeline.calibrations import Step, calibrate
from roofline.pipeline.fresh_processes import run_here
from roofline.pipeline.machines import host_environment, host_latency_file, latency_file
from roofline.pipeline.measuring import this_host
from roofline.pipeline.predictions import predict
from roofline.pipeline.profiles import profile
from roofline.pipeline.timing import Bench
from roofline.pipeline.validations import validate
from roofline.quantization import native_variants as quantised
from roofline.quantization.native_variants import int8_problem
from roofline.workload.operators import State
from tests import builders

FEW = Effort(warm_ups=0, min_rounds=1, max_rounds=1, budget_s=0.0)
SHAPE = (1, 4, 8, 8)


def undisturbed() -> Gauges:
    """The clock as it is, by which no pass ever waits for a core."""
    now = [0.0]

    def cpu() -> float:
        now[0] += 1e9
        return now[0]

    return Gauges(thread_cpu=cpu, run_queue_wait=lambda: 0.0)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HardwareProfile:
    """This host, as if it had been measured; it is quiet, and measured on quickly."""
    found = replace(
        builders.profile(
            [builders.ceiling(1e11)],
            [
                builders.level("L1", 32768, {"read": {1: 1e11}}),
                builders.level("DRAM", None, {"read": {1: 1e10}}),
            ],
        ),
        name="this",
        host=this_host(),
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(timing, "check_quiet", lambda _topology, **_options: ())
    monkeypatch.setattr(timing, "memory_pressure", tuple)
    monkeypatch.setattr(timing, "Gauges", undisturbed)
    for module in (calibrations, validations):
        monkeypatch.setattr(module, "fresh_processes", lambda **_: nullcontext(run_here))
    for module, names in (
        (calibrations, ("MODEL_EFFORT", "DESIGN_EFFORT")),
        (validations, ("_EFFORT", "DESIGN_EFFORT")),
        (profiles, ("_DEFAULT",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, FEW)
    save_measured_profile(found, ())
    return found


def stored() -> tuple[RunSample, ...]:
    if not host_latency_file().exists():
        return ()
    with Store(host_latency_file(), host_environment()) as store:
        return store.runs()


def net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5))


def subject(wide: int, family: str = "design", kind: str = "standard") -> CalibrationCase:
    shape = (1, wide, 8, 8)
    return CalibrationCase(
        name=f"{kind} {wide}",
        family=family,
        kind=kind,
        sizes=(wide, wide),
        shape=shape,
        batches=(1,),
    )


SUBJECTS = tuple(
    subject(wide, family)
    for family, wides in (("a", (4, 8)), ("b", (5, 9)), ("c", (6, 10)))
    for wide in wides
)


@pytest.fixture
def measured(machine: HardwareProfile, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is measured, of a calibration set that has six models and two designs."""
    assert machine.threads == 1
    names: list[str] = []
    really = timing.measure

    def measure(on: Any, asked: Any, model: Any, **options: Any) -> Any:
        names.append(asked.source.name)
        return really(on, asked, model, **options)

    monkeypatch.setattr(calibrations, "measure", measure)
    monkeypatch.setattr(calibrations, "models", lambda: SUBJECTS)
    monkeypatch.setattr(calibrations, "designs", lambda: (subject(16), subject(24)))
    return names


ALL = {*(each.name for each in SUBJECTS), "standard 16", "standard 24"}


def fail(names: list[str], monkeypatch: pytest.MonkeyPatch, at: str, error: BaseException) -> None:
    really: Callable[..., Any] = calibrations.measure

    def measure(on: Any, asked: Any, model: Any, **options: Any) -> Any:
        if asked.source.name == at and error.args != ("over",):
            names.append(f"{at} fails")
            raise error
        return really(on, asked, model, **options)

    monkeypatch.setattr(calibrations, "measure", measure)


# -- profile ---------------------------------------------------------------------------------------


def test_a_profile_has_times_and_is_learned_from(machine: HardwareProfile) -> None:
    found = profile(net(), torch.zeros(SHAPE))
    assert found.measurement is not None
    assert found.hardware.name == machine.name
    assert all(each.measured_s is not None for each in found.operators)
    (run,) = stored()
    assert (run.origin, run.batch, run.dtype, run.threads) == ("profile", 1, "float32", 1)
    assert run.calls == len(found.operators)
    assert run.end_to_end_s == found.measurement.measured_s
    at_work = [each for each in found.operators if each.state is not State.FREE]
    assert sum(each.calls for each in run.operators) == len(at_work)
    assert run.free_calls == run.calls - len(at_work)
    # Known again, it is predicted.
    again = profile(net(), torch.zeros(SHAPE), learn=False)
    assert again.prediction is not None
    assert len(stored()) == 1


def test_what_shall_not_be_kept_is_not(machine: HardwareProfile) -> None:
    profile(net(), torch.zeros(SHAPE), learn=False)
    assert stored() == ()
    assert not host_latency_file().exists()


def test_a_step_of_training_is_profiled(machine: HardwareProfile) -> None:
    found = profile(net(), torch.zeros(SHAPE), train=True, optimizer="adam", passes=2)
    assert found.measurement is not None and found.measurement.rounds == 2
    (run,) = stored()
    assert run.train
    # Nothing is predicted from it: not training, and not inference, whose operators run otherwise.
    trained = predict(net(), torch.zeros(SHAPE), train=True, optimizer="adam")
    assert trained.prediction is None
    assert trained.not_predicted == "training is not predicted"
    assert predict(net(), torch.zeros(SHAPE)).prediction is None


def test_a_model_that_raises_keeps_nothing(machine: HardwareProfile) -> None:
    with pytest.raises(ModelError):
        profile(nn.Linear(3, 3), torch.zeros(2, 4))
    assert stored() == ()


@pytest.mark.parametrize(
    "options",
    [{"passes": 0}, {"passes": True}, {"passes": 10**9}, {"threads": 0}, {"device": "meta"}],
)
def test_options_that_are_none(options: dict[str, Any], machine: HardwareProfile) -> None:
    with pytest.raises(InputError):
        profile(net(), torch.zeros(SHAPE), **options)


def test_more_threads_than_the_machine_has(machine: HardwareProfile) -> None:
    with pytest.raises(HardwareError):
        profile(net(), torch.zeros(SHAPE), threads=99)


def test_a_busy_machine_is_refused(
    machine: HardwareProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(_topology: object, *, force: bool) -> tuple[str, ...]:
        if not force:
            raise MeasurementError("the machine is busy; --force")
        return ("measured although the machine was busy",)

    monkeypatch.setattr(timing, "check_quiet", busy)
    with pytest.raises(MeasurementError, match="busy"):
        profile(net(), torch.zeros(SHAPE))
    assert stored() == ()
    found = profile(net(), torch.zeros(SHAPE), force=True)
    assert found.measurement is not None
    assert "measured although the machine was busy" in found.measurement.conditions


# -- calibrate -------------------------------------------------------------------------------------


def test_everything_is_measured_once(measured: list[str]) -> None:
    found = calibrate(quick=True, dtypes=("float32",))
    assert set(measured) == ALL and len(measured) == len(ALL)
    assert (found.new_runs, found.runs, found.interrupted) == (8, 8, False)
    assert found.families == 3
    assert found.skipped == ()
    assert {each.family for each in stored()} == {"a", "b", "c", "design"}
    # Called again there is nothing left to do.
    measured.clear()
    again = calibrate(quick=True, dtypes=("float32",))
    assert (measured, again.new_runs, again.runs) == ([], 0, 8)
    fresh = calibrate(fresh=True, dtypes=("float32",))
    assert (len(measured), fresh.new_runs, fresh.runs) == (8, 8, 8)


def test_an_interrupted_calibration_goes_on_where_it_was(
    measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        fail(measured, broken, SUBJECTS[2].name, KeyboardInterrupt())
        found = calibrate(dtypes=("float32",))
    assert found.interrupted
    before = measured[:-1]
    assert 0 < found.new_runs == len(before) == len(stored())
    measured.clear()
    again = calibrate(dtypes=("float32",))
    assert not again.interrupted
    assert set(measured) | set(before) == ALL
    # One is repeated, to compare the speed of the machine.
    assert set(measured) & set(before) == {SUBJECTS[0].name}
    assert again.runs == 8


@pytest.mark.parametrize(("factor", "count"), [(1.0, 0), (1.2, 0), (2.0, 1), (0.5, 1)])
def test_another_speed_than_that_of_earlier_calibrations_is_reported(
    factor: float, count: int, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        fail(measured, broken, SUBJECTS[2].name, KeyboardInterrupt())
        calibrate(dtypes=("float32",))
    earlier_s = {each.model: each.end_to_end_s for each in stored()}
    really, said = calibrations.measure_step, list[str]()

    def measure_step(here: Any, step: Any, teams: Any) -> list[RunSample]:
        return [
            replace(each, end_to_end_s=factor * earlier_s.get(each.model, each.end_to_end_s))
            for each in really(here, step, teams)
        ]

    monkeypatch.setattr(calibrations, "measure_step", measure_step)
    found = calibrate(dtypes=("float32",), say=said.append)
    words = f"{SUBJECTS[0].name} takes {factor:.2f} times as long as in earlier calibrations"
    assert [each.partition(";")[0] for each in said] == [words] * count
    assert {*said} <= {*found.warnings}
    assert found.runs == 8


def test_a_repeated_model_whose_process_ends_does_not_end_the_calibration(
    measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        fail(measured, broken, SUBJECTS[2].name, KeyboardInterrupt())
        calibrate(dtypes=("float32",))
    really = calibrations.measure_steps

    def measure_steps(here: Any, steps: Any, teams: Any) -> Any:
        if steps[0].case.name == SUBJECTS[0].name:
            raise MemoryError
        return really(here, steps, teams)

    monkeypatch.setattr(calibrations, "measure_steps", measure_steps)
    assert calibrate(dtypes=("float32",)).runs == 8


@pytest.mark.parametrize("error", [ModelError("cannot be built"), MemoryError()])
def test_one_that_fails_is_skipped_with_its_reason(
    error: BaseException, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = SUBJECTS[3].name
    fail(measured, monkeypatch, name, error)
    found = calibrate(dtypes=("float32",))
    assert found.skipped == (f"{name}: {str(error) or 'ran out of memory'}",)
    assert found.runs == 7
    # Its library may be there the next time.
    error.args = ("over",)
    assert calibrate(dtypes=("float32",)).runs == 8


def test_the_budget_ends_it_and_progress_never_leaves_0_to_1(measured: list[str]) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0
        return now[0]

    said: list[float] = []
    found = calibrate(
        dtypes=("float32",), budget_s=8.0, clock=clock, progress=lambda at, _what: said.append(at)
    )
    assert 0 < found.new_runs < 8
    assert said == sorted(said) and all(0 <= each <= 1 for each in said)
    measured.clear()
    assert calibrate(dtypes=("float32",), budget_s=0.0).new_runs == 0
    assert measured == []


def test_disturbed_runs_are_not_kept(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        timing, "Gauges", lambda: Gauges(thread_cpu=lambda: 0.0, run_queue_wait=lambda: 0.0)
    )
    found = calibrate(dtypes=("float32",), budget_s=1e9)
    assert len(measured) == 8
    assert (found.new_runs, stored()) == (0, ())
    # And tried again when the machine is quiet.
    monkeypatch.setattr(timing, "Gauges", undisturbed)
    assert calibrate(dtypes=("float32",), budget_s=1e9).new_runs == 8


def test_int8_is_measured_on_its_own_layers(
    measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if int8_problem():
        pytest.skip(int8_problem())
    monkeypatch.setattr(calibrations, "int8_designs", lambda: (subject(12), subject(20)))
    monkeypatch.setattr(calibrations, "int8_models", lambda: (subject(28, "d"),))
    engine = torch.backends.quantized.engine
    found = calibrate(dtypes=("int8",))
    assert found.skipped == () and torch.backends.quantized.engine == engine
    assert (found.new_runs, set(measured)) == (3, {"standard 12", "standard 20", "standard 28"})
    assert {each.dtype for each in stored()} == {"int8"}
    operators = [each.facts for one in stored() for each in one.operators]
    assert {each.dtype for each in operators} == {"int8"}
    assert {(each.group, each.variant) for each in operators} == {
        ("quantization", "quantize_per_tensor"),
        ("convolution", "int8 kxk"),
        ("quantization", "dequantize"),
    }
    # Floats are still to be measured, int8 is not.
    measured.clear()
    assert calibrate(dtypes=("float32", "int8")).new_runs == len(ALL)
    assert set(measured) == ALL
    assert calibrate(dtypes=("float32", "int8"), fresh=True).new_runs == len(ALL) + 3


def test_weights_of_int8_are_packed_on_the_threads_that_run_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if int8_problem():
        pytest.skip(int8_problem())
    packed: dict[torch.nn.Module, int] = {}
    ran: list[tuple[int, int]] = []

    def in_int8(model: torch.nn.Module, _given: Any) -> torch.nn.Module:
        made = copy.deepcopy(model)
        packed[made] = torch.get_num_threads()
        return made

    def measure(_here: Any, _asked: Any, model: torch.nn.Module, **options: Any) -> Any:
        ran.append((options["threads"], packed[model]))
        disturbed = SimpleNamespace(are_disturbed=True)
        return SimpleNamespace(timed=SimpleNamespace(run=disturbed))

    monkeypatch.setattr(quantised, "quantize_int8", in_int8)
    monkeypatch.setattr(calibrations, "measure", measure)
    step = Step(case=subject(12), dtype="int8")
    here = cast("Bench", SimpleNamespace(topology=SimpleNamespace(cores=())))
    assert calibrations.measure_step(here, step, (2, 1)) == []
    assert ran == [(2, 2), (1, 1)]


def test_a_layer_that_torch_cannot_quantise_is_skipped(
    measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if int8_problem():
        pytest.skip(int8_problem())
    pooled = replace(subject(4, kind="max_pool"), sizes=(3, 2))
    monkeypatch.setattr(calibrations, "int8_designs", lambda: (pooled, subject(12)))
    monkeypatch.setattr(calibrations, "int8_models", tuple)
    found = calibrate(dtypes=("int8",))
    assert found.new_runs == 1
    (why,) = found.skipped
    assert why.startswith(f"{pooled.name}: ") and "no layer" in why


# -- validate --------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> str:
    """A model in a file, as users have them; its family is its name's."""
    file = tmp_path / "models.py"
    file.write_text(
        "import torch\n"
        "class Kin(torch.nn.Sequential):\n"
        "    def __init__(self):\n"
        "        super().__init__(torch.nn.Conv2d(7, 7, 3, padding=1, bias=False),"
        " torch.nn.BatchNorm2d(7), torch.nn.ReLU(inplace=True))\n"
        "class Raises(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        raise ValueError('enough')\n",
        encoding="utf-8",
    )
    return str(file)


def test_validation_learns_nothing_and_does_not_know_the_family(
    own: str, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        calibrations, "models", lambda: (*SUBJECTS, replace(subject(7), family="kin", name="kin"))
    )
    calibrate(dtypes=("float32",))
    before = stored()
    assert "kin" in {each.family for each in before}
    asked: list[str | None] = []
    really = validations.Calibration

    def calibration(runs: Any, **options: Any) -> Any:
        asked.append(options.get("without"))
        made = really(runs, **options)
        if options.get("without"):
            assert "kin" not in {each.family for each in made.runs}
            assert len(made.runs) == len(before) - 1
        return made

    monkeypatch.setattr(validations, "Calibration", calibration)
    inputs = torch.zeros(1, 7, 8, 8)
    found = validate([(f"{own}:Kin", inputs), (f"{own}:Raises", inputs)])
    assert "kin" in asked
    assert stored() == before
    (model,) = found.models
    assert model.family == "kin"
    assert model.predicted_s is not None and model.predicted_s > 0
    assert model.measured_s > 0 and model.remeasured_s is not None
    assert model.samples == sum(len(each.operators) for each in before if each.family != "kin")
    (skipped,) = found.skipped
    assert skipped.model.endswith("Raises") and "enough" in skipped.problem


def test_a_model_that_fails_the_second_time_is_judged_all_the_same(
    own: str, machine: HardwareProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_args: object, **_options: object) -> float:
        raise ModelError("enough")

    monkeypatch.setattr(validations, "remeasure", fails)
    (model,) = validate([(f"{own}:Kin", torch.zeros(1, 7, 8, 8))]).models
    assert model.measured_s > 0 and model.remeasured_s is None


def test_without_a_calibration_nothing_is_predicted_and_that_is_said(
    own: str, machine: HardwareProfile
) -> None:
    found = validate([(f"{own}:Kin", torch.zeros(1, 7, 8, 8))])
    (model,) = found.models
    assert model.predicted_s is None and model.measured_s > 0
    assert any("no calibration" in each for each in found.warnings)
    assert stored() == ()


def test_validated_runs_have_the_minimum_times_of_their_analyses(
    own: str, machine: HardwareProfile, tmp_path: Path
) -> None:
    model, inputs = f"{own}:Kin", torch.zeros(1, 7, 8, 8)
    ceilings = tuple(replace(each, clock_hz=1e8) for each in machine.compute)
    near, far = machine.memory
    bandwidth = tuple(replace(each, clock_hz=1e8) for each in near.bandwidth)
    memory = (replace(near, bandwidth=bandwidth), far)
    slow = replace(machine, compute=ceilings, memory=memory)
    save_measured_profile(slow, ())
    found = validate([(model, inputs)])
    (run,) = found.models
    # What follows the clock holds at that of the run.
    assert run.clock_hz is not None and run.clock_hz > 1e8
    alone = minimum_times_of(analyze(model, inputs, hardware=slow.at_clock(run.clock_hz)).totals)
    as_measured = minimum_times_of(analyze(model, inputs, hardware=slow).totals)
    assert all(alone[name] < as_measured[name] for name in alone)
    assert alone["eager_min_time_s"] >= alone["fused_min_time_s"] >= alone["model_min_time_s"] > 0
    assert minimum_times_of(run) == alone
    for suffix in ("json", "csv"):
        found.save(tmp_path / f"v.{suffix}")
    (saved,) = json.loads((tmp_path / "v.json").read_text(encoding="utf-8"))["models"]
    assert {name: saved[name] for name in alone} == alone
    (row,) = csv.DictReader((tmp_path / "v.csv").read_text(encoding="utf-8").splitlines())
    assert {name: float(row[name]) for name in alone} == alone
    frame = found.to_frame()
    assert {name: frame[name][0] for name in alone} == alone


# -- predict ---------------------------------------------------------------------------------------


def check_bounds_only(found: Analysis) -> None:
    assert found.prediction is None
    assert all(each.predicted_s is None for each in found.operators)
    assert found.totals.eager_min_time_s is not None and found.totals.eager_min_time_s > 0
    assert found.not_predicted.startswith("no calibration data")


def test_this_machine_without_a_calibration_has_bounds(machine: HardwareProfile) -> None:
    check_bounds_only(predict(net(), torch.zeros(SHAPE)))


def test_a_foreign_machine_is_predicted_from_what_lies_beside_its_file(
    measured: list[str], tmp_path: Path
) -> None:
    calibrate(dtypes=("float32",))
    foreign = tmp_path / "elsewhere.toml"
    host = replace(this_host(), cpu_model="Imagined 9000")
    shutil.copy(host_file(), foreign)
    check_bounds_only(predict(net(), torch.zeros(SHAPE), hardware=foreign))
    shutil.copy(host_latency_file(), latency_file(foreign))
    found = predict(net(), torch.zeros(SHAPE), hardware=foreign)
    assert found.prediction is not None
    assert found.prediction.low_s <= found.prediction.predicted_s <= found.prediction.high_s
    here = predict(net(), torch.zeros(SHAPE))
    assert here.prediction is not None
    assert here.prediction.predicted_s == pytest.approx(found.prediction.predicted_s)
    assert any("with torch" in each for each in found.warnings)
    # Samples of another machine than the file's are not taken for its own.
    text = profile_to_toml(replace(measured_profile(), host=host))
    foreign.write_text(text, encoding="utf-8")
    assert predict(net(), torch.zeros(SHAPE), hardware=foreign).prediction is None


def measured_profile() -> HardwareProfile:
    from roofline.machine.catalog import load_hardware

    return load_hardware("host")


def test_a_damaged_file_of_samples_is_said_and_bounds_stay(
    machine: HardwareProfile, tmp_path: Path
) -> None:
    foreign = tmp_path / "elsewhere.toml"
    shutil.copy(host_file(), foreign)
    latency_file(foreign).write_bytes(b"no database")
    found = predict(net(), torch.zeros(SHAPE), hardware=foreign)
    assert found.prediction is None
    assert found.totals.eager_min_time_s is not None
    assert any(latency_file(foreign).name in each for each in found.warnings)


def test_samples_that_cannot_be_written_are_read(
    measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrate(dtypes=("float32",))
    asked = torch.zeros(SHAPE)
    before = predict(net(), asked)
    assert before.prediction is not None

    def refuse(*_args: object, **_options: object) -> None:
        raise InputError("the disk is read-only")

    monkeypatch.setattr(machines, "_loaded", {})
    monkeypatch.setattr(Store, "__init__", refuse)
    assert predict(net(), asked).prediction == before.prediction
    # Those of another torch are not used.
    other = replace(host_environment(), torch="1.0")
    monkeypatch.setattr(machines, "_loaded", {})
    monkeypatch.setattr(machines, "host_environment", lambda: other)
    assert predict(net(), asked).prediction is None


def test_a_subject_of_which_a_part_was_disturbed_is_measured_again(
    measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    really = calibrations.measure_step

    def measure_step(here: Any, step: Any, teams: Any) -> list[RunSample]:
        found = really(here, step, teams)
        return found[1:] if step.case.name == SUBJECTS[0].name else found

    with monkeypatch.context() as patch:
        patch.setattr(calibrations, "measure_step", measure_step)
        assert calibrate(dtypes=("float32",)).new_runs == len(ALL) - 1
    assert calibrate(dtypes=("float32",)).new_runs == 1


def test_a_type_that_was_not_measured_has_bounds_and_a_note(measured: list[str]) -> None:
    calibrate(dtypes=("float32",))
    found = predict(net(), torch.zeros(SHAPE), dtype="bfloat16")
    assert found.prediction is None
    assert "not predicted: too few samples in bfloat16" in found.not_predicted
    # The reason is not repeated.
    assert not any("not predicted" in each for each in found.warnings)


def test_what_is_added_is_seen_by_the_next_prediction(measured: list[str]) -> None:
    check_bounds_only(predict(net(), torch.zeros(SHAPE)))
    profile(net(), torch.zeros(SHAPE))
    first = predict(net(), torch.zeros(SHAPE)).prediction
    assert first is not None and "1 model " in first.calibration
    calibrate(dtypes=("float32",))
    second = predict(net(), torch.zeros(SHAPE)).prediction
    assert second is not None and "7 models" in second.calibration
    assert user_folder().is_dir()


@pytest.mark.parametrize("operators", ["guessed", ""])
def test_operators_are_learned_or_measured(operators: Any, machine: HardwareProfile) -> None:
    with pytest.raises(InputError, match="learned or measured"):
        predict(net(), torch.zeros(SHAPE), operators=operators)
