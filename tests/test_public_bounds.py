"""The benchmark of published measurements against minimum times, on a folder of few rows."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from pathlib import Path

import pytest
import torch

from benchmarks import public_bounds
from benchmarks.public_bounds import Measured, Minimum, Placed
from roofline.machine.catalog import load_hardware
from roofline.workload.operators import OperatorRecord, State
from tests.workload.passes import only, passed

GEMM = "device,framework,version,dtype,m,n,k,time_s"
OPERATORS = "device,operator,batch,m,n,k,width,other,time_s,kernel,split"
CONVOLUTIONS = (
    "device,batch,in_channels,out_channels,kernel_size,input_size,stride,padding,time_s,kernel"
)
NODES = "device,run,node,op,target,input_shapes,output_shape,dtype,forward_s,backward_s"
LLM = "device,model,weights,engine,batch,ranks,what,tokens_per_s,note,source"
TIMM = "model,infer_samples_per_sec,infer_step_time,infer_batch_size,infer_img_size,param_count"


def write(folder: Path, name: str, header: str, *rows: str) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    text = "\n".join([header, *rows]) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())


def read(folder: Path) -> list[Measured]:
    return public_bounds.measured_in(folder, models=0)[0]


def state(row: Measured) -> str:
    """What became of a row, in a word or the reason."""
    if row.reason:
        return row.reason
    if row.measured_s >= row.minimum_s:
        return "held"
    return row.explanation or "unexplained"


PEAK = next(
    each.peak_flop_per_s
    for each in load_hardware("h100").compute
    if (each.dtype.name, each.unit) == ("bfloat16", "tensor-core")
)
FLOP = 2 * 8192**3


@pytest.mark.parametrize(
    ("device", "kind", "time_s", "expected"),
    [
        ("h100_sxm", "bfloat16", FLOP / PEAK / 0.7, "held"),
        ("h100_sxm", "bfloat16", FLOP / PEAK / 1.05, "clock above paper"),
        ("h100_sxm", "bfloat16", FLOP / PEAK / 1.2, "unexplained"),
        # Milliseconds that were taken for seconds, the other way round.
        ("h100_sxm", "bfloat16", FLOP / PEAK / 0.7 / 1000, "wrong unit"),
        ("h100_sxm", "bfloat16", FLOP / PEAK / 20, "wrong unit"),
        ("h100_sxm", "bfloat16", FLOP / PEAK / 3000, "unexplained"),
        ("h100_sxm", "bfloat16", 0.0, "no time"),
        ("h100_sxm", "posit16", 1.0, "no ceiling for posit16 in the machine file"),
        # It converts to another type, whose ceiling is no limit of this one.
        ("a100_sxm", "fp8", 1.0, "no ceiling for fp8 in the machine file"),
        ("Quantum 9000", "bfloat16", 1.0, "no machine file for Quantum 9000"),
    ],
)
def test_every_row_of_products_has_one_state(
    tmp_path: Path, device: str, kind: str, time_s: float, expected: str
) -> None:
    row = f"{device},some,1,{kind},8192,8192,8192,{time_s}"
    write(tmp_path, "gpu-gemm-bf16-fp8.csv.gz", GEMM, row)
    assert [state(each) for each in read(tmp_path)] == [expected]


def test_float32_without_tf32_has_the_ceiling_of_the_other_units(tmp_path: Path) -> None:
    """An A100 does 19.5 TFLOP/s in float32, and 156 in TF32, which these rows have not."""
    seconds = 2 * 4096**3 / 19.5e12
    write(
        tmp_path,
        "gpu-operators-fp32.csv.gz",
        OPERATORS,
        *(
            f"NVIDIA A100-PCIE-40GB,linear,1,4096,4096,4096,,,{seconds * times},k,train"
            for times in (1.1, 0.5)
        ),
    )
    assert [state(each) for each in read(tmp_path)] == ["held", "unexplained"]


def test_what_is_elementwise_has_a_size_in_bytes(tmp_path: Path) -> None:
    """Two operands and a result of 4 byte × 10,000 × 1,000."""
    write(
        tmp_path,
        "gpu-operators-fp32.csv.gz",
        OPERATORS,
        "Tesla T4,add,10000,,,,1000,large=True,1.0,k,train",
        "Tesla T4,addu,10000,,,,1000,large=True,1.0,k,train",
        "Tesla T4,softmax,10000,,,,1000,large=True,1.0,k,train",
        "Tesla T4,ln,10000,,,,1000,large=True,1.0,k,train",
        "Tesla T4,bmm,7,30,20,10,,,1.0,k,train",
        "Tesla T4,fold,10000,,,,1000,large=True,1.0,k,train",
    )
    add, addu, softmax, norm, bmm, fold = read(tmp_path)
    assert (add.size, addu.size) == (12e7, 8e7)
    assert softmax.kind == norm.kind == "by rows"
    # Of 80 MB the 4 MiB of L2 may keep what they hold.
    assert softmax.minimum_s == pytest.approx((8e7 - 4 * 2**20) / 320e9)
    assert norm.minimum_s == pytest.approx(softmax.minimum_s, rel=0.01)
    assert bmm.size == 2 * 7 * 30 * 20 * 10
    assert state(fold) == "unknown operator fold"


def test_convolutions_may_be_faster_than_the_direct_algorithm(tmp_path: Path) -> None:
    """9.5 TFLOP/s of Winograd are no violation on a card of 8.1."""
    direct = 2 * 64 * 256 * 256 * 26**2 * 9
    write(
        tmp_path,
        "gpu-convolutions-fp32.csv.gz",
        CONVOLUTIONS,
        f"Tesla T4,64,256,256,3,28,1,0,{direct / 9.5e12},winograd",
        f"Tesla T4,64,256,256,3,28,1,0,{direct / 90e12},winograd",
    )
    assert [state(each) for each in read(tmp_path)] == ["held", "unexplained"]


@pytest.mark.parametrize("sizes", ["64,3,8,7,5,1,0", "64,3,8,3,8,0,1"])
def test_convolutions_that_do_not_fit_are_said(tmp_path: Path, sizes: str) -> None:
    """A kernel larger than the image, and a stride of nothing."""
    write(tmp_path, "gpu-convolutions-fp32.csv.gz", CONVOLUTIONS, f"Tesla T4,{sizes},1,k")
    assert [state(each) for each in read(tmp_path)] == [ODD]


def test_nodes_of_models_or_why_they_are_not_compared(tmp_path: Path) -> None:
    run = "Tesla V100-PCIE-32GB,run"
    square = '"[[8, 1, 2048, 2048]]","(8, 1, 2048, 2048)",torch.float32'
    row = '"[[2, 512, 1024]]","(2, 512, 1024)",torch.float32'
    two = '"[[2, 512, 1024], [2, 512, 1024]]","(2, 512, 1024)",torch.float32'
    write(
        tmp_path,
        "gpu-model-nodes-fp32.csv.gz",
        NODES,
        f'{run},view,call_method,view,"[[16, 512]]","(8192,)",torch.float32,1e-6,0',
        f'{run},expand,call_method,expand,"[[8, 2048]]","(8, 1, 2048, 2048)",torch.float32,1e-6,0',
        f"{run},sub,call_function,<built-in function sub>,{square},1e-3,0",
        f"{run},gelu,call_function,<built-in function gelu>,"
        '"[[8, 512, 4096]]","(8, 512, 4096)",torch.float32,1.76e-4,0',
        f"{run},dense,call_module,encoder.layer.0.output.dense,"
        '"[[2, 512, 4096]]","(2, 512, 1024)",torch.float32,8.67e-4,1.668e-3',
        f"{run},norm,call_module,layer.0.LayerNorm,{row},1e-4,1e-3",
        f"{run},words,call_module,word_embeddings,"
        '"[[8, 512]]","(8, 512, 1024)",torch.float32,1e-4,1e-3',
        f"{run},mul,call_function,<built-in function mul>,{two},1e-4,1e-4",
        f"{run},add,call_function,<built-in function add>,{two},1e-4,1e-4",
        f"{run},drop,call_module,h.0.attn_dropout,{row},1e-4,0",
        f'{run},size,call_method,size,"[[16, 512]]","(1,)",,1e-6,0',
        f"{run},fill,call_method,masked_fill,"
        '"[[8, 1, 2048, 2048], [8, 1, 2048, 2048], [1]]","(8, 1, 2048, 2048)",torch.float32,1,0',
        f'{run},long,call_method,long,"[[8, 512]]","(8, 512)",torch.int64,1e-6,0',
        f"{run},odd,call_method,erf,{row},1e-6,0",
        f'{run},odd,call_method,tanh,no shape,"(8, 512)",torch.float32,1e-6,0',
    )
    rows = read(tmp_path)
    gradients = "gradients: operands that want one, or other operands of it, are not in the row"
    assert [state(each) for each in rows] == [
        "views: no operator runs",
        "views: no operator runs",
        *["held"] * 4,  # sub, gelu, dense and its gradients
        *["held"] * 2,  # norm
        *["held", gradients],  # words
        *["held"] * 2,  # mul
        *["held", gradients],  # add
        "dropout: its rate is not in the row",
        "numbers and sizes: no tensor comes out",
        "held",
        "integers and masks: types of operands are not in the row",
        "unknown operator erf",
        "cells that are no sizes, shapes or times",
    ]
    repeated, _, dense, backward, _, _, words, _, _, product = rows[2:12]
    # What the view repeats may be a single element; the result is written whole.
    written = 4 * 8 * 2048 * 2048
    assert written <= repeated.size < 1.001 * written
    assert backward.size == 2 * dense.size == 4 * 1024 * 4096 * 1024
    # A gradient times one operand: 4 byte × 1,048,576 elements, three times.
    assert product.size == 3 * 4 * 2 * 512 * 1024
    # 16.8 MB written at most at 900 GB/s, less what 6 MiB of L2 keep; numbers and one row read.
    assert words.minimum_s == pytest.approx((4 * 8 * 512 * 1024 - 6 * 2**20) / 900e9, rel=0.01)


@pytest.mark.parametrize("name", public_bounds.NODES)
def test_every_node_runs(name: str) -> None:
    """One kernel gives what the row has, and its gradients are counted."""
    shapes = {
        "addmm": [[6], [5, 7], [7, 6]],
        "matmul": [[2, 5, 7], [2, 7, 6]],
        "bmm": [[2, 5, 7], [2, 7, 6]],
        "embedding": [[5], [9, 6]],
        "where": [[5, 6], [5, 6], [1]],
        "masked_fill_": [[5, 6], [5, 6]],
        "masked_fill": [[5, 6], [5, 6], [1]],
    }.get(name, [[5, 6]])
    out = (2, 5, 6) if name in ("matmul", "bmm") else (5, 6)
    row = {
        "op": "call_method",
        "target": name,
        "input_shapes": json.dumps(shapes),
        "output_shape": str(out),
        "dtype": "torch.float32",
    }
    forward, backward = public_bounds.node_subjects(row)
    assert forward.make is not None
    (record,) = [each for each in forward.make().records if each.state is not State.FREE]
    assert record.work.traffic_bytes
    assert math.prod(record.outputs[0].shape) == math.prod(out)
    if backward.make is not None:
        states = {each.state for each in backward.make().records}
        assert State.COUNTED in states
        assert State.UNKNOWN not in states


def test_language_models_of_one_rank_and_a_numeric_batch(tmp_path: Path) -> None:
    def row(weights: str, batch: str, ranks: int, rate: float) -> str:
        return f"A100-SXM-80GB,Llama-2-7B,{weights},e,{batch},{ranks},decode,{rate},,s"

    write(
        tmp_path,
        "llm.csv",
        LLM,
        row("bf16", "1", 1, 104.9),
        row("bf16", "1", 1, 210.0),
        row("bf16", "1", 8, 328.4),
        row("bf16", "many", 1, 9000.0),
        row("int4", "1", 1, 196.8),
    )
    # 13.2 GB of weights at 2,039 GB/s are 154 tokens/s.
    assert [state(each) for each in read(tmp_path)] == [
        "held",
        "unexplained",
        "several ranks",
        "no numeric batch",
        "which weights are int4 is not in the row",
    ]


RTX = "timm/benchmark-infer-amp-nchw-pt240-cu124-rtx4090"


def test_models_of_timm_with_their_batch_and_type(tmp_path: Path) -> None:
    write(
        tmp_path,
        "timm/benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv",
        TIMM,
        "resnet10t.c3_in1k,9000,7.11,64,176,5.44",
        "resnet10t.other,9000,7.11,64,176,25.6",
        "no_model_at_all,1,1,1,224,1.0",
        "resnet10t.c3_in1k,9000,7.11,,176,5.44",
    )
    write(
        tmp_path,
        "timm/benchmark-infer-amp-nchw-pt240-cu124-some9.csv",
        TIMM,
        "resnet10t,1,1,1,176,5.44",
    )
    write(tmp_path, "timm/benchmark-infer-int3-nchw-here.csv", TIMM, "resnet10t,1,1,1,176,5.44")
    rows, left_out = public_bounds.measured_in(tmp_path, models=0)
    assert Counter(map(state, rows)) == Counter(
        [
            "held",
            "another model has that name now: its parameters are not the row's",
            "model that is not here, or refuses the size",
            "no batch, size or number of parameters",
            "no machine file for some9",
            "file whose name says no run that is known",
        ]
    )
    # 0.7 G multiply-adds for each of 64 images.
    (held,) = (row for row in rows if state(row) == "held")
    assert 1.2e9 * 64 * 0.9 < held.size < 2e9 * 64
    assert left_out == [f"{each}: not in the folder" for each in public_bounds.FILES]


def test_compiled_models_are_held_against_the_fused_minimum(tmp_path: Path) -> None:
    def rows_of(suffix: str, *times_s: float) -> list[Measured]:
        rows = [f"resnet10t.c3_in1k,9000,{each * 1e3},64,176,5.44" for each in times_s]
        write(tmp_path, f"{RTX}{suffix}.csv", TIMM, *rows)
        found = read(tmp_path)
        (tmp_path / f"{RTX}{suffix}.csv").unlink()
        return found

    (row,) = rows_of("-dynamo", 1.0)
    least = row.minima
    assert least is not None and least.is_ordered
    assert 0 < least.model_s < least.fused_s < least.eager_s < 1
    between, below = (least.fused_s + least.eager_s) / 2, 0.9 * least.fused_s
    assert list(map(state, rows_of("-dynamo", between, below))) == ["held", "unexplained"]
    assert list(map(state, rows_of("", between, 1.1 * least.eager_s))) == ["unexplained", "held"]


def test_recurrent_layers_are_held_against_the_model_minimum(tmp_path: Path) -> None:
    """One kernel on GPUs; here the operators of every step, with casts of weights at each."""
    write(tmp_path, f"{RTX}.csv", TIMM, "sequencer2d_s,1,1.0,1,224,27.65")
    (row,) = read(tmp_path)
    assert state(row) == "held"
    # 8.4 G multiply-adds, as its authors count them, at 330.3 TFLOP/s.
    assert row.minimum_s == pytest.approx(2 * 8.4e9 / 330.3e12, rel=0.05)
    assert row.minima is None


def test_the_three_minimum_times_are_tabled_in_their_order() -> None:
    def row(source: str, eager_s: float, fused_s: float, model_s: float) -> Measured:
        least = Minimum(eager_s, fused_s, model_s)
        return Measured(
            source, "d", "model", "float16", 1e12, 10.0, least.fused_s, minima=least, row="a.b x"
        )

    rows = [row("timm", 8.0, 4.0, 2.0), row("timm", 6.0, 2.0, 1.0), row("timm", 4.0, 5.0, 1.0)]
    table = "\n".join(public_bounds.tables(rows, []))
    assert "| timm | d | 1 | 3 | 0.60, 0.80 | 0.40, 0.50 | 0.10, 0.20 | 1 |" in table


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        (2, ["bat1", "tf_bat1"]),
        (3, ["bat1", "cow1", "tf_bat1"]),
        (5, ["bat1", "bat2", "cow1", "cow2", "tf_bat1"]),
        (9, ["bat1", "bat2", "bat3", "cow1", "cow2", "tf_bat1"]),
    ],
)
def test_every_beginning_of_the_order_has_all_families(models: int, expected: list[str]) -> None:
    names = ("cow2", "bat3", "bat1", "bat1", "tf_bat1", "bat2", "cow1")
    assert sorted(public_bounds.sampled(names)[:models]) == expected


def test_models_that_time_does_not_allow_are_said(tmp_path: Path) -> None:
    write(tmp_path, f"{RTX}.csv", TIMM, "resnet10t,9000,7.11,64,176,5.44", "vgg11,1,1,1,224,132.9")
    rows, _ = public_bounds.measured_in(tmp_path, 0, minutes=-1)
    assert list(map(state, rows)) == ["not reached in the time given"] * 2
    rows, _ = public_bounds.measured_in(tmp_path, ["resnet10t"])
    assert list(map(state, rows)) == ["held", "not in the sample"]
    table = "\n".join(public_bounds.tables(rows, []))
    assert "Of 2 models 1 are compared; of the others: not in the sample 1." in table
    assert "Models (`--models` takes them too): resnet10t\n" in table


def test_a_model_that_is_built_once_gives_what_a_new_one_gives() -> None:
    """Whatever was captured of it before: another type, layout, size, or a step of training."""
    asked = [
        ("test_vit", 2, 160, "cuda", True, False, True),
        ("test_vit", 3, 160, "cpu", False, True, False),
    ]
    shared = [public_bounds.timm_model(*each) for each in asked]
    for each, (parameters, placed) in zip(asked, shared, strict=True):
        public_bounds.built.cache_clear()
        public_bounds.timm_model.cache_clear()
        alone, anew = public_bounds.timm_model(*each)
        assert alone == parameters
        assert anew.records == placed.records


ODD = "cells that are no sizes, shapes or times"


def test_odd_files_and_rows_are_a_line_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gemm = "h100_sxm,some,1,bfloat16"
    write(
        tmp_path,
        "gpu-gemm-bf16-fp8.csv",  # Plain, though the name that is known is packed.
        f"{GEMM},remark",
        f"{gemm},8192,8192,8192,{FLOP / PEAK / 0.7},fine",
        f"{gemm},8192,,8192,1,no size",
        f"{gemm},8192,-8,8192,1,negative",
        f"{gemm},8192,8.5,8192,1,broken",
        f"{gemm},0,8192,8192,1,nothing",
        *(f"{gemm},8192,8192,8192,{each},no time" for each in ("", "nan", "0", "-1", "inf")),
        f"{gemm},8192,8192,8192,soon,no number",
        ",some,1,bfloat16,8,8,8,1,no device",
        "h100_sxm,some,1,,8,8,8,1,no type",
    )
    (tmp_path / "gpu-operators-fp32.csv.gz").write_bytes(b"device,operator\n")
    (tmp_path / "gpu-convolutions-fp32.csv.gz").write_bytes(gzip.compress(b""))
    write(tmp_path, "gpu-model-nodes-fp32.csv.gz", "device,target", "Tesla T4,expand")
    write(tmp_path, "llm.csv", "device,model", "A40,Llama-3-8B")
    write(tmp_path, f"{RTX}.csv", "model,param_count", "resnet10t,5.44", ",", "resnet10t,many")
    rows, left_out = public_bounds.measured_in(tmp_path, 0)
    assert list(map(state, rows)) == [
        "held",
        *[ODD] * 3,
        "row without work",
        *["no time"] * 5,
        ODD,
        "no device",
        "no ceiling for  in the machine file",
        "no column run",
        "no column weights",
        *["no batch, size or number of parameters"] * 3,
    ]
    assert [each.partition(": not readable: ")[0] for each in left_out] == [
        "gpu-operators-fp32.csv.gz",
        "gpu-convolutions-fp32.csv.gz",
    ]
    monkeypatch.setattr("sys.argv", ["public_bounds.py", str(tmp_path)])
    assert public_bounds.main() == 0
    assert f"| GEMM | h100_sxm | {ODD} | 4 |" in capsys.readouterr().out


def test_a_folder_without_rows_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["public_bounds.py", str(tmp_path)])
    assert public_bounds.main() == 0
    assert "0 rows, 0 compared" in capsys.readouterr().out


def test_tables_count_all_rows_and_name_missing_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = "h100_sxm,some,1,bfloat16,8192,8192,8192"
    rates = (0.7, 0.8, 1.05, 1.2, 700)
    rows = [f"{row},{FLOP / PEAK / rate}" for rate in rates]
    write(tmp_path, "gpu-gemm-bf16-fp8.csv.gz", GEMM, *rows, "Quantum,s,1,bfloat16,8,8,8,1")
    monkeypatch.setattr("sys.argv", ["public_bounds.py", str(tmp_path)])
    assert public_bounds.main() == 1
    said = capsys.readouterr().out
    assert "6 rows, 5 compared, 3 below their minimum time, 1 of them unexplained." in said
    assert "* gpu-operators-fp32.csv.gz: not in the folder\n" in said
    assert "| GEMM | h100_sxm | 5 | 5 | 3 | clock above paper 1, wrong unit 1 | 700.000 |" in said
    assert "| GEMM | Quantum | no machine file for Quantum | 1 |" in said
    assert said.count("| 1.200 |") == 1


def test_a_folder_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["public_bounds.py", str(tmp_path / "none")])
    assert public_bounds.main() == 2
    assert capsys.readouterr().err.count("\n") == 1


BUILT = {
    "mm": (public_bounds.product("float32", 1, 5, 6, 7), torch.mm, (5, 7), (7, 6)),
    "bmm": (public_bounds.product("float32", 2, 5, 6, 7), torch.bmm, (2, 5, 7), (2, 7, 6)),
    "add": (public_bounds.elementwise("add", 5, 6), torch.add, (5, 6), (5, 6)),
    "powu": (public_bounds.elementwise("powu", 5, 6), lambda x: x**2.0, (5, 6)),
    "gelu": (public_bounds.elementwise("gelu", 5, 6), torch.nn.functional.gelu, (5, 6)),
    "softmax": (public_bounds.by_rows("softmax", 5, 6), lambda x: x.softmax(-1), (5, 6)),
    "convolution": (
        public_bounds.convolution(2, 3, 4, 3, 8, 2, 1),
        lambda x, w: torch.nn.functional.conv2d(x, w, stride=2, padding=1),
        (2, 3, 8, 8),
        (4, 3, 3, 3),
    ),
}


@pytest.mark.parametrize("name", BUILT)
def test_records_are_those_of_a_capture(name: str) -> None:
    """What is built from a row, without a pass, is what a pass would have recorded."""
    placed, function, *shapes = BUILT[name]
    assert isinstance(placed, Placed)
    (built,) = placed.records
    real = only(passed(function, *shapes))

    def bytes_of(record: OperatorRecord) -> Counter[tuple[object, ...]]:
        specs = (*record.inputs, *record.outputs)
        return Counter((each.shape, each.dtype, each.byte, each.min_bytes) for each in specs)

    assert built.op == real.op
    assert built.type == real.type
    assert bytes_of(built) == bytes_of(real)
    assert built.work.flop == real.work.flop
    assert built.work.min_flop == real.work.min_flop
    assert built.work.traffic_bytes == real.work.traffic_bytes
