"""``python -m benchmarks.gpu_platforms``: which OpenCL platforms there are, and by which path they were found, as JSON.

It needs neither torch nor pyopencl, so it answers within a second. gpu.py runs it in a process of its own, since a
driver may crash when it is first asked.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

# Constants of CL/cl.h: what is asked of platforms and devices.
PLATFORM = {"name": 0x0902, "version": 0x0901, "vendor": 0x0903}
DEVICE = {"name": 0x102B, "version": 0x102F, "driver": 0x102D, "extensions": 0x1030}
NUMBERS = {"memory": 0x101F, "largest_buffer": 0x1010, "local_memory": 0x1023, "work_group": 0x1004}
TYPE, ALL, GPU = 0x1000, 0xFFFFFFFF, 4
NVIDIA = "libnvidia-opencl.so.1"
#: Where containers and distributions put NVIDIA's driver.
FOLDERS = (
    "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib",
    "/usr/lib/aarch64-linux-gnu", "/usr/lib/wsl/lib", "/usr/local/cuda/compat", "/run/opengl-driver/lib",
)  # fmt: skip


def opencl_module() -> ModuleType:
    """torch_netcl._opencl, without importing the package, which would import torch."""
    package = importlib.util.find_spec("torch_netcl")
    file = Path(package.origin).with_name("_opencl.py")
    spec = importlib.util.spec_from_file_location("netcl_opencl", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def driver_folder(folders: Iterable[str] = FOLDERS) -> str | None:
    """The first folder with NVIDIA's OpenCL driver, in which the dynamic linker may not look."""
    return next((folder for folder in folders if (Path(folder) / NVIDIA).exists()), None)


def text_of(ask, handle: ctypes.c_void_p, what: int) -> str:
    """The answer of clGetPlatformInfo or clGetDeviceInfo to a question for text."""
    size = ctypes.c_size_t()
    if ask(handle, what, ctypes.c_size_t(0), None, ctypes.byref(size)):
        return ""
    text = ctypes.create_string_buffer(size.value)
    ask(handle, what, size, text, None)
    return text.value.decode(errors="replace")


def number_of(ask, handle: ctypes.c_void_p, what: int) -> int:
    """The same for a number of up to 64 bits."""
    value = ctypes.c_uint64()
    ask(handle, what, ctypes.c_size_t(8), ctypes.byref(value), None)
    return value.value


def platforms(loader: str) -> list[dict]:
    """What the ICD loader lists."""
    cl = ctypes.CDLL(loader)
    count = ctypes.c_uint()
    if cl.clGetPlatformIDs(0, None, ctypes.byref(count)) or not count.value:
        return []
    handles = (ctypes.c_void_p * count.value)()
    cl.clGetPlatformIDs(count, handles, None)
    found = []
    for platform in map(ctypes.c_void_p, handles):
        entry = {key: text_of(cl.clGetPlatformInfo, platform, what) for key, what in PLATFORM.items()}
        entry["devices"] = []
        number = ctypes.c_uint()
        if not cl.clGetDeviceIDs(platform, ctypes.c_uint64(ALL), 0, None, ctypes.byref(number)) and number.value:
            devices = (ctypes.c_void_p * number.value)()
            cl.clGetDeviceIDs(platform, ctypes.c_uint64(ALL), number, devices, None)
            for device in map(ctypes.c_void_p, devices):
                facts = {key: text_of(cl.clGetDeviceInfo, device, what) for key, what in DEVICE.items()}
                facts |= {key: number_of(cl.clGetDeviceInfo, device, what) for key, what in NUMBERS.items()}
                facts["gpu"] = bool(number_of(cl.clGetDeviceInfo, device, TYPE) & GPU)
                entry["devices"].append(facts)
        found.append(entry)
    return found


def failure(library: str) -> str:
    """Why the dynamic linker cannot open a driver, say, because of a library that it lacks; empty if it can."""
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return str(error)
    return ""


def how(opencl: ModuleType, info) -> str:
    """By which path the loader finds the runtimes."""
    if info.user_choice:
        names = [name for name in opencl.USER_VARIABLES if os.environ.get(name)]
        return f"{names[0]}={info.vendors}, as the environment says"
    if info.vendors:
        return f"a folder of netcl's own, {info.vendors}"
    return f"the system's {opencl.SYSTEM_VENDORS}"


def main() -> int:
    """Print the answer."""
    opencl = opencl_module()
    info = opencl.configure()
    answer = {
        "loader": info.library,
        "others": [str(p) for folder in opencl._pyopencl_libs() for p in sorted(folder.glob("libOpenCL*.so*"))],
        "by": how(opencl, info),
        "runtimes": [[r.name, r.library, r.origin] for r in info.runtimes],
    }
    print(json.dumps(answer), flush=True)  # now, since the next call may end the process
    if info.library:
        answer["platforms"] = platforms(info.library)
        answer["failures"] = list(filter(None, [failure(r.library) for r in info.runtimes]))
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
