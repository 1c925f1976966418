"""GradScaler on netcl: its two operators, its rules, and that a scaled step does not wait."""

import copy
import math
import pickle
import unittest

import torch
from processes import python
from torch import nn
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
)

import torch_netcl  # noqa: F401

DEV = "netcl"
FLOATS = [torch.float16, torch.bfloat16, torch.float32]
if torch.netcl.is_available() and torch.netcl.get_device_properties(0).has_fp64:
    FLOATS.append(torch.float64)


def check_and_unscale(grads, found_inf, inv_scale):
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found_inf, inv_scale)


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestUnscale(TestCase):
    def scalars(self, inv=0.25):
        return torch.zeros((), device=DEV), torch.full((), inv, device=DEV)

    @parametrize("dtype", FLOATS)
    def test_unscales(self, dtype):
        # A chunk has 4096 elements, a vector 16.
        sizes = [(1,), (15,), (16, 16), (4096,), (4097,), (3, 5, 7), (0,), (), (10000,)]
        host = [torch.randn(s).to(dtype) for s in sizes]
        grads = [g.to(DEV) for g in host]
        found, inv = self.scalars()
        check_and_unscale(grads, found, inv)
        for g, h in zip(grads, host, strict=True):
            self.assertEqual(g.cpu(), h * 0.25, atol=0, rtol=0)
        self.assertEqual(found.item(), 0)

    @parametrize("value", [math.inf, -math.inf, math.nan])
    @parametrize("dtype", FLOATS)
    def test_finds_each_position(self, dtype, value):
        for at in (0, 15, 16, 4095, 4096, 4999):
            grads = [torch.ones(7, device=DEV, dtype=dtype), torch.ones(5000, device=DEV, dtype=dtype)]
            grads[1][at] = value
            found, inv = self.scalars()
            check_and_unscale(grads, found, inv)
            self.assertEqual(found.item(), 1, msg=f"at {at}")

    def test_mixed_dtypes_in_one_list(self):
        host = [torch.randn(33).to(d) for d in FLOATS]
        grads = [g.to(DEV) for g in host]
        found, inv = self.scalars()
        check_and_unscale(grads, found, inv)
        for g, h in zip(grads, host, strict=True):
            self.assertEqual(g.dtype, h.dtype)
            self.assertEqual(g.cpu(), h * 0.25, atol=0, rtol=0)
        for k in range(len(grads)):
            grads[k][3] = math.inf
            found.zero_()
            check_and_unscale(grads, found, inv)
            self.assertEqual(found.item(), 1)
            grads[k][3] = 0

    def test_layouts(self):
        base = torch.randn(8, 10)
        dev = base.to(DEV)
        views = [
            lambda t: t.t(),
            lambda t: t[:, ::2],
            lambda t: t[1:3, 3:7],
            lambda t: t[::2].t(),
            lambda t: t[:, 3],
            lambda t: t.view(8, 5, 2).permute(2, 0, 1),
        ]
        for view in views:
            h, d = base.clone(), dev.clone()
            view(h).mul_(0.25)
            found, inv = self.scalars()
            check_and_unscale([view(d)], found, inv)
            self.assertEqual(d.cpu(), h, atol=0, rtol=0)
            view(d).fill_(math.nan)
            check_and_unscale([view(d)], found, inv)
            self.assertEqual(found.item(), 1)

    def test_expanded_is_unscaled_once(self):
        g = torch.ones(1, 3, device=DEV)
        found, inv = self.scalars()
        check_and_unscale([g.expand(5, 3)], found, inv)
        self.assertEqual(g.cpu(), torch.full((1, 3), 0.25))

    def test_found_inf_is_never_cleared(self):
        found, inv = self.scalars()
        found.fill_(1)
        check_and_unscale([torch.ones(3, device=DEV)], found, inv)
        self.assertEqual(found.item(), 1)

    def test_inv_scale_of_one_changes_nothing(self):
        g = torch.tensor([1.5, math.inf, -0.0], device=DEV)
        before = g.clone()
        found, inv = self.scalars(1.0)
        check_and_unscale([g], found, inv)
        self.assertEqual(found.item(), 1)
        self.assertTrue(torch.equal(g.view(torch.int32), before.view(torch.int32)))

    def test_overflow_while_unscaling_is_not_an_inf(self):
        # As on CUDA, the scaled gradient decides.
        g = torch.full((20,), 60000.0, device=DEV, dtype=torch.float16)
        found, inv = self.scalars(2.0)
        check_and_unscale([g], found, inv)
        self.assertEqual(found.item(), 0)
        self.assertTrue(g.isinf().all().item())

    def test_empty_list(self):
        found, inv = self.scalars()
        check_and_unscale([], found, inv)
        check_and_unscale([torch.empty(0, device=DEV)], found, inv)
        self.assertEqual(found.item(), 0)

    def test_refusals(self):
        found, inv = self.scalars()
        grads = [torch.ones(2, device=DEV)]
        with self.assertRaisesRegex(RuntimeError, "inv_scale must be a float tensor"):
            check_and_unscale(grads, found, inv.to(torch.float16))
        with self.assertRaisesRegex(RuntimeError, "found_inf must be a 1-element tensor"):
            check_and_unscale(grads, torch.zeros(2, device=DEV), inv)
        with self.assertRaises(RuntimeError):
            check_and_unscale([torch.ones(2)], found, inv)

    def test_hundreds_of_tensors_take_a_handful_of_launches(self):
        grads = [torch.ones(50 + n, device=DEV) for n in range(300)]
        found, inv = self.scalars()
        check_and_unscale(grads, found, inv)
        launches, waits = torch.netcl.launch_count(), torch.netcl.host_sync_count()
        check_and_unscale(grads, found, inv)
        self.assertLessEqual(torch.netcl.launch_count() - launches, 4)
        self.assertEqual(torch.netcl.host_sync_count(), waits)
        self.assertTrue(all((g == 0.0625).all().item() for g in grads))


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestUpdateScale(TestCase):
    def run_both(self, scale, tracker, found, growth, backoff, interval, steps=1):
        results = []
        for dev in ("cpu", DEV):
            s = torch.full((), scale, device=dev)
            t = torch.full((), tracker, dtype=torch.int32, device=dev)
            f = torch.full((), float(found), device=dev)
            for _ in range(steps):
                out = torch._amp_update_scale_(s, t, f, growth, backoff, interval)
            self.assertIs(out, s)
            results.append((s.item(), t.item()))
        return results

    def test_rules(self):
        for case in [
            (65536.0, 0, 0, 2.0, 0.5, 2000),
            (65536.0, 1999, 0, 2.0, 0.5, 2000),
            (65536.0, 1998, 0, 2.0, 0.5, 2000),
            (65536.0, 77, 1, 2.0, 0.5, 2000),
            (65536.0, 5, 2, 2.0, 0.5, 2000),
            (1.1, 0, 0, 1.7, 0.3, 1),
            (1e-30, 3, 1, 2.0, 0.1, 10),
            (3.0, 4, 0, 1.001, 0.999, 5),
        ]:
            cpu, dev = self.run_both(*case)
            self.assertEqual(dev, cpu, atol=0, rtol=0, msg=str(case))

    def test_factors_are_not_rounded_to_float(self):
        # 40 products by factors that float32 cannot hold, each rounded once.
        for found, growth, backoff in ((0, 1.1, 0.9), (1, 1.1, 0.9)):
            cpu, dev = self.run_both(12345.678, 0, found, growth, backoff, 1, steps=40)
            self.assertEqual(dev, cpu, atol=0, rtol=0)

    def test_growth_stops_before_inf(self):
        cpu, dev = self.run_both(2.0**127, 0, 0, 2.0, 0.5, 1)
        self.assertEqual(dev, (2.0**127, 0))
        self.assertEqual(dev, cpu)

    def test_needs_the_dtypes(self):
        one = torch.ones((), device=DEV)
        with self.assertRaisesRegex(RuntimeError, "growth_tracker must be an int tensor"):
            torch._amp_update_scale_(one, one.clone(), one.clone(), 2.0, 0.5, 1)


def small_model(dev, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(dev)


def optimizers():
    for fused in (False, True):
        kw = {"fused": True} if fused else {}
        yield f"SGD fused={fused}", lambda p, kw=kw: torch.optim.SGD(p, lr=0.1, momentum=0.9, **kw)
        yield f"AdamW fused={fused}", lambda p, kw=kw: torch.optim.AdamW(p, lr=0.01, **kw)
        yield f"Adam fused={fused}", lambda p, kw=kw: torch.optim.Adam(p, lr=0.01, amsgrad=True, **kw)
        yield f"Adagrad fused={fused}", lambda p, kw=kw: torch.optim.Adagrad(p, lr=0.05, **kw)


OPTIMIZERS = dict(optimizers())


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestGradScaler(TestCase):
    def train(self, dev, make, steps=6, scaler=True, inject=None):
        model = small_model(dev)
        opt = make(model.parameters())
        scaler = torch.amp.GradScaler(dev, init_scale=2.0**10, growth_interval=3, enabled=scaler)
        gen = torch.Generator().manual_seed(1)
        kept = []
        for step in range(steps):
            x, y = torch.randn(32, 8, generator=gen).to(dev), torch.randn(32, 4, generator=gen).to(dev)
            opt.zero_grad()
            scaler.scale(nn.functional.mse_loss(model(x), y)).backward()
            if step == inject:
                next(model.parameters()).grad[0, 0] = math.inf
            before = [p.detach().clone() for p in model.parameters()]
            state = copy.deepcopy(opt.state_dict()["state"]) if step == inject else None
            scaler.step(opt)
            scaler.update()
            kept.append((before, [p.detach().clone() for p in model.parameters()], state))
        return model, opt, scaler, kept

    @parametrize("name", list(OPTIMIZERS))
    def test_matches_unscaled_training_on_the_cpu(self, name):
        model, _, scaler, _ = self.train(DEV, OPTIMIZERS[name])
        want, _, _, _ = self.train("cpu", OPTIMIZERS[name.replace("fused=True", "fused=False")], scaler=False)
        # Powers of two scale exactly, so only the order of sums of 32 products differs: about 32 * 2^-24, relative to a
        # gradient. Adam's first steps divide a gradient by its own size, so a parameter moves by lr times a relative
        # error of that size at most: 6 steps * 0.05 * 2e-6 < 1e-6, with a margin for tiny gradients.
        for p, q in zip(model.parameters(), want.parameters(), strict=True):
            self.assertEqual(p.cpu(), q, atol=2e-5, rtol=1e-4)
        self.assertEqual(scaler.get_scale(), 2.0**12)

    @parametrize("name", list(OPTIMIZERS))
    def test_injected_inf_skips_the_step(self, name):
        for inject in (0, 2):
            _, opt, scaler, kept = self.train(DEV, OPTIMIZERS[name], steps=4, inject=inject)
            for step, (before, after, state) in enumerate(kept):
                same = all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
                self.assertEqual(same, step == inject)
                for p in after:
                    self.assertTrue(p.isfinite().all().item())
                if step == inject and state and "step" in state[0]:
                    # The skipped step is not counted.
                    steps = [float(s["step"]) for s in opt.state_dict()["state"].values()]
                    self.assertEqual(steps, [3.0] * len(steps))
            # The scale was halved once, and grew once after three clean steps in a row.
            self.assertEqual(scaler.get_scale(), 2.0**10 if inject == 0 else 2.0**9)

    def test_scale_doubles_after_the_interval(self):
        _, _, scaler, _ = self.train(DEV, OPTIMIZERS["SGD fused=True"], steps=9)
        self.assertEqual(scaler.get_scale(), 2.0**13)

    def test_fused_scaled_step_waits_for_nothing(self):
        for name in ("SGD fused=True", "AdamW fused=True", "Adam fused=True", "Adagrad fused=True"):
            model = small_model(DEV)
            opt = OPTIMIZERS[name](model.parameters())
            scaler = torch.amp.GradScaler(DEV)
            x, y = torch.randn(32, 8).to(DEV), torch.randn(32, 4).to(DEV)

            def step():
                opt.zero_grad()
                with torch.autocast(DEV, dtype=torch.bfloat16):
                    loss = nn.functional.mse_loss(model(x), y)
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()

            if not getattr(opt, "_step_supports_amp_scaling", False):
                continue
            step()
            torch.netcl.synchronize()
            waits = torch.netcl.host_sync_count()
            for _ in range(20):
                step()
            self.assertEqual(torch.netcl.host_sync_count() - waits, 0, msg=name)

    def test_clipping_between_unscale_and_step(self):
        norms = []
        for dev in ("cpu", DEV):
            model = small_model(dev)
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
            scaler = torch.amp.GradScaler(dev, enabled=dev == DEV)
            gen = torch.Generator().manual_seed(1)
            x, y = torch.randn(32, 8, generator=gen).to(dev), torch.randn(32, 4, generator=gen).to(dev)
            scaler.scale(nn.functional.mse_loss(model(x), y)).backward()
            scaler.unscale_(opt)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(opt)
            scaler.update()
            norms.append((norm.cpu(), [p.detach().cpu() for p in model.parameters()]))
        self.assertEqual(norms[1], norms[0])

    def test_errors(self):
        model = small_model(DEV)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(DEV)
        with self.assertRaisesRegex(AssertionError, "Attempted step but _scale is None"):
            scaler.step(opt)
        scaler.scale(model(torch.randn(2, 8, device=DEV)).sum()).backward()
        scaler.unscale_(opt)
        with self.assertRaisesRegex(RuntimeError, "already been called"):
            scaler.unscale_(opt)
        scaler.step(opt)
        with self.assertRaisesRegex(RuntimeError, "since the last update"):
            scaler.step(opt)
        with self.assertRaisesRegex(RuntimeError, "Closure"):
            scaler.step(opt, closure=lambda: 0)
        scaler.update()
        half = nn.Linear(4, 4).to(DEV).half()
        opt = torch.optim.SGD(half.parameters(), lr=0.1)
        for p in half.parameters():
            p.grad = torch.ones_like(p)
        with self.assertRaisesRegex(ValueError, "Attempting to unscale FP16 gradients"):
            scaler.unscale_(opt)

    def test_state_pickle_and_new_scale(self):
        _, _, scaler, _ = self.train(DEV, OPTIMIZERS["SGD fused=False"], steps=2)
        state = scaler.state_dict()
        self.assertEqual(state["_growth_tracker"], 2)
        other = torch.netcl.amp.GradScaler()
        other.load_state_dict(state)
        self.assertEqual(other.state_dict(), state)
        self.assertEqual(pickle.loads(pickle.dumps(scaler)).state_dict(), state)
        scaler.update(new_scale=8.0)
        self.assertEqual(scaler.get_scale(), 8.0)
        scaler.update(new_scale=torch.full((), 16.0, device=DEV))
        self.assertEqual(scaler.get_scale(), 16.0)

    def test_scales_nested_outputs(self):
        scaler = torch.amp.GradScaler(DEV, init_scale=4.0)
        one = torch.ones(2, device=DEV)
        out = scaler.scale([one, (one, [one * 2])])
        self.assertEqual(out[0].cpu(), torch.full((2,), 4.0))
        self.assertEqual(out[1][1][0].cpu(), torch.full((2,), 8.0))
        self.assertIsInstance(out[1], tuple)

    def test_two_optimizers_skip_independently(self):
        a, b = small_model(DEV, 0), small_model(DEV, 1)
        oa, ob = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (a, b))
        scaler = torch.amp.GradScaler(DEV, init_scale=16.0)
        x = torch.randn(4, 8, device=DEV)
        scaler.scale(a(x).sum()).backward()
        scaler.scale(b(x).sum()).backward()
        a[0].weight.grad[0, 0] = math.nan
        was = [m[0].weight.detach().clone() for m in (a, b)]
        scaler.step(oa)
        scaler.step(ob)
        scaler.update()
        self.assertTrue(torch.equal(a[0].weight, was[0]))
        self.assertFalse(torch.equal(b[0].weight, was[1]))
        self.assertEqual(scaler.get_scale(), 8.0)

    def test_pickling_in_mid_step_is_refused(self):
        p = torch.nn.Parameter(torch.ones(3, device=DEV))
        opt = torch.optim.SGD([p], lr=1.0)
        scaler = torch.amp.GradScaler(DEV)
        scaler.scale(p.sum()).backward()
        scaler.unscale_(opt)
        with self.assertRaisesRegex(AssertionError, "may only be pickled at the beginning"):
            pickle.dumps(scaler)
        scaler.step(opt)
        scaler.update()
        self.assertEqual(pickle.loads(pickle.dumps(scaler)).state_dict(), scaler.state_dict())

    def test_sparse_gradients(self):
        tables = []
        for dev in ("cpu", DEV):
            torch.manual_seed(0)
            table = nn.Embedding(10, 4, sparse=True).to(dev)
            opt = torch.optim.SGD(table.parameters(), lr=0.1)
            scaler = torch.amp.GradScaler(dev, init_scale=1024.0)
            for step in range(4):
                opt.zero_grad()
                scaler.scale(table(torch.tensor([1, 2, 1, step], device=dev)).square().sum()).backward()
                if step == 1:
                    table.weight.grad._values()[3, 2] = math.inf
                elif step == 2:
                    scaler.unscale_(opt)
                    # Row 1 occurs twice.
                    self.assertEqual(table.weight.grad.to_dense()[1], 4 * table.weight[1].detach())
                before = table.weight.detach().clone()
                scaler.step(opt)
                scaler.update()
                self.assertEqual(torch.equal(before, table.weight), step == 1)
            self.assertEqual(scaler.get_scale(), 512.0)
            tables.append(table.weight.detach().cpu())
        self.assertEqual(tables[1], tables[0])

    def test_sparse_half_gradients(self):
        table = nn.Embedding(4, 2, sparse=True, device=DEV, dtype=torch.float16)
        opt = torch.optim.SGD(table.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(DEV, init_scale=4.0)
        scaler.scale(table(torch.tensor([1, 1], device=DEV)).sum()).backward()
        with self.assertRaisesRegex(ValueError, "Attempting to unscale FP16 gradients"):
            scaler.unscale_(opt)
        # Two finite gradients of one row, whose sum is not finite: the sum of duplicates counts.
        scaler = torch.netcl.amp.GradScaler(init_scale=4.0)
        scaler.scale_loss((table(torch.tensor([1, 1], device=DEV)) * 10000).float().sum()).backward()
        self.assertTrue(table.weight.grad._values().isfinite().all().item())
        self.assertIs(scaler.unscale_grads(table.parameters()), True)

    def test_several_devices(self):
        """One scaler for parameters on two devices, one of them with fp16 if there is one, in a process that sees all
        devices."""
        code = """
import torch
from torch_netcl.amp.training import has_non_finite_grad
if torch.netcl.device_count() < 2:
    raise SystemExit(77)
devices = ["netcl:0", "netcl:1"]
params = [torch.nn.Parameter(torch.ones(5, device=d)) for d in devices]
for fused in (False, True):
    opt = torch.optim.SGD(params, lr=0.5, fused=fused)
    for bad in (None, 1, 0):
        with torch.no_grad():
            for p in params:
                p.fill_(1.0)
        scaler = torch.amp.GradScaler("netcl", init_scale=4.0)
        opt.zero_grad()
        losses = []
        for p, d in zip(params, devices):
            with torch.netcl.device(d):
                dtype = torch.netcl.amp.autocast_dtypes()[0]
                with torch.autocast("netcl", dtype=dtype):
                    losses.append((p @ torch.ones(5, device=d)))
                assert losses[-1].dtype == dtype
        scaled = scaler.scale([losses[0], (losses[1],)])
        assert [t.device.index for t in (scaled[0], scaled[1][0])] == [0, 1]
        assert [t.item() for t in (scaled[0], scaled[1][0])] == [20.0, 20.0]
        scaled[0].backward()
        scaled[1][0].backward()
        if bad is not None:
            params[bad].grad[2] = float("inf")
        assert has_non_finite_grad(params) == (bad is not None)
        scaler.step(opt)
        scaler.update()
        # An Inf on one device keeps the other's parameters as well.
        for p in params:
            assert p.tolist() == [1.0 if bad is not None else 0.5] * 5, (fused, bad, p)
        assert scaler.get_scale() == (2.0 if bad is not None else 4.0)
"""
        run = python(code, NETCL_VISIBLE_DEVICES=None)
        if run.returncode == 77:
            self.skipTest("one device on this machine")
        self.assertEqual(run.returncode, 0, msg=run.stderr)

    def test_without_fp64(self):
        # The reciprocal of the scale is computed in float64, which such a device can only store.
        code = (
            "import torch\n"
            "assert not torch.netcl.get_device_properties(0).has_fp64\n"
            "for s in (65536.0, 3.0, 1e-3, 7e37, 1.1754944e-38, 1e-42, float('inf'), 12345.678):\n"
            "    scale = torch.full((), s, device='netcl')\n"
            "    got = scale.double().reciprocal().float()\n"
            "    want = torch.full((), s).double().reciprocal().float()\n"
            "    assert got.device.type == 'netcl' and got.dtype == torch.float32\n"
            "    assert got.item() == want.item(), (s, got.item(), want.item())\n"
            # Python's numbers are doubles on the host, which the device must not need.
            "x = torch.ones(3, device='netcl')\n"
            "assert ((x + 1e-6) * 0.5 > 0.25).all().item() and torch.where(x > 0.5, x, 2.5).sum().item() == 3\n"
            "p = torch.nn.Parameter(torch.ones(5, device='netcl'))\n"
            "opt = torch.optim.SGD([p], lr=0.5)\n"
            "scaler = torch.amp.GradScaler('netcl', init_scale=8.0)\n"
            "scaler.scale((p * p).sum()).backward()\n"
            "scaler.step(opt); scaler.update()\n"
            "assert p.tolist() == [0.0] * 5, p\n"
            "assert 'aten::reciprocal.out' not in torch.netcl.cpu_fallback_ops(), torch.netcl.cpu_fallback_ops()\n"
        )
        run = python(code, NETCL_DISABLE="fp64")
        self.assertEqual(run.returncode, 0, msg=run.stderr)


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestOneCall(TestCase):
    """scale_loss / unscale_grads / step(optimizer, params), and master weights."""

    def test_step_adapts_the_scale(self):
        model = small_model(DEV)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.netcl.amp.GradScaler(init_scale=16.0, growth_interval=2)
        x = torch.randn(4, 8, device=DEV)
        scales = []
        for step in range(5):
            opt.zero_grad()
            scaler.scale_loss(model(x).square().mean()).backward()
            if step == 2:
                model[0].weight.grad[0, 0] = math.inf
            before = model[0].weight.detach().clone()
            scaler.step(opt, model.parameters())
            scaler.update()
            self.assertEqual(torch.equal(before, model[0].weight), step == 2)
            scales.append(scaler.get_scale())
        self.assertEqual(scales, [16.0, 32.0, 16.0, 16.0, 32.0])

    def test_unscale_grads(self):
        p = torch.nn.Parameter(torch.ones(3, device=DEV))
        scaler = torch.netcl.amp.GradScaler(init_scale=4.0)
        opt = torch.optim.SGD([p], lr=1.0)
        scaler.scale_loss(p.sum()).backward()
        self.assertIs(scaler.unscale_grads([p]), False)
        self.assertEqual(p.grad.cpu(), torch.ones(3))
        with self.assertRaisesRegex(RuntimeError, "already been called"):
            scaler.unscale_grads([p])
        scaler.step(opt, [p])
        self.assertEqual(p.detach().cpu(), torch.zeros(3))
        p.grad[1] = math.nan
        self.assertIs(scaler.unscale_grads([p]), True)

    def test_ways_do_not_mix(self):
        p = torch.nn.Parameter(torch.ones(3, device=DEV))
        opt = torch.optim.SGD([p], lr=1.0)
        scaler = torch.netcl.amp.GradScaler()
        scaler.scale_loss(p.sum()).backward()
        for call in (lambda: scaler.step(opt), lambda: scaler.unscale_(opt), lambda: scaler.scale(p.sum())):
            with self.assertRaisesRegex(RuntimeError, "used the other way"):
                call()
        scaler = torch.netcl.amp.GradScaler()
        scaler.scale(p.sum()).backward()
        with self.assertRaisesRegex(RuntimeError, "used the other way"):
            scaler.step(opt, [p])
        off = torch.netcl.amp.GradScaler(enabled=False)
        loss = p.sum()
        self.assertIs(off.scale_loss(loss), loss)
        self.assertIs(off.unscale_grads([p]), False)
        off.step(opt, [p])

    def test_master_param(self):
        for dtype in (torch.float16, torch.bfloat16):
            p = torch.nn.Parameter(torch.randn(3).to(dtype).to(DEV), requires_grad=False)
            p._frozen = True
            master = torch.netcl.amp.master_param(p)
            self.assertIs(master._model_param, p)
            self.assertTrue(master._frozen)
            self.assertFalse(master.requires_grad)
            self.assertEqual(master.dtype, torch.float32)
            self.assertEqual(master.cpu(), p.cpu().float())
        p = torch.nn.Parameter(torch.ones(2, device=DEV))
        self.assertIs(torch.netcl.amp.master_param(p), p)
        self.assertIs(p._model_param, p)

    @parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_master_params_train_a_half_model(self, dtype):
        x, y = torch.randn(32, 8), torch.randn(32, 4)
        losses = {}
        for dev in ("cpu", DEV):
            model = small_model(dev)
            masters = None
            if dev == DEV:
                model.to(dtype)
                masters = torch.netcl.amp.MasterParams(model.parameters())
            opt = torch.optim.SGD(masters or model.parameters(), lr=0.05, momentum=0.9)
            scaler = torch.amp.GradScaler(dev, init_scale=128.0, enabled=dev == DEV)
            for _ in range(20):
                out = model(x.to(dev, dtype if masters else torch.float32))
                loss = nn.functional.mse_loss(out.float(), y.to(dev))
                scaler.scale(loss).backward()
                if masters:
                    masters.copy_gradients()
                scaler.step(opt)
                scaler.update()
                if masters:
                    masters.copy_weights()
                    masters.zero_grad()
                else:
                    opt.zero_grad()
            losses[dev] = loss.item()
            if masters:
                for p, m in zip(model.parameters(), masters, strict=True):
                    self.assertEqual(p.cpu(), m.detach().cpu().to(dtype), atol=0, rtol=0)
        # Weights and activations are rounded to 2^-8 (bfloat16), so the losses differ by a few times that.
        self.assertEqual(losses[DEV], losses["cpu"], atol=0, rtol=0.03)


instantiate_parametrized_tests(TestOneCall)
instantiate_parametrized_tests(TestUnscale)
instantiate_parametrized_tests(TestGradScaler)

if __name__ == "__main__":
    run_tests()
