"""The names that torch's own Python reads from torch.netcl, and what it does with them: checkpoint, fork_rng,
accelerator, dynamo, forks."""

import os
import shutil
import subprocess
import tempfile
import unittest

import torch
from device_module_names import asked
from processes import python
from torch.testing._internal.common_utils import TestCase, run_tests
from torch.utils.checkpoint import checkpoint

D = torch.device("netcl", 0)

#: The names that torch.netcl lacks, and why.
ABSENT = {
    "Scheduling": "torch_netcl/inductor registers its own",
    "PythonWrapperCodegen": "torch_netcl/inductor registers its own",
    "CppWrapperCodegen": "the C++ wrappers do not support OpenCL",
    "WrapperFxCodegen": "the FX wrapper does not support OpenCL",
    "from_device": "a method of FSDP's own handle",
    "set_rng_ctx": "asked of Habana's devices alone",
    "unset_rng_ctx": "asked of Habana's devices alone",
    "sparse": "the legacy types of sparse tensors; torch asks whether they are there",
}


class TestNames(TestCase):
    @unittest.skipIf(not torch.__version__.startswith("2.13"), "the table is of torch 2.13")
    def test_all_that_torch_asks_for(self):
        names = asked()
        self.assertGreater(len(names), 30)
        for known in ("_initialized", "get_rng_state", "current_stream", "device_count", "_get_generator", "Event"):
            self.assertIn(known, names)  # the search works
        missing = {name: files for name, files in names.items() if not hasattr(torch.netcl, name)}
        self.assertEqual(sorted(missing), sorted(ABSENT), str(missing))

    def test_get_device_index(self):
        index = torch.netcl._utils._get_device_index
        self.assertEqual(
            [index(1), index("netcl:1"), index(D), index("netcl", True), index(None, True)], [1, 1, 0, 0, 0]
        )
        self.assertEqual(index("cpu", allow_cpu=True), -1)
        for bad in ("netcl", None, "cpu", "cuda:0"):
            with self.assertRaises(ValueError):
                index(bad)
        self.assertIs(torch.netcl._get_generator(D), torch.netcl._get_generator(0))


class TestRandomState(TestCase):
    def test_checkpoint(self):
        """The recomputation in backward draws the numbers of forward; without preserve_rng_state it draws others."""

        def run(x, **options):
            y = checkpoint(lambda x: torch.nn.functional.dropout(x * 2, 0.5, True), x, **options)
            y.sum().backward()
            return ((y != 0) == (x.grad != 0)).all().item()

        for reentrant in (True, False):
            for preserve, same in ((True, True), (False, False)):
                with self.subTest(reentrant=reentrant, preserve=preserve):
                    x = torch.randn(1000, device=D, requires_grad=True)
                    self.assertEqual(run(x, use_reentrant=reentrant, preserve_rng_state=preserve), same)
        # The next numbers are the same as without a checkpoint.
        torch.manual_seed(1)
        run(torch.randn(9, device=D, requires_grad=True), use_reentrant=False)
        after = torch.rand(5, device=D)
        torch.manual_seed(1)
        torch.nn.functional.dropout(torch.randn(9, device=D), 0.5, True)
        self.assertEqual(torch.rand(5, device=D), after, rtol=0, atol=0)

    def test_checkpoint_sequential(self):
        layers = torch.nn.Sequential(
            *(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5)) for _ in range(4))
        )
        layers.to(D)
        x = torch.randn(16, 8, device=D, requires_grad=True)
        grads = []
        for run in (layers, lambda x: torch.utils.checkpoint.checkpoint_sequential(layers, 2, x, use_reentrant=False)):
            torch.manual_seed(3)
            grads.append(torch.autograd.grad(run(x).square().sum(), [x, *layers.parameters()]))
        self.assertEqual(grads[0], grads[1], rtol=0, atol=0)

    def test_fork_rng(self):
        for options in (
            {"device_type": "netcl"},
            {"devices": [0], "device_type": "netcl"},
            {"devices": [D], "device_type": "netcl"},
        ):
            torch.manual_seed(5)
            with torch.random.fork_rng(**options):
                torch.randn(100, device=D)
                torch.manual_seed(9)
            first = torch.randn(5, device=D)
            torch.manual_seed(5)
            self.assertEqual(torch.randn(5, device=D), first, rtol=0, atol=0)

    def test_seeds(self):
        for seed in (0, 7, -1, 2**63 - 1, 2**64 - 1):
            torch.manual_seed(seed)
            self.assertEqual(torch.netcl.initial_seed(), torch.initial_seed())
        with self.assertRaises((RuntimeError, ValueError, OverflowError)):
            torch.netcl.manual_seed_all(2**64)


class TestAccelerator(TestCase):
    def test_host_memory(self):
        torch.accelerator.memory.empty_host_cache()
        x = torch.ones(1000).pin_memory()
        x.to(D, non_blocking=True)
        torch.accelerator.memory.empty_host_cache()
        self.assertEqual(x.sum(), 1000)

    def test_capability(self):
        """The dtypes that conversions take, by trying them."""
        told = torch.accelerator.get_device_capability()["supported_dtypes"]
        dtypes = {v for v in vars(torch).values() if isinstance(v, torch.dtype)}
        for dtype in dtypes:
            try:
                x = torch.empty(3, dtype=dtype, device=D).copy_(torch.ones(3, device=D))
                works = x.to(torch.float32).sum().item() == 3  # float8_e8m0fnu has no zero
            except (RuntimeError, NotImplementedError):
                works = False
            self.assertEqual(dtype in told, works, str(dtype))

    def test_no_function_ends_the_process(self):
        """All functions of torch._C about an accelerator, with all kinds of arguments."""
        done = python("""
import itertools, torch
torch.ones(3, device="netcl")
values = [None, 0, -1, 99, 1 << 40, "x", (), torch.device("cpu"), torch.device("netcl:0"), torch.device("netcl:7")]
functions = [getattr(torch._C, n) for n in sorted(dir(torch._C)) if n.startswith("_accelerator_")]
functions += [getattr(torch.accelerator, n) for n in torch.accelerator.__all__]
ends = ("stream", "stats", "device", "cache", "state", "info")
functions += [getattr(torch.netcl, n) for n in sorted(dir(torch.netcl)) if n.endswith(ends)]
calls = 0
for f in functions:
    for count in range(3):
        for args in itertools.product(values, repeat=count):
            if count == 2 and None in args: continue
            print(f, args, flush=True)
            try: f(*args)
            except Exception: pass
            calls += 1
torch.netcl.set_device(0)
torch.netcl.set_stream(torch.netcl.default_stream())
print("calls", calls, torch.ones(3, device="netcl").sum().item())
""")
        self.assertEqual(done.returncode, 0, done.stdout[-500:] + done.stderr[-2000:])
        self.assertRegex(done.stdout, r"calls \d{3,} 3.0\n$")


class TestDynamo(TestCase):
    def test_interface(self):
        done = python("""
import sys, torch
assert "torch._dynamo" not in sys.modules and "torch_netcl._dynamo" not in sys.modules
from torch._dynamo.device_interface import DeviceInterface, get_interface_for_device
of = get_interface_for_device("netcl")
assert of is get_interface_for_device(torch.device("netcl:0"))
same = [n for n in vars(DeviceInterface) if not n.startswith("__") and getattr(of, n) is getattr(DeviceInterface, n)]
assert not torch.netcl.is_initialized()  # asking for it starts nothing
with of.device(0): pass
assert of.exchange_device(0) == of.maybe_exchange_device(0) == of.current_device() == 0
assert of.device_count() == torch.netcl.device_count() and of.is_available()
assert of.Worker.get_device_properties("netcl:0") == of.get_device_properties(0)
of.Worker.set_device(0)
assert of.Worker.current_device() == 0 and of.get_compute_capability() >= 12 and of.get_raw_stream(0) != 0
of._set_stream_by_id(3, 0, 20)
assert of.current_stream().stream_id == 3
print(same)
""")
        self.assertEqual((done.returncode, done.stdout), (0, "['is_triton_capable']\n"), done.stderr)

    def test_aot_eager(self):
        def f(x):
            with torch.netcl.stream(torch.netcl.current_stream()):
                return torch.nn.functional.gelu(x * 2).sum()

        x = torch.randn(50, device=D, requires_grad=True)
        y = torch.compile(f, backend="aot_eager")(x)
        y.backward()
        grad, x.grad = x.grad, None
        f(x).backward()
        self.assertEqual(grad, x.grad)


class TestFork(TestCase):
    def test_questions_do_not_spoil_a_fork(self):
        """A child that is forked after them can use a device, and its parent too."""
        done = python("""
import os, torch
assert torch.netcl.is_available() and torch.accelerator.is_available() and torch.netcl.device_count() > 0
assert torch.accelerator.device_count() == torch.netcl.device_count() and not torch.netcl.is_initialized()
torch.manual_seed(3)
torch.ones(3, requires_grad=True).sum().backward()  # autograd asks each backend for its devices
torch.accelerator.empty_cache()
x = torch.ones(3).pin_memory()
torch.save(x, os.devnull)
assert not torch.netcl.is_initialized()
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        ok = not torch.netcl._is_in_bad_fork() and torch.ones(5, device="netcl").sum().item() == 5
        os._exit(0 if ok and torch.netcl.is_initialized() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
count = torch.netcl.device_count()
print(torch.ones(4, device="netcl").sum().item(), torch.netcl.is_initialized(), count == torch.netcl.device_count())
pid = os.fork()
if pid == 0:
    try:
        torch.netcl.init()
    except RuntimeError as e:
        os._exit(0 if "spawn" in str(e) and not torch.netcl.is_initialized() else 2)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""")
        self.assertEqual((done.returncode, done.stdout), (0, "4.0 True True\n0\n"), done.stderr)

    @unittest.skipUnless(shutil.which(os.environ.get("CC", "cc").split()[0]), "needs a C compiler")
    def test_beside_cuda(self):
        """NVIDIA's driver does not start in a child of a process that uses CUDA, so this process counts."""
        with tempfile.TemporaryDirectory() as folder:
            cuda = f"{folder}/libcuda.so.1"
            command = [*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "-o", cuda, "-Wl,-soname,libcuda.so.1"]
            subprocess.run([*command, "-x", "c", os.devnull], check=True)
            code = f"import ctypes, torch; ctypes.CDLL({cuda!r}) if {{}} else None\n"
            code += "print(torch.netcl.device_count() > 0, torch.netcl.is_initialized())"
            for loaded in (False, True):
                self.assertEqual(python(code.format(loaded)).stdout, f"True {loaded}\n")

    def test_seed_before_the_first_use(self):
        code = "import torch; torch.manual_seed(11); started = torch.netcl.is_initialized()\n"
        code += "print(started, torch.rand(3, device='netcl').tolist())"
        torch.manual_seed(11)
        self.assertEqual(python(code).stdout.strip(), f"False {torch.rand(3, device=D).tolist()}")

    def test_without_a_child(self):
        """If no process can be forked, this one counts."""
        done = python(
            "import resource, torch; resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))\n"
            "import os; os.setuid(65534) if os.getuid() == 0 else None\n"
            "print(torch.netcl.device_count() >= 0)"
        )
        self.assertEqual((done.returncode, done.stdout), (0, "True\n"), done.stderr)

    def test_environment(self):
        """Errors list the unknown words and the known ones."""
        for variable, allowed in (
            ("NETCL_LOG", "compile, launch, alloc, plan"),
            ("NETCL_MATRIX_ENGINE", "none, avx512_bf16, amx, mma_sm75"),
            ("NETCL_DISABLE", "fp16, fp64"),
            ("NETCL_FP16", "storage"),
        ):
            done = python("import torch; print(torch.netcl.is_available()); torch.netcl.init()", **{variable: "fp61"})
            self.assertEqual(done.stdout, "False\n")
            self.assertIn(f"{variable}: 'fp61' is not one of {allowed}", done.stderr)


if __name__ == "__main__":
    run_tests()
