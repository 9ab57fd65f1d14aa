"""Accuracy of predictions: families of models, each predicted from calibration on the others.

Run it on a quiet machine that was calibrated (`roofline calibrate --fresh`, five minutes):

    python benchmarks/latency_accuracy.py /tmp/accuracy         # 20 minutes; goes on where it was
    python benchmarks/latency_accuracy.py /tmp/accuracy --table # only the tables
    python benchmarks/latency_accuracy.py /tmp/accuracy --operators-measured  # 5 minutes

It writes latency_accuracy.md and latency_accuracy.json beside itself; the last one writes
latency_one_by_one.md and .json: eleven models, whose operators are timed on their own, too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from roofline.errors import MeasurementError
from roofline.latency.validation import Validation
from roofline.pipeline.validations import validate

HERE = Path(__file__).parent
DECODE = (f"{HERE / 'latency_models.py'}:gpt2_decode", "1x1:int64")

# By family: whole ones of torchvision but for their largest members, and some of timm and
# transformers. Those behind the bar take too long at a batch of 8 here.
FAMILIES: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "alexnet": (("alexnet",), ()),
    "vgg": (("vgg11",), ("vgg11_bn", "vgg13", "vgg16", "vgg16_bn", "vgg19")),
    "resnet": (
        ("resnet18", "resnet34", "resnet50"),
        ("resnet101", "resnet152", "resnext50_32x4d", "wide_resnet50_2"),
    ),
    "densenet": (("densenet121", "densenet169"), ("densenet201", "densenet161")),
    "inception": (("googlenet", "inception_v3"), ()),
    "squeezenet": (("squeezenet1_0", "squeezenet1_1"), ()),
    "mobilenet": (("mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large"), ()),
    "mnasnet": (("mnasnet0_5", "mnasnet0_75", "mnasnet1_0", "mnasnet1_3"), ()),
    "shufflenet": (
        (
            *("shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "shufflenet_v2_x1_5"),
            "shufflenet_v2_x2_0",
        ),
        (),
    ),
    "efficientnet": (
        ("efficientnet_b0", "efficientnet_b1", "efficientnet_b2"),
        ("efficientnet_b3", "efficientnet_b4", "efficientnet_v2_s"),
    ),
    "regnet": (
        (
            *("regnet_y_400mf", "regnet_y_800mf", "regnet_y_1_6gf"),
            *("regnet_x_400mf", "regnet_x_800mf", "regnet_x_1_6gf"),
        ),
        ("regnet_y_3_2gf", "regnet_x_3_2gf", "regnet_y_8gf", "regnet_x_8gf"),
    ),
    "convnext": (("convnext_tiny",), ("convnext_small", "convnext_base")),
    "swin": (("swin_t",), ("swin_s", "swin_v2_t")),
    "vit": (("timm:deit_tiny_patch16_224", "vit_b_32"), ("vit_b_16", "vit_l_32")),
    "maxvit": ((), ("maxvit_t",)),
    "mixer": (("timm:resmlp_12_224",), ("timm:mixer_b16_224",)),
    "ghostnet": (("timm:ghostnet_100",), ()),
    "repvgg": (("timm:repvgg_a0",), ()),
    "bert": (("hf:distilbert",), ("hf:bert",)),
    "gpt": ((DECODE,), ("hf:gpt2",)),
}
ONE_BY_ONE: tuple[Any, ...] = (
    *("resnet18", "resnet50", "mobilenet_v2", "googlenet", "efficientnet_b0", "regnet_y_800mf"),
    *("shufflenet_v2_x1_0", "timm:deit_tiny_patch16_224", "vit_b_32", "hf:distilbert", DECODE),
)
SETTINGS: dict[str, Any] = {"threads": [1, 2], "dtypes": ["float32", "bfloat16"]}


def main() -> None:
    """Measures what is not there yet, and writes the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--operators-measured", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.operators_measured:
        file = options.folder / "one-by-one" / "all.json"
        file.parent.mkdir(exist_ok=True)
        if not options.table and not file.exists():
            _patiently(
                file,
                models=list(ONE_BY_ONE),
                batch=1,
                operators_measured=True,
                quick=True,
                **SETTINGS,
            )
        _tables(file.parent, "latency_one_by_one")
        return
    if not options.table:
        for family, (light, heavy) in FAMILIES.items():
            for kind, models, batches in (("light", light, [1, 8]), ("heavy", heavy, [1])):
                file = options.folder / f"{family}-{kind}.json"
                if models and not file.exists():
                    print(time.strftime("%H:%M:%S"), family, kind, flush=True)
                    _patiently(file, models=list(models), batch=batches, quick=True, **SETTINGS)
        file = options.folder / "designs.json"
        if not file.exists():
            _patiently(file, models=None, designs=True, quick=True, **SETTINGS)
    _tables(options.folder, "latency_accuracy")


def _patiently(file: Path, **what: Any) -> None:
    """Tries again where others compute."""
    for attempt in itertools.count():
        try:
            found = validate(say=print, **what)
        except MeasurementError as error:
            print(error, flush=True)
            if attempt > 20:
                raise
            time.sleep(20)
            continue
        file.write_text(found.to_json(), encoding="utf-8")
        return


def _tables(folder: Path, name: str) -> None:
    parts = [
        Validation.from_data(json.loads(path.read_text()), file=str(path))
        for path in sorted(folder.glob("*.json"))
    ]
    whole = Validation(
        models=tuple(
            # Wherever the checkout is.
            replace(each, model=each.model.removeprefix(f"{HERE}/"))
            for part in parts
            for each in part.models
        ),
        skipped=tuple(each for part in parts for each in part.skipped),
        ratios=tuple(each for part in parts for each in part.ratios),
        hardware=parts[0].hardware,
        torch_version=parts[0].torch_version,
        date=parts[0].date,
        warnings=tuple(dict.fromkeys(each for part in parts for each in part.warnings)),
    )
    whole.save(HERE / f"{name}.md", HERE / f"{name}.json", overwrite=True)
    print(whole.summary, whole.totals)


if __name__ == "__main__":
    main()
