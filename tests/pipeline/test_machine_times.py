"""Learning a GPU's times from tables and traces: what is refused, kept, shrunk and predicted."""

from __future__ import annotations

import gzip
import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import roofline
from roofline.cli.main import run
from roofline.errors import FileFormatError, HardwareError, InputError
from roofline.latency.gpu.chips import Chip, chip_of
from roofline.latency.gpu.corrections import (
    MOST_SHAPES,
    Correction,
    MachineTimes,
    MeasuredKernel,
    correction_of,
    corrections_of,
    measured_kernels,
)
from roofline.latency.gpu.kernels import Kernel
from roofline.latency.gpu.learned import shipped
from roofline.latency.gpu.predictor import GpuPredictor
from roofline.latency.gpu.times import group_of, prior_deviation, seconds, start_s
from roofline.machine.catalog import load_hardware, user_folder
from roofline.pipeline.machine_times import Learning, learn_times
from roofline.pipeline.machines import read_times
from tests.traces.events import PRODUCT, Events


def chip(name: str = "h100") -> Chip:
    found = chip_of(load_hardware(name))
    assert found is not None
    return found


def gemm(m: float, dtype: str = "bfloat16") -> Kernel:
    byte = (m * 4096 * 2 + 4096 * 4096) * 2
    return Kernel(kind="gemm", dtype=dtype, m=m, n=4096, k=4096, dram_bytes=byte)


SIZES = (2048.0, 4096.0, 8192.0, 16384.0)


def slower(factor: float, sizes: tuple[float, ...] = SIZES) -> list[tuple[Kernel, float]]:
    """Return products whose time beyond the start is a multiple of the predicted one."""
    kernels = [gemm(each) for each in sizes]
    times = seconds(kernels, chip(), shipped())
    start = start_s(kernels[0], chip(), shipped())
    return [
        (each, start + factor * (float(time_s) - start))
        for each, time_s in zip(kernels, times, strict=True)
    ]


def correction(rows: list[tuple[Kernel, float]]) -> Correction:
    kernels, _ = measured_kernels(rows, chip(), shipped())
    (found,) = corrections_of(kernels, chip(), shipped()).values()
    return found


def save(path: Path, text: str) -> Path:
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


# -- the factor ------------------------------------------------------------------------------------


def test_a_factor_is_shrunk_as_by_hand() -> None:
    """Prior 0.3, shapes 0.2 and 0.6.

    Mean 0.4, scatter 0.04 + 0.04. Expected variance (2 x 0.09 + 0.16) / 3 = 0.1133; of shapes
    (0.1133 + 0.08) / 3 = 0.06444; of the factor 0.05667. Precision 1 / 0.05667 + 2 / 0.06444 =
    48.68; the mean is 0.4 x 31.03 / 48.68.
    """
    mean, deviation, scatter = correction_of([0.2, 0.6], 0.3)

    assert mean == pytest.approx(0.255, abs=1e-3)
    assert deviation == pytest.approx(math.sqrt(1 / 48.68), abs=1e-4)
    assert scatter == pytest.approx(math.sqrt(0.06444), abs=1e-4)


def test_of_one_shape_alone_half_of_its_error_is_its_own() -> None:
    assert correction_of([1.4], 0.2)[0] == pytest.approx(0.7)
    assert correction_of([1.4], 2.0)[0] == pytest.approx(0.7)


def test_agreeing_shapes_bring_the_factor_and_narrow_the_interval() -> None:
    found = [correction_of([0.7] * count, 0.5) for count in (1, 2, 4, 16, 256)]

    means = [mean for mean, _, _ in found]
    widths = [math.hypot(deviation, scatter) for _, deviation, scatter in found]
    assert means == sorted(means)
    assert means[-1] == pytest.approx(0.7, abs=0.01)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.1


def test_one_shape_that_was_predicted_right_narrows_the_interval() -> None:
    _, deviation, scatter = correction_of([0.0], 0.5)

    assert math.hypot(deviation, scatter) < 0.4


def test_intervals_cover_four_of_five_new_shapes() -> None:
    """On machines that err half, as much and twice as expected, for three shares of the factor."""
    random = np.random.default_rng(0)
    inside: dict[tuple[float, float], list[bool]] = {}
    for share, scale, count in itertools.product((0.1, 0.5, 0.9), (0.5, 1.0, 2.0), (1, 3, 6)):
        for _ in range(300):
            factor = random.normal(0, 0.4 * scale * math.sqrt(share))
            logs = factor + random.normal(0, 0.4 * scale * math.sqrt(1 - share), count + 1)
            mean, deviation, scatter = correction_of(list(logs[:-1]), 0.4)
            is_inside = abs(logs[-1] - mean) < 1.2816 * math.hypot(deviation, scatter)
            inside.setdefault((share, scale), []).append(is_inside)

    assert 0.77 < np.mean(list(inside.values())) < 0.83
    # The docs name these: most of the error of products is that of their shapes.
    as_expected = [np.mean(inside[share, 1.0]) for share in (0.1, 0.5, 0.9)]
    assert as_expected == pytest.approx([0.70, 0.77, 0.94], abs=0.03)


def test_a_thousand_repetitions_of_a_shape_count_once() -> None:
    rows = slower(2.0)
    kernel, time_s = rows[0]
    often = [(kernel, 1.5 * time_s)] * 1000 + rows[1:]

    found = correction(often)

    assert (found.shapes, found.times) == (4, 1003)
    assert found.mean == pytest.approx(correction([(kernel, 1.5 * time_s), *rows[1:]]).mean)


def test_predictions_approach_the_measurements_in_narrower_intervals() -> None:
    kernels, _ = measured_kernels(slower(2.0), chip(), shipped())
    taught = GpuPredictor(chip=chip(), corrections=corrections_of(kernels, chip(), shipped()))
    ((kernel, time_s),) = slower(2.0, (6144.0,))

    (before,) = GpuPredictor(chip=chip()).kernels([kernel], [0.0])
    (after,) = taught.kernels([kernel], [0.0])

    assert abs(after.predicted_s / time_s - 1) < 0.15 < abs(before.predicted_s / time_s - 1)
    assert after.low_s < time_s < after.high_s
    assert before.high_s < time_s
    assert after.learned_from == "4 measurements of gemm 16 bits on this machine"
    assert taught.kernels([kernel], [1.0])[0].predicted_s == 1.0


def test_a_prediction_far_from_what_was_measured_has_the_interval_of_before() -> None:
    found = correction(slower(2.0))
    start = start_s(gemm(4096), chip(), shipped())

    near = found.apply(found.low_s + start, start)
    far = found.apply(1e4 * found.high_s, start)

    assert near[1] < far[1]
    assert far[1] >= found.prior
    assert (near[2], far[2]) == (False, True)


def test_without_times_of_the_machine_nothing_changes() -> None:
    kernels = [
        gemm(4096),
        gemm(4096, "float32"),
        Kernel(kind="add", dtype="bfloat16", elements=2.0**28, dram_bytes=6 * 2.0**28),
    ]
    for kernel, found, time_s in zip(
        kernels,
        GpuPredictor(chip=chip()).kernels(kernels, [0.0] * 3),
        seconds(kernels, chip(), shipped()),
        strict=True,
    ):
        deviation, _ = prior_deviation(kernel, chip(), shipped())
        group = group_of(kernel, chip(), shipped())
        assert group is not None
        assert found.predicted_s == time_s
        assert found.high_s == pytest.approx(time_s * math.exp(1.2815515655 * deviation))
        assert (found.samples, found.learned_from) == (group.rows, group.words)


def test_kinds_with_as_many_times_are_independent_in_a_pass() -> None:
    """Intervals of a pass follow from its kinds, whose number of times does not matter."""
    add = Kernel(kind="add", dtype="bfloat16", elements=2.0**28, dram_bytes=6 * 2.0**28)
    add_s = 2 * float(seconds([add], chip(), shipped())[0])

    def width(times: int) -> float:
        kernels, _ = measured_kernels([*slower(2.0), *[(add, add_s)] * times], chip(), shipped())
        taught = GpuPredictor(chip=chip(), corrections=corrections_of(kernels, chip(), shipped()))
        whole = taught.whole(taught.kernels([gemm(8192), add], [0.0, 0.0]), 0)
        return whole.high_s / whole.low_s

    assert width(4) == width(5)


def test_the_start_of_a_kernel_is_not_scaled() -> None:
    found = correction(slower(8.0))
    start = start_s(gemm(4096), chip(), shipped())

    assert found.apply(start, start)[0] == pytest.approx(start, rel=1e-3)


def test_other_kinds_and_types_keep_their_predictions() -> None:
    kernels, _ = measured_kernels(slower(2.0), chip(), shipped())
    taught = GpuPredictor(chip=chip(), corrections=corrections_of(kernels, chip(), shipped()))
    others = [
        gemm(4096, "float32"),
        replace(gemm(4096), kind="batched gemm", batch=8.0),
        Kernel(kind="add", dtype="bfloat16", elements=2.0**28, dram_bytes=6 * 2.0**28),
    ]

    assert taught.kernels(others, [0.0] * 3) == GpuPredictor(chip=chip()).kernels(others, [0.0] * 3)


def test_kept_shapes_are_limited_and_spread_over_the_times() -> None:
    many = tuple(
        MeasuredKernel(kernel=gemm(float(each)), time_s=each * 1e-5, times=1)
        for each in range(1, 5 * MOST_SHAPES + 1)
    )

    kept = MachineTimes(machine="h100").merged("x", many).kernels

    assert len(kept) == MOST_SHAPES
    assert {each.kernel.m % 5 for each in kept} == {1.0}


# -- tables ----------------------------------------------------------------------------------------

HEAD = "kind,dtype,batch,m,n,k,elements,time_us\n"


def table(rows: list[tuple[Kernel, float]], unit: float = 1e6) -> str:
    return HEAD + "".join(
        f"{each.kind},{each.dtype},1,{each.m},{each.n},{each.k},,{time_s * unit}\n"
        for each, time_s in rows
    )


def test_a_table_teaches_predictions_of_its_machine_and_of_no_other(tmp_path: Path) -> None:
    inputs = torch.empty(6144, 4096, dtype=torch.bfloat16)
    model = torch.nn.Linear(4096, 4096, bias=False, dtype=torch.bfloat16)

    def predicted(hardware: str) -> float:
        found = roofline.predict(model, inputs, hardware=hardware, device="cuda")
        assert found.prediction is not None
        return found.prediction.operators_s

    h100, a100 = predicted("h100"), predicted("a100")
    path = save(tmp_path / "times.csv.gz", table(slower(2.0)))

    found = learn_times(path, "h100")

    assert (found.shapes, found.times, found.refused) == (4, 4, {})
    assert predicted("h100") == pytest.approx(2 * h100, rel=0.15)
    assert predicted("a100") == a100
    assert found.file.parent == user_folder()
    found.file.unlink()
    assert predicted("h100") == h100


def test_an_operator_far_from_what_was_measured_is_named(tmp_path: Path) -> None:
    model = torch.nn.Linear(4096, 4096, bias=False)
    learn(tmp_path, 2.0)

    def warnings(rows: int) -> str:
        found = roofline.predict(
            model, (rows, 4096), hardware="h100", device="cuda", dtype="bfloat16"
        )
        return str(found.report())

    words = "extrapolated from 4 measurements of gemm 16 bits on this machine"
    assert words in " ".join(warnings(2_000_000).split())
    assert "extrapolated" not in warnings(16384)


def test_refused_rows_are_counted_with_their_reason(tmp_path: Path) -> None:
    bad = [
        "gemm,bfloat16,1,4096,4096,4096,,0",
        "gemm,bfloat16,1,4096,4096,4096,,-3",
        "gemm,bfloat16,1,4096,4096,4096,,nan",
        "gemm,bfloat16,1,4096,4096,4096,,soon",
        "gemm,bfloat16,1,4096,4096,4096,,7",
        "gemm,bfloat16,1,4096,4096,4096,,1e9",
        "gemm,bfloat16,1,,4096,4096,,300",
        "gemm,bfloat16,1,-4096,4096,4096,,300",
        "gemm,bfloat16,1,inf,4096,4096,,300",
        "gemm,bfloat17,1,4096,4096,4096,,300",
        "gemm,int64,1,4096,4096,4096,,300",
        "gemm,int8,1,4096,4096,4096,,300",
        "sorting,bfloat16,1,,,,1000000,300",
        "gemm,bfloat16",
        "",
    ]
    path = save(tmp_path / "times.csv", table(slower(2.0)) + "\n".join(bad) + "\n")

    found = learn_times(path, "h100")

    assert (found.shapes, found.times) == (4, 4)
    assert found.refused == {
        "unreadable number": 1,
        "sizes of gemm are missing": 2,
        "a size is out of range": 2,
        "unknown dtype 'bfloat17'; did you mean 'bfloat16'?": 1,
        "unknown kind 'sorting'": 1,
        "no positive time": 3,
        "gemm in int64 is not predicted on this GPU": 1,
        "gemm in int8 is not predicted on this GPU": 1,
        "shorter than 20 µs": 1,
        "more than 100 times off the prediction: wrong unit?": 1,
    }
    assert "14 rows refused" in found.summary


@pytest.mark.parametrize("unit", [1e3, 1e9])
def test_a_wrong_unit_is_refused(tmp_path: Path, unit: float) -> None:
    """Milliseconds and nanoseconds in a column of microseconds."""
    path = save(tmp_path / "times.csv", table(slower(1.5), unit))

    with pytest.raises(InputError, match="no measurement to learn from"):
        learn_times(path, "h100")
    assert not list(user_folder().glob("*.times.json"))


def test_rows_of_another_machine_are_left_out(tmp_path: Path) -> None:
    text = "device,m,n,k,dtype,time_s\n" + "".join(
        f"{device},{each.m},4096,4096,bfloat16,{time_s}\n"
        for device, factor in (("h100", 1.0), ("a100_sxm", 5.0), ("unheard-of", 5.0))
        for each, time_s in slower(factor)
    )

    found = learn_times(save(tmp_path / "times.csv", text), "h100")

    assert (found.shapes, dict(found.refused)) == (4, {"of another machine": 8})
    assert abs(found.corrections["gemm", "16 bits"].mean) < 1e-9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column of times .columns: none."),
        ("kind;time_s\ngemm;3\n", "no column of times"),
        ("m,n,k,time_s,time_ms\n1,1,1,1,1\n", "no column of times"),
        ("m,n,k,time_s\n", "no measurement to learn from"),
    ],
)
def test_tables_without_one_column_of_times_get_one_line(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        learn_times(save(tmp_path / "times.csv", text), "h100")


def test_files_that_are_no_tables_get_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(b"no gzip")
    (tmp_path / "b.csv").write_bytes(b"m,n,k,time_s\n\xff\xfe,1,1,1\n")
    packed = gzip.compress(table(slower(2.0)).encode())
    (tmp_path / "cut.csv.gz").write_bytes(packed[:-12])
    (tmp_path / "damaged.csv.gz").write_bytes(packed[:20] + b"\xff" * 20 + packed[40:])

    for name in ("a.csv.gz", "b.csv", "cut.csv.gz", "damaged.csv.gz", "missing.csv"):
        with pytest.raises(FileFormatError, match="cannot be read") as error:
            learn_times(tmp_path / name, "h100")
        assert "\n" not in str(error.value)
    with pytest.raises(HardwareError, match="name its GPU"):
        learn_times(tmp_path / "b.csv")
    with pytest.raises(HardwareError, match="NVIDIA"):
        learn_times(save(tmp_path / "c.csv", table(slower(2.0))), "mi300x")


def test_bytes_that_a_table_lacks_are_those_of_operands(tmp_path: Path) -> None:
    rows = {
        "gemm,bfloat16,1,4096,2048,1024,,,350": 2 * (4096 * 1024 + 2048 * 1024 + 4096 * 2048),
        "batched gemm,float32,8,512,512,512,,,99": 4 * 8 * 3 * 512**2,
        "attention,bfloat16,64,4096,2048,64,,,900": 2 * 64 * 2 * (4096 + 2048) * 64,
        "convolution,bfloat16,1,50176,256,128,9,,400": 2
        * (50176 * 128 + 9 * 128 * 256 + 50176 * 256),
        "add,float32,,,,,,1e8,700": 3 * 4e8,
        "softmax,float32,,,,1024,,1e8,400": 2 * 4e8,
    }
    text = "kind,dtype,batch,m,n,k,taps,elements,time_us\n" + "\n".join(rows) + "\n"
    path = save(tmp_path / "times.csv", text)

    found = learn_times(path, "h100")

    assert not found.refused
    kept = read_times(load_hardware("h100"), "h100")
    assert kept is not None
    assert {each.kernel.kind: each.kernel.dram_bytes for each in kept.kernels} == {
        row.partition(",")[0]: float(byte) for row, byte in rows.items()
    }


def test_rows_that_do_not_fit_the_columns_are_refused(tmp_path: Path) -> None:
    """A thousands separator, no type, no width of rows, and a separator that is no comma."""
    text = table(slower(2.0)) + (
        "gemm,bfloat16,1,8,192,4096,4096,,700\ngemm,,1,4096,4096,4096,,350\n"
        "softmax,float32,1,,,,100000000,400\n"
    )

    found = learn_times(save(tmp_path / "TIMES.CSV", text), "h100")

    assert found.shapes == 4
    assert list(found.refused.values()) == [1, 1, 1]
    assert found.refused["more cells than columns"] == 1
    assert found.refused["sizes of softmax are missing"] == 1
    with pytest.raises(FileFormatError, match="separate columns by commas"):
        learn_times(save(tmp_path / "a.csv", text.replace(",", ";")), "h100")


# -- what is kept ----------------------------------------------------------------------------------


def learn(tmp_path: Path, factor: float, sizes: tuple[float, ...] = SIZES) -> Learning:
    return learn_times(save(tmp_path / "times.csv", table(slower(factor, sizes))), "h100")


def test_a_file_learned_again_changes_nothing_and_new_times_replace_old_ones(
    tmp_path: Path,
) -> None:
    def mean(factor: float, sizes: tuple[float, ...]) -> object:
        return pytest.approx(correction(slower(factor, sizes)).mean, abs=1e-6)

    cell = ("gemm", "16 bits")
    first = learn(tmp_path, 2.0)
    kept = first.file.read_text()

    assert learn(tmp_path, 2.0).corrections == first.corrections
    assert first.file.read_text() == kept
    assert learn(tmp_path, 3.0).corrections[cell].mean == mean(3.0, SIZES)
    assert learn(tmp_path, 3.0, (6144.0,)).corrections[cell].mean == mean(3.0, (*SIZES, 6144.0))
    fresh = learn_times(tmp_path / "times.csv", "h100", fresh=True)
    assert fresh.corrections[cell].mean == mean(3.0, (6144.0,))


def test_a_damaged_file_and_that_of_another_machine_are_refused(tmp_path: Path) -> None:
    file = learn(tmp_path, 2.0).file
    text = file.read_text()

    for damaged in (
        text[:-9],
        text.replace('"h100"', '"a100"'),
        "[]",
        text.replace('"k": 4096.0', '"k": 0.0'),
        text.replace('"time_s": 0', '"time_s": -0'),
        text.replace('"times": 1', '"times": 0'),
    ):
        assert damaged != text
        file.write_text(damaged)
        with pytest.raises(FileFormatError, match="remove it"):
            roofline.predict(torch.nn.ReLU(), (8, 8), hardware="h100", device="cuda")


# -- traces and commands ---------------------------------------------------------------------------


def trace(path: Path, factor: float) -> Path:
    events = Events()
    at = 0.0
    for kernel, time_s in [*slower(factor), *slower(factor)[:1] * 5]:
        m = int(kernel.m)
        number = events.operator(
            "aten::mm",
            at,
            6,
            **{
                "Input Dims": [[m, 4096], [4096, 4096]],
                "Input type": ["c10::BFloat16"] * 2,
                "Input Strides": [[4096, 1], [4096, 1]],
                "Concrete Inputs": ["", ""],
            },
        )
        args = {"External id": number, "correlation": events.launch(at + 2)}
        events.kernel("gemm", at + 10, time_s * 1e6, **args)
        at += 100 + time_s * 1e6
    return events.save(path)


def test_a_trace_teaches_its_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trace(tmp_path / "run.json.gz", 2.0)

    assert run(["trace", str(path), "--learn"]) == 0
    assert (
        "h100: learned 9 measurements of 4 shapes from run.json.gz; 0 rows refused"
        in capsys.readouterr().err
    )
    assert run(["calibrate", "--from", str(path)]) == 0
    assert "gemm 16 bits" in capsys.readouterr().out
    assert run(["hardware", "show", "h100"]) == 0
    assert "learned 9 measurements (run.json.gz; " in capsys.readouterr().err


def test_times_of_another_machine_are_refused(tmp_path: Path) -> None:
    path = trace(tmp_path / "run.json.gz", 2.0)
    of_cpu = Events()
    of_cpu.operator("aten::mm", 0, 500, **PRODUCT)

    with pytest.raises(HardwareError, match="a100 is not the trace's NVIDIA H100"):
        learn_times(path, "a100")
    with pytest.raises(HardwareError, match="was read as a trace of h100, not a100"):
        learn_times(roofline.read_trace(path), "a100")
    with pytest.raises(HardwareError, match="h100 is not the trace's CPU"):
        learn_times(of_cpu.save(tmp_path / "cpu.json"), "h100")
    for file in (path, tmp_path / "times.csv"):
        with pytest.raises(HardwareError, match="name its GPU"):
            learn_times(file, "host")
    assert not list(user_folder().glob("*"))


@pytest.mark.parametrize("name", ["../h100", "a/b", "x" * 300, "é" * 300])
def test_any_name_of_a_machine_gives_a_file_in_the_folder(tmp_path: Path, name: str) -> None:
    file = tmp_path / "mine" / "mine.toml"
    file.parent.mkdir()
    replace(load_hardware("h100"), name=name).save(file)
    path = save(tmp_path / "times.csv", table(slower(2.0)))

    found = learn_times(path, file)

    assert set(file.parent.iterdir()) == {file, found.file}
    kept = read_times(load_hardware(str(file)), file)
    assert kept is not None
    assert kept.machine == name


def test_a_machine_file_has_its_times_next_to_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    load_hardware("h100").save(file)
    model = torch.nn.Linear(4096, 4096, bias=False)

    def predicted_s(hardware: str | Path) -> float | None:
        found = roofline.predict(
            model, (8192, 4096), hardware=hardware, device="cuda", dtype="bfloat16"
        )
        return found.prediction and found.prediction.operators_s

    before = predicted_s(file)
    found = learn_times(trace(tmp_path / "run.json.gz", 2.0), file)

    assert found.file == tmp_path / "h100.times.json"
    assert predicted_s(file) == pytest.approx(2 * (before or 0), rel=0.15)
    assert predicted_s("h100") == before
    assert not user_folder().exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hardware", "h100"], "give it with --from FILE"),
        (["--from", "x.csv", "--quick"], "--quick: has no effect with --from"),
        (["--from", "x.csv"], "name its GPU with --hardware"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["calibrate", *options]) == 2
    assert message in capsys.readouterr().err
