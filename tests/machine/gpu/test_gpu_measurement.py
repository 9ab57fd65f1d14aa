"""A whole measurement of a GPU that is not there: rates come back, and what goes wrong is said."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from fake_gpu import H200, LAUNCH_S, SMALL_S, FakeDevice

from roofline.errors import MeasurementError
from roofline.machine.gpu.device import Reading
from roofline.machine.gpu.measurement import PROGRAMS, measure_gpu
from roofline.machine.hardware import (
    ComputeCeiling,
    Effort,
    HardwareProfile,
    profile_to_toml,
    read_profile,
)
from roofline.machine.measuring.estimation import Finding

# Part of an instruction's name or a product's label -> flop per second.
RATES = {
    "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16": 9.0e14,
    "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32": 4.4e14,
    "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8": 1.8e15,
    "wgmma": 9.5e14,
    "mma.sync.aligned.m16n8k16.row.col.f64": 6.1e13,
    "fma.rn.f64": 3.2e13,
    "fma.rn.f32": 6.3e13,
    "fma.rn.f16x2": 1.3e14,
    "mad.lo": 3.3e13,
    "dp4a": 1.2e14,
    "bfloat16 torch gemm": 7.8e14,
    "float32 torch gemm": 5.1e13,
    "float32 torch-tf32 gemm": 4.0e14,
    "float64 torch gemm": 6.5e13,
}


def measure(device: FakeDevice, effort: Effort = "quick", **options: object) -> HardwareProfile:
    return measure_gpu(device=device, effort=effort, clock=device.clock, **options)[0]  # type: ignore[arg-type]


def ceiling(
    profile: HardwareProfile, dtype: str, unit: str, kernel: str, kind: str = "hardware"
) -> ComputeCeiling:
    (found,) = (
        each
        for each in profile.compute
        if (str(each.dtype), each.unit, each.kernel, each.kind) == (dtype, unit, kernel, kind)
    )
    return found


@pytest.fixture(scope="module")
def profile() -> HardwareProfile:
    return measure(FakeDevice(rates=RATES), "default")


@pytest.mark.parametrize(
    ("dtype", "unit", "kernel", "rate"),
    [
        ("bfloat16", "tensor-core", "mma", 9.0e14),
        ("float32", "tensor-core-tf32", "mma", 4.4e14),
        ("int8", "tensor-core", "mma", 1.8e15),
        ("float8_e4m3fn", "tensor-core", "mma", 9.5e14),
        ("float16", "tensor-core", "mma-float16-accumulate", 9.5e14),
        ("float64", "cuda-core", "fma", 3.2e13),
        ("float32", "cuda-core", "fma", 6.3e13),
        ("float16", "cuda-core", "fma", 1.3e14),
        ("int32", "cuda-core", "mul-add", 3.3e13),
        ("int8", "cuda-core", "dot", 1.2e14),
    ],
)
def test_rates_come_back(
    profile: HardwareProfile, dtype: str, unit: str, kernel: str, rate: float
) -> None:
    found = ceiling(profile, dtype, unit, kernel)
    # The noise only slows down, by up to 1 %.
    assert 0.985 * rate < found.sustained_flop_per_s <= found.peak_flop_per_s < rate
    assert found.spread is not None and 0 < found.spread < 0.01
    assert found.provenance.source == "measured"


def test_memory_comes_back(profile: HardwareProfile) -> None:
    l2, hbm = profile.memory
    assert profile.multiprocessors == 132
    assert profile.memory_capacity_bytes == hbm.capacity_bytes
    assert (l2.name, l2.capacity_bytes, hbm.name) == ("L2", 60 << 20, "HBM")
    for level, rate in ((l2, 9e12), (hbm, 4.5e12)):
        kernels = {each.kernel: each for each in level.bandwidth}
        assert set(kernels) == {"read", "write", "copy", "triad", "update"}
        for each in kernels.values():
            assert 0.985 * rate < each.sustained_bytes_per_s <= each.peak_bytes_per_s < rate
    for each in hbm.bandwidth:
        assert each.theoretical is not None and each.theoretical.per_s == 4.8e12


def test_links_and_overheads_come_back(profile: HardwareProfile) -> None:
    links = {(each.source, each.target, each.kernel): each for each in profile.links}
    assert set(links) == {
        (*way, f"copy, {memory}")
        for way in (("host", "device"), ("device", "host"))
        for memory in ("pinned", "pageable")
    }
    up = links["host", "device", "copy, pinned"]
    assert up.peak_bytes_per_s == pytest.approx(50e9, rel=0.02)
    assert up.latency is not None and up.latency.median_s == pytest.approx(1e-6, rel=0.02)
    overheads = {each.name: each.time.median_s for each in profile.overheads}
    assert overheads["launch of an empty kernel"] == pytest.approx(LAUNCH_S, rel=0.02)
    assert overheads["dispatch of add"] == pytest.approx(SMALL_S, rel=0.02)


def test_every_figure_of_the_data_sheet_has_its_measurement(profile: HardwareProfile) -> None:
    sheet = tomllib.loads(Path("hwprofiles/h200.toml").read_text(encoding="utf-8"))
    theoretical_peaks = {
        (each["dtype"], each["unit"]): each["peak_flop_per_s"] for each in sheet["compute"]
    }
    measured = {
        (str(each.dtype), each.unit): each.theoretical
        for each in profile.compute
        if each.kind == "hardware" and each.kernel in ("fma", "mma", "gemm")
    }
    for key, rate in theoretical_peaks.items():
        theoretical = measured[key]
        assert theoretical is not None and theoretical.per_s == rate
        assert theoretical.provenance.source == "datasheet"


def test_what_the_data_sheet_does_not_say_follows_from_units_and_clock(
    profile: HardwareProfile,
) -> None:
    theoretical = ceiling(profile, "float16", "cuda-core", "fma").theoretical
    # The white paper's 133.8 TFLOP/s: 132 multiprocessors, 256 multiply-adds, 1.98 GHz.
    assert theoretical is not None and theoretical.per_s == pytest.approx(133.8e12, rel=1e-3)
    assert theoretical.provenance.source == "derived"


def test_no_library_ceiling_stands_above_the_hardware(profile: HardwareProfile) -> None:
    best: dict[str, float] = {}
    for each in profile.compute:
        if each.kind == "hardware":
            best[each.dtype.name] = max(best.get(each.dtype.name, 0.0), each.peak_flop_per_s)
    library = [each for each in profile.compute if each.kind == "library"]
    assert len(library) == 8
    assert all(each.peak_flop_per_s <= best[each.dtype.name] for each in library)


def test_a_product_that_beats_our_kernel_is_the_hardware_s_ceiling(
    profile: HardwareProfile,
) -> None:
    found = ceiling(profile, "float64", "tensor-core", "gemm")
    assert found.peak_flop_per_s == pytest.approx(6.5e13, rel=0.01)
    assert "own kernel (mma.sync.aligned.m16n8k16" in found.provenance.reference
    assert "): 6" in found.provenance.reference
    assert ceiling(profile, "float64", "torch", "gemm", "library").kind == "library"


def test_far_below_the_data_sheet_is_doubted() -> None:
    slow = FakeDevice(rates={"bf16": 3e14, "bfloat16": 2e14})
    found = ceiling(measure(slow), "bfloat16", "tensor-core", "mma")
    assert "only 30 % of the theoretical peak" in found.doubt


@pytest.mark.parametrize(
    ("capability", "absent"),
    [
        ((8, 0), {"float8_e4m3fn", "float8_e5m2"}),
        ((7, 5), {"float8_e4m3fn", "float8_e5m2", "bfloat16"}),
        ((7, 0), {"float8_e4m3fn", "float8_e5m2", "bfloat16"}),
        ((8, 9), set[str]()),
        ((12, 0), set[str]()),
    ],
)
def test_types_that_a_device_lacks_are_left_out(
    capability: tuple[int, int], absent: set[str]
) -> None:
    device = FakeDevice(facts=replace(H200, name="some GPU", capability=capability))
    profile = measure(device)
    names = {each.dtype.name for each in profile.compute}
    every = {"float64", "float32", "float16", "bfloat16", "int8", "int32"}
    every |= {"float8_e4m3fn", "float8_e5m2"}
    assert names == every - absent
    assert not any("not measured" in each for each in profile.conditions)
    assert any("no data sheet of some GPU" in each for each in profile.conditions)


def test_a_unit_without_a_kernel_of_our_own_is_doubted() -> None:
    device = FakeDevice(facts=replace(H200, name="Tesla V100-SXM2-16GB", capability=(7, 0)))
    found = ceiling(measure(device), "float16", "tensor-core", "gemm")
    assert "no own kernel for this unit" in found.doubt
    assert found.theoretical is not None and found.theoretical.per_s == 1.25e14


@pytest.mark.parametrize("effort", ["quick", "default"])
def test_the_budget_holds(effort: Effort) -> None:
    device = FakeDevice(rates=RATES)
    measure(device, effort)
    assert device.now == pytest.approx(PROGRAMS[effort].budget_s, rel=0.15)


def budget(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    shorter = PROGRAMS["thorough"]._replace(budget_s=seconds)
    monkeypatch.setitem(PROGRAMS, "thorough", shorter)


def test_thorough_runs_every_kernel_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice(rates=RATES)
    budget(monkeypatch, 2.0)
    profile = measure(device, "thorough")
    kernels = {entry: seconds for entry, seconds in device.ran.items() if entry != "add"}
    assert min(s for entry, s in kernels.items() if entry != "nothing") >= 1.0
    assert profile.effort == "thorough"


def test_what_a_device_keeps_up_is_told_from_its_best(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice(rates=RATES, noise=0.0)
    device.on_run = lambda: setattr(device, "flop_per_s", 50e12 if device.now < 6 else 25e12)
    budget(monkeypatch, 5.0)
    found = ceiling(measure(device, "thorough"), "bfloat16", "cuda-core", "fma")
    assert found.peak_flop_per_s == pytest.approx(50e12, rel=0.01)
    assert found.sustained_flop_per_s == pytest.approx(25e12, rel=0.01)


def test_throttling_is_noticed() -> None:
    def running(what: str) -> Reading:
        limits = {"wgmma_bfloat16": "the power cap", "fma_float64": "temperature"}.get(what, "")
        return Reading(
            clock_hz=1.2e9 if limits else 1.9e9,
            power_w=700.0,
            temperature_c=80.0,
            limits=frozenset({limits} if limits else ()),
        )

    profile = measure(FakeDevice(rates=RATES, running=running))
    told = " | ".join(profile.conditions)
    assert "throttled by the power cap during bfloat16 tensor-core mma" in told
    assert "throttled by temperature during float64 cuda-core fma" in told
    assert "SM clock 1200–1900 MHz, power 700 W, temperature 80 °C" in told
    # A power cap is how the device is built; heat is not.
    assert ceiling(profile, "bfloat16", "tensor-core", "mma").doubt == ""
    assert "temperature" in ceiling(profile, "float64", "cuda-core", "fma").doubt
    assert profile.clock is not None
    assert (profile.clock.peak_hz, profile.clock.median_hz) == (1.9e9, 1.9e9)


def test_without_nvml_the_profile_says_so() -> None:
    profile = measure(FakeDevice(obstacle="pynvml is not installed"))
    assert profile.clock is None
    assert (
        "clocks, power, throttling and other processes unknown: pynvml is not installed"
        in profile.conditions
    )


@pytest.mark.parametrize(
    ("idle", "said"),
    [
        (Reading(busy=0.37), "other processes used the device (37 % before the measurement)"),
        (Reading(other_processes=2), "2 idle processes have memory on the device"),
        (Reading(ecc=False), "ECC is off"),
        (Reading(ecc=True, ecc_errors=3), "3 uncorrectable memory errors (ECC)"),
    ],
)
def test_what_the_sensors_say_before_is_told(idle: Reading, said: str) -> None:
    assert any(said in each for each in measure(FakeDevice(idle=idle)).conditions)


def test_a_calm_device_is_not_complained_of() -> None:
    calm = Reading(busy=0.0, other_processes=0, ecc=True, ecc_errors=0)
    (only,) = measure(FakeDevice(rates=RATES, idle=calm)).conditions
    assert only.startswith("during the measurement: SM clock 1900 MHz")


def test_a_part_of_a_device_has_no_data_sheet() -> None:
    facts = replace(H200, name="NVIDIA H200 MIG 1g.18gb", multiprocessors=16, mig=True)
    profile = measure(FakeDevice(facts=facts))
    assert any("is a MIG slice" in each for each in profile.conditions)
    assert all(each.theoretical is None for each in profile.memory[-1].bandwidth)


def test_little_memory_scales_arrays_down_and_says_so() -> None:
    # 60 MiB of L2 want three arrays of 1920 MiB; an eighth of 16 GiB is 3 × 683 MiB.
    profile = measure(FakeDevice(rates=RATES, free=16 << 30))
    assert any("arrays reduced to 68" in each for each in profile.conditions)
    assert len(profile.memory) == 2
    for each in profile.memory[1].bandwidth:
        assert each.peak_bytes_per_s == pytest.approx(4.5e12, rel=0.02)


def test_very_little_memory_makes_the_figures_doubtful_and_says_so() -> None:
    profile = measure(FakeDevice(free=2 << 30))
    assert "little memory: 2 GiB free" in " ".join(profile.conditions)
    for each in profile.memory[1].bandwidth:
        assert "too high: arrays of 85" in each.doubt
    assert all(each.doubt == "" for each in profile.memory[0].bandwidth)


def test_no_kernel_goes_beyond_its_arrays() -> None:
    for free in (150 << 30, 16 << 30, 1 << 30, 64 << 20):
        for l2_bytes, multiprocessors in ((60 << 20, 132), (4 << 20, 40), (72 << 20, 128)):
            facts = replace(H200, l2_bytes=l2_bytes, multiprocessors=multiprocessors)
            profile = measure(FakeDevice(facts=facts, free=free))
            # The L2 alone would be taken for all the memory there is.
            assert [level.name for level in profile.memory] in (["L2", "HBM"], [])
            left_out = "not measured: HBM and L2: too little free memory" in profile.conditions
            assert left_out == (profile.memory == ())


def test_no_memory_at_all_is_an_error() -> None:
    device = FakeDevice(free=0, link_bytes_per_s={})
    with pytest.raises(MeasurementError, match="nothing could be measured; not measured: float64"):
        measure(device)
    assert device.closed == 1


def test_what_the_driver_refuses_is_left_out_and_said() -> None:
    device = FakeDevice(rates=RATES, fails=("wgmma_bfloat16", "float8_e5m2 torch gemm"))
    profile = measure(device)
    told = [each for each in profile.conditions if each.startswith("not measured")]
    assert told == [
        "not measured: bfloat16 tensor-core mma: compiling wgmma_bfloat16 failed:"
        " invalid device function",
        "not measured: float8_e5m2 torch gemm: not implemented for this type",
    ]
    # The product is then all that is known of that unit.
    assert "no own kernel" in ceiling(profile, "bfloat16", "tensor-core", "gemm").doubt


def test_a_fault_ends_the_measurement_with_its_cause() -> None:
    device = FakeDevice(page_faults=("wgmma_float16",))
    with pytest.raises(
        MeasurementError, match="lost while measuring float16 tensor-core mma"
    ) as it:
        measure(device)
    assert "\n" not in str(it.value)
    assert device.closed == 1


def test_an_interrupt_closes_the_device() -> None:
    device = FakeDevice()

    def interrupt() -> None:
        if device.now > 1:
            raise KeyboardInterrupt

    device.on_run = interrupt
    with pytest.raises(KeyboardInterrupt):
        measure(device)
    assert device.closed == 1


def test_progress_never_runs_back() -> None:
    seen: list[float] = []
    device = FakeDevice()
    measure(device, progress=lambda done, what: seen.append(done))
    assert seen == sorted(seen)
    assert seen[0] >= 0 and seen[-1] == 1.0


def test_rates_and_bursts_are_handed_out() -> None:
    findings: list[Finding] = []
    device = FakeDevice(rates=RATES)
    profile, series = measure_gpu(
        device=device, effort="quick", clock=device.clock, found=findings.append
    )
    assert {each.what for each in findings} == {each.label for each in series}
    early = {each.what: (each.quantity, each.per_s) for each in findings}
    for label, quantity, rate in (
        ("bfloat16 tensor-core mma", "flop", 9.0e14),
        ("HBM triad", "byte", 4.5e12),
        ("pinned copy to host", "byte", 50e9),
    ):
        assert early[label] == (quantity, pytest.approx(rate, rel=0.02))
        (kept,) = (each for each in series if each.label == label)
        assert kept.quantity == quantity
        rates = sorted(kept.work / burst.wall_s for burst in kept.bursts)
        assert rates[0] < rates[-1] < rate
    count = len(next(each for each in series if each.label == "HBM copy").bursts)
    (copy,) = (each for each in profile.memory[1].bandwidth if each.kernel == "copy")
    assert copy.provenance.note == f"{count} bursts"


def test_a_profile_survives_its_file(profile: HardwareProfile, tmp_path: Path) -> None:
    path = tmp_path / "gpu.toml"
    path.write_text(profile_to_toml(profile), encoding="utf-8")
    assert read_profile(path) == profile
    assert profile.name == "nvidia-h200"
    assert profile.description.startswith("NVIDIA H200, 132 SMs, 140 GiB, compute capability 9.0")
