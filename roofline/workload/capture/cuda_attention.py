"""Which kernel attention is on CUDA, chosen as torch chooses it there.

`scaled_dot_product_attention` is one operator where a kernel takes its operands: the flash kernel
for half types without a mask, the memory-efficient one for float32 and for masks; else it comes as
its parts. A torch without CUDA has no such kernels, but knows their operators. cuDNN's, which H100
and B200 take first, reads and writes what the flash kernel does; so does the efficient one, which
GPUs before Ampere take for half types.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

_aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)
_FLASH_FEATURES = 256
"""The longest vectors that the flash kernel takes."""

_MASK_MULTIPLE = 16
"""Of which strides of a mask are to be multiples for the efficient kernel."""


@contextlib.contextmanager
def in_one_kernel() -> Iterator[None]:
    """Has attention on tensors of CUDA call the kernels that a torch with CUDA would call."""
    library = torch.library.Library("aten", "IMPL")
    # Not the key of CUDA itself: gradients are of the kernels' operators.
    library.impl("scaled_dot_product_attention", _attention, "AutogradCUDA")
    try:
        yield
    finally:
        library._destroy()


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    is_fusible = not (is_causal and attn_mask is not None) and _go_together(
        query, key, value, enable_gqa
    )
    if is_fusible and attn_mask is None and _is_for_flash(query, key, value, is_causal):
        return _flash(query, key, value, dropout_p, is_causal, scale)
    if is_fusible and _is_for_efficient(query, key, value):
        wants_logarithms = torch.is_grad_enabled() and any(
            each.requires_grad for each in (query, key, value)
        )
        mask = _prepared(attn_mask, query, key) if attn_mask is not None else None
        return _aten._scaled_dot_product_efficient_attention.default(
            query, key, value, mask, wants_logarithms, dropout_p, is_causal, scale=scale
        )[0]
    return _aten.scaled_dot_product_attention.default.decompose(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _go_together(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_grouped: bool
) -> bool:
    """Whether operands are dense, of one type, and of as many samples and heads as kernels take."""
    operands = (query, key, value)
    if any(each.dim() != 4 or each.is_nested or not each.numel() for each in operands):
        return False
    if any(each.dtype != query.dtype for each in operands):
        return False
    if any(each.shape[0] != query.shape[0] for each in operands):
        return False
    if key.shape[2] != value.shape[2] or query.shape[3] != key.shape[3]:
        return False
    heads, of_keys = query.shape[1], key.shape[1]
    if value.shape[1] != of_keys or (heads % of_keys if is_grouped else heads != of_keys):
        return False
    return all(each.stride(3) == 1 or each.shape[3] == 1 for each in operands)


def _is_for_flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_causal: bool
) -> bool:
    return (
        torch.backends.cuda.flash_sdp_enabled()
        and query.dtype in _HALF
        and query.shape[3] == value.shape[3] <= _FLASH_FEATURES
        and not (is_causal and query.shape[2] != key.shape[2])
    )


def _is_for_efficient(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
    multiple = 8 if query.dtype in _HALF else 4
    return (
        torch.backends.cuda.mem_efficient_sdp_enabled()
        and query.dtype in (*_HALF, torch.float32)
        and query.shape[3] % multiple == 0
        and value.shape[3] % multiple == 0
        and all(each.storage_offset() % multiple == 0 for each in (query, key, value))
    )


def _flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> torch.Tensor:
    # torch pads vectors to multiples of 8 here; another kernel need not, so that minimum times take
    # them as they are.
    result: torch.Tensor = _aten._scaled_dot_product_flash_attention.default(
        query, key, value, dropout_p, is_causal, scale=scale
    )[0]
    return result


def _prepared(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """What is added to the scores, laid out as the efficient kernel takes it."""
    if mask.dtype == torch.bool:
        least = torch.scalar_tensor(-torch.inf, dtype=query.dtype, device=mask.device)
        mask = torch.where(mask, 0.0, least)
    if mask.stride(-1) != 1 or any(each % _MASK_MULTIPLE for each in mask.stride()[:-1]):
        length = mask.shape[-1]
        mask = torch.nn.functional.pad(mask, (0, _MASK_MULTIPLE - length % _MASK_MULTIPLE))
        mask = mask[..., :length]
    return mask.expand(*query.shape[:3], key.shape[2])
