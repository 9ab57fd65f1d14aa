"""Which quantiser a layer's weights get."""

from __future__ import annotations

from roofline.quantization.quantizers.coefficients import check_width, method_of
from roofline.quantization.quantizers.max_abs import MaxAbs
from roofline.quantization.quantizers.sawb import SAWB


def weight_quantizer(bits: int, *, per_channel: bool, axis: int = 0) -> SAWB | MaxAbs:
    """SAWB up to 4 bits, max-abs beyond; `coefficients.method_words` says which, and why.

    Args:
        bits: 1 to 16.
        per_channel: one scale for each output channel.
        axis: the dimension of the weight that has the output channels.

    Raises:
        InputError: bits other than 1 to 16.
    """
    check_width(bits)
    kind = SAWB if method_of(bits) == "SAWB" else MaxAbs
    return kind(bits, per_channel=per_channel, axis=axis)
