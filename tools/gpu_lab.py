"""Compiles the kernels for GPUs with the vendors' own compilers, on a machine without a GPU.

    tools/gpu_lab_setup.sh build/gpu-lab && python tools/gpu_lab.py        (or: make gpu-lab)

test/kernel_workload.py lists the programs: a file, a kernel and -D options each. Each program is compiled with
clang and NVIDIA's ptxas, with clang for AMD, and with Intel's ocloc. The compilers' reports are compared with
BOUNDS. For the kernels in HOT, so is the loop with most multiply-adds in the vendor's assembly. The results are
build/gpu-lab/gpu-static.md, with all figures, and its summary benchmarks/results/gpu-static.md. The status is 1 if a
kernel breaks a bound that tools/gpu_lab_known.txt does not list, or if a line there is no longer true.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORTS = "5"  # version of the stored reports; change it with the way kernels are compiled or read

# The limits for every kernel.
BOUNDS = {
    "spills": 0,  # bytes per work-item
    "stack": 0,  # bytes per work-item: private memory outside registers
    "registers": 128,  # per work-item, in work-groups of 256 and more; twice as many if the target has twice the file
    "local": 32 << 10,  # bytes of local memory per work-group
}
# The kernels in which a GPU spends its time: the least bytes that a work-item reads from global memory in one access,
# and the least share of multiply-adds in the innermost loop, on the targets of FMA_TARGETS.
HOT = {
    "attention_flash.cl attention_flash_forward": (16, 0.75),
    "attention_flash.cl attention_flash_keys": (16, 0.75),
    "attention_flash.cl attention_flash_queries": (16, 0.75),
    "batch_norm.cl batch_norm_parts": (8, 0.0),
    "batch_norm.cl batch_norm_grad_parts": (8, 0.0),
    "conv/conv_gemm_gpu.cl conv_tiled": (8, 0.75),
    "conv/conv_units.cl conv_units": (8, 0.0),
    "gemm/gemm_gpu.cl gemm_tiled": (8, 0.75),
    "gemm/gemm_units.cl gemm_units": (8, 0.0),
    "norm.cl layer_norm held": (8, 0.0),
    "norm.cl layer_norm_backward held": (8, 0.0),
    "norm.cl layer_norm_columns held": (8, 0.0),
    "reduce/reduce_group.cl reduce_group": (8, 0.0),
    "softmax.cl softmax": (8, 0.0),
    "softmax.cl softmax held": (8, 0.0),
    "softmax.cl softmax_backward held": (8, 0.0),
    "unary.cl flat": (8, 0.0),
}
FMA_TARGETS = ("sm_80", "gfx1030")
# The share of multiply-adds is required only for float: other types need conversions, or have no such instruction.
# Tiles of fewer than 16 sums per work-item, for the smallest devices, cannot reach it.
NOT_FMA = re.compile(r"-D(ACC|INA|INB)=(?!f32\b)|-DLANES=")
# Programs without vectors: those of kernels/common/short_rows.h for rows that begin anywhere, and those of complex32,
# whose elements have 4 bytes; and casts from float8 to float8, whose vectors of 4 elements have 4 bytes.
NOT_WIDE = re.compile(r"-DVEC=1\b.*-DHELD=|-DVEC=1\b.*=c32\b|-DOUT0=e\w+ -DIN0=e\w+")
# The least number of matrix instructions between two barriers in the large tiles of gemm_units.cl and conv_units.cl, of
# 8 fragments.
MATRIX = 16


@dataclasses.dataclass(frozen=True)
class Target:
    """A GPU to compile for."""

    name: str
    vendor: str
    has: tuple[str, ...]  # the capabilities that its driver reports: -DHAVE_...
    unit: str = ""  # its matrix units, as csrc/aten/gemm/MatrixUnits.cpp defines them
    registers: int = 65536  # per unit: for the bound, and for NVIDIA's occupancy (as are the unit's limits below)
    local: int = 0
    threads: int = 0
    groups: int = 0


_NVIDIA = ("FP64", "INT64_ATOMICS")
_AMD = ("FP16", "FP64", "INT64_ATOMICS")
_INTEL = ("FP16", "INT64_ATOMICS")
TARGETS = (
    Target("sm_75", "NVIDIA", _NVIDIA, "UNIT_MMA=75", 65536, 64 << 10, 1024, 16),
    Target("sm_80", "NVIDIA", _NVIDIA, "UNIT_MMA=80", 65536, 164 << 10, 2048, 32),
    Target("sm_90", "NVIDIA", _NVIDIA, "UNIT_MMA=80", 65536, 228 << 10, 2048, 32),
    Target("gfx906", "AMD", _AMD),
    Target("gfx90a", "AMD", _AMD, "UNIT_MFMA=2", 131072),
    Target("gfx1030", "AMD", _AMD),
    Target("gfx1100", "AMD", _AMD, "UNIT_WMMA=1"),
    Target("dg2", "Intel", _INTEL, "UNIT_DPAS=1"),
    Target("tgllp", "Intel", _INTEL),
)


@dataclasses.dataclass(frozen=True)
class Program:
    """One kernel, as the library compiles it."""

    file: str
    name: str
    options: str
    source: str
    launched: int  # work-items of the largest work-group of a launch of this name

    @property
    def label(self) -> str:
        """Its name in HOT and in the list of known cases; "held" if it keeps rows in registers."""
        return f"{self.file} {self.name}" + (" held" if "-DHELD=" in self.options else "")

    @property
    def unit(self) -> str:
        """The matrix units that it is for, as in Target."""
        m = re.search(r"-D(UNIT_\w+=\d+)", self.options)
        return m[1] if m else ""

    @property
    def group(self) -> int:
        """Work-items per work-group: the size that the source requires, else that of the launch."""
        line = re.search(rf"^__kernel.* void {self.name}\(", self.source, re.M)
        asked = line and re.search(r"reqd_work_group_size\((\w+), (\w+), (\w+)\)", line[0])
        values = dict(re.findall(r"-D(\w+)=(\w+)", self.options))
        if "SIDE_X" in values:  # gemm/gemm_blocks.h
            values["ITEMS"] = str(int(values["SIDE_X"]) * int(values["SIDE_Y"]) * int(values.get("LANES", 1)))
        sizes = [values.get(x, x) for x in asked.groups()] if asked else []
        return math.prod(map(int, sizes)) if sizes and all(x.isdigit() for x in sizes) else self.launched


@dataclasses.dataclass
class Loop:
    """The instructions of a loop, without those of inner loops."""

    instructions: int = 0
    multiply_adds: int = 0  # instructions, including those of matrix units
    matrix: int = 0  # instructions of matrix units
    barriers: int = 0
    local: dict[str, int] = dataclasses.field(default_factory=dict)  # bytes of an access -> number of accesses

    @property
    def share(self) -> float:
        """Multiply-adds divided by instructions."""
        return self.multiply_adds / self.instructions if self.instructions else 0.0


@dataclasses.dataclass
class Report:
    """A compiler's report on a kernel; bytes are per work-item, local ones per work-group."""

    registers: int = 0
    spills: int = 0
    stack: int = 0
    local: int = 0
    occupancy: str = ""
    error: str = ""
    widest: int = 0  # bytes of the widest global access in the kernel
    loop: Loop | None = None


# --- what the compilers report -----------------------------------------------------------------------------------


def parse_ptxas(text: str) -> Report:
    """The report of `ptxas -v`."""
    r = Report()
    if m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", text):
        r.spills = max(int(m[2]), int(m[3]))
        r.stack = 0 if r.spills else int(m[1])
    if m := re.search(r"Used (\d+) registers", text):
        r.registers = int(m[1])
    if m := re.search(r"(\d+) bytes smem", text):
        r.local = int(m[1])
    return r


def parse_amdgcn(text: str) -> Report:
    """The comments after a kernel in clang's assembly for AMD."""

    def number(name: str) -> int:
        m = re.search(rf"^; {name}: (\d+)", text, re.M)
        return int(m[1]) if m else 0

    spills = sum(int(n) for n in re.findall(r"^\s+\.vgpr_spill_count: (\d+)", text, re.M))
    scratch = number("ScratchSize")
    return Report(
        registers=number("NumVgprs"),
        spills=4 * spills,
        stack=0 if spills else scratch,
        local=number("LDSByteSize"),
        occupancy=f"{number('Occupancy')} waves",
    )


def parse_ze_info(text: str) -> Report:
    """The .ze_info of an Intel binary (YAML, of which only a few lines are needed)."""

    def number(name: str) -> int:
        m = re.search(rf"^\s+{name}:\s+(\d+)", text, re.M)
        return int(m[1]) if m else 0

    simd = max(number("simd_size"), 1)
    r = Report(registers=number("grf_count"), local=number("slm_size"), occupancy=f"SIMD{simd}")
    for kind, usage, size, rest in re.findall(
        r"- type:\s+(\w+)\s+usage:\s+(\w+)\s+size:\s+(\d+)((?:\s+(?!- )\w+:\s+\w+)*)",
        text.partition("per_thread_memory_buffers:")[2],
    ):
        each = int(size) if "is_simt_thread:  true" in rest else int(size) // simd
        if usage == "spill_fill_space":
            r.spills += each
        elif usage == "private_space" or kind == "scratch":
            r.stack += each
    return r


def occupancy(target: Target, r: Report, group: int) -> str:
    """The share of NVIDIA's warps that can be resident, from registers, local memory and the work-group's size."""
    warps = -(-group // 32)
    by_registers = target.registers // (-(-max(r.registers, 1) * 32 // 256) * 256) // warps
    by_local = target.local // (r.local + 1024) if r.local else target.groups
    groups = min(by_registers, by_local, target.threads // (warps * 32), target.groups)
    return f"{100 * groups * warps * 32 // target.threads}%"


# --- the instructions --------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Syntax:
    """The syntax of a vendor's assembly."""

    label: re.Pattern
    instruction: re.Pattern  # 1: the mnemonic
    branch: re.Pattern  # 1: the label
    multiply_add: re.Pattern  # of the instruction's text, as are the next two
    matrix: re.Pattern
    barrier: re.Pattern


SYNTAX = {
    "NVIDIA": Syntax(
        re.compile(r"^(\.L_x_\d+):"),
        re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)"),
        re.compile(r"\bBRA\b.*`\((\.L_x_\d+)\)"),
        re.compile(r"\b(FFMA|DFMA|HFMA2|HMMA|IMMA|DMMA|HGMMA)\b"),
        re.compile(r"\b(HMMA|IMMA|DMMA|HGMMA)\b"),
        re.compile(r"\bBAR\b"),
    ),
    "AMD": Syntax(
        re.compile(r"^(\.LBB\w+):"),
        re.compile(r"^\t([a-z]\w+)"),
        re.compile(r"^\ts_c?branch\w*\s+(\.LBB\w+)"),
        re.compile(r"^\tv_(dual_)?(fma|fmac|mac|mad|pk_fma|mfma|wmma|dot)\w*f(16|32|64)|v_dual_fma|v_wmma|v_mfma"),
        re.compile(r"^\tv_(wmma|mfma)"),
        re.compile(r"^\ts_barrier"),
    ),
    "Intel": Syntax(
        re.compile(r"^(\w+):"),
        re.compile(r"^(?:\([^)]*\))?\s+([a-z][\w.]*)\s+(?:\(\d+\|M\d+\)|\w)"),
        re.compile(r"^(?:\([^)]*\))?\s+(?:while|jmpi|goto|brc|brd)\b[^/]*?\s([A-Za-z_]\w*)"),
        re.compile(r"^(?:\([^)]*\))?\s+(mad\s+.*:(f|hf|bf|df)\b|dpas)"),
        re.compile(r"\bdpas"),
        re.compile(r"\bsync\.bar\b"),
    ),
}
_WAITS = ("nop", "s_nop", "sync.nop", "s_waitcnt", "s_delay_alu")
_WORDS = {
    "b8": 1, "u8": 1, "i8": 1, "ubyte": 1, "sbyte": 1, "byte": 1, "b16": 2, "u16": 2, "i16": 2, "ushort": 2,
    "sshort": 2, "short": 2, "b32": 4, "dword": 4, "b64": 8, "dwordx2": 8, "b96": 12, "dwordx3": 12, "b128": 16,
    "dwordx4": 16,
}  # fmt: skip


def access(vendor: str, line: str) -> tuple[str, int] | None:
    """("global" | "local", bytes per work-item) of an instruction that reads or writes memory."""
    if vendor == "NVIDIA":
        m = re.search(r"\b(LDG|STG|LD|ST|LDS|STS)\b((?:\.\w+)*)", line)
        if not m:
            return None
        bits = re.search(r"\.(128|64|U8|S8|U16|S16)\b", m[2])
        size = {"128": 16, "64": 8, "U8": 1, "S8": 1, "U16": 2, "S16": 2}[bits[1]] if bits else 4
        return ("local" if m[1] in ("LDS", "STS") else "global"), size
    if vendor == "AMD":
        pair = "2|2st64|_2addr_stride64|_2addr"
        m = re.search(rf"\t(global|flat|buffer|ds)_(?:load|store|read|write)({pair})?_([a-z]\w+)", line)
        if not m or (size := _WORDS.get(re.sub(r"_?d16(_hi)?_?", "", m[3]))) is None:
            return None
        return ("local" if m[1] == "ds" else "global"), size * (2 if m[2] else 1)
    m = re.search(r"(?:surface|a64) (?:read|write) with ([xyzw]+)", line)
    if m:
        return ("local" if re.search(r"0x[0-9A-F]+FE\b", line) else "global"), 4 * len(m[1])
    m = re.search(r"(?:load|store)\.(ugm|slm)\.d(\d+)\w*?(?:x(\d+))?\b", line)
    if m:
        return ("local" if m[1] == "slm" else "global"), int(m[2]) // 8 * int(m[3] or 1)
    m = re.search(r"byte (?:gathering|scattering|scaled|gather|scatter)", line)
    return ("global", 1) if m else None


def marked_loops(lines: list[str]) -> list[list[str]]:
    """The instructions of each loop in clang's assembly, which names the innermost loop of each block."""
    bodies: dict[str, list[str]] = {}
    block = header = None
    for line in lines:
        if m := re.match(r"\.L(BB\w+):|; %(bb\.\d+):", line):
            block, header = m[1] or m[2], None
        if m := re.search(r"; +in Loop: Header=(BB\w+)", line):
            header = m[1]
        elif re.search(r"; *=> *This (Inner )?Loop Header", line):
            header = block
        if header and SYNTAX["AMD"].instruction.match(line):
            bodies.setdefault(header, []).append(line)
    return list(bodies.values())


def loops(vendor: str, lines: list[str]) -> list[list[str]]:
    """The instructions of each loop: from a label to a branch back to it, without those of the loops inside."""
    if vendor == "AMD":
        return marked_loops(lines)
    syntax = SYNTAX[vendor]
    start, end = {}, {}
    for i, line in enumerate(lines):
        if m := syntax.label.match(line):
            start[m[1]] = i
        elif (m := syntax.branch.search(line)) and m[1] in start:
            end[start[m[1]]] = i
    bodies = []
    for a, b in end.items():
        inside = {i for c, d in end.items() if a <= c and d <= b and (c, d) != (a, b) for i in range(c, d + 1)}
        body = [lines[i] for i in range(a, b + 1) if i not in inside and syntax.instruction.match(lines[i])]
        if len(body) > 1:  # ptxas ends a kernel with a branch to itself
            bodies.append(body)
    return bodies


def mix(vendor: str, text: str) -> tuple[int, Loop | None]:
    """The widest global access in a kernel's assembly, and the loop with most multiply-adds."""
    lines = text.splitlines()
    syntax = SYNTAX[vendor]
    accesses = [access(vendor, x) for x in lines if syntax.instruction.match(x)]
    widest = max((size for kind, size in filter(None, accesses) if kind == "global"), default=0)
    best = None
    for body in loops(vendor, lines):
        body = [x for x in body if syntax.instruction.match(x)[1].lower() not in _WAITS]
        accesses = [access(vendor, x) for x in body]
        local = collections.Counter(size for kind, size in filter(None, accesses) if kind == "local")
        multiply_adds = sum(bool(syntax.multiply_add.search(x)) for x in body)
        matrix, barriers = (sum(bool(p.search(x)) for x in body) for p in (syntax.matrix, syntax.barrier))
        by_size = {str(size): count for size, count in sorted(local.items())}
        loop = Loop(len(body), multiply_adds, matrix, barriers, by_size)
        if not best or (loop.multiply_adds, -loop.instructions) > (best.multiply_adds, -best.instructions):
            best = loop
    return widest, best


# --- the compilers -----------------------------------------------------------------------------------------------


class Compilers:
    """The tools in the folder of gpu_lab_setup.sh."""

    def __init__(self, folder: Path) -> None:
        if not (folder / ".complete").exists():
            sys.exit(f"{folder} holds no compilers: tools/gpu_lab_setup.sh {folder}")
        root = folder / "root/usr"
        self.clang = root / "lib/llvm-19/bin/clang"
        self.ocloc = root / "bin/ocloc"
        self.libclc = root / "lib/clc"
        self.ptxas = next(folder.glob("python/nvidia/*/bin/ptxas"))
        self.nvdisasm = next(folder.glob("python/nvidia/*/bin/nvdisasm"))
        libraries = [root / "lib/x86_64-linux-gnu", root / "lib/llvm-19/lib", folder / "root/lib/x86_64-linux-gnu"]
        self.env = dict(os.environ, LD_LIBRARY_PATH=":".join(map(str, libraries)), IGC_EnableZEBinary="1")
        self.version = (folder / ".complete").read_text()

    def run(self, *command: object, **env: str) -> subprocess.CompletedProcess:
        """Run one of the tools."""
        return subprocess.run(
            list(map(str, command)), env=self.env | env, capture_output=True, text=True, errors="replace", timeout=900
        )

    def options(self, program: Program, target: Target) -> list[str]:
        """The options that the library would pass to the target's driver."""
        have = [f"-DHAVE_{x}" for x in target.has]
        given = [x for x in program.options.split() if x != "-DEMULATED=1"]  # the library emulates them only on CPUs
        return ["-cl-std=CL1.2", "-DDEVICE_GPU", *have, *given]

    def front_end(self, program: Program, target: Target, triple: str, cpu: str, library: str, folder: Path) -> str:
        """OpenCL C to assembly (or PTX) by clang; returns the error text."""
        extensions = "+cl_khr_int64_base_atomics,+cl_khr_int64_extended_atomics,+cl_khr_fp64"
        done = self.run(
            self.clang, "-x", "cl", "-target", triple, cpu, "-O3", "-w", "-nogpulib", "-D__OPENCL_VERSION__=120",
            f"-cl-ext={extensions}", "-Xclang", "-finclude-default-header",
            "-Xclang", "-mlink-builtin-bitcode", "-Xclang", self.libclc / library,
            *self.options(program, target), "-S", folder / "k.cl", "-o", folder / "k.s",
        )  # fmt: skip
        return done.stderr if done.returncode else ""

    def nvidia(self, program: Program, target: Target, folder: Path) -> Report:
        """OpenCL C to PTX to SASS. The PTX is that for the oldest target: for the others only a line of it differs."""
        oldest = target if program.unit else next(t for t in TARGETS if t.vendor == "NVIDIA")
        cpu, library = f"-march={oldest.name}", "nvptx64--nvidiacl.bc"
        if program.unit or not (folder / "k.s").exists():
            if error := self.front_end(program, oldest, "nvptx64-nvidia-nvcl", cpu, library, folder):
                return Report(error=error)
        done = self.run(self.ptxas, f"-arch={target.name}", "-v", folder / "k.s", "-o", folder / "k.cubin")
        if done.returncode:
            return Report(error=done.stderr)
        r = parse_ptxas(done.stderr)
        r.occupancy = occupancy(target, r, program.group)
        if program.label in HOT:
            r.widest, r.loop = mix("NVIDIA", self.run(self.nvdisasm, "-c", folder / "k.cubin").stdout)
        return r

    def amd(self, program: Program, target: Target, folder: Path) -> Report:
        """OpenCL C to AMD's assembly."""
        cpu, library = f"-mcpu={target.name}", "amdgcn--amdhsa.bc"
        if error := self.front_end(program, target, "amdgcn-amd-amdhsa", cpu, library, folder):
            return Report(error=error)
        text = (folder / "k.s").read_text()
        r = parse_amdgcn(text)
        if program.label in HOT:
            r.widest, r.loop = mix("AMD", text)
        return r

    def intel(self, program: Program, target: Target, folder: Path) -> Report:
        """OpenCL C to Intel's binary, with its assembly for hot kernels."""
        dump = folder / f"dump-{target.name}"
        env = {"IGC_ShaderDumpEnable": "1", "IGC_DumpToCustomDir": str(dump)} if program.label in HOT else {}
        done = self.run(
            self.ocloc, "compile", "-q", "-file", folder / "k.cl", "-device", target.name, "-out_dir", folder,
            "-output", "k", "-output_no_suffix", "-options", " ".join(self.options(program, target)), **env,
        )  # fmt: skip
        binary = next((p for p in (folder / "k", folder / "k.bin") if p.exists()), None)
        if done.returncode or not binary:
            return Report(error=done.stdout + done.stderr)
        data = binary.read_bytes()
        start = data.find(b"---\nversion:")
        r = parse_ze_info(data[start : data.find(b"\n...", start)].decode(errors="replace"))
        if assembly := sorted(dump.glob("*.asm"), key=lambda p: p.stat().st_mtime):
            r.widest, r.loop = mix("Intel", assembly[-1].read_text(errors="replace"))
        return r

    def compile(self, program: Program, targets: list[Target]) -> dict[str, Report]:
        """One program for some targets of a vendor, by their names."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "k.cl").write_text(program.source)
            vendors = {"NVIDIA": self.nvidia, "AMD": self.amd, "Intel": self.intel}
            return {t.name: vendors[t.vendor](program, t, folder) for t in targets}


class Lab:
    """Compiles programs and stores the reports, by the content of the inputs."""

    def __init__(self, folder: Path) -> None:
        self.compilers = Compilers(folder)
        self.kept = folder / "reports"
        self.kept.mkdir(exist_ok=True)

    def path(self, program: Program, target: Target) -> Path:
        """The file of a report. Its name does not depend on the source's comments."""
        text = code(program.source)
        parts = (REPORTS, self.compilers.version, text, program.options, str(program.group), target.name)
        return self.kept / f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:40]}.json"

    def reports(self, program: Program, targets: list[Target]) -> dict[str, Report]:
        """One program for targets of one vendor, by their names; from earlier runs if there were any."""
        paths = {t.name: self.path(program, t) for t in targets}
        missing = [t for t in targets if not paths[t.name].exists()]
        compiled = self.compilers.compile(program, missing) if missing else {}
        for name, r in compiled.items():
            temporary = paths[name].with_suffix(f".{os.getpid()}")
            temporary.write_text(json.dumps(dataclasses.asdict(r)))
            temporary.rename(paths[name])
        return {name: compiled.get(name) or stored_report(path) for name, path in paths.items()}


def code(source: str) -> str:
    """The source without comments, empty lines and indentation."""
    text = re.sub(r"/\*.*?\*/", " ", source, flags=re.S)
    lines = (re.sub(r"//.*", "", line).strip() for line in text.splitlines())
    return "\n".join(filter(None, lines))


def stored_report(path: Path) -> Report:
    """A report of an earlier run."""
    found = json.loads(path.read_text())
    return Report(**(found | {"loop": Loop(**found["loop"]) if found["loop"] else None}))


def programs() -> list[Program]:
    """Runs the workload on a CPU runtime with the GPU kernels."""
    env = dict(os.environ, NETCL_DEVICE_CLASS="gpu", NETCL_CPU_FALLBACK="silent", NETCL_LOG="launch")
    env["PYTHONPATH"] = f"{ROOT}:{env.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, str(ROOT / "test/kernel_workload.py"), "--sources"], env=env, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"test/kernel_workload.py failed:\n{done.stderr[-4000:]}")
    groups: dict[str, int] = {}
    for m in re.finditer(r"^netcl: launch (\w+) for .* local \[([\d, ]+)\]$", done.stderr, re.M):
        groups[m[1]] = max(groups.get(m[1], 1), math.prod(map(int, m[2].split(","))))
    rows = json.loads(done.stdout.splitlines()[-1])
    unique = {(f, n, o): Program(f, n, o.strip(), s, groups.get(n, 64)) for f, n, o, s in rows}
    return [unique[key] for key in sorted(unique)]


def applies(program: Program, target: Target) -> bool:
    """Whether the library would use the program on the target."""
    if "FP64" not in target.has and re.search(r"=(f64|c128)\b", program.options):
        return False
    if program.unit:
        return program.unit == target.unit
    # csrc/aten/gemm/GroupTile.cpp never chooses a tile of 64 sums per work-item for Intel.
    return not (target.vendor == "Intel" and program.name in ("gemm_tiled", "conv_tiled") and sums(program) > 32)


def sums(program: Program) -> int:
    """The number of sums per work-item (on matrix units: of fragments per sub-group); 16 where that is no option."""
    values = dict(re.findall(r"-D(ROWS|COLS)=(\d+)", program.options))
    return int(values.get("ROWS", 4)) * int(values.get("COLS", 4))


# --- the bounds --------------------------------------------------------------------------------------------------


def broken(program: Program, target: Target, r: Report) -> list[str]:
    """The bounds that a kernel breaks, with its values."""
    if r.error:
        return ["compiles"]
    found = [f"{name} {getattr(r, name)}" for name in ("spills", "stack", "local") if getattr(r, name) > BOUNDS[name]]
    most = BOUNDS["registers"] * target.registers // 65536
    if program.group >= 256 and target.vendor != "Intel" and r.registers > most:
        found.append(f"registers {r.registers}")
    if program.label in HOT:
        width, share = HOT[program.label]
        if r.widest < width and not NOT_WIDE.search(program.options):
            found.append(f"width {r.widest}")
        if target.name in FMA_TARGETS and not NOT_FMA.search(program.options):
            if r.loop and r.loop.share < share and sums(program) >= 16:
                found.append(f"multiply-adds {r.loop.share:.0%}")
        loop = r.loop or Loop()
        if program.unit and sums(program) >= 8 and loop.matrix < MATRIX * max(loop.barriers, 1):
            found.append(f"matrix {loop.matrix}")
    return found


PAGE_HEAD = [
    "# GPU-shaped kernels, as three vendors' compilers see them",
    "",
    "Written by `make gpu-lab` (tools/gpu_lab.py); nothing here was measured on a GPU. Each kernel is compiled for",
    "every set of options that `test/kernel_workload.py` uses, in the shape for GPUs.",
    "",
]


def by_label(results: dict[Program, dict[str, Report]]) -> dict[str, list[Program]]:
    """The programs of each kernel."""
    found: dict[str, list[Program]] = {}
    for program in results:
        found.setdefault(program.label, []).append(program)
    return found


def summary(results: dict[Program, dict[str, Report]]) -> str:
    """The text of benchmarks/results/gpu-static.md: the hot kernels, and a row for each file or folder."""
    vendors = {t.name: t.vendor for t in TARGETS}
    names = list(dict.fromkeys(vendors.values()))

    def most(programs: list[Program], key: str) -> list[str]:
        """The largest figure of some programs, per vendor."""
        reports = [(vendors[name], r) for p in programs for name, r in results[p].items()]
        return [str(max((getattr(r, key) for v, r in reports if v == vendor), default="-")) for vendor in names]

    out = [
        *PAGE_HEAD,
        "The largest figures over variants and targets, for NVIDIA / AMD / Intel. Registers are those of a work-item",
        "(Intel: of a thread); memory is the bytes that a work-item spills, and those of its stack. The page of each",
        "program is build/gpu-lab/gpu-static.md; the exceptions that are known are in tools/gpu_lab_known.txt.",
        "",
        "## Hot kernels",
        "",
        "Multiply-adds: their least share in the loop that has most of them, of programs of float that the bound is",
        f"for, on {' and '.join(FMA_TARGETS)}. Width: the least widest global access in bytes.",
        "",
        "| kernel | variants | registers | memory | multiply-adds | width |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    kernels = by_label(results)
    for label in HOT:
        programs = kernels.get(label, [])
        good = [(p, n, r) for p in programs for n, r in results[p].items() if not r.error]
        shares = [r.loop.share for p, n, r in good
                  if r.loop and n in FMA_TARGETS and not NOT_FMA.search(p.options) and sums(p) >= 16]  # fmt: skip
        widths = [r.widest for p, n, r in good if r.widest and not NOT_WIDE.search(p.options)]
        share = f"{min(shares):.0%}" if shares and HOT[label][1] else "-"
        figures = f"{' / '.join(most(programs, 'registers'))} | {memory(most, programs)}"
        out.append(f"| {label} | {len(programs)} | {figures} | {share} | {min(widths, default='-')} |")
    out += ["", "## All kernels", ""]
    out += ["| file or folder | kernels | variants | registers | memory |", "|---|--:|--:|--:|--:|"]
    files: dict[str, list[Program]] = {}
    for program in results:
        files.setdefault(re.sub(r"/.*", "/", program.file), []).append(program)
    for file, programs in files.items():
        fails = sum(bool(r.error) for p in programs for r in results[p].values())
        registers = f"{fails} fail" if fails else " / ".join(most(programs, "registers"))
        count = len({p.label for p in programs})
        out.append(f"| {file} | {count} | {len(programs)} | {registers} | {memory(most, programs)} |")
    return "\n".join(out) + "\n"


def memory(most: Callable[[list[Program], str], list[str]], programs: list[Program]) -> str:
    """A cell for the bytes of memory that the work-items of some programs use; empty if they use none."""
    spills, stack = most(programs, "spills"), most(programs, "stack")
    used = [str(max(int(a), int(b))) if a != "-" else a for a, b in zip(spills, stack, strict=True)]
    return " / ".join(used) if set(used) - {"0", "-"} else ""


def page(results: dict[Program, dict[str, Report]]) -> str:
    """Every program and kernel with its figures: build/gpu-lab/gpu-static.md."""
    out = [
        *PAGE_HEAD,
        "## Hot kernels",
        "",
        "Registers of a work-item (Intel: of a thread), occupancy, bytes of local memory; multiply-adds and all",
        "instructions of the loop that has most of them, loops inside left out; how many of them are matrix",
        "instructions, between two barriers; the widest global access; the accesses to local memory in that loop",
        "(bytes x count).",
        "",
    ]
    header = "target registers spills stack occupancy local loop matrix share global local_in_the_loop".split()
    head = [f"| {' | '.join(header).replace('_', ' ')} |", "|---|" + 9 * "--:|" + "---|"]
    for label in HOT:
        for program, reports in results.items():
            if program.label != label:
                continue
            out += [
                f"### {label}",
                "",
                f"`{program.options}`, work-groups of {program.group}",
                "",
                *head,
            ]
            for name, r in reports.items():
                loop = r.loop or Loop()
                local = ", ".join(f"{b} x {n}" for b, n in loop.local.items())
                out.append(
                    f"| {name} | {r.registers} | {r.spills} | {r.stack} | {r.occupancy} | {r.local} | "
                    f"{loop.multiply_adds} of {loop.instructions} | {loop.matrix} | {loop.share:.0%} | {r.widest} | "
                    f"{local} |"
                    if not r.error
                    else f"| {name} | does not compile ||||||||||"
                )
            out.append("")
    out += ["## All kernels", "", "The most registers over a kernel's variants; s: bytes spilled, p: bytes of stack."]
    names = [t.name for t in TARGETS]
    out += ["", f"| kernel | variants | group | {' | '.join(names)} |", f"|---|--:|--:|{'--:|' * len(names)}"]
    for label, variants in by_label(results).items():
        cells = []
        for name in names:
            found = [results[p][name] for p in variants if name in results[p]]
            cell = str(max((r.registers for r in found), default="-"))
            for mark, key in (("s", "spills"), ("p", "stack")):
                if most := max((getattr(r, key) for r in found), default=0):
                    cell += f" {mark}{most}"
            cells.append("fails" if any(r.error for r in found) else cell)
        out.append(f"| {label} | {len(variants)} | {max(p.group for p in variants)} | {' | '.join(cells)} |")
    return "\n".join(out) + "\n"


def judge(results: dict[Program, dict[str, Report]], known: set[str]) -> tuple[dict[str, str], set[str]]:
    """The broken bounds as `file kernel vendor bound` -> an example, and the lines of `known` that are mended."""
    by_name = {t.name: t for t in TARGETS}
    found: dict[str, str] = {}
    for program, reports in results.items():
        for name, r in reports.items():
            for text in broken(program, by_name[name], r):
                line = f"{program.label} {by_name[name].vendor} {text.split()[0]}"
                found.setdefault(line, f"{name}: {text} {program.options}\n{r.error[:600]}".strip())
    return found, known - set(found)


def main() -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", type=Path, default=ROOT / "build/gpu-lab", help="the folder of gpu_lab_setup.sh")
    parser.add_argument("--only", default="", help="a regular expression for `file kernel options`; no summary")
    parser.add_argument("--targets", default="", help="a regular expression for the targets; no summary")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--known", type=Path, default=ROOT / "tools/gpu_lab_known.txt")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/gpu-static.md")
    args = parser.parse_args()
    lab = Lab(args.tools)
    chosen = [p for p in programs() if re.search(args.only, f"{p.label} {p.options}")]
    targets = [t for t in TARGETS if re.search(args.targets, t.name)]
    with ThreadPoolExecutor(args.jobs) as pool:
        pending = {
            p: [
                pool.submit(lab.reports, p, [t for t in targets if t.vendor == vendor and applies(p, t)])
                for vendor in dict.fromkeys(t.vendor for t in targets)
            ]
            for p in chosen
        }
        results = {p: {k: r for f in futures for k, r in f.result().items()} for p, futures in pending.items()}
    whole = not args.only and not args.targets
    if whole:
        (args.tools / args.output.name).write_text(page(results))
        args.output.write_text(summary(results))
    else:
        print(page(results))
    lines = args.known.read_text().splitlines() if args.known.exists() else []
    known = {x for x in lines if x and not x.startswith("#")}
    found, mended = judge(results, known)
    for line in sorted(set(found) - known):
        print(f"{line}\n    {found[line]}")
    if whole and mended:
        print(f"no longer broken, take them out of {args.known.name}:", *sorted(mended), sep="\n")
    new, old = set(found) - known, set(found) & known
    count = sum(map(len, results.values()))
    print(f"{len(results)} programs, {count} compilations: {len(new)} broken bounds beside {len(old)} known ones")
    return int(bool(new) or (whole and bool(mended)))


if __name__ == "__main__":
    sys.exit(main())
