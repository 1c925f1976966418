"""Attention on DTensors: sharded over batches or heads, and by torch's ring attention under ``context_parallel``.

PyTorch has such rules for the attention operators of CUDA, but not for the one that other devices override.
"""

from __future__ import annotations

import math
from typing import Any

import torch

_aten = torch.ops.aten
FORWARD = _aten._scaled_dot_product_fused_attention_overrideable.default
BACKWARD = _aten._scaled_dot_product_fused_attention_overrideable_backward.default


def _placements(schema: Any, query: int) -> list[tuple[Any, list[Any]]]:
    """The ways to share the work: how query, key, value and results are placed, and the bias, if there is one."""
    from torch.distributed.tensor import Replicate, Shard

    q, k, _, *rest = schema.args_schema[query:]
    ways: list[tuple[Any, list[Any]]] = []
    for dim in (None, 0, 1):
        if dim == 1 and q.shape[1] != k.shape[1] and k.shape[1] % math.prod(q.mesh.shape) != 0:
            continue  # a process would lack heads of the keys that its queries share
        at = Replicate() if dim is None else Shard(dim)
        of_bias = []
        if rest and rest[0] is not None:  # it may be broadcast
            own = -1 if dim is None else dim - 4 + len(rest[0].shape)
            of_bias = [Shard(own) if own >= 0 and rest[0].shape[own] > 1 else Replicate()]
        ways.append((at, of_bias))
    return ways


def _forward(schema: Any) -> Any:
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy

    philox = [Replicate(), Replicate()]
    ways = [[at, at, *[None] * 4, *philox, None, at, at, at, *bias] for at, bias in _placements(schema, 0)]
    return expand_to_full_mesh_op_strategy(schema.get_mesh_from_args(), schema, ways, input_index=9)


def _backward(schema: Any) -> Any:
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor._op_schema import OpStrategy
    from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy

    philox = [Replicate()] * sum(isinstance(arg, OpStrategy) for arg in schema.args_schema[8:])
    # The bias has no gradient: choose_backend() in csrc/aten/Attention.cpp leaves such calls to other operators.
    ways = [[at, at, at, None, at, at, at, at, *bias, at, at, *philox] for at, bias in _placements(schema, 1)]
    return expand_to_full_mesh_op_strategy(schema.get_mesh_from_args(validate=False), schema, ways, input_index=4)


def add_rules() -> None:
    """Tells DTensor how attention may be sharded; after the import of torch.distributed.tensor."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._op_schema import RuntimeSchemaInfo

    add = DTensor._op_dispatcher.sharding_propagator.register_op_strategy
    add(FORWARD, _forward, RuntimeSchemaInfo(4))
    add(BACKWARD, _backward, RuntimeSchemaInfo(5))


def _gradients_of_a_part(
    grad_out: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
    logsumexp: torch.Tensor, is_causal: bool, scale: float | None,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """What some of the keys add to the gradients; `out` and `logsumexp` are those of all keys, which BACKWARD on CPUs
    does not allow for."""
    dtype, scale = logsumexp.dtype, query.size(-1) ** -0.5 if scale is None else scale
    grad_out, query, key, value, out = (t.to(dtype) for t in (grad_out, query, key, value, out))
    p = (query @ key.mT * scale - logsumexp.unsqueeze(-1)).exp()
    p = p.tril() if is_causal else p
    s = p * (grad_out @ value.mT - (grad_out * out).sum(-1, keepdim=True)) * scale
    return s @ key, s.mT @ query, p.mT @ grad_out


def add_ring() -> None:
    """Adds to context_parallel's operators; after the import of the module that has them."""
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.experimental._context_parallel import _attention as attention

    def check(query: DTensor, key: DTensor, bias: Any) -> None:
        if bias is not None or query.size(1) != key.size(1) or tuple(query.placements) != (Shard(2),):
            raise NotImplementedError(
                f"{FORWARD}: context_parallel takes no mask and no enable_gqa, and shards nothing but the sequence"
            )

    def wrapped(t: torch.Tensor, like: DTensor, placement: Any) -> DTensor:
        return DTensor.from_local(t, like.device_mesh, [placement], run_check=False)

    def forward(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        query, key, value, bias, _, causal = (*args[:6], *(None, 0.0, False)[len(args) - 3 :])
        check(query, key, bias)
        out, lse, _, _, *lengths, seed, offset, _ = attention._templated_ring_attention(
            query.device_mesh.get_group(), 2, FORWARD, *(t.to_local() for t in (query, key, value)), causal, **kwargs
        )
        out, lse = (wrapped(t, query, Shard(2)) for t in (out.to(query.dtype), lse))
        return out, lse, None, None, *lengths, *(wrapped(t, query, Replicate()) for t in (seed, offset)), None

    def backward(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        grad_out, query, key, value, bias, _, out, lse, *_ = args
        check(query, key, bias)
        grad_out, *tensors = (t.to_local() for t in (grad_out, query, key, value, out, lse))
        grads = attention._templated_ring_attention_backward(
            query.device_mesh.get_group(), 2, _gradients_of_a_part, grad_out, "grad_out", *tensors, args[13],
            scale=kwargs.get("scale"),
        )  # fmt: skip
        return *(wrapped(t, query, Shard(2)) for t in grads), None

    attention.custom_ops.update({FORWARD: forward, BACKWARD: backward})
