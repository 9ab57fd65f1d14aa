"""How fast models are counted and placed: against other counters, and with many parameters.

    pip install 'roofline[models,crosscheck]'
    python benchmarks/counting_speed.py > benchmarks/counting_speed.md

The first table is one process in which torch and torchvision are imported: thread CPU time, one
torch thread, the contestants in turn. Each row of the second is a process of its own.
"""

from __future__ import annotations

import gc
import json
import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

ROUNDS = 15
LARGE = {
    "hf:bert, 128 tokens": "roofline.analyze('hf:bert', hardware='10980xe')",
    "hf:llama (its default sizes are those of Llama-7B), 128 tokens": (
        "roofline.analyze('hf:llama', hardware='10980xe')"
    ),
    "Llama with the sizes of Llama-3-70B, 128 tokens": (
        "roofline.analyze('{here}:llama_70b', '1x128:int64', hardware='10980xe')"
    ),
}
PROCESS = """
import json, resource, time
import roofline
start = time.perf_counter(), time.process_time()
analysis = {code}
print(json.dumps(dict(
    wall_s=time.perf_counter() - start[0],
    cpu_s=time.process_time() - start[1],
    resident_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    parameters=analysis.totals.parameters,
    operators=len(analysis.operators),
)))
"""


def llama_70b() -> object:
    """A model factory, as a user writes one."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=8192,
            intermediate_size=28672,
            num_hidden_layers=80,
            num_attention_heads=64,
            num_key_value_heads=8,
            vocab_size=128256,
        )
    )


def contestants() -> dict[str, Callable[[], object]]:
    """What is timed, on the same ResNet-50."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    import roofline
    from roofline.workload.models.libraries.availability import library_or_reason

    torchvision = library_or_reason("torchvision")[0]
    if torchvision is None:
        raise SystemExit("torchvision cannot be imported")
    from fvcore.nn import FlopCountAnalysis

    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    model = torchvision.models.resnet50(weights=None).eval()
    image = torch.randn(1, 3, 224, 224)
    hardware = roofline.load_hardware("10980xe")

    def flop_counter_mode() -> None:
        with FlopCounterMode(display=False):
            model(image)

    return {
        "fvcore: `FlopCountAnalysis(model, image).total()`": lambda: FlopCountAnalysis(
            model, image
        ).total(),
        "torch: one pass under `FlopCounterMode`": flop_counter_mode,
        "the bare model: one pass": lambda: model(image),
        'roofline: `analyze("resnet50")`': lambda: roofline.analyze("resnet50", hardware=hardware),
        "roofline: `analyze(model, image)`, real weights": lambda: roofline.analyze(
            model, image, hardware=hardware
        ),
    }


FAKE_PASSES = ("resnet50", "mobilenet_v2", "vit_b_16", "hf:bert")


def beyond_a_fake_pass(name: str) -> dict[str, list[float]]:
    """Thread CPU seconds of passes without memory: bare, counted by torch, and counted here.

    All of the same module with the same fake weights; the first is kept apart by the caller.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils.flop_counter import FlopCounterMode

    from roofline.machine.catalog import load_hardware
    from roofline.pipeline.analyses import assemble_analysis
    from roofline.pipeline.runs import CapturedPass
    from roofline.placement import Roof
    from roofline.workload.capture.passes import capture
    from roofline.workload.inputs import resolve_inputs
    from roofline.workload.models.sources import load_model
    from roofline.workload.residency import trace_residency
    from roofline.workload.torch_dtypes import input_dtype

    source = load_model(name)
    inputs = resolve_inputs(source.module, None, source.default_inputs, name=name, batch=None)
    roof = Roof(load_hardware("10980xe"), 1)
    mode = FakeTensorMode()
    fake = load_model(name).module.eval()
    for module in fake.modules():
        for own in (module._parameters, module._buffers):
            kept: dict[str, Any] = dict(own)
            for key, tensor in kept.items():
                if tensor is not None:
                    kept[key] = mode.from_tensor(torch.empty_like(tensor, device="cpu"))
            own.update(kept)
    with mode:
        args, kwargs = inputs.build(
            lambda request: torch.empty(request.shape, dtype=input_dtype(request, None))
        )

    def bare() -> None:
        with mode:
            fake(*args, **kwargs)

    def counted_by_torch() -> None:
        with mode, FlopCounterMode(display=False):
            fake(*args, **kwargs)

    def captured() -> None:
        capture(source.module, inputs, name=name)

    def placed() -> None:
        found = capture(source.module, inputs, name=name)
        reuse = trace_residency(found.records)
        passed = CapturedPass(name=name, inputs=(), capture=found, reuse=reuse, notes=())
        assemble_analysis(passed, roof, notes=())

    timed = {
        "a bare fake pass": bare,
        "under `FlopCounterMode`": counted_by_torch,
        "roofline: capture and counts": captured,
        "roofline: residency, fusion and placement too": placed,
    }
    taken: dict[str, list[float]] = {what: [] for what in timed}
    for _ in range(ROUNDS + 1):
        for what, function in timed.items():
            gc.collect()
            start = time.thread_time()
            function()
            taken[what].append(time.thread_time() - start)
    return taken


def print_fake_passes() -> None:
    """The table of what counting takes beyond the pass that is counted."""
    print(
        "\n## Beyond a bare fake pass\n\nThread CPU time in ms, one process, in turn, medians of"
        f" {ROUNDS} rounds after a first, cold one, which stands behind. Beyond: less the bare pass"
        " of the same round, under torch's own `FakeTensorMode`; less than nothing, where what a"
        " call on fake tensors gives is remembered better than there.\n"
    )
    print("| model | | CPU | beyond the bare pass | of `FlopCounterMode`'s beyond | the first |")
    print("|---|---|---:|---:|---:|---:|")
    for name in FAKE_PASSES:
        taken = beyond_a_fake_pass(name)
        bare, torchs, *_ = taken.values()
        beyond_torch = statistics.median(a - b for a, b in zip(torchs[1:], bare[1:], strict=True))
        for what, times in taken.items():
            beyond = statistics.median(a - b for a, b in zip(times[1:], bare[1:], strict=True))
            print(
                f"| {name} | {what} | {1e3 * statistics.median(times[1:]):.1f} |"
                f" {1e3 * beyond:+.1f} | {beyond / beyond_torch:+.2f} | {1e3 * times[0]:.0f} |"
            )


def main() -> None:
    timed = contestants()
    taken: dict[str, list[float]] = {name: [] for name in timed}
    for function in timed.values():
        function()
    for _ in range(ROUNDS):
        for name, function in timed.items():
            # The garbage of one contestant must not be collected on the time of another.
            gc.collect()
            start = time.thread_time()
            function()
            taken[name].append(time.thread_time() - start)
    print("# How fast models are counted\n")
    print(
        f"ResNet-50, one process, thread CPU time, one torch thread, {ROUNDS} rounds in turn:"
        " median (least – most). Counting with roofline is the whole analysis: building the model"
        " by its name, capture, formulas, residency, placement. The last columns are medians of the"
        " ratios, round by round.\n"
    )
    print("Rerun: `python benchmarks/counting_speed.py > benchmarks/counting_speed.md`\n")
    print("| | CPU | of fvcore's | of `FlopCounterMode`'s |\n|---|---:|---:|---:|")
    fvcore, flop_counter = list(taken.values())[:2]
    for name, times in taken.items():
        ratios = [
            statistics.median(a / b for a, b in zip(times, other, strict=True))
            for other in (fvcore, flop_counter)
        ]
        print(
            f"| {name} | {1e3 * statistics.median(times):.0f} ms"
            f" ({1e3 * min(times):.0f} – {1e3 * max(times):.0f})"
            f" | {ratios[0]:.2f} | {ratios[1]:.2f} |"
        )
    print_fake_passes()
    print(
        "\n## Large models\n\nOne process each: from the call of `roofline.analyze` to its result,"
        " the imports of torch and transformers included; the most memory that the process had.\n"
    )
    print("| | parameters | operators | wall | CPU | resident |\n|---|---:|---:|---:|---:|---:|")
    for name, code in LARGE.items():
        process = PROCESS.format(code=code.format(here=__file__))
        done = subprocess.run([sys.executable, "-c", process], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        row = json.loads(done.stdout)
        print(
            f"| {name} | {row['parameters'] / 1e9:.2f} G | {row['operators']}"
            f" | {row['wall_s']:.1f} s | {row['cpu_s']:.1f} s"
            f" | {row['resident_bytes'] / 1e9:.2f} GB |"
        )


if __name__ == "__main__":
    main()
