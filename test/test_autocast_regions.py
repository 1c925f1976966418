"""Autocast regions on netcl: nesting, the cache of casts, threads, decorators and code inside them."""

import subprocess
import sys
import threading
import unittest
import warnings

import torch
from test_autocast import DEV, randn, unit
from torch.testing._internal.common_utils import TestCase, run_tests
from torch.utils._python_dispatch import TorchDispatchMode

import torch_netcl  # noqa: F401


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestAutocast(TestCase):
    def test_supported_dtypes(self):
        for index in range(torch.netcl.device_count()):
            with torch.netcl.device(index):
                want = [torch.float16] if torch.netcl.get_device_properties(index).has_fp16 else []
                self.assertEqual(torch.netcl.get_amp_supported_dtype(), [*want, torch.bfloat16])
                self.assertEqual(torch.netcl.amp.get_amp_supported_dtype(), [*want, torch.bfloat16])
        self.assertTrue(torch.amp.is_autocast_available(DEV))

    def test_float16_without_the_extension_warns_once_and_runs_in_float32(self):
        fp16 = torch.float16 in torch.netcl.amp.autocast_dtypes()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with torch.autocast(DEV, dtype=torch.float16):
                self.assertEqual(torch.is_autocast_enabled(DEV), fp16)
                out = randn(4, 4) @ randn(4, 4)
        said = [w for w in caught if "target dtype is not supported" in str(w.message)]
        self.assertEqual(len(said), 0 if fp16 else 1)
        self.assertEqual(out.dtype, torch.float16 if fp16 else torch.float32)

    def test_own_autocast_is_silent(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with torch.netcl.amp.autocast():
                fp16 = torch.float16 in torch.netcl.amp.autocast_dtypes()
                self.assertEqual(torch.netcl.amp.is_autocast_enabled(), fp16)
            with torch.netcl.amp.autocast(dtype=torch.bfloat16, device_queue=0):
                self.assertTrue(torch.netcl.amp.is_autocast_enabled())
                self.assertEqual((randn(4, 4) @ randn(4, 4)).dtype, torch.bfloat16)
            with torch.netcl.amp.autocast(enabled=False):
                self.assertFalse(torch.netcl.amp.is_autocast_enabled())
        self.assertFalse(torch.netcl.amp.is_autocast_enabled())

    def test_own_autocast_restores_on_exceptions_and_decorates(self):
        with self.assertRaises(KeyError), torch.netcl.amp.autocast(dtype=torch.bfloat16):
            raise KeyError
        self.assertFalse(torch.is_autocast_enabled(DEV))

        @torch.netcl.amp.autocast(dtype=torch.bfloat16)
        def product(a, b):
            return a @ b

        self.assertEqual(product(randn(4, 4), randn(4, 4)).dtype, torch.bfloat16)

    def test_supports_fp16_never_raises(self):
        for odd in ("cpu", "nonsense", 99, object(), torch.device("cpu")):
            self.assertFalse(torch.netcl.amp.supports_fp16(odd))
        self.assertEqual(torch.netcl.amp.supports_fp16(0), torch.netcl.get_device_properties(0).has_fp16)
        self.assertEqual(torch.netcl.amp.device_profile("netcl:0").name, torch.netcl.get_device_properties(0).name)

    def test_maybe_cast_tensor(self):
        cast_ = torch.netcl.amp.maybe_cast_tensor
        x = randn(3).requires_grad_()
        self.assertIs(cast_(x), x)
        with torch.netcl.amp.autocast(dtype=torch.bfloat16):
            y = cast_(x)
            self.assertEqual(y.dtype, torch.bfloat16)
            self.assertIs(cast_(y), y)
            for other in (torch.ones(2), torch.ones(2, dtype=torch.int32, device=DEV), 3, None):
                self.assertIs(cast_(other), other)
            y.sum().backward()
        self.assertEqual(x.grad.cpu(), torch.ones(3))

    def test_nesting(self):
        a = randn(4, 4)
        with torch.autocast(DEV, dtype=torch.bfloat16):
            self.assertEqual((a @ a).dtype, torch.bfloat16)
            with torch.autocast(DEV, enabled=False):
                self.assertEqual((a @ a).dtype, torch.float32)
                with torch.autocast(DEV, dtype=torch.bfloat16):
                    self.assertEqual((a @ a).dtype, torch.bfloat16)
                self.assertEqual((a @ a).dtype, torch.float32)
            self.assertEqual((a @ a).dtype, torch.bfloat16)
        self.assertEqual((a @ a).dtype, torch.float32)

    def test_inference_and_no_grad(self):
        a = randn(4, 4)
        for mode in (torch.inference_mode, torch.no_grad):
            with mode(), torch.autocast(DEV, dtype=torch.bfloat16):
                self.assertEqual((a @ a).dtype, torch.bfloat16)

    def test_state_belongs_to_the_thread(self):
        seen = []

        def side():
            seen.append(torch.is_autocast_enabled(DEV))
            with torch.autocast(DEV, dtype=torch.bfloat16):
                seen.append((randn(2, 2) @ randn(2, 2)).dtype)

        with torch.autocast(DEV, dtype=torch.bfloat16):
            thread = threading.Thread(target=side)
            thread.start()
            thread.join()
        self.assertEqual(seen, [False, torch.bfloat16])

    def count_casts(self, weight, uses, cache_enabled=True, clear=False):
        a = randn(4, 4)

        class Casts(TorchDispatchMode):
            count = 0

            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                if func._schema.name == "aten::_to_copy" and args[0].data_ptr() == weight.data_ptr():
                    Casts.count += 1
                return func(*args, **(kwargs or {}))

        with torch.autocast(DEV, dtype=torch.bfloat16, cache_enabled=cache_enabled), Casts():
            for _ in range(uses):
                if clear:
                    torch.clear_autocast_cache()
                torch.mm(a, weight)
        return Casts.count

    def test_weight_cache(self):
        leaf = randn(4, 4).requires_grad_()
        self.assertEqual(self.count_casts(leaf, 3), 1)
        # The cache ends with the outermost region.
        self.assertEqual(self.count_casts(leaf, 3), 1)
        self.assertEqual(self.count_casts(leaf, 3, cache_enabled=False), 3)
        self.assertEqual(self.count_casts(leaf, 3, clear=True), 3)
        self.assertEqual(self.count_casts(randn(4, 4), 3), 3)

    def test_gradients_arrive_in_the_parameter_dtype(self):
        w = randn(4, 4).requires_grad_()
        x = randn(4, 4)
        with torch.autocast(DEV, dtype=torch.bfloat16):
            y = (x @ w) @ w
            self.assertEqual(y.dtype, torch.bfloat16)
            loss = y.float().sum()
        loss.backward()
        self.assertEqual(w.grad.dtype, torch.float32)
        h = w.detach().cpu().clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            ((x.cpu() @ h) @ h).float().sum().backward()
        # Both round the same products of 4 terms to bfloat16 (2^-8), four times on the way to a gradient.
        self.assertEqual(w.grad.cpu(), h.grad, atol=4 * 2**-8 * h.grad.abs().max().item(), rtol=0)

    def test_custom_function(self):
        class Product(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type=DEV)
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                ctx.seen = torch.is_autocast_enabled(DEV)
                return a.mm(b)

            @staticmethod
            @torch.amp.custom_bwd(device_type=DEV)
            def backward(ctx, grad):
                a, b = ctx.saved_tensors
                assert torch.is_autocast_enabled(DEV) == ctx.seen
                return grad.mm(b.t()), a.t().mm(grad)

        a, b = randn(4, 4).requires_grad_(), randn(4, 4).requires_grad_()
        with torch.autocast(DEV, dtype=torch.bfloat16):
            out = Product.apply(a, b)
            self.assertEqual(out.dtype, torch.bfloat16)
        out.float().sum().backward()
        self.assertEqual(a.grad.dtype, torch.float32)

    def test_custom_function_with_cast_inputs(self):
        test = self

        class InFloat(torch.autograd.Function):
            @staticmethod
            @torch.netcl.amp.custom_fwd(cast_inputs=torch.float32)
            def forward(ctx, a, container, n):
                test.assertFalse(torch.is_autocast_enabled(DEV))
                test.assertEqual(a.dtype, torch.float32)
                test.assertEqual(container[0].dtype, torch.float32)
                test.assertEqual(n.dtype, torch.int64)
                ctx.save_for_backward(a)
                return a.mm(container[0])

            @staticmethod
            @torch.netcl.amp.custom_bwd
            def backward(ctx, grad):
                test.assertFalse(torch.is_autocast_enabled(DEV))
                return grad.mm(ctx.saved_tensors[0]), None, None

        a = randn(4, 4, dtype=torch.bfloat16).requires_grad_()
        with torch.autocast(DEV, dtype=torch.bfloat16):
            out = InFloat.apply(a, [randn(4, 4, dtype=torch.bfloat16)], torch.ones((), dtype=torch.int64, device=DEV))
            self.assertEqual(out.dtype, torch.float32)
        out.sum().backward()
        self.assertEqual(a.grad.dtype, torch.bfloat16)

    def test_function_transforms(self):
        """torch.func.vmap and grad, with autocast inside and around them."""
        w, xs = randn(4, 4), randn(3, 4)

        def product(w, x):
            return (w @ x).float().square().sum()

        def casting(w, x):
            with torch.autocast(DEV, dtype=torch.bfloat16):
                return product(w, x)

        def around(function):
            def call(*args):
                with torch.autocast(DEV, dtype=torch.bfloat16):
                    return function(*args)

            return call

        seen = []
        with torch.autocast(DEV, dtype=torch.bfloat16):
            torch.func.vmap(lambda x: seen.append((w @ x).dtype) or x)(xs)
        self.assertEqual(seen, [torch.bfloat16])
        leaf = w.clone().requires_grad_()
        each = [casting(leaf, x) for x in xs]
        grads = [torch.autograd.grad(loss, leaf)[0] for loss in each]
        for transform, want in (
            (lambda f: torch.func.vmap(f, (None, 0)), torch.stack(each).detach()),
            (lambda f: torch.func.vmap(torch.func.grad(f), (None, 0)), torch.stack(grads)),
        ):
            for got in (transform(casting)(w, xs), around(transform(product))(w, xs)):
                self.assertEqual(got.dtype, torch.float32)
                # In a batch, the same products of bfloat16 numbers may be summed in another order: one rounding to
                # bfloat16 (2^-8) more or less, of numbers that the square doubles.
                self.assertEqual(got.cpu(), want.cpu(), atol=0.02 * want.abs().max().item(), rtol=0)
        for got in (torch.func.grad(casting)(w, xs[0]), around(torch.func.grad(product))(w, xs[0])):
            self.assertEqual(got.dtype, torch.float32)
            self.assertEqual(got.cpu(), grads[0].cpu())
        value, vjp = torch.func.vjp(lambda x: casting(w, x), xs[0])
        self.assertEqual(value.cpu(), each[0].detach().cpu())
        self.assertEqual(vjp(torch.ones_like(value))[0].dtype, torch.float32)

    def test_binary_cross_entropy_is_refused(self):
        p, y = unit(4, 4), unit(4, 4)
        with torch.autocast(DEV, dtype=torch.bfloat16):
            with self.assertRaisesRegex(RuntimeError, "binary_cross_entropy_with_logits"):
                torch.nn.functional.binary_cross_entropy(p, y)
            with torch.autocast(DEV, enabled=False):
                torch.nn.functional.binary_cross_entropy(p, y)

    def test_scripted_modules(self):
        """They infer as others do; training raises (docs/amp_differences.md) instead of using wrong gradients."""
        module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).to(DEV)
        scripted, x = torch.jit.script(module), unit(3, 4)
        with torch.autocast(DEV, dtype=torch.bfloat16), torch.no_grad():
            for _ in range(3):  # the interpreter optimises what has run twice
                self.assertEqual(scripted(x).cpu(), module(x).cpu())
        # In a process of its own: PyTorch's test utilities switch the interpreter to a mode that programs do not have.
        program = (
            "import torch\n"
            "layers = torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)\n"
            "scripted = torch.jit.script(torch.nn.Sequential(*layers).to('netcl'))\n"
            "for _ in range(4):\n"
            "    with torch.autocast('netcl', dtype=torch.bfloat16):\n"
            "        loss = scripted(torch.ones(3, 4, device='netcl')).float().sum()\n"
            "    loss.backward()"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertIn("expected both matrices to have the same dtype", done.stderr)


if __name__ == "__main__":
    run_tests()
