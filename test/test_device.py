"""The device: API, streams, events, memory, copies, serialisation, worker processes, the fallback."""

import copy
import gc
import hashlib
import io
import itertools
import os
import pickle
import subprocess
import tempfile
import threading
import warnings
from pathlib import Path

import pyopencl as cl
import torch
from common import quiet
from processes import python
from torch.testing._internal.common_utils import TestCase, run_tests
from torch.utils._pytree import tree_map_only
from torch.utils.data import DataLoader, TensorDataset

import torch_netcl
from torch_netcl import _opencl

D = torch.device("netcl", 0)
COUNT = torch.netcl.device_count()


# An OpenCL loader that gives PoCL's devices the name that they have on Intel's CPUs.
NAMES = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
int clGetDeviceInfo(void* device, unsigned what, size_t size, void* value, size_t* needed) {
  static int (*theirs)(void*, unsigned, size_t, void*, size_t*);
  if (!theirs) *(void**)&theirs = dlsym(dlopen(LOADER, RTLD_NOW), "clGetDeviceInfo");
  char version[256] = "";
  theirs(device, 0x102F /* CL_DEVICE_VERSION */, sizeof(version), version, NULL);
  if (what != 0x102B /* CL_DEVICE_NAME */ || !strstr(version, "PoCL")) return theirs(device, what, size, value, needed);
  const char name[] = "pthread-Intel(R) Imitated";
  if (needed) *needed = sizeof(name);
  if (value && size < sizeof(name)) return -30;
  if (value) memcpy(value, name, sizeof(name));
  return 0;
}
"""


class TestDevice(TestCase):
    def test_api(self):
        self.assertTrue(torch.netcl.is_available())
        self.assertEqual(torch.accelerator.current_accelerator().type, "netcl")
        self.assertEqual(torch.accelerator.device_count(), COUNT)
        with torch.netcl.device(COUNT - 1):
            self.assertEqual(torch.netcl.current_device(), COUNT - 1)
            self.assertEqual(torch.empty(1, device="netcl").device.index, COUNT - 1)
        self.assertEqual(torch.netcl.current_device(), 0)
        p = torch.netcl.get_device_properties(D)
        self.assertGreater(p.max_compute_units, 0)
        disabled = os.environ.get("NETCL_DISABLE", "")
        self.assertEqual(p.has_fp16, "cl_khr_fp16" in p.extensions and "fp16" not in disabled)
        self.assertGreaterEqual(torch.netcl.get_device_capability(D), (1, 2))
        with self.assertRaisesRegex(RuntimeError, "out of range"):
            torch.empty(1, device=f"netcl:{COUNT}")
        with self.assertRaisesRegex(ValueError, "netcl"):
            torch.netcl.get_device_name("cpu")

    def test_pocl_compiles_for_a_cpu_of_its_library(self):
        # Without this name no built-in function is inlined, and speed falls to a tenth (csrc/runtime/PoclCpu.h).
        p = torch.netcl.get_device_properties(D)
        cpu = Path("/proc/cpuinfo")
        if "DISTRO" not in p.platform_version or not cpu.exists() or " avx2 " not in cpu.read_text():
            self.skipTest("for PoCL's packages on CPUs with AVX2")
        self.assertRegex(p.version, "(haswell|skylake-avx512)$")

    def test_tensor_methods_and_printing(self):
        x = torch.arange(6.0).reshape(2, 3).to(D)
        self.assertTrue(x.is_netcl)
        self.assertEqual(torch.ones(2).netcl().device, D)
        self.assertEqual(torch.nn.Linear(2, 2).netcl().weight.device, D)
        with quiet():
            self.assertIn("device='netcl:0'", repr(x))
            self.assertIn("[3., 4., 5.]", repr(x))
        self.assertEqual(x[1, 2].item(), 5.0)
        self.assertEqual(float(x.sum()), 15.0)
        self.assertEqual(x.tolist(), [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
        self.assertEqual(copy.deepcopy(x), x)

    # --- streams and events

    def test_streams_and_events(self):
        s = torch.netcl.Stream()
        self.assertNotEqual(s, torch.netcl.current_stream())
        x = torch.ones(100_000, device=D)
        s.wait_stream(torch.netcl.current_stream())
        with torch.netcl.stream(s):
            self.assertEqual(torch.netcl.current_stream(), s)
            y = x
            for _ in range(20):
                y = y * 1.5
            event = s.record_event()
        torch.netcl.current_stream().wait_event(event)
        z = y + 1
        y.record_stream(torch.netcl.current_stream())
        del y
        self.assertEqual(z[0].item(), 1.5**20 + 1)
        event.synchronize()
        self.assertTrue(event.query())
        s.synchronize()
        self.assertTrue(s.query())
        self.assertEqual(torch.netcl.current_stream(), torch.netcl.default_stream())

    def test_elapsed_time(self):
        a, b = torch.netcl.Event(enable_timing=True), torch.netcl.Event(enable_timing=True)
        x = torch.randn(500, 500, device=D)
        a.record()
        for _ in range(3):
            x = x @ x / 500
        b.record()
        b.synchronize()
        self.assertGreater(a.elapsed_time(b), 0)

    def test_launches_do_not_wait(self):
        x = torch.ones(1000, device=D)
        before, launches = torch.netcl.host_sync_count(), torch.netcl.launch_count()
        for _ in range(10):
            x = (x * 2).relu()
        self.assertEqual(torch.netcl.host_sync_count(), before)
        self.assertGreaterEqual(torch.netcl.launch_count(), launches + 20)
        x[0].item()
        self.assertEqual(torch.netcl.host_sync_count(), before + 1)

    # --- memory

    def test_statistics(self):
        gc.collect()
        before = torch.netcl.memory_allocated()
        x = torch.empty(3 << 20, dtype=torch.uint8, device=D)
        self.assertEqual(torch.netcl.memory_allocated() - before, 3 << 20)
        torch.netcl.reset_peak_memory_stats()
        del x
        self.assertEqual(torch.netcl.memory_allocated(), before)
        self.assertGreaterEqual(torch.netcl.max_memory_allocated(), before + (3 << 20))
        torch.netcl.empty_cache()
        free, total = torch.netcl.mem_get_info()
        self.assertLessEqual(free, total)
        self.assertIn("allocated_bytes", torch.netcl.memory_summary())

    def test_blocks_are_reused(self):
        x = torch.empty(1 << 20, device=D)
        address = x.data_ptr()
        del x
        self.assertEqual(torch.empty(1 << 20, device=D).data_ptr(), address)

    def test_out_of_memory(self):
        info = torch.netcl.get_device_properties(D)
        with self.assertRaisesRegex(torch.OutOfMemoryError, "out of memory. Tried to allocate"):
            torch.empty(info.global_mem_size + (1 << 30), dtype=torch.uint8, device=D)
        self.assertEqual(torch.ones(3, device=D).sum().item(), 3)
        torch.netcl.empty_cache()
        torch.netcl.set_per_process_memory_fraction((torch.netcl.memory_reserved() + (64 << 20)) / info.global_mem_size)
        try:
            kept = [torch.empty(16 << 20, dtype=torch.uint8, device=D) for _ in range(2)]
            with self.assertRaises(torch.OutOfMemoryError):
                torch.empty(256 << 20, dtype=torch.uint8, device=D)
            # Cached memory is released before the error is raised, so a smaller tensor fits.
            del kept
            self.assertEqual(torch.zeros(30 << 20, dtype=torch.uint8, device=D).max().item(), 0)
        finally:
            torch.netcl.set_per_process_memory_fraction(1.0)
        with self.assertRaises(ValueError):
            torch.netcl.set_per_process_memory_fraction(0)

    def test_storage(self):
        x = torch.arange(10, device=D)
        y = torch.empty(0, dtype=torch.int64, device=D)
        y.set_(x.untyped_storage(), 2, (3,), (2,))
        self.assertEqual(y.cpu(), torch.tensor([2, 4, 6]))
        x.resize_(100_000)
        self.assertEqual(x[:10].cpu(), torch.arange(10))
        self.assertEqual(x.untyped_storage().cpu().nbytes(), 800_000)
        with self.assertRaisesRegex(RuntimeError, "out of bounds|storage"):
            torch.ones(4, device=D).as_strided((10,), (1,)).cpu()

    def test_is_set_to(self):
        x, y = torch.arange(6, device=D), torch.arange(6, device=D)
        self.assertEqual([x.is_set_to(t) for t in (x, x[:], y, x[1:], x.view(2, 3))], [True, True, False, False, False])

    def test_resize_is_filled_under_deterministic_algorithms(self):
        torch.use_deterministic_algorithms(True)
        try:
            for dtype in (torch.float32, torch.float16, torch.int32, torch.complex64, torch.bool):
                x, y = torch.ones(3, dtype=dtype, device=D), torch.ones(3, dtype=dtype)
                for size in ((5,), (2,), (4, 4)):
                    self.assertEqual(x.resize_(size).cpu(), y.resize_(size), equal_nan=True)
        finally:
            torch.use_deterministic_algorithms(False)

    def test_empty_is_filled_under_deterministic_algorithms(self):
        makers = (
            lambda **k: torch.empty(3, 5, **k),
            lambda **k: torch.empty(2, 3, 4, 5, memory_format=torch.channels_last, **k),
            lambda **k: torch.empty_strided((3, 4), (1, 3), **k),
            lambda **k: torch.empty_like(torch.ones(7, **k)),
            lambda **k: torch.ones(1, **k).new_empty(2, 2),
            lambda **k: torch.ones(1, **k).new_empty_strided((2, 3), (1, 2)),
            lambda **k: torch.empty_permuted((2, 3, 4), (2, 0, 1), **k),
        )
        types = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.complex64, torch.bool)
        # Memory that is used again holds something else than the fill.
        for size in (1, 16, 120):
            torch.zeros(size, device=D)
        torch.use_deterministic_algorithms(True)
        try:
            for dtype, (i, make) in itertools.product(types, enumerate(makers)):
                got, wanted = make(dtype=dtype, device=D), make(dtype=dtype)
                self.assertEqual(got.cpu(), wanted, rtol=0, atol=0, equal_nan=True, msg=f"{dtype}, maker {i}")
                self.assertEqual(got.stride(), wanted.stride())
            torch.utils.deterministic.fill_uninitialized_memory = False
            self.assertEqual(torch.empty(5, device=D).shape, (5,))
        finally:
            torch.utils.deterministic.fill_uninitialized_memory = True
            torch.use_deterministic_algorithms(False)

    # --- copies

    def test_copies_of_lazily_conjugated_and_negated_views(self):
        views = (
            lambda x: x,
            lambda x: x.conj(),
            torch._neg_view,
            lambda x: torch._neg_view(x).conj(),
            lambda x: x.conj().imag,
            lambda x: torch._neg_view(x).t().conj(),
        )
        for to, source in itertools.product(views, (*views, lambda x: x.real.bool())):
            for devices in ((D, D), (D, "cpu"), ("cpu", D)):
                wanted, x = torch.randn(2, 3, 3, dtype=torch.complex64)
                got = wanted.to(devices[0], copy=True)
                given = x.to(devices[1])
                with quiet():
                    to(wanted).copy_(source(x))
                    to(got).copy_(source(given))
                self.assertEqual(got.cpu(), wanted)
        x = torch.ones(3, dtype=torch.complex64, device=D)
        for operation in (lambda v: v.fill_(1j), lambda v: v.mul_(2), lambda v: v.zero_(), lambda v: v.add_(v)):
            y = x.cpu()
            operation(torch._neg_view(x).conj())
            operation(torch._neg_view(y).conj())
            self.assertEqual(x.cpu(), y)

    def test_copies(self):
        x = torch.randn(30, 40)
        for view in (x, x.t(), x[::2, 3:], x[:1].expand(30, 40), x.to(memory_format=torch.contiguous_format)):
            for dtype in (torch.float32, torch.float16, torch.int32):
                y = view.to(D, dtype)
                self.assertEqual(y.cpu(), view.to(dtype))
                target = torch.empty(view.shape[::-1], dtype=dtype).t()
                target.copy_(y)
                self.assertEqual(target, view.to(dtype))
        big = torch.arange(3_000_000, dtype=torch.float32)
        self.assertEqual(big.to(D).cpu(), big)
        part = torch.zeros(10, device=D)
        part[3:6] = torch.tensor([1.0, 2, 3])
        self.assertEqual(part.cpu(), torch.tensor([0.0, 0, 0, 1, 2, 3, 0, 0, 0, 0]))

    def test_a_staged_source_may_change_at_once(self):
        x = torch.zeros(1000)
        copies = []
        for i in range(50):
            x.fill_(i)
            copies.append(x.to(D, non_blocking=True))
        for i, c in enumerate(copies):
            self.assertEqual(c[7].item(), i)

    def test_pinned(self):
        x = torch.randn(2_000_000).pin_memory()
        self.assertTrue(x.is_pinned())
        self.assertFalse(torch.randn(2).is_pinned())
        before = torch.netcl.host_sync_count()
        y = x.to(D, non_blocking=True)
        self.assertEqual(torch.netcl.host_sync_count(), before)
        back = torch.empty_like(x).pin_memory()
        back.copy_(y, non_blocking=True)
        torch.netcl.synchronize()
        self.assertEqual(back, x)

    def test_sync_debug_mode(self):
        """Waits that an operator causes are named, or refused before anything is written."""
        x, large = torch.ones(100, device=D), torch.ones(1 << 19)
        target = torch.zeros(1 << 19, device=D)
        calls = {
            "aten::_local_scalar_dense": (x[0].item, lambda: bool((x > 0).all()), lambda: int(x.sum())),
            "aten::copy_": (x.cpu, x.tolist, lambda: torch.empty(100).copy_(x), lambda: target.copy_(large)),
            "aten::nonzero": (x.nonzero,),
            "aten::masked_select": (lambda: x.masked_select(x > 0),),
        }
        silent = (lambda: (x * 2).relu_(), lambda: torch.ones(9).to(D), torch.netcl.synchronize,
                  torch.netcl.current_stream().synchronize)  # fmt: skip
        self.assertEqual(torch.netcl.get_sync_debug_mode(), 0)
        self.addCleanup(torch.netcl.set_sync_debug_mode, 0)
        torch.netcl.set_sync_debug_mode("error")
        for name, functions in calls.items():
            for call in functions:
                with self.assertRaisesRegex(RuntimeError, f"^{name} makes the host wait"):
                    call()
        for call in silent:
            call()
        torch.netcl.set_sync_debug_mode("warn")
        self.assertEqual(torch.netcl.get_sync_debug_mode(), 1)
        for name, functions in calls.items():
            for call in functions:
                with self.assertWarnsRegex(UserWarning, f"^{name} makes the host wait") as caught:
                    call()
                self.assertIn("test_device.py", caught.filename)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for call in silent:
                call()
            torch.netcl.set_sync_debug_mode("default")
            self.assertEqual((x.sum().item(), target[-1].item()), (100, 1))
        for mode in (3, -1, "loud", None):
            with self.assertRaisesRegex(RuntimeError, "invalid debug_mode"):
                torch.netcl.set_sync_debug_mode(mode)

    def test_pinned_memory_that_a_copy_still_writes(self):
        """A copy from it comes after that one in the stream, whether or not the host waits."""
        x = torch.rand(1000, 1000, generator=torch.Generator().manual_seed(0)).to(D) / 500
        pinned = torch.zeros(100_000).pin_memory()
        for n in range(1, 7):
            y = x
            for _ in range(10):
                y = x @ y
            y = y.flatten()[:100_000] + n
            pinned.copy_(y, non_blocking=True)
            z = pinned.to(D, non_blocking=n % 2 == 0)
            self.assertEqual(z.cpu(), y.cpu(), rtol=0, atol=0)

    def test_a_stream_that_two_threads_enter(self):
        """Each leaves with the stream that it came with."""
        shared, found = torch.netcl.Stream(), {}
        turns = [threading.Event() for _ in range(2)]

        def other():
            own = torch.netcl.Stream()
            torch.netcl.set_stream(own)
            turns[0].wait()
            with torch.netcl.stream(shared):
                turns[1].set()
                main_left.wait()
            found["other"] = torch.netcl.current_stream() == own

        main_left, before = threading.Event(), torch.netcl.current_stream()
        thread = threading.Thread(target=other)
        thread.start()
        with torch.netcl.stream(shared):
            turns[0].set()
            turns[1].wait()
        found["main"] = torch.netcl.current_stream() == before
        main_left.set()
        thread.join()
        torch.netcl.set_stream(before)
        self.assertEqual(found, {"main": True, "other": True})

    def test_between_devices(self):
        last = torch.device("netcl", COUNT - 1)
        x = torch.randn(20, 30, device=D)
        self.assertEqual(x.t().to(last).cpu(), x.t().cpu())
        self.assertEqual(x.to(last, torch.float16).cpu(), x.cpu().half())
        if COUNT > 1:
            with self.assertRaisesRegex(RuntimeError, "device"):
                x + x.to(last)

    # --- serialisation and processes

    def test_save_and_load(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to(D)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(5, 3, device=D)).sum().backward()
        optimizer.step()
        buffer = io.BytesIO()
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "x": torch.ones(2, device=D)}, buffer
        )
        for target in (None, "cpu", D):
            buffer.seek(0)
            loaded = torch.load(buffer, map_location=target, weights_only=True)
            expected = "cpu" if target == "cpu" else "netcl"
            self.assertEqual(loaded["x"].device.type, expected)
            for name, value in model.state_dict().items():
                self.assertEqual(loaded["model"][name].cpu(), value.cpu())
            state = loaded["optimizer"]["state"][0]["exp_avg"]
            self.assertEqual(state.cpu(), optimizer.state_dict()["state"][0]["exp_avg"].cpu())
        clone = copy.deepcopy(model)
        self.assertEqual(clone[0].weight.cpu(), model[0].weight.cpu())
        self.assertEqual(pickle.loads(pickle.dumps(torch.ones(3, device=D))).cpu(), torch.ones(3))

    def test_loading_without_a_device(self):
        code = (
            "import torch, io; b = io.BytesIO(); torch.save(torch.arange(3.), b); b.seek(0);"
            "print(torch.netcl.is_available(), torch.netcl.device_count());"
            "print(torch.load(b, map_location='cpu').sum().item());"
            "torch.empty(1, device='netcl')"
        )
        run = python(code, NETCL_VISIBLE_DEVICES="none-such")
        self.assertEqual(run.stdout.split(), ["False", "0", "3.0"])
        self.assertRegex(run.stderr, r"NETCL_VISIBLE_DEVICES=none-such names none of them: 0 is .+ \(.+\)")

    def test_no_loader(self):
        code = "import torch; print(torch.netcl.is_available()); torch.empty(1, device='netcl')"
        run = python(code, NETCL_OPENCL_LIBRARY="/nonexistent/libOpenCL.so")
        self.assertEqual(run.stdout.strip(), "False")
        self.assertIn("nstall", run.stderr)

    def test_data_loader_workers(self):
        data = TensorDataset(torch.arange(20.0), torch.arange(20))
        torch.ones(1, device=D).sum().item()
        total = 0.0
        for x, y in DataLoader(data, batch_size=4, num_workers=2):
            total += (x.to(D) * y.to(D)).sum().item()
        self.assertEqual(total, float((torch.arange(20) ** 2).sum()))

    def test_forked_child_says_spawn(self):
        code = (
            "import torch, os; torch.ones(1, device='netcl').sum().item(); pid = os.fork()\n"
            "if pid == 0:\n"
            "    try: torch.ones(1, device='netcl'); os._exit(1)\n"
            "    except RuntimeError as e: os._exit(0 if 'spawn' in str(e) else 2)\n"
            "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0"
        )
        run = python(code)
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_exit_with_queued_work(self):
        run = python("import torch; x = torch.randn(800, 800, device='netcl')\nfor _ in range(9): x = x @ x / 800")
        self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_visible_devices(self):
        code = "import torch; print([torch.netcl.get_device_name(i) for i in range(torch.netcl.device_count())])"
        names = [torch.netcl.get_device_name(i) for i in range(COUNT)]
        chosen = os.environ.get("NETCL_VISIBLE_DEVICES")
        if chosen is None:
            self.assertEqual(python(code, NETCL_VISIBLE_DEVICES="0").stdout.strip(), str(names[:1]))
        else:
            self.assertEqual(python(code).stdout.strip(), str(names))

    def test_a_name_means_platforms_or_else_devices(self):
        """PoCL's device on an Intel CPU, whose name holds Intel's: imitated by a loader that changes the name."""
        loader = _opencl.find_loader()
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "names.c").write_text(NAMES)
            shim = str(Path(folder) / "names.so")
            command = [*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "-o", shim, f"{folder}/names.c"]
            subprocess.run([*command, f'-DLOADER="{loader}"', "-Wl,--no-as-needed", loader, "-ldl"], check=True)
            env = {"NETCL_OPENCL_LIBRARY": shim, "LD_LIBRARY_PATH": os.path.dirname(loader), "NETCL_SUBDEVICES": None}
            code = """
import torch
p = map(torch.netcl.get_device_properties, range(torch.netcl.device_count()))
print(sorted({d.platform_name for d in p}))
try:
    torch.netcl.init()
except RuntimeError as error:
    print(error)
"""
            everything = eval(python(code, NETCL_VISIBLE_DEVICES=None, **env).stdout)
            pocl = [name for name in everything if "Portable" in name]
            self.assertEqual(len(pocl), 1, everything)
            intel = [name for name in everything if "Intel" in name]
            for word, expected in (("intel", intel or pocl), ("no-such, imitated", pocl)):
                self.assertEqual(eval(python(code, NETCL_VISIBLE_DEVICES=word, **env).stdout), expected, word)
            told = python(code, NETCL_VISIBLE_DEVICES="cuda", **env).stdout
            self.assertRegex(told, r"NETCL_VISIBLE_DEVICES=cuda names none of them: .*pthread-Intel\(R\) Imitated \(")
            for name in everything:
                self.assertIn(name, told)

    # --- threads

    def test_threads(self):
        x = [torch.randn(64, 64) for _ in range(8)]
        expected = [(t @ t + t).sin().sum().item() for t in x]
        got = [None] * 8
        errors = []

        def work(i):
            try:
                t = x[i].to(D)
                for _ in range(20):
                    got[i] = (t @ t + t).sin().sum().item()
            except Exception as e:
                errors.append(e)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(errors, [])
        self.assertEqual(got, expected, rtol=1e-4, atol=1e-3)

    # --- errors

    def test_index_error_surfaces_at_the_next_wait(self):
        x = torch.randn(5, 3, device=D)
        y = x.gather(0, torch.tensor([[7, 0, 0]], device=D))
        with self.assertRaisesRegex(IndexError, "gather.*7.*size 5"):
            y.cpu()
        self.assertEqual((x + 1).cpu(), x.cpu() + 1)

    def test_functions_that_read_host_memory(self):
        """ATen has one function for all devices of each of these, which would access the device's address on the host.
        """
        aten = torch.ops.aten
        x = torch.arange(12.0).view(3, 4)
        state, numbers = torch.zeros(2, 30, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
        calls = [
            (aten._rowwise_prune, x, torch.tensor([True, False, True]), torch.int64),
            (aten._saturate_weight_to_fp16, x * 1e5),
            (aten._sobol_engine_initialize_state_, state, 2),
            (aten._sobol_engine_scramble_, state, torch.ones(2, 30, 30, dtype=torch.int64), 2),
            (aten._sobol_engine_ff_, numbers, 4, state + 1, 2, 0),
            (aten._sobol_engine_draw, numbers, 4, state + 1, 2, 0, None),
            (aten.choose_qparams_optimized, x, 12, 200, 0.16, 8),
            (aten.fbgemm_linear_quantize_weight, x),
            (aten.range.out_, -2, 1),
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for op, *args in calls:
                with self.subTest(str(op)):
                    if op is aten.range.out_:
                        got, want = op(*args, out=torch.empty(0, device=D)), op(*args, out=torch.empty(0))
                    else:
                        got = op(*[a.to(D) if isinstance(a, torch.Tensor) else a for a in args])
                        want = op(*[a.clone() if isinstance(a, torch.Tensor) else a for a in args])
                    self.assertEqual(tree_map_only(torch.Tensor, torch.Tensor.cpu, got), want)
            for op in (aten.fbgemm_pack_gemm_matrix_fp16, aten.fbgemm_pack_quantized_matrix):
                op((x if "fp16" in str(op) else x.to(torch.int8)).to(D))

    def test_fallback_is_counted(self):
        torch.netcl.reset_cpu_fallback_ops()
        a = torch.randn(3, 3)
        a = a @ a.t() + torch.eye(3)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(2):
                self.assertEqual(torch.linalg.eigvals(a.to(D)).cpu(), torch.linalg.eigvals(a))
        ops = torch.netcl.cpu_fallback_ops()
        self.assertTrue(any("linalg_eigvals" in name for name in ops), ops)
        self.assertLessEqual(len([w for w in seen if "linalg_eigvals" in str(w.message)]), 1)
        torch.netcl.reset_cpu_fallback_ops()
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})
        torch.netcl.set_cpu_fallback_mode("error")
        try:
            with self.assertRaisesRegex(NotImplementedError, "linalg_eigvals"):
                torch.linalg.eigvals(a.to(D))
        finally:
            torch.netcl.set_cpu_fallback_mode("warn")
        with self.assertRaises(ValueError):
            torch.netcl.set_cpu_fallback_mode("whatever")

    def test_unknown_dtype_is_named(self):
        with self.assertRaisesRegex(NotImplementedError, "Float8_e4m3fn"):
            (torch.empty(2, dtype=torch.float8_e4m3fn, device=D) + 1).cpu()


class TestKernelCache(TestCase):
    CODE = "import torch; (torch.ones(5, device='netcl') * 3).cpu(); print(dict(torch.netcl.kernel_cache_stats()))"

    def run_with(self, folder, **env):
        run = python(self.CODE, NETCL_CACHE_DIR=str(folder), **env)
        self.assertEqual(run.returncode, 0, run.stderr)
        return eval(run.stdout)

    def test_second_process_compiles_nothing(self):
        import tempfile
        from pathlib import Path

        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            self.assertGreater(self.run_with(folder)["compiled"], 0)
            second = self.run_with(folder)
            self.assertEqual(second["compiled"], 0)
            self.assertGreater(second["disk_hits"], 0)
            # Truncated and foreign entries are built again.
            for i, entry in enumerate(sorted(folder.glob("*.bin"))):
                entry.write_bytes(entry.read_bytes()[: 100 + i] if i % 2 else b"something else")
            self.assertGreater(self.run_with(folder)["compiled"], 0)
            # So are binaries that load but hold no kernel.
            first = self.run_with(folder)
            self.assertEqual(first["compiled"], 0)
            context = torch_netcl.interop.context(D)
            empty = cl.Program(context, "int one(void) { return 1; }").build().binaries[0]
            for entry in folder.glob("*.bin"):
                entry.write_bytes(b"NETCLBIN3" + hashlib.sha1(empty).hexdigest().encode() + empty)
            self.assertEqual(self.run_with(folder)["compiled"], first["disk_hits"])
            # Files that other users may write are not read.
            for entry in folder.glob("*.bin"):
                entry.chmod(0o666)
            self.assertEqual(self.run_with(folder)["disk_hits"], 0)
            # A folder that cannot be created is replaced by a temporary one, which is empty here.
            self.assertGreater(self.run_with("/proc/nonexistent", TMPDIR=str(folder))["compiled"], 0)
            self.assertEqual(self.run_with("/proc/nonexistent", TMPDIR=str(folder))["compiled"], 0)


if __name__ == "__main__":
    run_tests()
