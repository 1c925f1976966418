"""tools/gpu_lab.py reads the reports of the GPU vendors' compilers, and tools/oclgrind.py those of Oclgrind; the texts
here were recorded."""

import dataclasses
import importlib.util
import json
import subprocess
import sys
import tempfile
import types
from pathlib import Path

from processes import python
from torch.testing._internal.common_utils import TestCase, run_tests


def load(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent.parent / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


lab, races = load("gpu_lab"), load("oclgrind")

PTXAS = """\
ptxas info    : Compiling entry function 'gemm_tiled' for 'sm_80'
ptxas info    : Function properties for gemm_tiled
    384 bytes stack frame, {} bytes spill stores, {} bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 384 bytes cumulative stack size, 8256 bytes smem, 688 bytes cmem[0]
"""
SASS = """\
.text.gemm_tiled:
        /*0000*/                   LDG.E.128 R4, [R2.64] ;
.L_x_2:
        /*0010*/                   LDG.E.U16 R9, [R2.64] ;
.L_x_1:
        /*0020*/                   LDS.128 R4, [R18] ;
        /*0030*/                   LDS R16, [R19+0x40] ;
        /*0040*/                   FFMA R20, R4, R16, R20 ;
        /*0050*/               @!P1 FFMA R21, R5, R16, R21 ;
        /*0060*/                   NOP ;
        /*0070*/               @P0 BRA `(.L_x_1) ;
        /*0080*/                   STS.64 [R18], R8 ;
        /*0090*/               @P2 BRA `(.L_x_2) ;
        /*00a0*/                   EXIT ;
.L_x_3:
        /*00b0*/                   BRA `(.L_x_3);
"""
AMD = """\
.LBB0_1:                                ; =>This Inner Loop Header: Depth=1
\tglobal_load_b128 v[2:5], v[0:1], off
\tds_load_2addr_stride64_b32 v[6:7], v8 offset1:1
\tds_read_b128 v[10:13], v8
\ts_waitcnt lgkmcnt(0)
\tv_fmac_f32_e32 v20, v6, v7
\tv_dual_fmac_f32 v21, v6, v7 :: v_dual_fmac_f32 v22, v6, v7
\tv_wmma_f32_16x16x16_bf16 v[30:37], v[2:5], v[6:9], v[30:37]
\tv_mad_u64_u32 v[0:1], s0, v2, v3, v[0:1]
\ts_cbranch_scc1 .LBB0_1
; %bb.2:
\ts_endpgm
    .vgpr_spill_count: {}
; NumVgprs: 104
; ScratchSize: 400
; Occupancy: 9
; LDSByteSize: 8256 bytes/workgroup (compile time only)
"""
AMD_TURNED = """\
; %bb.0:
\tv_fmac_f32_e32 v20, v6, v7
\ts_branch .LBB0_2
.LBB0_1:                                ;   in Loop: Header=BB0_2 Depth=1
\tds_store_b128 v8, v[10:13]
.LBB0_2:                                ; =>This Inner Loop Header: Depth=1
\tglobal_load_b128 v[2:5], v[0:1], off
; %bb.3:                                ;   in Loop: Header=BB0_2 Depth=1
\tv_wmma_f32_16x16x16_bf16 v[30:37], v[2:5], v[6:9], v[30:37]
\ts_cbranch_scc1 .LBB0_1
.LBB0_4:
\tv_fmac_f32_e32 v20, v6, v7
\ts_endpgm
"""
ZE_INFO = """\
---
version:         '1.20'
kernels:
  - name:            gemm_tiled
    execution_env:
      grf_count:       128
      simd_size:       16
      slm_size:        8320
    per_thread_memory_buffers:
      - type:            scratch
        usage:           {}
        size:            1024
      - type:            global
        usage:           private_space
        size:            256
        is_simt_thread:  true
...
"""
INTEL = """\
// B002: Preds:{B003},  Succs:{B003}
_0_200:
        send.dc1 (16|M0)   r10  r12  null  0x0  0x04205EFE  {@1,$4} // wr:2+0, rd:2; untyped surface read with xyzw
        send.dc1 (16|M0)   r10  r12  null  0x0  0x04205E00  {@1,$4} // wr:2+0, rd:2; untyped surface read with xy
        mad (16|M0)              r20.0<1>:f    r21.0<8;1>:f      r22.0<8;1>:f      r23.0<1>:f       // $1
        mad (16|M0)              r24.0<1>:d    r21.0<8;1>:d      r22.0<8;1>:d      r23.0<1>:d       // $2
(f0.1)  while (16|M0)                        _0_200                                                  // $131
"""


class TestReports(TestCase):
    def test_ptxas(self):
        r = lab.parse_ptxas(PTXAS.format(0, 0))
        self.assertEqual((r.registers, r.spills, r.stack, r.local), (128, 0, 384, 8256))
        self.assertEqual(lab.parse_ptxas(PTXAS.format(40, 60)).spills, 60)

    def test_amd(self):
        r = lab.parse_amdgcn(AMD.format(0))
        self.assertEqual((r.registers, r.spills, r.stack, r.local, r.occupancy), (104, 0, 400, 8256, "9 waves"))
        self.assertEqual(lab.parse_amdgcn(AMD.format(7)).spills, 28)

    def test_intel(self):
        r = lab.parse_ze_info(ZE_INFO.format("private_space"))
        self.assertEqual((r.registers, r.spills, r.stack, r.local, r.occupancy), (128, 0, 64 + 256, 8320, "SIMD16"))
        r = lab.parse_ze_info(ZE_INFO.format("spill_fill_space"))
        self.assertEqual((r.spills, r.stack), (64, 256))

    def test_occupancy(self):
        target = next(t for t in lab.TARGETS if t.name == "sm_80")
        cases = ((32, 0, 256, "100%"), (128, 8256, 256, "25%"), (40, 80 << 10, 128, "12%"))
        for registers, local, group, share in cases:
            self.assertEqual(lab.occupancy(target, lab.Report(registers=registers, local=local), group), share)


class TestLoops(TestCase):
    def check(self, vendor, text, widest, instructions, multiply_adds, local):
        found, loop = lab.mix(vendor, text)
        self.assertEqual((found, loop.instructions, loop.multiply_adds), (widest, instructions, multiply_adds))
        self.assertEqual(loop.local, local)

    def test_nvidia(self):
        self.check("NVIDIA", SASS, 16, 5, 2, {"4": 1, "16": 1})

    def test_amd(self):
        self.check("AMD", AMD, 16, 8, 3, {"8": 1, "16": 1})

    def test_amd_puts_the_end_of_a_loop_before_its_start(self):
        self.check("AMD", AMD_TURNED, 16, 4, 1, {"16": 1})

    def test_intel(self):
        self.check("Intel", INTEL, 8, 5, 1, {"16": 1})


class TestBounds(TestCase):
    def test_judge(self):
        program = lab.Program("gemm/gemm_gpu.cl", "gemm_tiled", "-DACC=f32 -DINA=f32 -DINB=f32", "", 256)
        good = dict(registers=128, local=32 << 10, widest=16, loop=lab.Loop(100, 75))
        for change, bound in (
            ({}, None),
            ({"spills": 4}, "spills"),
            ({"stack": 4}, "stack"),
            ({"registers": 129}, "registers"),
            ({"local": (32 << 10) + 4}, "local"),
            ({"widest": 4}, "width"),
            ({"loop": lab.Loop(100, 74)}, "multiply-adds"),
            ({"error": "no such function"}, "compiles"),
        ):
            results = {program: {"sm_80": lab.Report(**(good | change))}}
            line = f"gemm/gemm_gpu.cl gemm_tiled NVIDIA {bound}"
            found, mended = lab.judge(results, {line})
            self.assertEqual(list(found), [line] if bound else [], msg=str(change))
            self.assertEqual(mended, set() if bound else {line})
            self.assertIn("gemm_tiled", lab.page(results))
            self.assertIn("| gemm/gemm_gpu.cl gemm_tiled | 1 | ", lab.summary(results))

    def test_summary(self):
        """The largest figures per vendor, and the least share and width of what the bounds are for."""
        label = ("gemm/gemm_gpu.cl", "gemm_tiled")
        wide, narrow = (lab.Program(*label, f"-DACC={x} -DINA={x} -DINB={x}", "", 256) for x in ("f32", "f16"))
        results = {
            wide: {"sm_80": lab.Report(120, widest=16, loop=lab.Loop(100, 80)), "gfx1030": lab.Report(96, stack=8)},
            narrow: {"sm_80": lab.Report(100, spills=4, widest=8, loop=lab.Loop(100, 10))},
        }
        page = lab.summary(results)
        self.assertIn("| gemm/gemm_gpu.cl gemm_tiled | 2 | 120 / 96 / - | 4 / 8 / - | 80% | 8 |", page)
        self.assertIn("| gemm/ | 1 | 2 | 120 / 96 / - | 4 / 8 / - |", page)
        self.assertLessEqual(Path(lab.ROOT / "benchmarks/results/gpu-static.md").read_text().count("\n"), 100)

    def test_matrix_instructions(self):
        program = lab.Program("conv/conv_units.cl", "conv_units", "-DUNIT_WMMA=1 -DROWS=4 -DCOLS=2 -DLANES=32", "", 128)
        target = next(t for t in lab.TARGETS if t.name == "gfx1100")
        for loop, found in (
            (lab.Loop(matrix=16, barriers=1), []),
            (lab.Loop(matrix=15, barriers=1), ["matrix 15"]),
            (lab.Loop(matrix=16, barriers=2), ["matrix 16"]),
            (None, ["matrix 0"]),
        ):
            self.assertEqual(lab.broken(program, target, lab.Report(widest=16, loop=loop)), found)

    def test_work_group(self):
        source = "__kernel __attribute__((reqd_work_group_size(SIDE_X, SIDE_Y, 1))) void f(int x) {"
        self.assertEqual(lab.Program("a.cl", "f", "-DSIDE_X=8 -DSIDE_Y=4", source, 64).group, 32)
        self.assertEqual(lab.Program("a.cl", "f", "", "__kernel void f(int x) {", 64).group, 64)
        items = source.replace("SIDE_X, SIDE_Y", "ITEMS, 1")
        self.assertEqual(lab.Program("a.cl", "f", "-DSIDE_X=8 -DSIDE_Y=4", items, 64).group, 32)

    def test_registers_of_a_larger_file(self):
        program = lab.Program("a.cl", "f", "", "", 256)
        for name, most in (("gfx906", 128), ("gfx90a", 256), ("sm_90", 128)):
            target = next(t for t in lab.TARGETS if t.name == name)
            self.assertEqual(lab.broken(program, target, lab.Report(registers=most)), [])
            self.assertEqual(lab.broken(program, target, lab.Report(registers=most + 1)), [f"registers {most + 1}"])


# Two kernels that compute the same: one keeps 512 sums, and indexes them by numbers that the compiler does not know,
# so they lie in memory; the other keeps one.
PLANTED = """\
__kernel void planted(__global float* x, int n) {
  float sums[SUMS];
  for (int i = 0; i < SUMS; i++) sums[i] = x[i];
  for (int i = 0; i < n; i++) sums[(int)x[i] & (SUMS - 1)] += x[n + i];
  for (int i = 0; i < SUMS; i++) x[i] = sums[i];
}
"""


class TestPlantedSpill(TestCase):
    """A kernel with an array that cannot stay in registers is found: in reports of each compiler, and, where
    tools/gpu_lab_setup.sh has fetched them, by the compilers themselves."""

    def found(self, reports, sums=512):
        program = lab.Program("planted.cl", "planted", f"-DSUMS={sums}", PLANTED, 64)
        return {name: lab.judge({program: {name: r}}, set())[0] for name, r in reports(program).items()}

    def test_reports(self):
        reports = {
            "sm_80": lab.parse_ptxas(PTXAS.format(40, 60)),
            "gfx1030": lab.parse_amdgcn(AMD.format(7)),
            "dg2": lab.parse_ze_info(ZE_INFO.format("spill_fill_space")),
        }
        found = self.found(lambda program: reports)
        for name, vendor in (("sm_80", "NVIDIA"), ("gfx1030", "AMD"), ("dg2", "Intel")):
            self.assertIn(f"planted.cl planted {vendor} spills", found[name])

    def test_compilers(self):
        tools = lab.ROOT / "build/gpu-lab"
        if not (tools / ".complete").exists():
            self.skipTest("tools/gpu_lab_setup.sh build/gpu-lab fetches the compilers")
        compilers = lab.Compilers(tools)
        targets = [t for t in lab.TARGETS if t.name in ("sm_80", "gfx1030", "dg2")]

        def compiled(program):
            return {k: r for t in targets for k, r in compilers.compile(program, [t]).items()}

        for found in self.found(compiled).values():
            self.assertEqual([line.split()[-1] for line in found], ["stack"])
        self.assertEqual(list(self.found(compiled, sums=1).values()), [{}] * len(targets))


class TestKeptReports(TestCase):
    SOURCE = "// a kernel\n\n__kernel void f() {\n  int x = 1;  // one\n  /* two\n  lines */ int y = 2;\n}\n"

    def test_code(self):
        self.assertEqual(lab.code(self.SOURCE), "__kernel void f() {\nint x = 1;\nint y = 2;\n}")

    def test_only_what_changed_is_compiled(self):
        asked = []

        def compile(program, targets):
            asked.append([t.name for t in targets])
            return {t.name: lab.Report(registers=len(asked), loop=lab.Loop(8, 4, {"4": 2})) for t in targets}

        with tempfile.TemporaryDirectory() as folder:
            kept = lab.Lab.__new__(lab.Lab)
            kept.kept, kept.compilers = Path(folder), types.SimpleNamespace(version="1", compile=compile)
            nvidia = [t for t in lab.TARGETS if t.vendor == "NVIDIA"]
            program = lab.Program("a.cl", "f", "-DA=1", self.SOURCE, 64)
            first = kept.reports(program, nvidia[:1])
            self.assertEqual(kept.reports(program, nvidia)["sm_75"], first["sm_75"])
            reworded = dataclasses.replace(program, source=self.SOURCE.replace("one", "1").replace("two", "2"))
            self.assertEqual(kept.reports(reworded, nvidia), kept.reports(program, nvidia))
            self.assertEqual(asked, [["sm_75"], ["sm_80", "sm_90"]])
            for change in ({"source": self.SOURCE.replace("= 2", "= 3")}, {"options": "-DA=2"}, {"launched": 32}):
                kept.reports(dataclasses.replace(program, **change), nvidia[:1])
                self.assertEqual(asked[-1], ["sm_75"], msg=str(change))
            self.assertEqual(len(asked), 5)


OCLGRIND = """\

Invalid write of size 4 at global memory address 0x18000000000094
    Kernel: distance_forward
    Entity: Global(37,0,0) Local(37,0,0) Group(0,0,0)
      store float %50, float addrspace(1)* %arrayidx43, align 4, !dbg !97
    At line 800 (column 25) of input.cl:
      PTR(out, ST)[PLACE(i, j)] = sum;

Read-write data race at local memory address 0x1000000000000
    Kernel: softmax_rows
    First entity:  Global(0,0,0) Local(0,0,0) Group(0,0,0)
      %5 = load float, float addrspace(3)* %arrayidx, align 4

"""


class TestOclgrind(TestCase):
    def test_reports(self):
        self.assertEqual(
            races.kinds(2 * OCLGRIND),
            ["Invalid write of size 4 in distance_forward", "Read-write data race in softmax_rows"],
        )
        call = "\nOclgrind - OpenCL runtime error detected\n\tFunction: clEnqueueReadBuffer\n"
        self.assertEqual(races.kinds(call), ["Oclgrind - OpenCL runtime error detected"])
        self.assertEqual(races.kinds("\n"), [])

    def test_programs_are_right(self):
        """The programs that Oclgrind runs; one family here."""
        script = Path(races.__file__).with_name("oclgrind_programs.py")
        run = subprocess.run([sys.executable, script, "padding"], capture_output=True, text=True, timeout=300)
        rows = [json.loads(line) for line in run.stdout.splitlines()]
        self.assertGreater(len(rows), 5, run.stderr)
        self.assertEqual({family for family, _, problem in rows}, {"padding"})
        self.assertEqual([row for row in rows if row[2]], [])

    def test_separate_buffers(self):
        """Under NETCL_SEPARATE_BUFFERS each tensor has a buffer of its own, of just its size."""
        code = """
import pyopencl, torch
from torch_netcl import interop
a, b = (torch.ones(n, device="netcl") for n in (5, 9))
print([interop.to_pyopencl(t).base_data.size for t in (a, b)], (a.sum() + b.sum()).item())
del a; torch.ones(300000, device="netcl").sum().item()
"""
        run = python(code, NETCL_SEPARATE_BUFFERS="1")
        self.assertEqual((run.stdout, run.stderr), ("[20, 36] 14.0\n", ""))


if __name__ == "__main__":
    run_tests()
