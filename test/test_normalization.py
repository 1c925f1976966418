"""Batch, layer, group, instance and RMS normalisation, forward and backward, against the CPU."""

import copy

import torch
import torch.nn.functional as F
from common import no_fallback
from torch import nn
from torch.testing import make_tensor
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl  # noqa: F401

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


class TestNormalization(TestCase):
    def check(self, device, dtype, f, shape, *params, param_dtype=None, view=lambda t: t, loc=0.0):
        """f(x, *params) and all its gradients against the same in float64 on the CPU."""
        param_dtype = param_dtype or dtype
        base = make_tensor(shape, device="cpu", dtype=torch.float64, low=-2, high=2).add_(loc).to(dtype)
        base_params = [make_tensor(s, device="cpu", dtype=param_dtype, low=0.5, high=2) for s in params]
        leaves = [t.to(device).requires_grad_() for t in (base, *base_params)]
        refs = [t.double().requires_grad_() for t in (base, *base_params)]
        y = f(view(leaves[0]), *leaves[1:])
        ref = f(view(refs[0]), *refs[1:])
        self.assertEqual(y.dtype, dtype)
        # Results of size up to ~4 are rounded once to the dtype, from float32 values with errors of about 1e-6.
        eps = torch.finfo(dtype).eps
        tolerance = {"rtol": max(2 * eps, 1e-5), "atol": max(2 * eps, 1e-5)}
        self.assertEqual(y.detach().cpu(), ref.detach().to(dtype), **tolerance)
        g = make_tensor(tuple(y.shape), device="cpu", dtype=dtype, low=-1, high=1)
        y.backward(g.to(device))
        ref.backward(g.double())
        for leaf, r in zip(leaves, refs, strict=True):
            # Sums over m elements of size ~1 that cancel: float32 loses m * 2^-24 of them at worst.
            m = max(1, r.grad.numel() and base.numel() // r.grad.numel())
            self.assertEqual(leaf.grad.dtype, leaf.dtype)
            self.assertEqual(
                leaf.grad.cpu(),
                r.grad.to(leaf.dtype),
                rtol=max(4 * torch.finfo(leaf.dtype).eps, 1e-5),
                atol=max(4 * eps, 1e-5) + m * 2**-24,
            )

    # --- layer norm ------------------------------------------------------------

    @dtypes(*FLOATS)
    def test_layer_norm(self, device, dtype):
        for shape, n in (((5, 7), 1), ((3, 4, 64), 1), ((2, 3, 5, 6), 2), ((2, 1, 100), 1), ((300, 16), 1)):
            normal = shape[-n:]
            with self.subTest(shape=shape):
                self.check(device, dtype, lambda x, w, b, s=normal: F.layer_norm(x, s, w, b), shape, normal, normal)
        self.check(device, dtype, lambda x: F.layer_norm(x, (20,)), (4, 20))
        self.check(device, dtype, lambda x, w: F.layer_norm(x, (20,), w), (4, 20), (20,))
        self.check(
            device,
            dtype,
            lambda x, w, b: F.layer_norm(x, (6,), w, b),
            (6, 20),
            (6,),
            (6,),
            view=lambda t: t.t(),
        )

    @dtypes(torch.float16, torch.bfloat16)
    def test_layer_norm_float_parameters(self, device, dtype):
        self.check(
            device,
            dtype,
            lambda x, w, b: torch.native_layer_norm(x, (33,), w, b, 1e-5)[0],
            (9, 33),
            (33,),
            (33,),
            param_dtype=torch.float32 if device != "cpu" else None,
        )

    def test_layer_norm_double(self, device):
        self.check(device, torch.float64, lambda x, w, b: F.layer_norm(x, (6,), w, b), (3, 6), (6,), (6,))

    def test_layer_norm_larger_than_the_cache(self, device):
        # Results of 32 MiB and more may be stored past the cache, but the sums of the weight's gradient must not.
        f32, bf16 = torch.float32, torch.bfloat16
        for dtype, shape in ((f32, (8400, 1024)), (bf16, (16800, 1040)), (f32, (9000, 1000))):
            with self.subTest(dtype=dtype, shape=shape):
                x, g = (torch.randn(shape, device=device, dtype=dtype) for _ in range(2))
                w, b = (torch.randn(shape[1], device=device, dtype=dtype) for _ in range(2))
                some = torch.tensor([0, 1, shape[0] // 2, shape[0] - 1])
                y, mean, rstd = torch.native_layer_norm(x, shape[1:], w, b, 1e-5)
                expected = F.layer_norm(x[some].cpu().double(), shape[1:], w.cpu().double(), b.cpu().double())
                self.assertEqual(y[some].cpu(), expected.to(dtype))
                back = torch.ops.aten.native_layer_norm_backward
                gin, gw, gb = back(g, x, shape[1:], mean, rstd, w, b, [True] * 3)
                cpu = [t.cpu().double() for t in (g[some], x[some], mean[some], rstd[some], w, b)]
                expected = back(cpu[0], cpu[1], shape[1:], *cpu[2:], [True, False, False])[0]
                self.assertEqual(gin[some].cpu(), expected.to(dtype))
                xhat = (x.cpu().double() - mean.cpu().double()) * rstd.cpu().double()
                # Sums of some 1e4 terms of a deviation of 1, in float32: 1e4 * eps32 / 2 at the very most.
                tolerance = {"atol": 1e-3, "rtol": 2 * torch.finfo(dtype).eps}
                self.assertEqual(gb.cpu().double(), g.cpu().double().sum(0), **tolerance)
                self.assertEqual(gw.cpu().double(), (g.cpu().double() * xhat).sum(0), **tolerance)

    def test_layer_norm_large_mean(self, device):
        """The statistics of 1e4 +- 0.01, which E[x^2] - E[x]^2 in float32 would compute completely wrong."""
        x = 1e4 + 0.01 * torch.arange(64, dtype=torch.float32).repeat(3, 1)
        y, mean, rstd = torch.native_layer_norm(x.to(device), (64,), None, None, 1e-5)
        wide = x.double()
        # The mean is exact to half a unit of 1e4 (2^-11), which is 0.003 relative to the deviation of 0.18.
        self.assertEqual(mean.cpu().double(), wide.mean(1, keepdim=True), atol=2**-11, rtol=0)
        expected = 1 / (wide.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        self.assertEqual(rstd.cpu().double(), expected, rtol=1e-4, atol=0)
        self.assertEqual(y.cpu().double(), F.layer_norm(wide, (64,)), atol=0.004, rtol=0)

    def test_layer_norm_backward_again_and_again(self, device):
        """Rows shorter than a work-group, for which PoCL's threads once started with uninitialised values."""
        x, g, w = torch.randn(128, 64), torch.randn(128, 64), torch.randn(64)
        _, mean, rstd = torch.native_layer_norm(x, [64], w, None, 1e-5)
        tensors = (g, x, [64], mean, rstd, w, None)
        moved = [t.to(device) if isinstance(t, torch.Tensor) else t for t in tensors]
        expected = torch.ops.aten.native_layer_norm_backward(*tensors, [True, True, False])
        for _ in range(30):
            actual = torch.ops.aten.native_layer_norm_backward(*moved, [True, True, False])
            # Sums of 128 products of size 1: sqrt(128) roundings of sums near sqrt(128), four times.
            self.assertEqual([t.cpu() for t in actual[:2]], list(expected[:2]), atol=3e-5, rtol=1e-5)

    def test_layer_norm_special_values(self, device):
        x = torch.randn(4, 40)
        x[0, 3], x[1, 39], x[2] = float("nan"), float("inf"), 7.0
        self.assertEqual(F.layer_norm(x.to(device), (40,)).cpu(), F.layer_norm(x, (40,)))

    def test_layer_norm_empty(self, device):
        w = torch.ones(4, device=device, requires_grad=True)
        x = torch.empty(0, 4, device=device, requires_grad=True)
        y = F.layer_norm(x, (4,), w)
        self.assertEqual(y.shape, (0, 4))
        y.sum().backward()
        self.assertEqual(w.grad.cpu(), torch.zeros(4))
        with self.assertRaisesRegex(RuntimeError, "normalized_shape"):
            F.layer_norm(torch.ones(3, 4, device=device), (5,))

    def test_layer_norm_some_gradients(self, device):
        x = torch.randn(6, 20)
        w, b = torch.randn(20), torch.randn(20)
        y, mean, rstd = torch.native_layer_norm(x, (20,), w, b, 1e-5)
        g = torch.randn(6, 20)
        for mask in ([True, False, False], [False, True, False], [False, False, True], [False, False, False]):
            args = [t.to(device) for t in (g, x)], [t.to(device) for t in (mean, rstd, w, b)]
            got = torch.ops.aten.native_layer_norm_backward(*args[0], (20,), *args[1], mask)
            ref = torch.ops.aten.native_layer_norm_backward(g, x, (20,), mean, rstd, w, b, mask)
            for a, r in zip(got, ref, strict=True):
                self.assertEqual(a is None, r is None)
                if r is not None:
                    self.assertEqual(a.cpu(), r)

    # --- group norm ------------------------------------------------------------

    @dtypes(*FLOATS)
    def test_group_norm(self, device, dtype):
        for shape, groups in (((2, 6, 5, 5), 3), ((3, 4), 2), ((2, 8, 40), 1), ((2, 4, 3, 2, 2), 4)):
            c = shape[1]
            with self.subTest(shape=shape):
                self.check(device, dtype, lambda x, w, b, g=groups: F.group_norm(x, g, w, b), shape, (c,), (c,))
        self.check(device, dtype, lambda x: F.group_norm(x, 2), (2, 4, 9))

    def test_group_norm_checks_its_numbers(self, device):
        x, aten = torch.randn(2, 6, 5, device=device), torch.ops.aten
        _, mean, rstd = aten.native_group_norm(x, None, None, 2, 6, 5, 3, 1e-5)
        wrong = [(2, 6, 50, 3), (1000, 6, 5, 3), (2, 6, 5, 0), (2, 6, 5, 4), (2**40, 6, 2**40, 3), (-2, 6, -5, 3)]
        for numbers in wrong:
            with self.assertRaises(RuntimeError):
                aten.native_group_norm(x, None, None, *numbers, 1e-5)
            with self.assertRaises(RuntimeError):
                aten.native_group_norm_backward(x, x, mean, rstd, None, *numbers, [True, True, True])
        for grad, m, r in [(x[:1], mean, rstd), (x, mean[:1], rstd), (x, mean, rstd[:1])]:
            with self.assertRaises(RuntimeError):
                aten.native_group_norm_backward(grad, x, m, r, None, 2, 6, 5, 3, [True, True, True])

    def test_group_norm_statistics(self, device):
        """They stay float32, where the CPU rounds them to 16 bits and its gradients are useless (test_group_norm)."""
        x = torch.randn(2, 4, 5).bfloat16()
        got = torch.native_group_norm(x.to(device), None, None, 2, 4, 5, 2, 1e-5)
        self.assertEqual([t.dtype for t in got], [torch.bfloat16, torch.float32, torch.float32])
        want = torch.native_group_norm(x.float(), None, None, 2, 4, 5, 2, 1e-5)
        self.assertEqual([t.cpu() for t in got[1:]], [*want[1:]])

    def test_group_norm_empty(self, device):
        x = torch.empty(0, 4, 3, device=device, requires_grad=True)
        w = torch.ones(4, device=device, requires_grad=True)
        F.group_norm(x, 2, w).sum().backward()
        self.assertEqual(w.grad.cpu(), torch.zeros(4))

    # --- batch norm ------------------------------------------------------------

    @dtypes(*FLOATS)
    def test_batch_norm_training(self, device, dtype):
        def f(x, w, b):
            return F.batch_norm(x, None, None, w, b, training=True)

        for shape in ((8, 5), (4, 3, 7), (4, 20, 5, 5), (2, 3, 16, 16), (2, 2, 3, 3, 4)):
            with self.subTest(shape=shape):
                self.check(device, dtype, f, shape, (shape[1],), (shape[1],))
        self.check(device, dtype, lambda x: F.batch_norm(x, None, None, training=True), (4, 3, 6))

    @dtypes(*FLOATS)
    def test_batch_norm_eval(self, device, dtype):
        for shape in ((8, 35), (4, 3, 7), (3, 20, 5, 5)):
            mean, var = torch.randn(shape[1]).to(dtype), torch.rand(shape[1]).add(0.5).to(dtype)

            def f(x, w, b, mean=mean, var=var):
                return F.batch_norm(x, mean.to(x), var.to(x), w, b)

            with self.subTest(shape=shape):
                self.check(device, dtype, f, shape, (shape[1],), (shape[1],))

    @dtypes(torch.float16, torch.bfloat16)
    def test_batch_norm_float_parameters(self, device, dtype):
        """As under autocast: a narrow input with float32 weights and statistics."""
        module = nn.BatchNorm2d(6)
        mine = copy.deepcopy(module).to(device)
        wide = copy.deepcopy(module).double()
        for training in (True, False):
            module.train(training), mine.train(training), wide.train(training)
            x = torch.randn(3, 6, 5, 4).to(dtype)
            y, ref = mine(x.to(device)), wide(x.double())
            self.assertEqual(y.dtype, dtype)
            self.assertEqual(mine.running_var.dtype, torch.float32)
            self.assertEqual(y.detach().cpu(), ref.detach().to(dtype))
            self.assertEqual(mine.running_mean.cpu(), wide.running_mean.float())
            self.assertEqual(mine.running_var.cpu(), wide.running_var.float())

    def test_batch_norm_modules(self, device):
        torch.netcl.reset_cpu_fallback_ops()
        cases = (
            (nn.BatchNorm1d(5), (4, 5)),
            (nn.BatchNorm1d(5, momentum=None), (4, 5, 3)),
            (nn.BatchNorm2d(4, affine=False), (2, 4, 6, 6)),
            (nn.BatchNorm2d(4, track_running_stats=False), (2, 4, 6, 6)),
            (nn.BatchNorm3d(3, momentum=0.3, eps=1e-2), (2, 3, 2, 3, 4)),
            (nn.InstanceNorm2d(3, affine=True, track_running_stats=True), (2, 3, 5, 5)),
            (nn.InstanceNorm1d(3), (2, 3, 9)),
        )
        for module, shape in cases:
            mine = copy.deepcopy(module).to(device)
            for step in range(3):
                if step == 2:
                    module.eval(), mine.eval()
                x = torch.randn(shape) * 2 + 3
                a, b = x.clone().requires_grad_(), x.to(device).requires_grad_()
                ref, out = module(a), mine(b)
                self.assertEqual(out.cpu(), ref, atol=1e-5, rtol=1e-5)
                g = torch.randn_like(ref)
                ref.backward(g)
                out.backward(g.to(device))
                self.assertEqual(b.grad.cpu(), a.grad, atol=1e-5, rtol=1e-5)
            for (name, p), q in zip(module.named_parameters(), mine.parameters(), strict=True):
                self.assertEqual(q.grad.cpu(), p.grad, atol=1e-5, rtol=1e-5, msg=name)
            for (name, p), q in zip(module.named_buffers(), mine.buffers(), strict=True):
                self.assertEqual(q.cpu(), p, msg=name)
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})

    def test_batch_norm_channels_last(self, device):
        x = torch.randn(2, 20, 4, 5).contiguous(memory_format=torch.channels_last)
        w, b = torch.rand(20), torch.rand(20)
        mean, var = torch.randn(20), torch.rand(20)
        for training in (True, False):
            leaf, ref_leaf = x.to(device).requires_grad_(), x.clone().requires_grad_()
            y = F.batch_norm(leaf, mean.to(device), var.to(device), w.to(device), b.to(device), training)
            ref = F.batch_norm(ref_leaf, mean.clone(), var.clone(), w, b, training)
            self.assertTrue(y.is_contiguous(memory_format=torch.channels_last))
            self.assertEqual(y.detach().cpu(), ref.detach())
            g = torch.randn(2, 20, 4, 5)
            y.backward(g.to(device))
            ref.backward(g)
            self.assertEqual(leaf.grad.cpu(), ref_leaf.grad, atol=1e-5, rtol=1e-5)

    def compare_channels_last(self, device, dtype, norm, shape, *params):
        """norm(x, *params) of a channels_last x and all its gradients, against float64 on the CPU."""
        last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
        x = make_tensor(shape, device="cpu", dtype=torch.float64, low=-1, high=3).to(dtype)
        g = make_tensor(shape, device="cpu", dtype=dtype, low=-1, high=1)
        results = []
        for where, of in ((device, dtype), ("cpu", torch.float64)):
            leaves = [t.to(of).to(where).requires_grad_() for t in (x.contiguous(memory_format=last), *params)]
            y = norm(*leaves)
            self.assertTrue(y.is_contiguous(memory_format=last))
            results.append([y, *torch.autograd.grad(y, leaves, g.to(of).to(where))])
        # Sums over m elements of size ~1 that cancel: in blocks, float32 loses a root of m times 2^-24 of each.
        m, eps = x.numel() / shape[1], torch.finfo(dtype).eps
        for i, (got, want) in enumerate(zip(*results, strict=True)):
            atol = max(2 * eps, 1e-5) + (m * 2**-24 if i > 1 else 0)
            self.assertEqual(got.cpu(), want.to(dtype), atol=atol, rtol=max(2 * eps, 1e-5), msg=f"{shape}, result {i}")

    # Channels that fill vectors or not, one or several pixels per row of memory. A batch norm of less than 65536
    # elements is computed by columns.
    CHANNELS_LAST = (
        (2, 64, 24, 30),
        (5, 17, 31, 31),
        (3, 3, 101, 73),
        (2, 58, 30, 24),
        (4, 600, 9, 8),
        (2, 36, 5, 13, 17),
        (16, 24, 5, 7),
    )

    @dtypes(torch.float64, *FLOATS)
    def test_channels_last(self, device, dtype):
        if dtype == torch.float64 and not torch.netcl.get_device_properties(device).has_fp64:
            self.skipTest("the device has no fp64")
        for shape in self.CHANNELS_LAST:
            c = shape[1]
            w, b, mean = torch.rand(c) + 0.5, torch.randn(c), torch.rand(c)
            running = [t.to(dtype) for t in (mean, w)]

            def train(x, w, b):
                return F.batch_norm(x, None, None, w, b, training=True)

            def infer(x, w, b, running=running):
                return F.batch_norm(x, *(t.to(x) for t in running), w, b)

            self.compare_channels_last(device, dtype, train, shape, w, b)
            self.compare_channels_last(device, dtype, infer, shape, w, b)
            self.compare_channels_last(device, dtype, lambda x: F.batch_norm(x, None, None, training=True), shape)
            for groups in {1, c, next(g for g in range(2, c + 1) if c % g == 0)}:
                self.compare_channels_last(
                    device, dtype, lambda x, w, b, g=groups: F.group_norm(x, g, w, b), shape, w, b
                )

    def test_channels_last_some_gradients(self, device):
        """Each choice of gradients, and the running statistics."""
        c, eps, backward = 24, 1e-5, torch.ops.aten.native_batch_norm_backward
        x, g = (torch.randn(3, c, 31, 33).contiguous(memory_format=torch.channels_last) for _ in range(2))
        w, mean, var = torch.rand(c), torch.randn(c), torch.rand(c) + 0.5
        mine = [t.to(device) for t in (g, x, w, mean, var)]
        runs = [mean.clone(), var.clone()], [mean.to(device), var.to(device)]
        F.batch_norm(x, *runs[0], w, None, training=True, momentum=0.3)
        F.batch_norm(mine[1], *runs[1], mine[2], None, training=True, momentum=0.3)
        for got, want in zip(runs[1], runs[0], strict=True):
            self.assertEqual(got.cpu(), want)
        saved = x.mean((0, 2, 3)), (x.var((0, 2, 3), correction=0) + eps).rsqrt()
        for train in (True, False):
            for mask in ((a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)):
                want = backward(*(t.double() for t in (g, x, w, mean, var, *saved)), train, eps, [True] * 3)
                got = backward(*mine, *(t.to(device) for t in saved), train, eps, [bool(m) for m in mask])
                for i, wanted in enumerate(mask):
                    self.assertEqual(bool(wanted), got[i] is not None)
                    if wanted:  # sums of 3069 products of size ~1: at worst 3069 * 2^-24 of them
                        self.assertEqual(
                            got[i].cpu(), want[i].float(), atol=2e-4, rtol=1e-5, msg=f"{train}, {mask}, {i}"
                        )

    def test_channels_last_special_values(self, device):
        x = torch.randn(4, 24, 33, 31).contiguous(memory_format=torch.channels_last)
        x[1, 0, 19, 7], x[0, 1, 0, 0], x[1, 2, 3, 4] = float("nan"), float("inf"), -float("inf")
        for norm in (
            lambda x: F.batch_norm(x, None, None, training=True),
            lambda x: F.batch_norm(x, x.new_zeros(24), x.new_ones(24)),
            lambda x: F.group_norm(x, 8),
        ):
            self.assertEqual(norm(x.to(device)).cpu(), norm(x), atol=1e-5, rtol=1e-5)
        for mean in (1e4, -1e7):  # rounding must not become variance
            y = (mean + torch.randint(0, 4, (4, 24, 32, 32))).contiguous(memory_format=torch.channels_last)
            run_var = torch.ones(24, device=device)
            F.batch_norm(y.to(device), None, run_var, training=True, momentum=1.0)
            self.assertEqual(run_var.cpu().double(), y.double().var((0, 2, 3)), rtol=1e-5, atol=0)

    def test_batch_norm_large_mean(self, device):
        x = 1e4 + 0.01 * torch.arange(64, dtype=torch.float32).view(4, 1, 16).repeat(1, 2, 1)
        for view in (x, x.permute(0, 2, 1).reshape(64, 2)):  # channels in runs, channels in columns
            run_mean, run_var = torch.zeros(2, device=device), torch.ones(2, device=device)
            F.batch_norm(view.to(device), run_mean, run_var, training=True, momentum=1.0)
            wide = x.double().transpose(0, 1).reshape(2, -1)
            self.assertEqual(run_mean.cpu().double(), wide.mean(1), atol=2**-11, rtol=0)
            self.assertEqual(run_var.cpu().double(), wide.var(1), rtol=1e-4, atol=0)

    def test_batch_norm_special_values(self, device):
        x = torch.randn(4, 3, 20)
        x[1, 0, 19], x[2, 1, 0] = float("nan"), float("inf")
        self.assertEqual(
            F.batch_norm(x.to(device), None, None, training=True).cpu(),
            F.batch_norm(x, None, None, training=True),
        )

    def test_batch_norm_update_stats(self, device):
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(4, 3, 8).to(dtype)
            m, v, mean, var = torch.zeros(3), torch.ones(3), torch.zeros(3), torch.ones(3)
            want = torch.batch_norm_update_stats(x, m, v, 0.1)
            mine = mean.to(device), var.to(device)
            with no_fallback():
                got = torch.batch_norm_update_stats(x.to(device), *mine, 0.1)
                alone = torch.batch_norm_update_stats(x.to(device), None, None, 0.1)
            for a, b in zip((*got, *alone, *mine), (*want, *want, m, v), strict=True):
                self.assertEqual(a.cpu(), b, exact_dtype=False)

    def test_batch_norm_forms(self, device):
        """The other entry points give the same results."""
        x, w, b = torch.randn(4, 3, 8), torch.rand(3), torch.rand(3)
        args = [t.to(device) for t in (x, w, b)]
        mean, var = torch.zeros(3), torch.ones(3)
        ref = torch.native_batch_norm(x, w, b, mean, var, True, 0.1, 1e-5)
        for op in (
            lambda m, v: torch.ops.aten._native_batch_norm_legit(*args, m, v, True, 0.1, 1e-5),
            lambda m, v: torch.ops.aten._batch_norm_with_update(*args, m, v, 0.1, 1e-5),
        ):
            m, v = torch.zeros(3, device=device), torch.ones(3, device=device)
            got = op(m, v)
            for a, r in zip(got, (*ref, None), strict=False):
                if r is not None:
                    self.assertEqual(a.cpu(), r)
            self.assertEqual((m.cpu(), v.cpu()), (mean, var))
        out = [torch.empty(0, device=device) for _ in range(3)]
        torch.native_batch_norm(*args, None, None, True, 0.1, 1e-5, out=out)
        for a, r in zip(out, ref, strict=True):
            self.assertEqual(a.cpu(), r)
        m, v = torch.zeros(3, device=device), torch.ones(3, device=device)
        out = [torch.empty(0, device=device) for _ in range(3)]
        names = dict(zip(("out", "save_mean", "save_invstd"), out, strict=True))
        reserve = torch.empty(0, dtype=torch.uint8, device=device)
        torch.ops.aten._batch_norm_with_update.out(*args, m, v, 0.1, 1e-5, **names, reserve=reserve)
        for a, r in zip((*out, m, v), (*ref, mean, var), strict=True):
            self.assertEqual(a.cpu(), r)
        got = torch.ops.aten._native_batch_norm_legit.no_stats(*args, True, 0.1, 1e-5)
        self.assertEqual(got[0].cpu(), ref[0])

    def test_batch_norm_empty_and_errors(self, device):
        module = nn.BatchNorm2d(3).to(device)
        x = torch.empty(0, 3, 4, 4, device=device, requires_grad=True)
        y = module(x)
        self.assertEqual(y.shape, (0, 3, 4, 4))
        y.sum().backward()
        with self.assertRaises(ValueError):
            module(torch.ones(1, 3, 1, 1, device=device))
        with self.assertRaisesRegex(RuntimeError, "running_mean"):
            F.batch_norm(torch.ones(2, 4, device=device), torch.ones(3, device=device), torch.ones(3, device=device))

    def test_batch_norm_gradgrad(self, device):
        x = torch.randn(4, 2, 3, dtype=torch.float64, device=device, requires_grad=True)
        w = torch.rand(2, dtype=torch.float64, device=device, requires_grad=True)
        torch.autograd.gradcheck(lambda t, u: F.batch_norm(t, None, None, u, training=True), (x, w))
        torch.autograd.gradgradcheck(lambda t, u: F.batch_norm(t, None, None, u, training=True), (x, w))

    # --- composites ------------------------------------------------------------

    @dtypes(*FLOATS)
    def test_rms_norm(self, device, dtype):
        for shape in ((5, 64), (2, 3, 20)):
            self.check(device, dtype, lambda x, w: F.rms_norm(x, w.shape, w, 1e-5), shape, shape[-1:])
        self.check(device, dtype, lambda x: F.rms_norm(x, (20,)), (4, 20))

    def test_rms_norm_default_eps(self, device):
        torch.netcl.reset_cpu_fallback_ops()
        for dtype in FLOATS:
            x = torch.full((2, 20), 1e-2, dtype=dtype)
            x[1] = 0
            self.assertEqual(F.rms_norm(x.to(device), (20,)).cpu(), F.rms_norm(x, (20,)))
        leaf = torch.randn(4, 6).to(device).requires_grad_()
        y = F.rms_norm(leaf, (6,))
        before = torch.netcl.launch_count()
        F.rms_norm(leaf, (6,))
        self.assertEqual(torch.netcl.launch_count() - before, 1)
        y.backward(y.detach())
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})

    def test_weight_norm(self, device):
        for dim in (0, 1, None):
            module = nn.utils.parametrizations.weight_norm(nn.Linear(5, 3), dim=dim)
            mine = copy.deepcopy(module).to(device)
            x = torch.randn(4, 5)
            module(x).sum().backward()
            mine(x.to(device)).sum().backward()
            for p, q in zip(module.parameters(), mine.parameters(), strict=True):
                self.assertEqual(q.grad.cpu(), p.grad, atol=1e-5, rtol=1e-5)

    def test_local_response_norm(self, device):
        self.check(device, torch.float32, lambda x: F.local_response_norm(x, 3), (2, 6, 4, 4))

    def test_long_rows(self, device):
        """Sums of many elements are computed in blocks of 512, so the error is about epsilon times the root of 512 + n
        / 8192."""
        cases = {
            "layer_norm": lambda x: F.layer_norm(x.view(1, -1), (x.numel(),)),
            "rms_norm": lambda x: F.rms_norm(x.view(1, -1), (x.numel(),)),
            "group_norm": lambda x: F.group_norm(x.view(1, 4, -1), 1),
            "instance_norm": lambda x: F.instance_norm(x.view(1, 2, -1)),
            "batch_norm": lambda x: F.batch_norm(x.view(8, 1, -1), None, None, training=True),
            "batch_norm of columns": lambda x: F.batch_norm(x.view(-1, 8), None, None, training=True),
            "group_norm of channels_last": lambda x: F.group_norm(x.view(1, -1, 512, 4).permute(0, 3, 1, 2), 2),
        }
        for n, names in ((1 << 20, list(cases)), (9_400_000, ["layer_norm"])):
            x, g = torch.randn(n), torch.randn(n)
            for name in names:
                f = cases[name]
                a, b = x.to(device).requires_grad_(), x.double().requires_grad_()
                y, expected = f(a), f(b)
                y.backward(g.to(device).view_as(y))
                expected.backward(g.double().view_as(expected))
                for got, want in ((y, expected), (a.grad, b.grad)):
                    error = (got.detach().cpu() - want.detach()).abs().max() / want.detach().abs().max()
                    self.assertLess(error.item(), 1e-6, f"{name} of {n}")

    def test_row_lengths(self, device):
        """On GPUs: one, some or all work-items of a group for a row; rows in vectors or not, and beyond registers."""
        for n, rows in ((3, 300), (64, 33), (770, 5), (4096, 2), (8196, 2)):
            for shift in (0, 1):  # rows that begin at a vector, and rows that do not
                x, g = torch.randn(rows * n + shift) + 1, torch.randn(rows, n)
                results = []
                for where, dtype in ((device, torch.float32), ("cpu", torch.float64)):
                    a = x.to(dtype).to(where)[shift:].view(rows, n).detach().requires_grad_()
                    w = torch.linspace(1, 2, n, dtype=dtype).to(where).requires_grad_()
                    b = torch.zeros(n, dtype=dtype, device=where, requires_grad=True)
                    y, z = F.layer_norm(a, (n,), w, b), F.rms_norm(a, (n,), w)
                    grads = torch.autograd.grad(y, (a, w, b), g.to(dtype).to(where))
                    grads += torch.autograd.grad(z, (a, w), g.to(dtype).to(where))
                    results.append([t.detach().cpu().double() for t in (y, z, *grads)])
                for got, want in zip(*results, strict=True):
                    # Of 300 rows of 3 elements, one may deviate by 0.01 only: 100 times 2^-24, and a few roundings.
                    self.assertLess(((got - want).abs().max() / want.abs().max()).item(), 4e-5, f"{n}, {shift}")


instantiate_device_type_tests(TestNormalization, globals(), only_for="netcl")

if __name__ == "__main__":
    run_tests()
