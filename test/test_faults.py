"""Every OpenCL function that the runtime calls fails once in each piece of work that calls it. The error names it, or
the result is right in spite of it, and afterwards everything works. docs/reliability.md says what each fault does."""

import gc
import itertools
import json
import re
import subprocess
import sys
import time
import warnings
from collections import defaultdict, deque
from pathlib import Path

import numpy as np
import pyopencl.array
import torch
from torch.profiler import ProfilerActivity, profile
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl
from torch_netcl import interop

D = torch.device("netcl", 0)
NETCL = torch.ops.netcl
CODE, SYMBOL = -5, "CL_OUT_OF_RESOURCES"

# Functions whose failure gives no error, everywhere ("") or in a step: a program is built again, a copy waits, an
# allocation is repeated, a freed block waits, a handle leaks, a trace lacks a line.
SURVIVED = {
    "clBuildProgram": "user_kernel",  # of the binary that a build thread made: then of the source
    "clCreateBuffer": "",
    "clEnqueueFillBuffer": "",  # the first use of a new slab, on GPUs
    "clCreateProgramWithBinary": "",
    "clGetKernelWorkGroupInfo": "",
    "clGetEventInfo": "allocator",
    "clGetProgramBuildInfo": "",
    "clGetProgramInfo": "",
    "clReleaseEvent": "",
    "clReleaseMemObject": "",
    "clReleaseProgram": "",
    "clRetainEvent": "",
    "clSetEventCallback": "",
    "clSetMemObjectDestructorCallback": "",
    "clGetKernelArgInfo": "user_kernel",
    "clEnqueueMarkerWithWaitList": "side_stream profiler",
    "clFlush": "side_stream profiler",
    "clWaitForEvents": "profiler",
    "clGetEventProfilingInfo": "profiler",
}
# Tried again if the driver may lack memory, after cached memory is returned. So they fail twice.
REPEATED = {
    "clEnqueueNDRangeKernel",
    "clEnqueueReadBuffer",
    "clEnqueueWriteBuffer",
    "clEnqueueCopyBuffer",
    "clEnqueueFillBuffer",
}
# Called between two devices (see test_multi_device.py), and for a user's kernel whose types the driver does not tell.
ELSEWHERE = {
    "clCreateUserEvent",
    "clSetUserEventStatus",
    "clEnqueueMapBuffer",
    "clEnqueueUnmapMemObject",
    "clReleaseKernel",
}

# Called only by the start of the runtime.
STARTING = {
    "clGetPlatformIDs",
    "clGetPlatformInfo",
    "clGetDeviceIDs",
    "clCreateSubDevices",
    "clCreateContext",
    "clCreateCommandQueue",
    "clCreateProgramWithBinary",
}
GOES_ON = {"clCreateSubDevices", "clCreateProgramWithBinary", "clBuildProgram"}  # the latter of a program on disk
OF_ONE_DRIVER = {"clGetPlatformInfo", "clGetDeviceIDs", "clGetDeviceInfo"}  # its devices are left out, with a warning
HEADER = Path(__file__).parent.parent / "csrc" / "runtime" / "OpenCL.h"

RUN = time.time_ns()  # so that no program of an earlier run is on disk
numbers = itertools.count(1)
reported = []  # the IndexErrors of bad_index
kept = deque(maxlen=5)  # tensors at other addresses than before, so that kernels get new arguments


def expect(tensor, value):
    kept.append(tensor)
    torch.testing.assert_close(tensor.cpu(), torch.as_tensor(value, dtype=tensor.dtype).expand(tensor.shape))


def allocate():
    torch.netcl.empty_cache()
    kept.append(torch.empty(24 << 20, dtype=torch.uint8, device=D))


def copy_in():
    expect(torch.full((1000,), 3.0).to(D), 3)


def copy_in_large():
    x = torch.full((400_000,), 3.0).to(D)
    assert x[-1].item() == 3


def copy_pinned():
    x = torch.full((1000,), 3.0).pin_memory()
    y = x.to(D, non_blocking=True)
    kept.append(y)
    z = torch.empty(1000).pin_memory()
    z.copy_(y, non_blocking=True)
    torch.netcl.synchronize()
    assert z.eq(3).all()


def copy_on_device():
    expect(torch.ones(1000, device=D).clone(), 1)


def element_wise():
    expect(torch.ones(1000, device=D) * 2.5, 2.5)


def strided():
    expect(torch.ones(30, 40, device=D).t()[::2] + 1, 2)


def reduction():
    expect(torch.ones(70, 300, device=D).sum(1), 300)


def gemm():
    a = torch.ones(64, 64, device=D)
    expect(a @ a, 64)


def backward():
    w = torch.ones(9, 9, device=D, requires_grad=True)
    (w * w).sum().backward()
    expect(w.grad, 2)


def user_kernel():
    n = next(numbers)
    add = torch_netcl.compile_kernel(
        f"/* {RUN} */ __kernel void add(__global float* x, float v) {{ x[get_global_id(0)] += v + {n}; }}", "add"
    )
    x = torch.zeros(128, device=D)
    add(x, 1.0, global_size=128)
    expect(x, n + 1)


def timing():
    a, b = torch.netcl.Event(enable_timing=True), torch.netcl.Event(enable_timing=True)
    a.record()
    x = torch.ones(1000, device=D) + 1
    b.record()
    b.synchronize()
    while not (a.query() and torch.netcl.current_stream().query()):
        pass
    assert a.elapsed_time(b) > 0
    expect(x, 2)


def side_stream():
    side = torch.netcl.Stream()
    x = torch.ones(1000, device=D) + 1
    side.wait_stream(torch.netcl.current_stream())
    with torch.netcl.stream(side):
        y = x * 2
    x.record_stream(side)
    del x
    z = torch.empty(1000, device=D).fill_(7)  # not in x's memory while `side` reads it
    torch.netcl.current_stream().wait_stream(side)
    expect(y, 4)
    expect(z, 7)


def many_launches():
    x = torch.zeros(100, device=D)
    for _ in range(70):
        x = x + 1
    expect(x, 70)


def bad_index():
    x = torch.ones(5, 3, device=D)
    y = x.gather(0, torch.full((1, 3), 7, device=D))
    try:
        y.cpu()
    except IndexError as e:
        assert "gather" in str(e) and "7" in str(e), e
        reported.append(str(e))
        if SYMBOL in str(e):
            raise
    else:
        raise AssertionError("no IndexError")


def shared_array():
    a = pyopencl.array.to_device(interop.current_queue(), np.ones(100, np.float32))
    expect(interop.from_pyopencl(a) + 1, 2)


def profiler():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with profile(activities=[ProfilerActivity.PrivateUse1]):
            copy_in()


# What each error must name besides the OpenCL function: the operator, if one ran.
STEPS = {
    allocate: "",
    copy_in: "copy_",
    copy_in_large: "copy_|_local_scalar_dense",
    copy_pinned: "",
    copy_on_device: "copy_|fill",
    element_wise: "copy_|fill|mul",
    strided: "copy_|fill|add",
    reduction: "copy_|fill|sum",
    gemm: "copy_|fill|mm",
    backward: "",
    many_launches: "",
    user_kernel: "",
    timing: "",
    side_stream: "",
    bad_index: "",
    shared_array: "",
    profiler: "",
}
# Calls that belong to no operator: synchronize(), statistics of a queue, releases.
NAMELESS = {"clFinish", "clFlush", "clCreateBuffer", "clGetMemObjectInfo"}


def calls_of(function, code=0, entry="", after=0, times=1):
    """(how often `function` calls each OpenCL function, the exception that it raised or None)."""
    error = None
    NETCL._inject_error(entry, code, after, times)
    try:
        function()
    except Exception as e:
        error = e
    finally:
        counts = NETCL._end_injection()
    return {k: v for k, v in counts.items() if v}, error


START = """
import json, os, sys, warnings, torch
warnings.simplefilter("ignore")
NETCL = torch.ops.netcl

def work():
    assert (torch.ones(5, device="netcl") * 3).cpu().tolist() == [3.0] * 5

def attempt():
    try:
        work()
    except RuntimeError as e:
        return str(e).split("\\nException raised")[0]

def child(entry, after):
    os.environ["NETCL_SUBDEVICES"] = "2" if entry == "clCreateSubDevices" else "1"
    NETCL._inject_error(entry, -5, after)
    first = attempt()
    calls = NETCL._end_injection()
    return {"calls": calls.get(entry, 0), "first": first, "second": attempt()}

for line in sys.stdin:
    entry, after = line.split()
    read, write = os.pipe()
    pid = os.fork()  # before the first OpenCL call of this process
    if pid == 0:
        os.write(write, json.dumps(child(entry, int(after))).encode())
        os._exit(0)
    os.close(write)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    text = os.read(read, 1 << 16).decode()
    os.close(read)
    print(json.dumps([entry, int(after), status, json.loads(text) if text else {}]), flush=True)
"""


class TestFaults(TestCase):
    def recover(self, *steps):
        gc.collect()
        torch.netcl.synchronize()
        for step in steps:
            step()

    def test_each_call_fails_once(self):
        for step in 2 * list(STEPS):  # what is built and allocated once
            step()
        hit, survived = set(), defaultdict(set)
        for step, op in STEPS.items():
            counts, error = calls_of(step)
            self.assertIsNone(error, step.__name__)
            for entry, n in counts.items():
                if step is profiler and entry in hit:
                    continue
                hit.add(entry)
                for after in sorted({0, n - 1}):
                    what = f"{entry}, call {after} of {n} in {step.__name__}"
                    reported.clear()
                    times = 2 if entry in REPEATED else 1
                    again, error = calls_of(step, CODE, entry, after, times)
                    if error is None:
                        if again.get(entry, 0) > after:  # otherwise there were fewer calls
                            survived[entry].add(step.__name__)
                        continue
                    if entry == "clGetKernelArgInfo":  # as on drivers that never know the types
                        self.assertRegex(str(error), "the driver does not tell", what)
                        continue
                    self.assertIsInstance(error, (RuntimeError, ValueError, IndexError), what)
                    self.assertRegex(str(error), rf"{entry} failed with {SYMBOL} \({CODE}\)", what)
                    if op and entry not in NAMELESS:
                        self.assertRegex(str(error), rf"while running (aten::)?({op})", what)
                    if step is bad_index and not reported and entry in ("clFinish", "clEnqueueReadBuffer"):
                        with self.assertRaises(IndexError, msg=what):  # reported late, but reported
                            torch.netcl.synchronize()
                    else:
                        try:
                            torch.netcl.synchronize()
                        except IndexError:
                            self.assertIs(step, bad_index, what)
                    try:
                        self.recover(step, element_wise, side_stream)
                    except Exception as e:
                        raise AssertionError(f"after {what}: {e}") from e
            self.recover(*STEPS)
        for entry, steps in survived.items():
            self.assertIn(entry, SURVIVED, steps)
            if SURVIVED[entry] not in ("", "allocator"):
                self.assertLessEqual(steps, set(SURVIVED[entry].split()), entry)
        # The start of the runtime calls all other functions.
        names = set(re.findall(r"_\((cl\w+)\)", HEADER.read_text()))
        unused = {"clReleaseProgram"}
        if torch.netcl.get_device_properties(D).device_type != "cpu":
            unused.add("clSetMemObjectDestructorCallback")
        # PoCL's programs are built in a context of the build thread, and loaded into the device's.
        loading = {"clCreateProgramWithBinary", "clReleaseProgram"}
        self.assertEqual(names - hit - loading, (STARTING | ELSEWHERE | unused) - loading)

    def test_commands_are_repeated(self):
        for step in (copy_in_large, copy_on_device, strided):
            step()
            counts, error = calls_of(step)
            self.assertIsNone(error)
            for entry in REPEATED & set(counts):
                for code in (CODE, -4, -6):  # CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY
                    again, error = calls_of(step, code, entry)
                    self.assertIsNone(error, f"{entry} {code} in {step.__name__}")
                    self.assertGreater(again[entry], counts[entry])
                    _, error = calls_of(step, code, entry, times=9)  # a new slab's first use is tried three times
                    self.assertIsInstance(error, torch.OutOfMemoryError, f"{entry} {code} in {step.__name__}")
                    self.recover(step)
                _, error = calls_of(step, -52, entry)  # CL_INVALID_KERNEL_ARGS
                self.assertRegex(str(error), f"{entry} failed with CL_INVALID_KERNEL_ARGS")
                self.recover(step)

    def test_reads_wait_for_the_queue_first(self):
        """Within a blocking read, Intel's runtime would run what is queued in this thread alone (Queue.cpp)."""
        x = torch.ones(300, 300, device="netcl")
        (x @ x).sum().item()  # compiles the kernels
        calls, error = calls_of(lambda: (x @ x).sum().item())
        self.assertIsNone(error)
        on_cpu = torch.netcl.get_device_properties().device_type == "cpu"
        self.assertEqual((calls.get("clFinish", 0), calls["clEnqueueReadBuffer"]), (int(on_cpu), 1))

    def test_program_that_does_not_build(self):
        def build():
            source = f"__kernel void broken(__global float* x) {{ *x = no_such_thing + {RUN}; }}"
            torch_netcl.compile_kernel(source, "broken")(torch.ones(1, device=D), global_size=1)

        for entry in ("", "clGetProgramBuildInfo", "clReleaseProgram"):
            counts, error = calls_of(build, CODE, entry, 0)
            self.assertIsInstance(error, RuntimeError)
            self.assertRegex(str(error), "clBuildProgram failed with CL_BUILD_PROGRAM_FAILURE", entry)
            self.assertEqual("no_such_thing" in str(error), entry != "clGetProgramBuildInfo", str(error))
            self.assertEqual(counts["clReleaseProgram"], 1)
        element_wise()

    def test_start(self):
        """Functions that find devices and create contexts and queues, each in a new process."""
        work = "import torch; (torch.ones(5, device='netcl') * 3).cpu()"
        subprocess.run([sys.executable, "-c", work], check=True)  # so that the programs are on disk
        cases = [
            (entry, after) for entry in (*sorted(STARTING), "clGetDeviceInfo", "clBuildProgram") for after in (0, 1)
        ]
        lines = "".join(f"{entry} {after}\n" for entry, after in cases)
        done = subprocess.run([sys.executable, "-c", START], input=lines, capture_output=True, text=True, timeout=500)
        results = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(results), len(cases), done.stderr)
        for entry, after, status, result in results:
            what = f"{entry}, call {after}: {result}"
            self.assertEqual(status, 0, what)
            if after == 0:
                self.assertGreater(result["calls"], 0, what)
            elif result["calls"] <= after:
                continue
            # The second queue is that for small launches, which a device need not have.
            if entry in GOES_ON or (entry == "clCreateCommandQueue" and after == 1):
                self.assertIsNone(result["first"], what)
            elif result["first"] is not None or entry not in OF_ONE_DRIVER:
                self.assertRegex(str(result["first"]), rf"{entry} failed with {SYMBOL} \({CODE}\)", what)
            # A device whose driver failed stays left out; everything else is tried again.
            if result["second"] is not None:
                self.assertIn(entry, OF_ONE_DRIVER, what)
                none = "(no OpenCL device was found|names none of them)"
                self.assertRegex(result["second"], rf"{none}(.|\n)*{entry} failed", what)


if __name__ == "__main__":
    run_tests()
