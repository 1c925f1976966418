"""One of two processes that test_distributed.py starts: RANK=0|1 python distributed_worker.py <file for the store>."""

import copy
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._context_parallel import _attention as cp
from torch.distributed.tensor.experimental._context_parallel._attention import context_parallel_unshard
from torch.nn.functional import scaled_dot_product_attention as sdpa

D = torch.device("netcl", 0)
RANK = int(os.environ["RANK"])
STEPS, LR = 5, 0.1


def collectives() -> None:
    """Compares each collective with its definition; values are small integers, so sums are exact."""

    def mine(rank: int = RANK, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return (torch.arange(6, device=D) + 10 * rank).to(dtype).reshape(2, 3)

    def equal(got: torch.Tensor, expected: torch.Tensor) -> None:
        torch.testing.assert_close(got.cpu(), expected.cpu(), rtol=0, atol=0)

    a, b = mine(0), mine(1)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
        x = mine(dtype=dtype)
        dist.all_reduce(x)
        equal(x, (a + b).to(dtype))
    x = mine().t()  # strides
    dist.all_reduce(x, dist.ReduceOp.MAX)
    equal(x, b.t())
    x = mine()
    dist.all_reduce(x, dist.ReduceOp.AVG)
    equal(x, (a + b) / 2)
    x = mine()
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    equal(x * 2, (a + b) * 2)
    work = dist.all_reduce(mine(), async_op=True)
    equal(work.get_future().wait()[0], a + b)
    cpu = mine().cpu()
    dist.all_reduce(cpu)
    equal(cpu, a + b)

    x = mine()
    dist.broadcast(x, 1)
    equal(x, b)
    x = mine()
    dist.reduce(x, 0)
    if RANK == 0:
        equal(x, a + b)
    parts = [torch.empty_like(a) for _ in range(2)]
    dist.all_gather(parts, mine())
    equal(torch.cat(parts), torch.cat([a, b]))
    whole = torch.empty(4, 3, device=D)
    dist.all_gather_single(whole, mine())
    equal(whole, torch.cat([a, b]))
    dist.gather(mine(), parts if RANK == 0 else None, dst=0)
    dist.scatter(x, [a * 3, b * 3] if RANK == 1 else None, src=1)
    equal(x, (a, b)[RANK] * 3)
    dist.reduce_scatter(x, [mine() * 1, mine() * 2])
    equal(x, (a + b) * (RANK + 1))
    half = torch.empty(1, 3, device=D)
    dist.reduce_scatter_single(half, mine())
    equal(half, (a + b)[RANK : RANK + 1])
    out = torch.empty(2, 3, device=D)
    dist.all_to_all_single(out, mine())
    equal(out, torch.stack([a[RANK], b[RANK]]))
    dist.all_to_all(parts, [mine(), mine() + 1])
    equal(torch.stack(parts), torch.stack([a, b]) + RANK)
    if RANK == 0:
        dist.send(mine(), 1)
    else:
        dist.recv(x, 0)
        equal(x, a)
    objects = [{"rank": 0}] if RANK == 0 else [None]
    dist.broadcast_object_list(objects, 0)
    assert objects == [{"rank": 0}]
    dist.barrier()

    from torch.distributed import _functional_collectives as functional

    equal(functional.all_reduce(mine(), "sum", dist.group.WORLD), a + b)
    equal(functional.all_gather_single(mine(), 0, dist.group.WORLD), torch.cat([a, b]))
    equal(functional.reduce_scatter_single(mine(), "sum", 0, dist.group.WORLD), (a + b)[RANK : RANK + 1])

    group = dist.new_group([0, 1])
    x = mine()
    dist.all_reduce(x, group=group)
    equal(x, a + b)


def model_and_data() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
    return model.to(D), torch.randn(STEPS, 16, 8).to(D), torch.randn(STEPS, 16, 4).to(D)


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, float]:
    """The weights in one vector, and the sum over the steps of the largest gradient."""
    dtype = torch.netcl.amp.autocast_dtypes()[0]
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    scaler = torch.amp.GradScaler("netcl", init_scale=2.0**8)
    largest = 0.0
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("netcl", dtype=dtype):
            loss = nn.functional.mse_loss(model(x[step]), y[step])
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        largest += max(p.grad.abs().max().item() for p in model.parameters() if p.grad is not None and p.grad.numel())
        scaler.step(optimizer)
        scaler.update()
    return weights(model), largest


def weights(model: nn.Module) -> torch.Tensor:
    """All weights in one vector on the host, even if they are distributed over the processes."""
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model):
            return nn.utils.parameters_to_vector(model.parameters()).detach().cpu()
    parts = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    return nn.utils.parameters_to_vector(parts).detach().cpu()


def fully_sharded(model: nn.Module, policy: MixedPrecisionPolicy | None = None) -> nn.Module:
    """FSDP2: each linear layer is a unit, and the rest of the model is another."""
    mesh = init_device_mesh("netcl", (2,))
    for part in [*model[::2], model]:
        fully_shard(part, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy())
    return model


WRAPPERS = {
    "DistributedDataParallel": nn.parallel.DistributedDataParallel,
    "fully_shard": fully_sharded,
    "fully_shard in bf16": lambda model: fully_sharded(model, MixedPrecisionPolicy(torch.bfloat16, torch.float32)),
    "FullyShardedDataParallel": lambda model: FullyShardedDataParallel(model, device_id=D, use_orig_params=True),
}


def data_parallel(wrapper: str) -> None:
    model, x, y = model_and_data()
    single, largest = train(model, x, y)
    model, x, y = model_and_data()
    parallel = WRAPPERS[wrapper](model)
    half = slice(8 * RANK, 8 * RANK + 8)
    double, _ = train(parallel, x[:, half], y[:, half])
    # A gradient in the autocast dtype is off by half a unit in the last place for each of the few roundings that lead
    # to it (weights, activations, products); over the steps the weights differ by lr times the sum of that. Allow eight
    # roundings.
    eps = torch.finfo(torch.netcl.amp.autocast_dtypes()[0]).eps
    bound = 8 * eps * LR * largest
    moved = (single - weights(model_and_data()[0])).abs().max()
    worst = (single - double).abs().max().item()
    assert worst <= bound < moved, (worst, bound, moved)
    both = [torch.empty_like(double) for _ in range(2)]
    dist.all_gather(both, double)
    assert torch.equal(both[0], both[1])


def inf_in_one_shard() -> None:
    """Only process 1 meets an Inf: both skip the step and halve their scales."""
    model, x, _ = model_and_data()
    fully_sharded(model)
    before = weights(model)
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("netcl", init_scale=2.0**8)
    scaler.scale(model(x[0]).sum()).backward()
    if RANK == 1:
        next(model.parameters()).grad.to_local()[0] = torch.inf
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**7, scaler.get_scale()
    assert torch.equal(weights(model), before)


def sync_batch_norm() -> None:
    """Results, gradients and running statistics are those of one process with the whole batch, here on the CPU."""
    for affine, layout, dtype in (
        (True, torch.contiguous_format, torch.float32),
        (False, torch.channels_last, torch.float32),
        (True, torch.channels_last, torch.bfloat16),
    ):
        torch.manual_seed(1)
        whole = torch.randn(8, 3, 4, 5).add_(1).to(dtype)
        weight = torch.randn(8, 3, 4, 5)
        mine = slice(0, 5) if RANK == 0 else slice(5, 8)  # batches of two sizes
        alone = nn.BatchNorm2d(3, affine=affine)
        if affine:
            nn.init.normal_(alone.weight)
        shared = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(alone)).to(D)
        x = whole[mine].to(D).to(memory_format=layout).requires_grad_()
        with torch.autocast("netcl", dtype=dtype, enabled=dtype != torch.float32):
            y = shared(x)
        (y.float() * weight[mine].to(D)).sum().backward()
        x0 = whole.float().requires_grad_()
        y0 = alone(x0)
        (y0 * weight).sum().backward()
        tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
        torch.testing.assert_close(y.detach().float().cpu(), y0[mine].detach(), **tolerance)
        torch.testing.assert_close(x.grad.float().cpu(), x0.grad[mine], **tolerance)
        torch.testing.assert_close(shared.running_mean.cpu(), alone.running_mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(shared.running_var.cpu(), alone.running_var, rtol=1e-4, atol=1e-5)
        if affine:
            for name in ("weight", "bias"):
                gradient = getattr(shared, name).grad
                dist.all_reduce(gradient)
                torch.testing.assert_close(gradient.cpu(), getattr(alone, name).grad, rtol=1e-2, atol=5e-2)


def attention() -> None:
    """On DTensors, sharded in each way, and by a ring: results and gradients are those of the whole on the CPU."""
    mesh = init_device_mesh("netcl", (2,))

    def compare(q, k, v, bias, placements, **options) -> None:
        inputs = [t.clone().requires_grad_() for t in (q, k, v, *([] if bias is None else [bias]))]
        expected = sdpa(*inputs, **options)
        weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(3))
        (expected * weight).sum().backward()
        mine = [distribute_tensor(t.detach().to(D), mesh, placements).requires_grad_() for t in inputs[:3]]
        mine += [distribute_tensor(t.detach().to(D), mesh, [Replicate()]).requires_grad_() for t in inputs[3:]]
        got = sdpa(*mine, **options)
        (got * distribute_tensor(weight.to(D), mesh, placements)).sum().backward()
        close = {"rtol": 1e-4, "atol": 1e-5}
        torch.testing.assert_close(got.detach().full_tensor().cpu(), expected.detach(), **close)
        for a, b in zip(mine, inputs, strict=True):
            torch.testing.assert_close(a.grad.full_tensor().cpu(), b.grad, **close)

    torch.manual_seed(2)
    q, k, v = torch.randn(3, 2, 4, 10, 8)
    for placements in [Replicate()], [Shard(0)], [Shard(1)], [Shard(2)]:
        compare(q, k, v, None, placements)
        compare(q, k, v, None, placements, is_causal=True)
        compare(q, k[:, :2], v[:, :2], None, placements, enable_gqa=True)
        compare(torch.cat([q, q[:, :2]], 1), k[:, :3], v[:, :3], None, placements, enable_gqa=True)
        for shape in (10, 10), (1, 4, 10, 10), (2, 1, 10, 10), (2, 4, 10, 10):
            compare(q, k, v, torch.randn(shape), placements)

    for causal in True, False:
        inputs = [t[:, :, :8].clone().requires_grad_() for t in (q, k, v)]
        expected = sdpa(*inputs, is_causal=causal)
        expected.square().sum().backward()
        mine = [t.detach().clone().to(D) for t in inputs]
        cp._cp_options.enable_load_balance = causal
        with context_parallel(mesh, buffers=mine, buffer_seq_dims=[2, 2, 2]):
            parts = [t.clone().requires_grad_() for t in mine]
            got = nn.functional.scaled_dot_product_attention(*parts, is_causal=causal)  # replaced by context_parallel
            got.square().sum().backward()
            parts = [got.detach(), *(t.grad for t in parts)]
        whole = context_parallel_unshard(mesh, parts, [2] * 4)
        for a, b in zip(whole, [expected.detach(), *(t.grad for t in inputs)], strict=True):
            torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)

    refused = {
        "a mask": (q, k, v, {"attn_mask": torch.zeros(2, 4, 4, 8, device=D)}),
        "a mask of bool": (q, k, v, {"attn_mask": torch.ones(2, 4, 4, 8, dtype=torch.bool, device=D)}),
        "fewer heads of the keys": (q, k[:, :2], v[:, :2], {"enable_gqa": True}),
    }
    cp._cp_options.enable_load_balance = False
    for name, (*inputs, options) in refused.items():
        mine = [t[:, :, :8].clone().to(D) for t in inputs]
        with context_parallel(mesh, buffers=mine, buffer_seq_dims=[2, 2, 2]):
            try:
                nn.functional.scaled_dot_product_attention(*mine, **options)
            except NotImplementedError as error:
                assert "context_parallel takes no mask and no enable_gqa" in str(error), (name, error)
            else:
                raise AssertionError(f"context_parallel took {name}")
    # The processes still agree about what comes next.
    x = torch.ones(3, device=D)
    dist.all_reduce(x)
    torch.testing.assert_close(x.cpu(), torch.full((3,), 2.0))


def main() -> None:
    dist.init_process_group("netcl_gloo", init_method=f"file://{sys.argv[1]}", rank=RANK, world_size=2)
    assert dist.get_backend() == "netcl_gloo"
    collectives()
    for wrapper in WRAPPERS:
        data_parallel(wrapper)
    inf_in_one_shard()
    sync_batch_norm()
    attention()
    dist.destroy_process_group()
    print("done")


if __name__ == "__main__":
    main()
