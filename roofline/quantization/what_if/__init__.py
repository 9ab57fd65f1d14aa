"""The pure side of quantisation: what lower precision would be worth, from an analysis alone."""

from __future__ import annotations

from roofline.quantization.what_if.asking import records_of_torch as records_of_torch
from roofline.quantization.what_if.asking import what_if as what_if
from roofline.quantization.what_if.sweeping import policies_of as policies_of
from roofline.quantization.what_if.sweeping import what_ifs as what_ifs
