"""Every file of kernels/ compiles without a warning, for CPUs and for GPUs."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from processes import python
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests

HERE = Path(__file__).parent
# Files that are used only for one class of device, or without a capability.
ELSEWHERE = {
    "cpu": {
        "attention_flash.cl", "conv/conv_gemm_gpu.cl", "conv/conv_panels.cl", "conv/conv_units.cl",
        "embedding_sorted.cl",
        "gemm/gemm_gpu.cl", "gemm/gemm_units.cl", "linalg_gpu.cl", "masked_gpu.cl",
        "reduce/reduce_group.cl", "soft_double.cl", "sort/radix_pass.cl", "sort/radix_results.cl",
        "sort/radix_rows.cl", "sort/radix_select.cl",
    },
    "gpu": {
        "attention_blocks.cl", "attention_blocks_backward.cl", "attention_decode.cl",
        "conv/conv_channels.cl", "conv/conv_channels_few.cl", "conv/conv_channels_flat.cl", "conv/conv_depthwise.cl",
        "conv/conv_gemm.cl", "conv/conv_pack.cl", "conv/conv_units.cl", "fft_lines.cl",
        "gemm/gemm_cpu.cl", "gemm/gemm_pack.cl", "gemm/gemm_direct.cl", "gemm/gemm_units.cl",
        "norm_channels.cl", "pool_rows.cl", "reduce/reduce_inner.cl",
        "rnn/lstm_steps.cl", "soft_double.cl", "sort/sort_merge.cl", "sort/sort_results.cl",
        "sort/sort_select.cl", "upsample_lines.cl", "upsample_pixels.cl",
    },
}


def programs(device_class, **env):
    environment = {**os.environ, "NETCL_DEVICE_CLASS": device_class, "NETCL_CPU_FALLBACK": "silent"}
    environment |= {"NETCL_LOG": "compile", **env}
    run = subprocess.run(
        [sys.executable, str(HERE / "kernel_workload.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    assert "needs more than" not in run.stderr, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


class TestKernels(TestCase):
    @parametrize("device_class", ["cpu", "gpu"])
    def test_compile_without_warnings(self, device_class):
        built = programs(device_class)
        for file, options, log in built:
            self.assertNotRegex(log, re.compile("warning:|error:|CL_BUILD", re.I), f"{file}{options}")
        used = {file for file, _, _ in built}
        folder = HERE.parent / "kernels"
        known = {str(p.relative_to(folder)) for p in folder.rglob("*.cl")}
        self.assertEqual(sorted(known - used - ELSEWHERE[device_class]), [], "extend kernel_workload.py")

    def test_functions_are_static(self):
        """In C99, a plain inline function needs another definition; some GPU drivers' linkers then miss it."""
        for path in (HERE.parent / "kernels").rglob("*.*"):
            for line in path.read_text().splitlines():
                self.assertNotRegex(line.partition("//")[0], r"(?<!static )\binline\b", str(path))

    def test_kernels_print_nothing(self):
        """NVIDIA's driver keeps what kernels print in 1 MiB, and loses the rest."""
        for path in (HERE.parent / "kernels").rglob("*.*"):
            self.assertNotRegex(path.read_text(), r"\bprintf\b", str(path))

    def test_functions_of_local_memory_are_inlined(self):
        """PoCL 3.0 does not find a kernel's local array in a function that is not: see ALWAYS_INLINE."""
        for path in (HERE.parent / "kernels").rglob("*.*"):
            self.assertNotRegex(path.read_text(), r"(?m)^ *static inline [^;{]*__local", str(path))

    def test_local_memory_is_no_global_variable(self):
        """In PoCL's programs. If it were one, all work-groups would share it."""
        if "PoCL" not in torch.netcl.get_device_properties().platform_version:
            self.skipTest("only PoCL stores programs as ELF files")
        code = """
import torch
x = torch.randn(2, 66, 66, device="netcl")
torch.linalg.svdvals(x), torch.linalg.svdvals(x[:, :8, :9])
x.sum(), x.softmax(2)
torch.netcl.synchronize()
"""
        with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as pocl:
            run = python(code, NETCL_DEVICE_CLASS="gpu", NETCL_CACHE_DIR=ours, POCL_CACHE_DIR=pocl)
            self.assertEqual(run.returncode, 0, run.stderr)
            compiled = {path.stem: path.read_bytes() for path in Path(pocl).rglob("*.so")}
        self.assertIn("jacobi_round", compiled)
        shared = [name for name, file in compiled.items() if f"\0{name}.".encode() in file]
        self.assertEqual(shared, [])

    def test_each_kernel_is_compiled_once_and_no_other(self):
        """PoCL stores what it compiles in a folder, where it can be counted."""
        if "PoCL" not in torch.netcl.get_device_properties().platform_version:
            self.skipTest("only PoCL shows what it compiles")
        code = """
import torch
x = torch.ones(8, 40, device="netcl", requires_grad=True)
(x.softmax(1) + x.t().contiguous().t()).sum().backward()
torch.nn.functional.batch_norm(x, None, None, training=True).sum().item()
print(*(line.split(chr(9))[1].split()[1] for line in torch.ops.netcl.programs_in_use()))
"""
        with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as pocl:
            run = python(code, NETCL_CACHE_DIR=ours, POCL_CACHE_DIR=pocl, POCL_WORK_GROUP_SPECIALIZATION=None)
            self.assertEqual(run.returncode, 0, run.stderr)
            compiled = [path.stem for path in Path(pocl).rglob("*.so")]
        self.assertEqual(sorted(compiled), sorted(run.stdout.split()))
        self.assertIn("batch_norm_", "".join(compiled))

    def test_generated_attention_compiles_without_warnings(self):
        """PoCL counts warnings on the standard error stream of whoever uses it."""
        if "PoCL" not in torch.netcl.get_device_properties().platform_version:
            self.skipTest("only PoCL prints what its compiler warns of")
        code = """
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
x, places = torch.randn(1, 2, 64, 16, device="netcl", requires_grad=True), torch.arange(64, device="netcl").flip(0)
blocks = create_block_mask(lambda b, h, i, j: i >= places[j], None, None, 64, 64, device="netcl")
score = lambda s, b, h, i, j: torch.tanh(s) + places[j] / 64
torch.compile(flex_attention)(x, x, x, score_mod=score, block_mask=blocks).sum().backward()
torch.netcl.synchronize()
"""
        with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as pocl:
            run = python(code, NETCL_CACHE_DIR=ours, POCL_CACHE_DIR=pocl, TORCHINDUCTOR_FORCE_DISABLE_CACHES="1")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertNotRegex(run.stderr, "warnings? generated")

    def test_a_long_wait_says_so(self):
        """One line is printed when kernels have taken that many seconds to compile; not if they come from disk, or if
        it is turned off."""
        code = "import torch; x = torch.ones(4, device='netcl'); (x + 1).neg().sum().item()"
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            cases = [(first, "0", 1), (first, "0", 0), (second, "-1", 0), (second, "0", 0)]
            for folder, limit, expected in cases:
                run = python(code, NETCL_CACHE_DIR=folder, NETCL_COMPILE_NOTICE=limit)
                self.assertEqual(run.returncode, 0, run.stderr)
                lines = [line for line in run.stderr.splitlines() if "kernels are being compiled" in line]
                self.assertEqual(len(lines), expected, run.stderr)
                self.assertTrue(all(folder in line for line in lines))
                self.assertNotIn("\r", run.stderr)  # the counter is for terminals

    def test_a_terminal_gets_a_counter(self):
        code = "import torch; x = torch.ones(4, device='netcl'); (x + 1).neg().sum().item()"
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "NETCL_CACHE_DIR": folder, "NETCL_COMPILE_NOTICE": "0"}
            ours, theirs = os.openpty()
            process = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=theirs)
            os.close(theirs)
            shown = b""
            with contextlib.suppress(OSError):  # the other end is closed
                while part := os.read(ours, 4096):
                    shown += part
            os.close(ours)
            self.assertEqual(process.wait(), 0)
        text = shown.decode().replace("\r\n", "\n")
        self.assertIn("kernels are being compiled", text)
        self.assertRegex(text, r"\rnetcl: compiling kernel [23], \d+ s so far")
        self.assertRegex(text, r"\r {60}\r$")  # and it is gone

    def test_no_vectors_of_work_items(self):
        """If a work-group is one work-item, Intel's compiler generates the same as with its vectorizer off (mode 1)."""
        if "Intel" not in torch.netcl.get_device_properties().platform_name:
            self.skipTest("only Intel's compiler makes vectors of work-items before it knows the work-group's size")
        code = """
import torch
x = torch.ones(64, 40, device="netcl")
((x @ x.t()).softmax(1).sum(0) + x.sum(1)).cumsum(0).cpu()
"""
        sizes = []
        for mode in ({}, {"CL_CONFIG_CPU_VECTORIZER_MODE": "1"}):
            with tempfile.TemporaryDirectory() as folder:
                environment = {k: v for k, v in os.environ.items() if k != "CL_CONFIG_CPU_VECTORIZER_MODE"}
                environment |= {"NETCL_CACHE_DIR": folder, "NETCL_DEVICE_CLASS": "cpu", **mode}
                run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
                self.assertEqual(run.returncode, 0, run.stderr)
                sizes.append(sorted(path.stat().st_size for path in Path(folder).glob("*.bin")))
        ours, without = sizes
        self.assertEqual(len(ours), len(without))
        self.assertGreater(len(ours), 4)
        for size, least in zip(ours, without, strict=True):
            self.assertLess(size, 1.1 * least)

    def test_arguments_of_host_and_device_have_one_definition(self):
        """A struct that a kernel takes is defined in kernels/args, which C++ includes too, and nowhere else."""
        root = HERE.parent
        kernels = {p: p.read_text() for p in (root / "kernels").rglob("*") if p.suffix in (".cl", ".h")}
        shared = {p: text for p, text in kernels.items() if p.parent.name == "args"}
        names = set()
        for text in shared.values():
            names |= set(re.findall(r"^\} (\w+);", text, re.M))
            names |= set(re.findall(r"^TEMPLATE_STRUCT\([\w ]+, (\w+)\)", text, re.M))
        self.assertGreater(len(names), 25)
        others = [text for p, text in kernels.items() if p not in shared]
        others += [p.read_text() for p in (root / "csrc").rglob("*") if p.suffix in (".cpp", ".h")]
        for text in others:
            defined = set(re.findall(r"^\} (\w+);|^\s*struct (\w+)[^;(){]*\{", text, re.M))
            self.assertEqual(names & {name for pair in defined for name in pair}, set())
        taken = set()
        for p, text in kernels.items():
            structs = [] if p in shared else re.findall(r"^typedef struct\b[^;{]*\{[^}]*\} (\w+);", text, re.M)
            arguments = re.findall(r"^__kernel\b(.*?)\) \{", text, re.M | re.S)
            arguments += re.findall(r"^#define ARGS (.*)$", text, re.M)
            types = set(re.findall(r"\bconst (\w+) \w+\b", " ".join(arguments)))
            self.assertEqual(types & set(structs), set(), f"{p.name}: define it in kernels/args")
            taken |= types & names
        self.assertGreater(len(taken), 20)

    def test_a_broken_kernel_says_what_and_where(self):
        log = torch.ops.netcl.build_log(0, "unary.cl", "flat", "-DOP=OP_no_such_operator")
        self.assertIn("error", log)


instantiate_parametrized_tests(TestKernels)

if __name__ == "__main__":
    run_tests()
