"""What is known of an operator that torch dispatches, before it is called."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

_BOOKKEEPING = frozenset(
    {
        *("aten.detach_", "aten._local_scalar_dense", "aten.is_same_size", "aten._version"),
        *("aten.promote_types", "aten._linalg_check_errors", "aten._fused_sdp_choice"),
        *("aten._assert_async", "aten._assert_scalar", "aten._assert_tensor_metadata"),
        *("aten._functional_assert_async", "aten._functional_assert_scalar", "aten._print"),
        *("aten.sym_constrain_range", "aten.sym_constrain_range_for_size", "aten.record_stream"),
        *("aten._functional_sym_constrain_range", "aten.is_pinned", "aten.q_scale"),
        # Asked of every tensor and its tangent in forward-mode differentiation.
        "aten._has_same_storage_numel",
        *("aten.q_zero_point", "aten.qscheme", "aten.q_per_channel_axis"),
        # Hands a constant such as torch.tensor(3.0) to the modes that are on; eager makes no call.
        "aten.lift_fresh",
    }
)
_BOOKKEEPING_NAMESPACES = frozenset({"prim", "profiler"})
_ALLOCATIONS = frozenset(
    {
        "aten.empty",
        "aten.empty_like",
        "aten.empty_strided",
        "aten.empty_permuted",
        "aten.new_empty",
        "aten.new_empty_strided",
        # The zeros of forward-mode differentiation have no memory behind them.
        "aten._efficientzerotensor",
    }
)
_METADATA = frozenset(
    {
        *("aten.as_strided_", "aten.resize_", "aten.set_", "aten.squeeze_", "aten.swapaxes_"),
        *("aten.swapdims_", "aten.t_", "aten.transpose_", "aten.unsqueeze_"),
    }
)
"""In-place operators that change how a tensor looks at its storage, not what is in it."""

_OVERWRITES = frozenset(
    {
        *("aten.copy_", "aten.fill_", "aten.zero_", "aten.uniform_", "aten.normal_"),
        *("aten.bernoulli_", "aten.exponential_", "aten.random_", "aten.cauchy_"),
        *("aten.log_normal_", "aten.geometric_", "aten._foreach_copy_", "aten._foreach_zero_"),
        "aten._flash_attention_forward_no_dropout_inplace",
    }
)
"""In-place operators that write their first operand without reading it."""

_UNSAID: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    ("aten.native_batch_norm", "aten.cudnn_batch_norm", "aten.miopen_batch_norm"),
    ("running_mean", "running_var"),
)
"""Operands that an operator updates in training, though its schema does not say so."""

_ONE_DTYPE = frozenset(
    {
        *("aten.convolution", "aten._convolution", "aten.mm", "aten.bmm", "aten.addmm"),
        *("aten.baddbmm", "aten.addbmm", "aten.mv", "aten.addmv", "aten.dot", "aten.linear"),
    }
)
"""Operators that torch refuses on operands of different types, though their fakes do not."""

_NORMALIZATIONS = frozenset(
    {
        *("aten.native_batch_norm", "aten._native_batch_norm_legit_no_training"),
        *("aten.native_layer_norm", "aten.native_group_norm"),
    }
)
"""The same, but that float32 parameters go with an input of half the width."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An overload: its name, its arguments by name, and what it does to them.

    ``holders`` are the arguments that are, or hold, tensors or what packs some.
    """

    name: str
    overload: str
    arguments: tuple[str, ...]
    holders: frozenset[str]
    defaults: Mapping[str, Any]
    written: frozenset[str]
    written_only: frozenset[str]
    written_in_training: tuple[str, ...]
    moves_nothing: bool
    is_bookkeeping: bool
    is_composite: bool

    def writes(self, name: str, given: Mapping[str, Any]) -> bool:
        """Whether a call with the arguments `given` writes the one called `name`.

        Fused optimizers write gradients back only where they take a scale out of them.
        """
        if name in self.written:
            return name != "grads" or not self._is_optimizer or given.get("grad_scale") is not None
        return name in self.written_in_training and bool(
            given.get("training") or given.get("train")
        )

    @property
    def _is_optimizer(self) -> bool:
        return self.name.startswith("aten._fused_")


@functools.cache
def operator_of(func: torch._ops.OpOverload) -> Operator:
    """What is known of `func`."""
    schema = func._schema
    name = f"{func.namespace}.{func._opname}"
    written_only = frozenset(each.name for each in schema.arguments if each.is_out)
    if name in _OVERWRITES:
        written_only |= {schema.arguments[0].name}
    return Operator(
        name=name,
        overload=func._overloadname,
        arguments=tuple(each.name for each in schema.arguments),
        holders=frozenset(
            each.name
            for each in schema.arguments
            if "Tensor" in str(each.type) or "torch.classes" in str(each.type)
        ),
        defaults={
            each.name: each.default_value for each in schema.arguments if each.has_default_value()
        },
        written=frozenset(
            each.name for each in schema.arguments if each.alias_info and each.alias_info.is_write
        ),
        written_only=written_only,
        written_in_training=_UNSAID.get(name, ()),
        moves_nothing=name in _ALLOCATIONS or name in _METADATA,
        is_bookkeeping=name in _BOOKKEEPING or func.namespace in _BOOKKEEPING_NAMESPACES,
        is_composite=torch._C._dispatch_has_kernel_for_dispatch_key(
            func.name(), torch._C.DispatchKey.CompositeImplicitAutograd
        ),
    )


def check_dtypes(operator: Operator, given: Mapping[str, Any]) -> None:
    """Refuses what torch refuses in a real run, but not on fake tensors.

    Raises:
        RuntimeError: the operands are of different types.
    """
    is_normalization = operator.name in _NORMALIZATIONS
    if not is_normalization and operator.name not in _ONE_DTYPE:
        return
    kinds = [each.dtype for each in given.values() if isinstance(each, torch.Tensor)]
    if is_normalization and kinds and kinds[0] in (torch.bfloat16, torch.float16):
        kinds = [kind for kind in kinds if kind != torch.float32]
    if len(set(kinds)) > 1:
        names = ", ".join(str(kind).removeprefix("torch.") for kind in dict.fromkeys(kinds))
        raise RuntimeError(
            f"{operator.name.removeprefix('aten.')} takes operands of one dtype, got {names}"
        )
