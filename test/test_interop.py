"""pyopencl arrays and tensors that share memory, netcl's handles, and users' kernels."""

import gc
import re
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pyopencl as cl
import pyopencl.array
import torch
from processes import python
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl
from torch_netcl import interop

D = torch.device("netcl", 0)
ROOT = Path(__file__).parent.parent


class TestPyopencl(TestCase):
    def test_handles(self):
        self.assertEqual(interop.device().int_ptr, torch.netcl.get_device_properties().cl_device_id)
        self.assertEqual(interop.context().devices[0], interop.device())  # PoCL's has "basic" too (ImmediateQueue.h)
        queue = interop.current_queue()
        self.assertEqual((queue.device, queue.context), (interop.device(), interop.context()))
        stream = torch.netcl.Stream()
        with stream:
            self.assertNotEqual(interop.current_queue().int_ptr, queue.int_ptr)
        self.assertEqual(interop.current_queue("netcl:0").int_ptr, queue.int_ptr)

    def test_arrays_share_the_memory_of_tensors(self):
        for dtype in (torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64):
            x = torch.arange(24).reshape(4, 6).to(dtype)
            y = x.to(D)
            for view in (lambda t: t, lambda t: t[1:, 2:], lambda t: t.t(), lambda t: t[::2, ::3], lambda t: t[2, 3]):
                a = interop.to_pyopencl(view(y))
                expected = view(x).numpy()
                self.assertEqual((a.shape, a.dtype), (expected.shape, expected.dtype))
                strides = [(s, t) for s, t, n in zip(a.strides, expected.strides, a.shape, strict=True) if n > 1]
                self.assertTrue(all(s == t for s, t in strides), strides)
                back = interop.from_pyopencl(a)
                self.assertEqual(back, view(y))
                self.assertEqual((back.data_ptr(), back.stride()), (view(y).data_ptr(), view(y).stride()))
        x = torch.zeros(100, device=D)
        a = interop.to_pyopencl(x[32:64])
        self.assertEqual((a.data.size, a.offset), (128, 0))  # the tensor's own memory and no more
        a.fill(7)
        x += 1  # the same queue, so it runs after the fill
        self.assertEqual(x.cpu(), torch.cat([torch.ones(32), torch.full((32,), 8.0), torch.ones(36)]))
        self.assertEqual(interop.to_pyopencl(x[3:5]).get(), np.ones(2, np.float32))
        self.assertEqual(interop.to_pyopencl(x[:0]).shape, (0,))

    def test_tensors_share_the_memory_of_arrays(self):
        queue = interop.current_queue()
        a = cl.array.to_device(queue, np.arange(24, dtype=np.float32).reshape(4, 6))
        for view in (lambda t: t, lambda t: t[1:, 2:], lambda t: t[::2]):
            t = interop.from_pyopencl(view(a))
            self.assertEqual(t.cpu().numpy(), view(a.get()))
        t = interop.from_pyopencl(a[1])
        t.mul_(10)
        self.assertEqual(a.get()[1], np.arange(6, 12, dtype=np.float32) * 10)
        self.assertEqual((t + t).sum().item(), 2 * a.get()[1].sum())  # kernels, copies and views accept it
        again = interop.to_pyopencl(t[2:])
        self.assertEqual(again.get(), a.get()[1, 2:])
        with self.assertRaisesRegex(RuntimeError, "resiz"):
            t.resize_(100)

    def test_either_side_keeps_the_memory(self):
        gc.collect()
        before = torch.netcl.memory_allocated()
        x = torch.full((1 << 18,), 5.0, device=D)
        a = interop.to_pyopencl(x)[10:20]
        del x
        gc.collect()
        self.assertEqual(torch.netcl.memory_allocated() - before, 1 << 20)
        torch.zeros(1 << 18, device=D)
        self.assertEqual(a.get(), np.full(10, 5, np.float32))
        del a
        gc.collect()
        self.assertEqual(torch.netcl.memory_allocated(), before)

        queue = interop.current_queue()
        pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(queue))
        a = cl.array.Array(queue, 1000, np.float32, allocator=pool).fill(3)
        view = interop.from_pyopencl(a)[5:7]
        del a
        gc.collect()
        self.assertEqual(pool.active_blocks, 1)  # otherwise the pool would give the memory to the next one
        cl.array.Array(queue, 1000, np.float32, allocator=pool).fill(4)
        self.assertEqual(view.cpu(), torch.full((2,), 3.0))
        del view
        gc.collect()
        self.assertEqual(pool.active_blocks, 0)

    def test_buffers_released_first(self):
        """Without pyopencl's own references, the other side still keeps the memory."""
        a = cl.array.to_device(interop.current_queue(), np.arange(1000, dtype=np.float32))
        t = interop.from_pyopencl(a)
        a.data.release()
        del a
        gc.collect()
        cl.array.zeros(interop.current_queue(), 1000, np.float32)
        self.assertEqual((t + 1).cpu(), torch.arange(1000.0) + 1)
        x = torch.arange(1000.0, device=D)
        b = interop.to_pyopencl(x)
        b.data.release()
        self.assertEqual((x + 1).cpu(), torch.arange(1000.0) + 1)
        del b, x, t
        gc.collect()
        torch.netcl.empty_cache()
        self.assertEqual(torch.ones(1000, device=D).sum().item(), 1000)

    def test_another_queue_is_waited_for(self):
        queue = cl.CommandQueue(interop.context())
        for _ in range(5):
            a = cl.array.zeros(queue, 200_000, np.float32)
            for _ in range(30):
                a += 1
            self.assertEqual(interop.from_pyopencl(a).min().item(), 30)

    def test_query_sees_the_work_of_others(self):
        stream = torch.netcl.Stream()
        with stream:
            queue = interop.current_queue()
            stream.synchronize()
            gate = cl.UserEvent(interop.context())
            cl.enqueue_barrier(queue, wait_for=[gate])
            self.assertFalse(stream.query())
            gate.set_status(cl.command_execution_status.COMPLETE)
            stream.synchronize()

    def test_a_program_of_pyopencl(self):
        program = cl.Program(
            interop.context(), "__kernel void twice(__global float* x) { x[get_global_id(0)] *= 2; }"
        ).build()
        x = torch.arange(10.0, device=D) + 1
        program.twice(interop.current_queue(), (10,), None, interop.to_pyopencl(x).data)
        self.assertEqual((x - 2).cpu(), torch.arange(10.0) * 2)

    def test_errors(self):
        x = torch.ones(4, device=D)
        with self.assertRaisesRegex(ValueError, "cpu"):
            interop.to_pyopencl(torch.ones(1))
        with self.assertRaisesRegex(RuntimeError, "detach"):
            interop.to_pyopencl(x.clone().requires_grad_())
        with self.assertRaisesRegex(RuntimeError, "resolve_conj"):
            interop.to_pyopencl(torch.ones(2, dtype=torch.complex64, device=D).conj())
        with self.assertRaisesRegex(TypeError, "BFloat16"):
            interop.to_pyopencl(x.bfloat16())
        elsewhere = cl.Context([interop.device()])
        other = cl.CommandQueue(elsewhere)
        with self.assertRaisesRegex(ValueError, "another OpenCL context"):
            interop.from_pyopencl(cl.array.zeros(other, 3, np.float32))
        a = cl.array.zeros(interop.current_queue(), 4, np.float32)
        with self.assertRaisesRegex(ValueError, "not negative"):
            interop.from_pyopencl(a[::-1])
        interop._module.cache_clear()
        with mock.patch.object(cl, "get_platforms", return_value=[]):
            with self.assertRaisesRegex(RuntimeError, "NETCL_OPENCL_LIBRARY"):
                interop.to_pyopencl(x)


SCALE = """
__kernel void scale(__global const float* x, __global float* y, float by, int n) {
  if (get_global_id(0) < n) y[get_global_id(0)] = x[get_global_id(0)] * by;
}
"""


class TestCompileKernel(TestCase):
    def test_launch(self):
        scale = torch_netcl.compile_kernel(SCALE, "scale")
        x = torch.randn(1000, device=D)
        y = torch.zeros_like(x)
        before = torch.netcl.host_sync_count()
        scale(x, y, 2, 1000, global_size=1024, local_size=32)
        z = y + 1
        self.assertEqual(torch.netcl.host_sync_count(), before)
        self.assertEqual(z.cpu(), x.cpu() * 2 + 1)
        scale(x[32:], y[64:], np.float32(3), 10, global_size=10)
        self.assertEqual(y[64:74].cpu(), x[32:42].cpu() * 3)
        launches = torch.netcl.launch_count()
        scale(x, y, 0.0, 1, global_size=(4, 2, 1))
        self.assertEqual(torch.netcl.launch_count(), launches + 1)

    def test_options_types_and_local_memory(self):
        source = """
        __kernel void sums(__global const T* x, __global long* y, uchar add, ulong big, __local int* part,
                           __global int* none) {
          part[get_local_id(0)] = x[get_global_id(0)];
          barrier(CLK_LOCAL_MEM_FENCE);
          if (get_local_id(0) == 0) {
            long sum = none == 0 ? add : 1000;
            for (int i = 0; i < get_local_size(0); i++) sum += part[i];
            y[get_group_id(0)] = sum + (long)(big >> 62);
          }
        }
        """
        x = torch.arange(16, dtype=torch.int32, device=D)
        y = torch.empty(4, dtype=torch.int64, device=D)
        sums = torch_netcl.compile_kernel(source, "sums", ["-DT=int"])
        sums(x, y, 200, 2**63, torch_netcl.LocalMemory(16), None, global_size=16, local_size=4)
        self.assertEqual(y.cpu(), torch.arange(16).view(4, 4).sum(1) + 202)

    def test_programs_are_compiled_once(self):
        source = SCALE + f"// {np.random.default_rng().integers(1 << 60)}"
        before = torch.netcl.kernel_cache_stats()["compiled"]
        for _ in range(3):
            torch_netcl.compile_kernel(source, "scale").build()
        self.assertEqual(torch.netcl.kernel_cache_stats()["compiled"], before + 1)

    def test_types_are_known_of_a_program_from_disk(self):
        """In a second process, for the kernel that the first one used and for another one of the program."""
        other = "__kernel void other(__global float* x, double by, short n) { if (get_global_id(0) < n) x[0] = by; }"
        if not torch.netcl.get_device_properties().has_fp64:
            other = other.replace("double", "long")
        code = (
            "import sys, torch, torch_netcl, numpy as np; x = torch.ones(4, device='netcl')\n"
            "k = torch_netcl.compile_kernel('''" + SCALE + other + "''', sys.argv[1])\n"
            "if sys.argv[1] == 'scale': k(x, x, 2.5, 4, global_size=4)\n"
            "else: k(x, 7, 1, global_size=4)\n"
            "print(x[0].item(), int(torch.netcl.kernel_cache_stats()['compiled']))\n"
            "try: k(x, np.float16(2), np.int64(4), global_size=4)\n"
            "except TypeError: print('refused')"
        )
        with tempfile.TemporaryDirectory() as folder:
            for name, value, compiled in (("scale", "2.5", True), ("scale", "2.5", False), ("other", "7.0", False)):
                run = python(code, name, NETCL_CACHE_DIR=folder)
                self.assertEqual(run.returncode, 0, run.stderr)
                first, count, refused = run.stdout.split()
                self.assertEqual((first, count != "0", refused), (value, compiled, "refused"), name)

    def test_errors(self):
        with self.assertRaisesRegex(RuntimeError, "(?s)CL_BUILD_PROGRAM_FAILURE.*nosuch"):
            torch_netcl.compile_kernel("__kernel void f(__global int* x) { *x = nosuch; }", "f").build()
        with self.assertRaisesRegex(RuntimeError, "CL_INVALID_KERNEL_NAME.*missing"):
            torch_netcl.compile_kernel(SCALE, "missing").build()
        scale = torch_netcl.compile_kernel(SCALE, "scale")
        x = torch.ones(100, device=D)
        wider = x.double() if torch.netcl.get_device_properties().has_fp64 else x.long()
        for args, error, text in (
            ((x, x, 1.0), TypeError, "takes 4 arguments but 3"),
            ((x, x.cpu(), 1.0, 1), TypeError, "argument 1 is a tensor on cpu"),
            ((x, wider, 1.0, 1), TypeError, r"float\*"),
            ((x, x, x, 1), TypeError, "argument 2 is a float"),
            ((x, x, 1.0, 1.5), TypeError, "argument 3 is a int"),
            ((x, x, 1.0, 2**31), ValueError, "cannot hold"),
            ((x, x, 1e60, 1), ValueError, "cannot hold"),
            ((x, 1, 1.0, 1), TypeError, r"float\*"),
            ((x, x, np.float64(1), 1), TypeError, "float64"),
            ((x, x, "1", 1), TypeError, "str"),
            ((x, x[1:], 1.0, 1), ValueError, "clone"),
        ):
            with self.subTest(text=text), self.assertRaisesRegex(error, text):
                scale(*args, global_size=1)
        for sizes in ({"global_size": 0}, {"global_size": (1, 1, 1, 1)}, {"global_size": 10, "local_size": 4}):
            with self.subTest(sizes=sizes), self.assertRaises(ValueError):
                scale(x, x, 1.0, 1, **sizes)
        with self.assertRaisesRegex(RuntimeError, "CL_INVALID_WORK_GROUP_SIZE.*scale"):
            scale(x, x, 1.0, 1, global_size=1 << 22, local_size=1 << 22)
        scale(x, x, 3.0, 100, global_size=100)
        self.assertEqual(x.cpu(), torch.full((100,), 3.0))

    def test_included_files_are_part_of_the_program(self):
        source = '#include "outer.h"\n__kernel void set(__global int* x) { x[0] = VALUE; }'
        x = torch.zeros(1, dtype=torch.int32, device=D)
        with tempfile.TemporaryDirectory() as folder:
            outer, inner = Path(folder) / "outer.h", Path(folder) / "inner.h"
            outer.write_text('#include "inner.h"\n')
            for value in (1, 2, 3, 2):
                inner.write_text(f"#define VALUE {value}\n")
                for options in (f"-I {folder}", [f"-I{folder}", "-DOTHER"]):
                    torch_netcl.compile_kernel(source, "set", options)(x, global_size=1)
                    self.assertEqual(x.item(), value)
        with self.assertRaisesRegex(RuntimeError, "outer.h"):
            torch_netcl.compile_kernel(source, "set")(x, global_size=1)

    def test_names_that_no_kernel_can_have(self):
        good = "__kernel void good(__global int* x) { x[0] = 7; }\n"
        long = "k" * 100_000
        for name, source in (
            (long, good),
            (long, good.replace("good", long)),
            ("good", good + good.replace("good", long)),
            ("", good),
            ("no name", good),
            ("good\0", good),
        ):
            with self.assertRaisesRegex(ValueError, "cannot name a kernel"):
                torch_netcl.compile_kernel(source, name)
        x, name = torch.zeros(1, dtype=torch.int32, device=D), "k" * 200
        torch_netcl.compile_kernel(good.replace("good", name), name)(x, global_size=1)
        self.assertEqual(x.item(), 7)

    def test_large_output_in_memory_that_is_hardly_aligned(self):
        n = 9 << 20  # so large that it may be stored past the cache, in whole aligned vectors
        raw = np.zeros(4 * n + 4096, np.uint8)
        at = -raw.ctypes.data % 4096 + 16
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        buffer = cl.Buffer(interop.context(), flags, hostbuf=raw[at : at + 4 * n])
        y = interop.from_pyopencl(cl.array.Array(interop.current_queue(), (n,), np.float32, data=buffer))
        x = torch.arange(n, dtype=torch.float32)
        torch.add(x.to(D), x.to(D), out=y)
        self.assertEqual(y.cpu(), x + x)

    def test_document(self):
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "interop.md").read_text(), re.S)
        self.assertGreaterEqual(len(blocks), 3)
        namespace = {}
        for block in blocks:
            exec(block, namespace)


if __name__ == "__main__":
    run_tests()
