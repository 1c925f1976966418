"""torch.netcl.amp.autocast: styles of arguments, default dtype, torch.compile, devices with and without fp16."""

import inspect
import itertools
import os
import threading
import unittest
import warnings

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
DTYPES = sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str)
CASTS = (torch.float16, torch.bfloat16)


def square():
    return torch.ones(4, 4, device=DEV)


def product(a):
    return a @ a


def region_of(make):
    """The dtype of a region, whether it is on, and the text of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        region = make()
        with region:
            a = square()
            seen = torch.is_autocast_enabled(DEV), torch.is_autocast_cache_enabled(), (a @ a).dtype
    return seen, [str(w.message) for w in caught]


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestArguments(TestCase):
    @parametrize("dtype", DTYPES, name_fn=lambda d: str(d).removeprefix("torch."))
    def test_every_dtype_is_judged_as_by_torch_autocast(self, dtype):
        region_of(lambda: torch.autocast(DEV, dtype=dtype))  # how to allow float16 is said once
        want, said = region_of(lambda: torch.autocast(DEV, dtype=dtype))
        self.assertEqual(region_of(lambda: torch.netcl.amp.autocast(DEV, dtype)), (want, said))
        got, ours = region_of(lambda: torch.netcl.amp.autocast(dtype=dtype))
        self.assertEqual(got, want)
        self.assertEqual(ours, [] if dtype == torch.float16 else said)
        self.assertEqual(want[0], dtype in torch.netcl.amp.autocast_dtypes())
        self.assertEqual(bool(said), not want[0])

    def test_every_way_to_write_the_arguments_of_torch(self):
        """Every number of arguments, with all splits into positional and keyword arguments."""
        names = [n for n in inspect.signature(torch.autocast.__init__).parameters if n != "self"]
        self.assertEqual(names, ["device_type", "dtype", "enabled", "cache_enabled"])
        values = {"device_type": DEV, "dtype": torch.bfloat16, "enabled": False, "cache_enabled": False}
        tried = 0
        for positional in range(len(names) + 1):
            rest = names[positional:]
            for size in range(len(rest) + 1):
                for chosen in itertools.combinations(rest, size):
                    args, kwargs = [values[n] for n in names[:positional]], {n: values[n] for n in chosen}
                    if "device_type" not in kwargs and not args:
                        continue
                    want = torch.autocast(*args, **kwargs)
                    got = torch.netcl.amp.autocast(*args, **kwargs)
                    self.assertIs(type(got), torch.autocast)
                    self.assertEqual(vars(got), vars(want), msg=f"{args} {kwargs}")
                    tried += 1
        self.assertEqual(tried, 8 + 8 + 4 + 2 + 1)

    def test_own_arguments(self):
        for call in (
            lambda: torch.netcl.amp.autocast(True, 0, torch.bfloat16, False),
            lambda: torch.netcl.amp.autocast(True, device_queue=f"{DEV}:0", dtype=torch.bfloat16, cache_enabled=False),
            lambda: torch.netcl.amp.autocast(dtype=torch.bfloat16, cache_enabled=False),
        ):
            self.assertEqual(region_of(call), ((True, False, torch.bfloat16), []))
        (on, _, dtype), said = region_of(torch.netcl.amp.autocast)
        self.assertEqual((on, said), (torch.float16 in torch.netcl.amp.autocast_dtypes(), []))
        self.assertEqual(dtype, torch.float16 if on else torch.float32)

    def test_misread_arguments_are_refused_with_how_to_write_them(self):
        autocast = torch.netcl.amp.autocast
        for error, call in (
            (TypeError, lambda: autocast(torch.bfloat16)),
            (TypeError, lambda: autocast(True, torch.bfloat16)),
            (TypeError, lambda: autocast(dtype="bfloat16")),
            (TypeError, lambda: autocast(DEV, True)),
            (ValueError, lambda: autocast("cuda")),
            (ValueError, lambda: autocast(device_type="cpu", dtype=torch.bfloat16)),
        ):
            with self.assertRaisesRegex(error, r"write torch\.netcl\.amp\.autocast\(dtype=torch\.bfloat16\)"):
                call()
        for decorate in (torch.netcl.amp.custom_fwd, torch.netcl.amp.custom_bwd):
            self.assertTrue(callable(decorate(device_type=DEV)(lambda ctx: None)))
            with self.assertRaisesRegex(ValueError, "use torch.amp with device_type='cuda'"):
                decorate(device_type="cuda")

    def test_helpers_of_the_older_frameworks(self):
        amp = torch.netcl.amp
        profile = amp.device_profile()
        self.assertIs(profile.supports_fp16, profile.has_fp16)
        for given in (True, False):
            self.assertIs(amp.autocast_enabled(given), given)
        with amp.autocast(enabled=amp.autocast_enabled(profile.has_fp16)):
            self.assertIs(amp.is_autocast_enabled(), profile.has_fp16)
            self.assertIs(amp.is_autocast_enabled(DEV), profile.has_fp16)
            self.assertIs(amp.is_autocast_enabled("cpu"), False)
        for odd in (-1, -7, True, 1.0, 99):
            self.assertFalse(amp.supports_fp16(odd))
        for odd in (-1, True):
            with self.assertRaises(ValueError):
                amp.device_profile(odd)


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestCompile(TestCase):
    """A region inside code that torch.compile traces casts as it does outside."""

    def forms(self, make):
        ready = make()

        def ready_made(a):
            with ready:
                return a @ a

        def inline(a):
            with make():
                return a @ a

        return {"decorator": make()(product), "ready-made": ready_made, "inline": inline}

    @parametrize("form", ["decorator", "ready-made", "inline"])
    @parametrize("style", ["own bf16", "own default", "torch's bf16", "torch's default", "off"])
    def test_forms(self, form, style):
        make = {
            "own bf16": lambda: torch.netcl.amp.autocast(dtype=torch.bfloat16),
            "own default": lambda: torch.netcl.amp.autocast(),
            "torch's bf16": lambda: torch.netcl.amp.autocast("netcl", torch.bfloat16),
            "torch's default": lambda: torch.autocast("netcl"),
            "off": lambda: torch.netcl.amp.autocast(enabled=False, dtype=torch.bfloat16),
        }[style]
        function = self.forms(make)[form]
        with make():
            want = (square() @ square()).dtype
        self.assertEqual(function(square()).dtype, want)
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
        self.assertEqual(compiled(square()).dtype, want)

    def test_graph_break_in_a_region(self):
        """Dynamo runs the region's constructor as it is, and must not compile what that calls."""

        def f(a):
            with torch.autocast(DEV):
                b = a @ a
                torch._dynamo.graph_break()
                return b.float(), b @ b

        torch._dynamo.reset()
        want = [t.dtype for t in f(square())]
        self.assertEqual([t.dtype for t in torch.compile(f, backend="aot_eager")(square())], want)

    def test_questions_are_constants(self):
        def f(a):
            return a + 1, torch.get_autocast_dtype(DEV), torch.netcl.get_amp_supported_dtype()

        torch._dynamo.reset()
        self.assertEqual(torch.compile(f, backend="aot_eager", fullgraph=True)(square())[1:], f(square())[1:])

    def test_training_step(self):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = nn.Linear(4, 4).to(DEV)

        def loss(x):
            with torch.netcl.amp.autocast(dtype=torch.bfloat16):
                return model(x).square().mean()

        grads = []
        for function in (loss, torch.compile(loss, backend="aot_eager", fullgraph=True)):
            model.zero_grad()
            function(square()).backward()
            grads.append(model.weight.grad.clone())
        self.assertTrue(torch.equal(*grads))


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestDefaultDtype(TestCase):
    def test_no_dtype_named(self):
        """In this thread, in a new thread whose first use of netcl is the region, and in one that first asks for the
        dtype."""
        want = torch.netcl.amp.autocast_dtypes()[0]
        a, seen = square(), []

        def in_thread(ask):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                if ask:
                    seen.append(torch.get_autocast_dtype(DEV))
                with torch.autocast(DEV):
                    seen.append((a @ a).dtype)
                    with torch.autocast(DEV, dtype=torch.bfloat16), torch.autocast(DEV):
                        seen.append({want: want, torch.bfloat16: want}[(a @ a).dtype])

        for ask in (False, True):
            thread = threading.Thread(target=in_thread, args=(ask,))
            thread.start()
            thread.join()
            in_thread(ask)
        self.assertEqual(seen, [want] * 10)
        self.assertEqual(torch.get_autocast_dtype(DEV), want)

    def test_first_use_in_a_process(self):
        code = """
import torch
print(torch.get_autocast_dtype("netcl"))
torch.ones(1, device="netcl")
print(torch.get_autocast_dtype("netcl"))
with torch.autocast("netcl"):
    a = torch.ones(4, 4, device="netcl")
    print((a @ a).dtype)
"""
        for mask, fp16, want in (
            (os.environ.get("NETCL_DISABLE"), None, torch.netcl.get_amp_supported_dtype()[0]),
            ("fp16", None, torch.bfloat16),
            ("fp16", "storage", torch.float16),
        ):
            run = python(code, NETCL_DISABLE=mask, NETCL_FP16=fp16)
            self.assertEqual(run.returncode, 0, msg=run.stderr)
            self.assertEqual(run.stdout.split(), [str(want)] * 3)
            self.assertNotIn("Warning", run.stderr)

    def test_two_devices_of_which_one_has_fp16(self):
        """The tensors' device decides, whichever device is current: policies, promotion, cache of weights, backward,
        compile."""
        code = """
import torch, warnings
warnings.simplefilter("error")
from torch import nn
has = [torch.netcl.get_device_properties(i).has_fp16 for i in range(torch.netcl.device_count())]
if len(set(has)) < 2:
    raise SystemExit(77)
for current in range(len(has)):
    torch.netcl.set_device(current)
    for i, fp16 in enumerate(has):
        want = torch.float16 if fp16 else torch.bfloat16
        a = torch.ones(4, 4, device=f"netcl:{i}")
        model = nn.Linear(4, 4).to(a.device)
        for region in (torch.autocast("netcl"), torch.autocast("netcl", dtype=torch.float16)):
            with region:
                b = a @ a
                assert b.dtype == want, (current, i, b.dtype)
                assert torch.cat([b, b]).dtype == want
                assert torch.cat([b, a]).dtype == torch.float32
                assert torch.addcmul(b, b, b).dtype == want
                assert torch.einsum("ij,jk->ik", a, a).dtype == want
                assert b.exp().dtype == torch.float32
                assert torch.netcl.amp.maybe_cast_tensor(a).dtype == want
                out = torch.utils.checkpoint.checkpoint(model, a, use_reentrant=False)
                assert out.dtype == want and model(a).dtype == want
                assert torch.get_autocast_dtype("netcl") == torch.float16
            out.float().sum().backward()
            assert model.weight.grad.dtype == torch.float32
            with torch.autocast("netcl", dtype=torch.bfloat16):
                assert (a @ a).dtype == torch.bfloat16
            with region:
                torch._dynamo.reset()
                assert torch.compile(model, backend="aot_eager")(a).dtype == want
"""
        run = python(code, NETCL_VISIBLE_DEVICES=None, NETCL_FP16=None)
        if run.returncode == 77:
            self.skipTest("needs a device with cl_khr_fp16 and one without")
        self.assertEqual(run.returncode, 0, msg=run.stderr)


instantiate_parametrized_tests(TestArguments)
instantiate_parametrized_tests(TestCompile)

if __name__ == "__main__":
    run_tests()
