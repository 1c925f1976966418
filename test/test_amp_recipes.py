"""PyTorch's AMP examples on netcl, each compared with the same training in float32 on the CPU."""

import tempfile
import threading
import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
)

import torch_netcl  # noqa: F401

DEV = "netcl"
mse = nn.functional.mse_loss


def amp_dtypes():
    return torch.netcl.amp.autocast_dtypes() if torch.netcl.is_available() else []


def setup(dev, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8)).to(dev)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)


def batches(dev, count=8):
    gen = torch.Generator().manual_seed(1)
    for _ in range(count):
        x, y = torch.randn(32, 16, generator=gen), torch.randn(32, 8, generator=gen)
        yield x.to(dev), y.to(dev)


def typical(dev, cast, scaler):
    model, opt = setup(dev)
    for x, y in batches(dev):
        opt.zero_grad()
        with cast():
            out = model(x)
            loss = mse(out, y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    return [loss, *model.parameters()]


def clipping(dev, cast, scaler):
    model, opt = setup(dev)
    for x, y in batches(dev):
        opt.zero_grad()
        with cast():
            loss = mse(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        scaler.step(opt)
        scaler.update()
    return [loss, norm, *model.parameters()]


def accumulation(dev, cast, scaler):
    model, opt = setup(dev)
    for i, (x, y) in enumerate(batches(dev)):
        with cast():
            loss = mse(model(x), y) / 4
        scaler.scale(loss).backward()
        if (i + 1) % 4 == 0:
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
    return [loss, *model.parameters()]


def gradient_penalty(dev, cast, scaler):
    model, opt = setup(dev)
    for x, y in batches(dev):
        opt.zero_grad()
        with cast():
            loss = mse(model(x), y)
        # The penalty's gradients are unscaled explicitly, and enter the loss outside the half-precision graph.
        scaled = torch.autograd.grad(scaler.scale(loss), model.parameters(), create_graph=True)
        inv_scale = 1.0 / scaler.get_scale()
        grads = [g * inv_scale for g in scaled]
        with cast():
            norm = 0
            for grad in grads:
                norm = norm + grad.pow(2).sum()
            loss = loss + norm.sqrt()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    return [loss, *model.parameters()]


def several(dev, cast, scaler):
    (model0, opt0), (model1, opt1) = setup(dev, 0), setup(dev, 1)
    for x, y in batches(dev):
        opt0.zero_grad()
        opt1.zero_grad()
        with cast():
            out0, out1 = model0(x), model1(x)
            loss0 = mse(2 * out0 + 3 * out1, y)
            loss1 = mse(3 * out0 - 5 * out1, y)
        scaler.scale(loss0).backward(retain_graph=True)
        scaler.scale(loss1).backward()
        for group in (opt0, opt1):
            for g in group.param_groups:
                g["lr"] = 0.002
        scaler.unscale_(opt0)
        scaler.step(opt0)
        scaler.step(opt1)
        scaler.update()
    return [loss0, loss1, *model0.parameters(), *model1.parameters()]


def threads(dev, cast, scaler):
    """Replicas in threads, as DataParallel runs them: each thread enters autocast."""
    model, opt = setup(dev)
    for x, y in batches(dev):
        opt.zero_grad()
        outs, errors = [None, None], []

        def forward(i, part, outs=outs, errors=errors):
            try:
                with cast():
                    outs[i] = model(part)
            except Exception as error:  # noqa: BLE001 - shown by the test
                errors.append(error)

        workers = [threading.Thread(target=forward, args=(i, p)) for i, p in enumerate(x.chunk(2))]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        if errors:
            raise errors[0]
        with cast():
            loss = mse(torch.cat(outs), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    return [loss, *model.parameters()]


def autocast_decorator(dev, cast, scaler):
    model, opt = setup(dev)

    @cast()
    def forward(x, y):
        return mse(model(x), y)

    for x, y in batches(dev):
        opt.zero_grad()
        loss = forward(x, y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    return [loss, *model.parameters()]


def one_process(rank, store, dtype):
    """One of two processes, each with a device (here the same) and half of every batch; saves its weights."""
    dist.init_process_group("netcl_gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model, opt = setup(DEV)
    parallel = nn.parallel.DistributedDataParallel(model)
    scaler = torch.amp.GradScaler(DEV, init_scale=2.0**8)
    for x, y in batches(DEV):
        opt.zero_grad()
        with torch.autocast(DEV, dtype=dtype):
            loss = mse(parallel(x.chunk(2)[rank]), y.chunk(2)[rank])
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    torch.save([p.detach().cpu() for p in model.parameters()], f"{store}-{rank}")
    dist.destroy_process_group()


RECIPES = {
    f.__name__: f
    for f in (typical, clipping, accumulation, gradient_penalty, several, threads, autocast_decorator)
}


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestRecipes(TestCase):
    @parametrize("dtype", [torch.float16, torch.bfloat16])
    @parametrize("name", list(RECIPES))
    def test_recipe(self, name, dtype):
        if dtype not in amp_dtypes():
            self.skipTest(f"no {dtype} on this device")
        recipe = RECIPES[name]
        want = recipe("cpu", lambda: torch.autocast("cpu", enabled=False), torch.amp.GradScaler("cpu", enabled=False))
        scaler = torch.amp.GradScaler(DEV, init_scale=2.0**8)
        got = recipe(DEV, lambda: torch.autocast(DEV, dtype=dtype), scaler)
        # A gradient under autocast is a product of numbers rounded to 2^-9 (bfloat16) a few times, so it is within
        # about 4 * 2^-9 of its size. Eight steps of lr times gradients below 1 keep a parameter within 8 * 0.1 * 0.01
        # of the reference, and losses near 1 as well.
        for a, b in zip(got, want, strict=True):
            self.assertEqual(a.detach().cpu().float(), b.detach(), atol=8e-3, rtol=2e-2)
        self.assertEqual(scaler.get_scale(), 2.0**8)

    def test_one_device_a_process(self):
        want = typical("cpu", lambda: torch.autocast("cpu", enabled=False), torch.amp.GradScaler("cpu", enabled=False))
        with tempfile.TemporaryDirectory() as folder:
            store = f"{folder}/store"
            torch.multiprocessing.spawn(one_process, args=(store, amp_dtypes()[0]), nprocs=2)
            first, second = (torch.load(f"{store}-{rank}") for rank in (0, 1))
        for a, b, c in zip(first, second, want[1:], strict=True):
            self.assertTrue(torch.equal(a, b))
            self.assertEqual(a, c.detach(), atol=8e-3, rtol=2e-2)  # as above

    def test_recipes_stay_on_the_device(self):
        dtype = amp_dtypes()[0]
        before = torch.netcl.cpu_fallback_ops()
        for recipe in RECIPES.values():
            recipe(DEV, lambda: torch.autocast(DEV, dtype=dtype), torch.amp.GradScaler(DEV, init_scale=2.0**8))
        self.assertEqual(torch.netcl.cpu_fallback_ops(), before)


instantiate_parametrized_tests(TestRecipes)

if __name__ == "__main__":
    run_tests()
