"""Page faults of a pass: plain torch in fresh processes against the simulation of its allocator.

    python benchmarks/page_faults.py measure [MODEL …]   # writes benchmarks/page_faults.json
    python benchmarks/page_faults.py > benchmarks/page_faults.md

Each measurement is a script that imports torch and the library of the model, and nothing of this
project: 20 warm-up passes, then the minor page faults of each of 10 passes. Counts do not depend on
what else the machine does. They do depend on the process: where small blocks of the interpreter lie
among the tensors differs from one to the next.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

RESULTS = Path(__file__).with_suffix(".json")

FAMILIES = {
    "ResNet": ["timm:resnet18", "timm:resnet50"],
    "RegNet": ["timm:regnety_004", "timm:regnetx_008"],
    "ReXNet": ["timm:rexnet_100", "timm:rexnet_150"],
    "MixNet": ["timm:mixnet_s", "timm:mixnet_m"],
    "MobileNet": ["timm:mobilenetv3_small_100", "timm:mobilenetv3_large_100"],
    "EfficientNet": ["timm:efficientnet_b0", "timm:efficientnet_b1"],
    "ViT": ["timm:vit_tiny_patch16_224", "timm:vit_small_patch32_224"],
    "PoolFormer": ["timm:poolformer_s12", "timm:poolformerv2_s12"],
    "DenseNet": ["timm:densenet121"],
    "ConvNeXt": ["timm:convnext_atto", "timm:convnext_femto"],
    "MLP-Mixer": ["timm:mixer_s32_224", "timm:resmlp_12_224"],
    "GhostNet": ["timm:ghostnet_100"],
    "ShuffleNet": ["torchvision:shufflenet_v2_x1_0", "torchvision:shufflenet_v2_x0_5"],
    "SqueezeNet": ["torchvision:squeezenet1_1", "torchvision:squeezenet1_0"],
    "MNASNet": ["torchvision:mnasnet0_5"],
    "MobileNetV2": ["torchvision:mobilenet_v2"],
}
MODELS = [model for models in FAMILIES.values() for model in models]
BATCHES = (1, 8)
THREADS = (1, 2)
WARM_UP, PASSES = 20, 10

_SCHEMAS = """
library = torch.library.Library("torchvision", "FRAGMENT")
for name in ("nms", "qnms"):
    library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
"""What torchvision needs to be imported where its compiled part is of another build of torch."""

_SCRIPT = """
import json, resource
import torch
{schemas}
{make}
model = model.eval()
torch.set_num_threads({threads})
x = torch.randn({batch}, 3, 224, 224)
faults = []
with torch.no_grad():
    for _ in range({passes}):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        model(x)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(json.dumps(faults))
"""

_MAKE = {
    "timm": "import timm\nmodel = timm.create_model({name!r})",
    "torchvision": "import torchvision\nmodel = getattr(torchvision.models, {name!r})()",
}


def measured(model: str, batch: int, threads: int, tunables: str = "") -> list[int]:
    """The page faults of every pass of a fresh process."""
    library, name = model.split(":")
    script = _SCRIPT.format(
        schemas=_SCHEMAS if _needs_schemas() else "",
        make=_MAKE[library].format(name=name),
        threads=threads,
        batch=batch,
        passes=WARM_UP + PASSES,
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    kept.pop("GLIBC_TUNABLES", None)
    kept.pop("OMP_NUM_THREADS", None)
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={**kept, **({"GLIBC_TUNABLES": tunables} if tunables else {})},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(found.stdout)


@functools.cache
def _needs_schemas() -> bool:
    done = subprocess.run(
        [sys.executable, "-c", "import torchvision"], capture_output=True, text=True, check=False
    )
    return "torchvision::nms" in done.stderr


def measure(models: list[str]) -> None:
    """Adds what is not measured yet to the results."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for model in models:
        for batch in BATCHES:
            for threads in THREADS:
                key = f"{model} {batch} {threads}"
                if key not in results:
                    results[key] = measured(model, batch, threads)
                    RESULTS.write_text(json.dumps(results, indent=0))
                    print(key, results[key][WARM_UP:], file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(sys.argv[2:] or MODELS)
