"""Higher-order operators on netcl: ``torch.cond``, ``while_loop``, ``flex_attention`` and those of compiled graphs."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, _ops

from ._after_import import after_import

_AUTOCAST = torch._C.DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]


def register() -> None:
    """Lets them through autocast, as PyTorch does for the devices that it lists; flex_attention takes netcl tensors."""
    keys = getattr(_ops, "_HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS", None)  # not every torch has it
    if keys is not None and _AUTOCAST not in keys:
        keys.append(_AUTOCAST)
        for op in _ops._higher_order_ops.values():
            if _AUTOCAST not in op.py_kernels:
                op.fallthrough(_AUTOCAST)
    after_import("torch.nn.attention.flex_attention", _admit_to_flex_attention)


def _admit_to_flex_attention() -> None:
    """flex_attention refuses devices that its function ``_validate_device`` does not list."""
    module = sys.modules["torch.nn.attention.flex_attention"]
    validate = getattr(module, "_validate_device", lambda *_: None)

    def validate_others(query: Tensor, key: Tensor, value: Tensor) -> None:
        if query.device.type != "netcl":
            validate(query, key, value)

    module._validate_device = validate_others
    operator = torch.ops.higher_order.flex_attention

    @operator.py_impl(_AUTOCAST)
    def autocast(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Any:
        """Casts them, as CUDA's does; the scores stay float32."""
        dtype = torch.get_autocast_dtype("netcl")
        cast = [t.to(dtype) if t.is_floating_point() and t.dtype != torch.float64 else t for t in (query, key, value)]
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_AUTOCAST)):
            return operator(*cast, *rest)
