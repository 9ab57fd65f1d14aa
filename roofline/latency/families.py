"""Which models are kin: nothing is predicted from its own family when predictions are judged."""

from __future__ import annotations

import re

DESIGN = "design"
"""The family of what is no model."""

_KIN = (
    # What a name begins with, and its family: the first that fits.
    (r"(tv_|legacy_|gc|eca|se|sk|wide_)*(resnet|resnext|res2net|res2next)", "resnet"),
    (r"(tf_)?(efficientnet|mixnet)|tinynet", "efficientnet"),
    (r"(tf_)?mobilenet", "mobilenet"),
    (r"mobilevit", "mobilevit"),
    (r"regnet", "regnet"),
    (r"convnext", "convnext"),
    (r"(google|inception|tf_inception)", "inception"),
    (r"(deit|vit|beit|eva|cait)", "vit"),
    (r"(mixer|resmlp|gmlp|gmixer)", "mixer"),
    (r"swin", "swin"),
    (r"(bert|roberta|distilbert|mobilebert|albert|electra|xlm-?roberta|deberta|camembert)", "bert"),
    (r"(gpt|openaigpt|distilgpt)", "gpt"),
    (r"(t5|mt5|umt5|longt5)", "t5"),
    (r"(llama|mistral|qwen|gemma|phi|olmo|mixtral)", "llama"),
)


def family_of(model: str) -> str:
    """The family of a model by its name: ``"resnet"`` of ``"timm:wide_resnet50_2"``.

    Where no kin is known it is the first word of the name, without digits. Layers that are written
    down have the family `DESIGN`.
    """
    written = model.partition("@")[0]
    if "(" in written or "+" in written:
        return DESIGN
    model = written
    name = model.rpartition(":")[2].lower() if not model.endswith(".py") else model
    for pattern, family in _KIN:
        if re.match(pattern, name):
            return family
    word = re.match(r"[a-z]+", name.lstrip("_"))
    return word.group() if word else name
