"""float16 under autocast on devices without cl_khr_fp16: NETCL_FP16=storage and torch.netcl.amp.set_fp16_storage.

The other tests of AMP in float16 call common.allow_fp16, so they run on every device.
"""

import threading
import unittest

import torch
from common import allow_fp16, no_fallback
from processes import python
from test_amp_autocast import DEV, region_of, square
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl  # noqa: F401

HALF, BF16 = torch.float16, torch.bfloat16


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestFunction(TestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(torch.netcl.amp.set_fp16_storage, torch.netcl.amp.get_fp16_storage())
        torch.netcl.amp.set_fp16_storage(False)

    def test_what_is_told(self):
        amp = torch.netcl.amp
        told = amp.get_amp_supported_dtype(), amp.supports_fp16()
        self.assertEqual(amp.autocast_dtypes(), told[0])
        for enabled in (True, False):
            amp.set_fp16_storage(enabled)
            self.assertIs(amp.get_fp16_storage(), enabled)
            self.assertEqual((amp.get_amp_supported_dtype(), amp.supports_fp16()), told)
            for device in (None, 0, f"{DEV}:0", torch.device(DEV)):
                self.assertEqual(amp.autocast_dtypes(device), [HALF, BF16] if enabled else told[0])
        for odd in ("cpu", -1, 99):
            with self.assertRaises((ValueError, RuntimeError)):
                amp.autocast_dtypes(odd)
        for odd in (None, 1, "storage"):
            with self.assertRaisesRegex(TypeError, "must be a bool"):
                amp.set_fp16_storage(odd)
        self.assertFalse(amp.get_fp16_storage())

    def test_a_region_without_fp16_says_what_to_type(self):
        """Once: torch.autocast itself warns each time that it does nothing, but not why."""
        code = """
import torch, warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for _ in range(2):
        with torch.autocast("netcl", dtype=torch.float16):
            pass
    with torch.autocast("netcl", dtype=torch.bfloat16), torch.autocast("netcl"):
        pass
print(sum("NETCL_FP16=storage" in str(w.message) for w in said))
"""
        done = python(code, NETCL_DISABLE="fp16", NETCL_FP16=None)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "1"), done.stderr)

    def test_regions(self):
        allow_fp16(self)
        for make in (
            lambda: torch.autocast(DEV),
            lambda: torch.autocast(DEV, dtype=HALF),
            lambda: torch.netcl.amp.autocast(),
            lambda: torch.netcl.amp.autocast(device_queue=0, dtype=HALF),
        ):
            self.assertEqual(region_of(make), ((True, True, HALF), []))
        self.assertEqual(region_of(lambda: torch.autocast(DEV, dtype=BF16)), ((True, True, BF16), []))
        with torch.netcl.amp.autocast():
            self.assertEqual(torch.netcl.amp.maybe_cast_tensor(square()).dtype, HALF)
        with torch.netcl.amp.autocast(device_queue=99):
            self.assertFalse(torch.netcl.amp.is_autocast_enabled())

    def test_default_dtype_follows_in_every_thread(self):
        """Also in a thread that used a device before the function was called."""
        first, want, seen = torch.netcl.get_amp_supported_dtype()[0], [], []
        turns = [threading.Event(), threading.Event()]

        def default():
            with torch.autocast(DEV):
                return (square() @ square()).dtype

        def side():
            for turn in (None, *turns):
                if turn is not None:
                    turn.wait(60)
                seen.append(default())
                done.set()

        done = threading.Event()
        thread = threading.Thread(target=side)
        thread.start()
        for turn, enabled in ((None, False), (turns[0], True), (turns[1], False)):
            torch.netcl.amp.set_fp16_storage(enabled)
            if turn is not None:
                done.clear()
                turn.set()
            done.wait(60)
            want.append(HALF if enabled else first)
            self.assertEqual((default(), torch.get_autocast_dtype(DEV)), (want[-1], want[-1]))
        thread.join()
        self.assertEqual(seen, want)
        # A dtype that the program chose stays.
        with torch.autocast(DEV, dtype=BF16):
            torch.netcl.amp.set_fp16_storage()
            self.assertEqual(default(), BF16)

    def test_training(self):
        """float16 activations and gradients that leave its range: the scaler skips the step and finds a scale."""
        allow_fp16(self)
        weights = {}
        for device in ("cpu", DEV):
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).to(device)
            x, y = torch.randn(16, 8).to(device), torch.randn(16, 4).to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scaler = torch.amp.GradScaler(device, init_scale=2.0**30, backoff_factor=2.0**-10)
            scales = []
            with no_fallback():
                for _ in range(4):
                    optimizer.zero_grad()
                    with torch.autocast(device, dtype=HALF):
                        out = model(x)
                        self.assertEqual(out.dtype, HALF)
                        loss = torch.nn.functional.mse_loss(out.float(), y)
                    scaler.scale(loss).backward()
                    scaler.step(optimizer)
                    scaler.update()
                    scales.append(scaler.get_scale())
            self.assertEqual(scales, [2.0**20, *[2.0**10] * 3])
            weights[device] = torch.nn.utils.parameters_to_vector(model.parameters()).detach().cpu()
        # Two steps of lr = 0.1, whose gradients of magnitude below 1 pass about eight roundings to half (2^-11) each.
        self.assertEqual(weights[DEV], weights["cpu"], atol=2 * 0.1 * 8 * 2**-11, rtol=0)


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestEnvironment(TestCase):
    def test_every_device(self):
        """All devices without cl_khr_fp16, or some: each casts to float16, and the function switches it off."""
        code = """
import torch, warnings
warnings.simplefilter("error")
amp = torch.netcl.amp
assert amp.get_fp16_storage()
def dtypes():
    out = []
    for i in range(torch.netcl.device_count()):
        a = torch.ones(4, 4, device=f"netcl:{i}")
        with torch.autocast("netcl"):
            out.append((a @ a).dtype)
    return out
n = torch.netcl.device_count()
has = [amp.supports_fp16(i) for i in range(n)]
assert dtypes() == [torch.float16] * n, dtypes()
amp.set_fp16_storage(False)
assert dtypes() == [torch.float16 if h else torch.bfloat16 for h in has], dtypes()
print(n, *map(int, has))
"""
        runs = {"fp16": python(code, NETCL_FP16="storage", NETCL_DISABLE="fp16")}
        runs[""] = python(code, NETCL_FP16="Storage", NETCL_VISIBLE_DEVICES=None)
        for mask, run in runs.items():
            self.assertEqual(run.returncode, 0, msg=run.stderr)
            has = run.stdout.split()[1:]
            self.assertTrue(has)
            if mask:
                self.assertEqual(set(has), {"0"})


if __name__ == "__main__":
    run_tests()
