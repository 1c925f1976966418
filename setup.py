"""Builds torch_netcl/_C.so, one plain shared library that torch.ops.load_library opens.

It holds no Python code (the binding is a torch::Library), so no Python.h is needed and one build serves every
Python version. Everything declarative is in pyproject.toml.

Environment:
  MAX_JOBS               number of compilers at once
  CXX                    the compiler, "ccache g++" included. With CXX=aarch64-linux-gnu-g++, a matching CC and
                         NETCL_BUILD_TORCH, it builds for another machine; `make wheel ARCH=aarch64` does so
  NETCL_OPENCL_INCLUDE   folder that holds CL/cl.h, instead of the one found
  NETCL_BUILD_ASAN=1     build with AddressSanitizer. Run with ASAN_OPTIONS=detect_leaks=0 and
                         LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so)":
                         without the latter it finds no __cxa_throw, and the first exception ends the process
  NETCL_BUILD_DEBUG=1    -O0 -g instead of -O2
  NETCL_BUILD_PCH        0: no precompiled header; a folder: where it is kept (for several trees to share)
  NETCL_BUILD_CHECK_KERNELS=1  compare the type of each registered kernel with its operator's, which triples the time.
                         `make wheel` does so for each torch
  NETCL_BUILD_GROUPS=0   compile each source by itself, for work on the sources: see GROUPS
  NETCL_BUILD_TORCH      folder of another torch package to build for, of which only the headers, libraries and
                         version.py are read: it need not be installed
  NETCL_BUILD_MANYLINUX=1  link for glibc 2.28, though this system be newer: see tools/older_symbols.py
  NETCL_LIBRARIES        folder of built libraries, _C-2.13.so and so on: they are packed, nothing is compiled.
                         tools/make_wheel.py uses the last three
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

# Otherwise PyTorch would load an installed torch_netcl while this one is being built.
os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")

import torch
from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from torch.utils.cpp_extension import BuildExtension

ROOT = Path(__file__).resolve().parent
os.chdir(ROOT)
LIBRARIES = sorted(Path(os.environ["NETCL_LIBRARIES"]).glob("_C-2.*.so")) if "NETCL_LIBRARIES" in os.environ else []
TORCH = Path(os.environ.get("NETCL_BUILD_TORCH") or Path(torch.__file__).parent)

try:
    # The environment's ninja, even if its folder is not on PATH: with --no-build-isolation, pip does not add it.
    import ninja

    os.environ["PATH"] = ninja.BIN_DIR + os.pathsep + os.environ.get("PATH", "")
except ImportError:
    pass

for variable in ("CC", "CXX"):
    # torch quotes CXX as one word, and puts ccache or sccache before it if one is installed.
    words = shlex.split(os.environ.get(variable, ""))
    if len(words) > 1 and Path(words[0]).name in ("ccache", "sccache"):
        os.environ[variable] = shlex.join(words[1:])

# Sources that are compiled as one file, whose names follow its name; sources outside all groups are compiled alone.
# Each file that includes ATen costs 2 to 3 s for templates of its headers, and the dispatcher's wrappers are compiled
# once per file and signature. Files of a group must not define the same local name. The largest groups come first.
GROUPS = {
    "elementwise": "aten/UnaryOps aten/BinaryOps aten/SpecialFunctions aten/Activation aten/Complex aten/Assert",
    "indexing": "aten/Indexing aten/ScatterGather aten/Shape aten/Embedding* aten/Distance",
    "windows": "aten/Pooling aten/Padding aten/Upsample* aten/GridSampler aten/Vision aten/DeformConv",
    "lists": "aten/Foreach aten/Optimizers aten/Random aten/Sampling amp/grad_scaler",
    "rows": "aten/ReduceOps aten/Scan aten/Sort aten/Softmax aten/SegmentReduce aten/Masked aten/SetOps",
    "sparse": "aten/Sparse*",
    "matrices": "aten/LinearAlgebra aten/Factorizations aten/Fft aten/*Attention aten/TransformerLayers aten/Quantized "
    "aten/ScaledMm",
    "tensors": "aten/Copy aten/Factories aten/Hooks aten/Compiled aten/ShallowCopy aten/Nested aten/Graph "
    "aten/Recording Module Interop Profiler",
    "decompositions": "aten/linalg/*",
    "layers": "aten/BatchNorm aten/ChannelNorm aten/Normalization aten/*Loss aten/FakeQuantize",
    "products": "aten/gemm/* aten/conv/* aten/rnn/*",
    "autocast": "amp/autocast_*",
    "support": "aten/support/*",
    "programs": "runtime/Kernel runtime/Builds runtime/Threads runtime/Program* runtime/Assertions runtime/Profiler",
    "devices": "runtime/*",  # all others
}


def env_flag(name: str, default: str = "0") -> bool:
    """Whether an environment variable has a value that means yes."""
    return os.environ.get(name, default).lower() not in ("", "0", "false", "off", "no")


def version_in(file: Path) -> str:
    """The `__version__` of a Python file, without importing it."""
    return re.search(r"""__version__ = ["'](.+)["']""", file.read_text())[1]


def opencl_include() -> str:
    """The folder that holds CL/cl.h: NETCL_OPENCL_INCLUDE, the system's, or a wheel's."""
    if override := os.environ.get("NETCL_OPENCL_INCLUDE"):
        candidates = [Path(override)]
    else:
        candidates = [Path("/usr/include"), Path("/usr/local/include")]
        for entry in map(Path, sys.path):
            candidates += sorted(entry.glob("nvidia/*/include")) if entry.is_dir() else []
    for folder in candidates:
        if (folder / "CL" / "cl.h").is_file():
            return str(folder)
    raise SystemExit(
        f"torch_netcl: no CL/cl.h in any of {', '.join(map(str, candidates))}.\n"
        "Install the OpenCL headers (`pip install nvidia-cuda-opencl`, or Debian's opencl-c-headers), "
        "or point NETCL_OPENCL_INCLUDE at the folder that holds CL/cl.h."
    )


def extension() -> Extension:
    """torch_netcl._C from every .cpp file in csrc."""
    sources = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "csrc").rglob("*.cpp"))
    if not sources:
        raise SystemExit("torch_netcl: no C++ source below csrc/")
    # The paths are absolute, since ninja runs in the build folder. Host and device share kernels/args.
    ours = [str(ROOT / "csrc"), str(ROOT / "kernels")]
    theirs = [str(TORCH / "include"), str(TORCH / "include/torch/csrc/api/include")]
    # Other projects' headers are included with -isystem, which silences their warnings. (/usr/include must not be,
    # since it would then come before the compiler's own folders.)
    system = [d for d in [*theirs, opencl_include()] if d not in ("/usr/include", "/usr/local/include")]
    cflags = [
        "-std=c++20",
        *(["-O0", "-g"] if env_flag("NETCL_BUILD_DEBUG") else ["-O2", "-g0"]),
        "-fvisibility-inlines-hidden",
        *["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers"],
        *["-Wno-unknown-pragmas", "-Wno-sign-compare"],
        f'-DNETCL_VERSION="{version_in(ROOT / "torch_netcl/_version.py")}"',
        # It is part of the command line, so that another torch in the same place rebuilds everything.
        f'-DNETCL_BUILD_TORCH_VERSION="{version_in(TORCH / "version.py")}"',
        "-DCL_TARGET_OPENCL_VERSION=300",
        "-DCL_USE_DEPRECATED_OPENCL_1_2_APIS",
        *[f"-isystem{d}" for d in system],
    ]
    ldflags = ["-ldl", "-Wl,--no-undefined", "-Wl,--as-needed"]
    if env_flag("NETCL_BUILD_ASAN"):
        cflags += ["-fsanitize=address", "-fno-omit-frame-pointer", "-g1"]
        # The sanitizer's own symbols come from the preloaded runtime.
        ldflags = ["-ldl", "-fsanitize=address"]
    return Extension(
        "torch_netcl._C",
        sources,
        language="c++",
        include_dirs=ours + theirs,
        library_dirs=[str(TORCH / "lib")],
        libraries=["c10", "torch_cpu"],
        extra_compile_args={"cxx": cflags},
        extra_link_args=ldflags,
    )


class BuildExt(BuildExtension.with_options(use_ninja=True, no_python_abi_suffix=True)):
    """Keeps the objects of `pip install -e` in build/temp, where setuptools would use a temporary folder."""

    def finalize_options(self) -> None:
        """Choose the folder once setuptools has chosen one."""
        super().finalize_options()
        if self.inplace or getattr(self, "editable_mode", False):
            self.build_temp = str(ROOT / "build" / "temp")

    def build_extensions(self) -> None:
        """Parse ATen's headers once for all sources, since they take nine tenths of the compiler's time."""
        if LIBRARIES:
            for library in LIBRARIES:
                shutil.copyfile(library, Path(self.build_lib) / "torch_netcl" / library.name)
            return
        if env_flag("NETCL_BUILD_CHECK_KERNELS"):
            for ext in self.extensions:
                ext.extra_compile_args["cxx"] += ["-DNETCL_CHECK_KERNELS", self.schemas()]
        if env_flag("NETCL_BUILD_GROUPS", "1"):
            for ext in self.extensions:
                ext.sources = self.grouped(ext.sources)
        if env_flag("NETCL_BUILD_PCH", "1"):
            for ext in self.extensions:
                ext.extra_compile_args["cxx"] += self.precompiled(ext)
        if env_flag("NETCL_BUILD_MANYLINUX"):
            sys.path.append(str(ROOT / "tools"))
            from older_symbols import link_for

            compiler = shlex.split(os.environ.get("CXX", "c++"))
            self.compiler.link = link_for(self.compiler.link, compiler=compiler)
        # It names file descriptors that make has closed, of which ninja 1.13 complains as of an error.
        os.environ.pop("MAKEFLAGS", None)
        super().build_extensions()

    def schemas(self) -> str:
        """Write the list of aten operators that csrc/aten/support/Schemas.h includes; returns the flag to find it."""
        words = r'struct TORCH_API (\w+) \{.*? name = "aten::(.+?)";.*? overload_name = "(.*?)";'
        operator = re.compile(words, re.DOTALL)
        names = {}
        for header in (TORCH / "include/ATen/ops").glob("*_ops.h"):
            for struct, name, overload in operator.findall(header.read_text()):
                names[f"{name}.{overload}" if overload else name] = struct
        text = "".join(f'NETCL_SCHEMA("{name}", {names[name]})\n' for name in sorted(names))
        # The folder's name changes with the content, so another torch rebuilds everything.
        folder = Path(self.build_temp).absolute() / f"schemas-{hashlib.sha1(text.encode()).hexdigest()[:12]}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "aten_schemas.inc").write_text(text)
        return f"-I{folder}"

    def grouped(self, sources: list[str]) -> list[str]:
        """Write a file per group that includes its sources; returns these files and the sources outside all groups."""
        folder = Path(self.build_temp) / "groups"
        folder.mkdir(parents=True, exist_ok=True)
        alone, files = set(sources), []
        for name, patterns in GROUPS.items():
            members = sorted(s for s in alone if any(fnmatch(s, f"csrc/{p}.cpp") for p in patterns.split()))
            alone -= set(members)
            text = "".join(f'#include "{ROOT / member}"\n' for member in members)
            file = folder / f"{name}.cpp"
            if not file.is_file() or file.read_text() != text:  # an unchanged file keeps its time, so its object
                file.write_text(text)
            files.append(os.path.relpath(file, ROOT) if file.absolute().is_relative_to(ROOT) else str(file))
        return [*files, *sorted(alone)]

    def precompiled(self, ext: Extension) -> list[str]:
        """Compile csrc/Precompiled.h with the flags of `ext`; returns the flags that use it, or none if that is
        impossible."""
        ours = ("csrc/Precompiled.h", "csrc/aten/support/Schemas.h")
        text = "".join((ROOT / file).read_text() for file in ours)
        # The same flags as those of torch's BuildExtension; if they differ in a way that matters, the compiler ignores
        # the result.
        flags = [*self.compiler.compiler_so[1:], "-fPIC", *ext.extra_compile_args["cxx"]]
        compiler = shlex.split(os.environ.get("CXX", "c++"))
        try:
            about = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return []
        if "clang" in about or not any(name in about for name in ("GCC", "g++", "Free Software")):
            return []  # other compilers store and name theirs differently
        key = hashlib.sha1(repr((text, flags, compiler, about)).encode()).hexdigest()[:12]
        place = os.environ.get("NETCL_BUILD_PCH", "")
        folder = (Path(place) if "/" in place else Path(self.build_temp)).absolute() / f"precompiled-{key}"
        header, binary = folder / "Precompiled.h", folder / "Precompiled.h.gch"
        if not binary.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / "csrc/Precompiled.h", header)
            made = folder / f"{os.getpid()}.tmp"
            command = [*compiler, *flags, f"-I{ROOT / 'csrc'}", "-x", "c++-header", str(header), "-o", str(made)]
            if subprocess.run(command).returncode != 0:
                return []
            made.replace(binary)
        return ["-include", str(header)]


def requirements() -> list[str]:
    """The package's requirements: of torch, the minor versions that its libraries are built for."""
    minors = sorted(int(library.stem.partition("-2.")[2]) for library in LIBRARIES)
    if minors:
        between = set(range(minors[0], minors[-1])) - set(minors)
        bounds = [f">=2.{minors[0]}", *(f"!=2.{minor}.*" for minor in sorted(between)), f"<2.{minors[-1] + 1}"]
    elif "sdist" in sys.argv:
        bounds = [">=2.11"]
    else:
        bounds = [f"=={'.'.join(version_in(TORCH / 'version.py').split('.')[:2])}.*"]
    # pyopencl contains an OpenCL ICD loader; torch_netcl.interop exchanges data with it.
    return ["torch" + ",".join(bounds), "numpy", "pyopencl"]


class AnyPythonWheel(bdist_wheel):
    """Tags the wheel py3-none-<platform>: it holds a native library that does not use Python's ABI."""

    def get_tag(self) -> tuple[str, str, str]:
        """The tag with only the platform."""
        return "py3", "none", super().get_tag()[2]


setup(
    packages=[*find_packages(include=["torch_netcl", "torch_netcl.*"]), "torch_netcl.kernels"],
    # The kernels are beside the package in the tree, and inside it when installed.
    package_dir={"torch_netcl.kernels": "kernels"},
    package_data={"torch_netcl.kernels": ["**/*.cl", "**/*.h"]},
    include_package_data=False,
    ext_modules=[extension()],
    install_requires=requirements(),
    cmdclass={
        "build_ext": BuildExt,
        "bdist_wheel": AnyPythonWheel,
    },
)
