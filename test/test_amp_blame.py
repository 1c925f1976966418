"""Blame: the unscale kernel records which gradients held an Inf or NaN. GradScaler: arguments, older frameworks'
names."""

import copy
import inspect
import math
import pickle
import random
import unittest

import torch
from torch import nn
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
)

import torch_netcl  # noqa: F401

DEV = "netcl"
BAD = (math.inf, -math.inf, math.nan)
FLOATS = [torch.float16, torch.bfloat16, torch.float32]
if torch.netcl.is_available() and torch.netcl.get_device_properties(0).has_fp64:
    FLOATS.append(torch.float64)


def parameters(dtypes=(torch.float32,), dev=DEV):
    """Parameters of sizes around a vector (16), a chunk (4096) and several, some transposed, one without gradient."""
    shapes = [(3,), (16, 16), (4096,), (4097,), (), (3, 5, 7), (100, 130), (2, 6000)]
    params = []
    for n, shape in enumerate(shapes):
        p = nn.Parameter(torch.zeros(shape, dtype=dtypes[n % len(dtypes)], device=dev))
        if len(shape) == 2 and n % 2:
            p = nn.Parameter(p.detach().t())
        p.grad = torch.ones_like(p)
        params.append(p)
    params.insert(2, nn.Parameter(torch.zeros(5, device=dev)))
    return params


def spoil(params, rng, value=None, most=4):
    """Writes non-finite values to random gradients; returns {number: (count, first index in memory order)}."""
    want = {}
    chosen = rng.sample([n for n, p in enumerate(params) if p.grad is not None], rng.randint(1, most))
    for n in chosen:
        grad = params[n].grad
        at = {tuple(rng.randrange(s) for s in grad.shape) for _ in range(rng.choice((1, 2, 40)))}
        for index in at:
            grad[index] = rng.choice(BAD) if value is None else value
        first = min(at, key=lambda i, g=grad: sum(a * b for a, b in zip(i, g.stride(), strict=True)))
        want[n] = (len(at), first)
    return want


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestBlame(TestCase):
    def assertBlames(self, got, want, params):
        self.assertEqual({b.number: (b.count, b.first) for b in got}, want)
        for b in got:
            self.assertEqual((b.name, b.numel), (f"parameter {b.number}", params[b.number].numel()))

    @parametrize("dev", ["cpu", DEV])
    def test_gradients_at_hand(self, dev):
        rng = random.Random(1)
        for dtypes in (*[(d,) for d in FLOATS], FLOATS):
            for _ in range(3):
                params = parameters(dtypes, dev)
                self.assertEqual(torch.netcl.amp.blame(params), [])
                want = spoil(params, rng)
                self.assertBlames(torch.netcl.amp.blame(params), want, params)

    @parametrize("way", ["unscale_", "step", "fused step", "one call"])
    def test_scaler_tells_after_the_gradients_are_gone(self, way):
        rng = random.Random(2)
        params = parameters()
        opt = torch.optim.SGD(params, lr=0.1, fused=way == "fused step")
        scaler = torch.netcl.amp.GradScaler(init_scale=2.0**10)
        for step in range(8):
            for n, p in enumerate(params):
                p.grad = None if n == 2 else torch.ones_like(p)
            want = spoil(params, rng) if step % 3 else {}
            before = [p.detach().clone() for p in params]
            if way == "one call":
                scaler.step(opt, params)
            else:
                scaler.scale(torch.ones((), device=DEV))
                if way == "unscale_":
                    scaler.unscale_(opt)
                    self.assertBlames(scaler.blame(optimizer=opt), want, params)
                scaler.step(opt)
                scaler.update()
            opt.zero_grad()
            self.assertBlames(scaler.blame(), want, params)
            self.assertEqual(all(torch.equal(p, q) for p, q in zip(params, before, strict=True)), bool(want))

    def test_scale_below_one(self):
        """Unscaling makes Infs of finite gradients. These are not blamed, but one that was there before is."""
        p = nn.Parameter(torch.zeros(5000, device=DEV))
        p.grad = torch.full_like(p, 3e38)
        p.grad[4321] = math.nan
        scaler = torch.netcl.amp.GradScaler(init_scale=0.5)
        self.assertIs(scaler.unscale_grads([p]), True)
        self.assertTrue(p.grad.isinf().sum().item() == 4999)
        (b,) = scaler.blame()
        self.assertEqual((b.count, b.first), (1, (4321,)))

    def test_layouts_sparse_and_complex(self):
        base = torch.zeros(6, 10, device=DEV)
        views = {
            "columns": (base[:, ::2], (3, 2)),
            "transposed": (base.t(), (7, 4)),
            "part": (base[1:4, 3:8], (2, 1)),
            "expanded": (torch.zeros(1, 5, device=DEV).expand(4, 5), (0, 3)),
            "channels last": (torch.zeros(2, 3, 4, 5, device=DEV).to(memory_format=torch.channels_last), (1, 2, 3, 4)),
        }
        for name, (view, at) in views.items():
            p = nn.Parameter(torch.zeros(view.shape, device=DEV))
            p.grad = view.clone() if name == "channels last" else view
            p.grad[at] = math.inf
            (b,) = torch.netcl.amp.blame([p])
            self.assertEqual((b.count, b.first), (1, at), msg=name)
            base.zero_()
        table = nn.Embedding(10, 4, sparse=True).to(DEV)
        table(torch.tensor([7, 2], device=DEV)).sum().backward()
        table.weight.grad._values()[1, 3] = math.nan
        (b,) = torch.netcl.amp.blame(table)
        self.assertEqual((b.name, b.count, b.first, b.numel), ("weight", 1, (1, 3), 8))
        p = nn.Parameter(torch.zeros(3, 4, dtype=torch.complex64, device=DEV))
        p.grad = torch.zeros_like(p)
        p.grad[2, 1] = complex(0, math.inf)
        (b,) = torch.netcl.amp.blame([p])
        self.assertEqual((b.count, b.first), (1, (2, 1)))

    def test_names(self):
        model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)).to(DEV)
        named = torch.optim.SGD(model.named_parameters(), lr=0.1)
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        model[1].weight.grad[0, 2] = math.inf
        for got in (torch.netcl.amp.blame(model), torch.netcl.amp.blame(named)):
            self.assertEqual([str(b) for b in got], ["1.weight (1 of 3, first at [0, 2])"])
        scaler = torch.netcl.amp.GradScaler()
        scaler.scale(torch.ones((), device=DEV))
        scaler.step(named)
        for names in (None, model, model.named_parameters()):
            self.assertEqual([b.name for b in scaler.blame(names)], ["1.weight"])
        compiled = torch.compile(model, backend="aot_eager")
        self.assertEqual([b.name for b in scaler.blame(compiled)], ["1.weight"])

    def test_clean_steps_wait_and_launch_as_before(self):
        """Launches and waits are those of torch.amp.GradScaler, one fewer per further dtype."""
        counts = {}
        for name, scaler in (("torch", torch.amp.GradScaler(DEV)), ("netcl", torch.netcl.amp.GradScaler())):
            params = parameters()
            opt = torch.optim.SGD(params, lr=0.1, fused=True)
            for _ in range(3):
                start = torch.netcl.launch_count(), torch.netcl.host_sync_count()
                scaler.scale(torch.ones((), device=DEV))
                scaler.step(opt)
                scaler.update()
                counts[name] = torch.netcl.launch_count() - start[0], torch.netcl.host_sync_count() - start[1]
        self.assertEqual(counts["netcl"], counts["torch"])
        self.assertEqual(counts["netcl"][1], 0)


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestScalerArguments(TestCase):
    def test_both_styles(self):
        names = [n for n in inspect.signature(torch.amp.GradScaler.__init__).parameters if n not in ("self", "device")]
        values = [8.0, 3.0, 0.25, 7, True]
        for k in range(len(names) + 1):
            rest = dict(zip(names[k:], values[k:], strict=True))
            want = torch.amp.GradScaler(DEV, *values[:k], **rest).state_dict()
            for got in (
                torch.netcl.amp.GradScaler(*values[:k], **rest),
                torch.netcl.amp.GradScaler(DEV, *values[:k], **rest),
                torch.netcl.amp.GradScaler(torch.device(DEV, 0), *values[:k], **rest),
                torch.netcl.amp.GradScaler(*values[:k], **rest, device=DEV),
            ):
                self.assertEqual(got.state_dict(), want)
        for device in ("cuda", "cpu"):
            with self.assertRaisesRegex(ValueError, "use torch.amp.GradScaler"):
                torch.netcl.amp.GradScaler(device)
        with self.assertRaisesRegex(TypeError, "two devices"):
            torch.netcl.amp.GradScaler(DEV, device=DEV)

    def test_unusable_numbers(self):
        for name, values in {"init_scale": (0, -1.0, math.nan, math.inf, "8"), "growth_interval": (0, -3, 2.5)}.items():
            for value in values:
                with self.assertRaisesRegex(ValueError, name):
                    torch.netcl.amp.GradScaler(**{name: value})
        torch.netcl.amp.GradScaler(enabled=False)

    def test_names_of_older_frameworks(self):
        scaler = torch.netcl.amp.GradScaler(8.0, 3.0, 0.25, 7)
        got = (scaler.enabled, scaler.growth_factor, scaler.backoff_factor, scaler.growth_interval)
        self.assertEqual(got, (True, 3.0, 0.25, 7))
        self.assertIs(torch.netcl.amp.GradScaler(enabled=False).enabled, False)

    def test_fresh_scaler(self):
        """update() does nothing; unscale_grads() and step() before scale_loss() use the initial scale."""
        scaler = torch.netcl.amp.GradScaler(init_scale=4.0, growth_interval=1)
        scaler.update()
        self.assertEqual(scaler.get_scale(), 4.0)
        p = nn.Parameter(torch.zeros(3, device=DEV))
        opt = torch.optim.SGD([p], lr=1.0)
        p.grad = torch.full_like(p, 8.0)
        self.assertIs(scaler.unscale_grads([p]), False)
        scaler.step(opt, [p])
        self.assertEqual(p.tolist(), [-2.0] * 3)
        self.assertEqual(scaler.get_scale(), 8.0)
        scaler = torch.netcl.amp.GradScaler(init_scale=4.0)
        p.grad.fill_(math.inf)
        scaler.step(opt, [p])
        self.assertEqual(p.tolist(), [-2.0] * 3)
        self.assertEqual(scaler.get_scale(), 2.0)
        # PyTorch's methods keep PyTorch's contract.
        scaler = torch.netcl.amp.GradScaler()
        for call in (scaler.step, scaler.unscale_):
            with self.assertRaisesRegex(AssertionError, "_scale is None"):
                call(opt)

    @parametrize("copies", [pickle.dumps, copy.deepcopy])
    def test_no_copy_between_unscale_grads_and_step(self, copies):
        p = nn.Parameter(torch.zeros(3, device=DEV))
        opt = torch.optim.SGD([p], lr=1.0)
        scaler = torch.netcl.amp.GradScaler()
        scaler.scale_loss(p.sum()).backward()
        scaler.unscale_grads([p])
        with self.assertRaisesRegex(AssertionError, "may only be pickled at the beginning"):
            copies(scaler)
        scaler.step(opt, [p])
        copies(scaler)
        self.assertEqual(pickle.loads(pickle.dumps(scaler)).blame(), [])

    def test_an_optimizer_that_raises_leaves_a_usable_scaler(self):
        p = nn.Parameter(torch.zeros(3, device=DEV))
        opt = torch.optim.SGD([p], lr=1.0)
        scaler = torch.netcl.amp.GradScaler(init_scale=4.0)
        p.grad = torch.ones_like(p)
        hook = opt.register_step_pre_hook(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with self.assertRaises(KeyboardInterrupt):
            scaler.step(opt, [p])
        hook.remove()
        p.grad.fill_(4.0)
        scaler.step(opt, [p])
        self.assertEqual(p.tolist(), [-1.0] * 3)


instantiate_parametrized_tests(TestBlame)
instantiate_parametrized_tests(TestScalerArguments)

if __name__ == "__main__":
    run_tests()
