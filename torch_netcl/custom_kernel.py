"""Users' own kernels in OpenCL C, launched directly on tensors."""

from __future__ import annotations

import hashlib
import re
import shlex
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .device import DeviceLike, device_index

__all__ = ["CompiledKernel", "LocalMemory", "compile_kernel"]

_netcl = torch.ops.netcl

#: OpenCL C's scalar types, as struct formats.
_SCALARS = {
    "char": "b",
    "uchar": "B",
    "short": "h",
    "ushort": "H",
    "int": "i",
    "uint": "I",
    "long": "q",
    "ulong": "Q",
    "half": "e",
    "float": "f",
    "double": "d",
}
#: The dtypes that a pointer to each of these types accepts; other pointers accept any tensor.
_POINTEES = {
    "char": {torch.int8, torch.bool},
    "short": {torch.int16, torch.bfloat16, torch.uint16},
    "ushort": {torch.int16, torch.bfloat16, torch.uint16},
    "int": {torch.int32, torch.uint32},
    "uint": {torch.int32, torch.uint32},
    "long": {torch.int64, torch.uint64},
    "ulong": {torch.int64, torch.uint64},
    "half": {torch.float16},
    "float": {torch.float32, torch.complex64},
    "double": {torch.float64, torch.complex128},
}


@dataclass(frozen=True)
class LocalMemory:
    """An argument for a ``__local`` pointer: `nbytes` bytes of local memory per work-group."""

    nbytes: int


#: PoCL names files after kernels, and ends the process if a name is too long for a file.
_LONGEST_NAME = 200
_KERNELS = re.compile(r"\bvoid\s+(\w+)\s*\(")
_INCLUDES = re.compile(r'^\s*#\s*include\s*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)


def _check_names(source: str, name: str) -> None:
    for each in (name, *_KERNELS.findall(source)):
        if not each.isidentifier() or len(each) > _LONGEST_NAME:
            shown = each if len(each) < 50 else each[:50] + "..."
            raise ValueError(
                f"{shown!r} cannot name a kernel: that takes a C identifier of at most {_LONGEST_NAME} characters"
            )


def _included(text: str, folders: list[Path], seen: set[Path]) -> Iterator[bytes]:
    """The content of the files that `text` includes, directly or not, except the compiler's own, which do not change.
    """
    for match in _INCLUDES.finditer(text):
        for path in (folder / (match[1] or match[2]) for folder in folders):
            if path.is_file():
                if (path := path.resolve()) not in seen:
                    seen.add(path)
                    content = path.read_bytes()
                    yield content
                    yield from _included(content.decode(errors="replace"), [path.parent, *folders], seen)
                break


def _with_includes(source: str, options: str) -> str:
    """The source, with a hash of the files that it includes at its end, since the cache's key is the text."""
    if "include" not in source:
        return source
    words, folders = shlex.split(options), [Path.cwd()]
    for i, word in enumerate(words):
        if word.startswith("-I"):
            folders.append(Path(word[2:] or (words[i + 1] if i + 1 < len(words) else "")))
    contents = list(_included(source, folders, set()))
    if not contents:
        return source
    return f"{source}\n// {hashlib.sha256(repr(contents).encode()).hexdigest()}\n"


def _type_name(name: str) -> str:
    return name.replace("unsigned ", "u")


class CompiledKernel:
    """A kernel created by :func:`compile_kernel`; call it to launch it."""

    def __init__(self, source: str, name: str, options: str) -> None:
        self.name = name
        self._source = source
        self._options = options
        self._built: dict[int, tuple[int, list[str]]] = {}

    def __repr__(self) -> str:
        return f"<netcl kernel {self.name}>"

    def build(self, device: DeviceLike = None) -> CompiledKernel:
        """Compile for a device (default: the current one) now instead of at the first launch; returns itself."""
        self._for(device_index(device))
        return self

    def _for(self, index: int) -> tuple[int, list[str]]:
        built = self._built.get(index)
        if built is None:
            source = _with_includes(self._source, self._options)
            number = _netcl.compile_kernel(index, source, self.name, self._options)
            built = number, [_type_name(t) for t in _netcl.kernel_argument_types(number)]
            self._built[index] = built
        return built

    def __call__(
        self, *args: Any, global_size: int | Sequence[int], local_size: int | Sequence[int] | None = None
    ) -> None:
        """Enqueue the kernel on the current stream of its tensors' device, and return at once.

        `args` holds one value per argument of the kernel. For a ``__global`` pointer pass a netcl tensor: the
        pointer is to its first element, and does not know its strides (None: a null pointer). For a scalar pass an
        int or a float, which is converted to the type that the kernel declares (a NumPy scalar keeps its own type).
        For a ``__local`` pointer pass :class:`LocalMemory`. `global_size` is the number of work-items in each of up
        to three dimensions. `local_size` is that of a work-group, and must divide it (None: the driver chooses).

        Raises TypeError or ValueError for unsuitable arguments, and RuntimeError if the driver refuses the launch.
        The kernel is trusted: if it writes out of bounds, it corrupts memory.
        """
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        for i, a in enumerate(args):
            if isinstance(a, torch.Tensor) and a.device.type != "netcl":
                raise TypeError(f"{self.name}: argument {i} is a tensor on {a.device}; move it with .to('netcl')")
        index = tensors[0].device.index if tensors else device_index()
        number, types = self._for(index)
        if len(args) != len(types):
            raise TypeError(f"{self.name} takes {len(types)} arguments but {len(args)} were given")
        packed: list[int] = []
        used = 0
        for i, (a, declared) in enumerate(zip(args, types, strict=True)):
            if isinstance(a, torch.Tensor):
                self._check_tensor(i, a, declared)
                packed += [0, used]
                used += 1
            elif a is None:
                packed += [0, -1]
            elif isinstance(a, LocalMemory):
                packed += [-1, int(a.nbytes)]
            else:
                packed += self._scalar(i, a, declared)
        global_size = _sizes("global_size", global_size)
        local = [] if local_size is None else _sizes("local_size", local_size)
        if local and (len(local) != len(global_size) or any(g % n for g, n in zip(global_size, local, strict=True))):
            raise ValueError(f"{self.name}: local_size {local} does not divide global_size {global_size}")
        _netcl.launch_kernel(number, tensors, packed, global_size, local)

    def _check_tensor(self, i: int, tensor: torch.Tensor, declared: str) -> None:
        if declared and not declared.endswith("*"):
            raise TypeError(f"{self.name}: argument {i} is a {declared}, but a tensor was given")
        allowed = _POINTEES.get(declared.rstrip("*").rstrip("0123456789"))
        if allowed is not None and tensor.dtype not in allowed:
            raise TypeError(f"{self.name}: argument {i} is a {declared}, but a tensor of {tensor.dtype} was given")
        if tensor.is_conj() or tensor.is_neg():
            raise ValueError(f"{self.name}: argument {i} is lazily conjugated; pass tensor.resolve_conj()")

    def _scalar(self, i: int, value: Any, declared: str) -> list[int]:
        """(bytes, bits) of a scalar argument."""
        if isinstance(value, (int, float)) and not hasattr(value, "dtype"):  # numpy.float64 is also a float
            if declared not in _SCALARS:
                raise TypeError(
                    f"{self.name}: argument {i} is a {declared or 'type that the driver does not tell'}; a Python "
                    f"{type(value).__name__} cannot become one. Pass a NumPy scalar or a tensor."
                )
            try:
                data = struct.pack("<" + _SCALARS[declared], value)
            except struct.error as e:
                kind = TypeError if isinstance(value, float) else ValueError
                raise kind(f"{self.name}: argument {i} is a {declared}, which cannot hold {value!r}") from e
            except OverflowError as e:
                raise ValueError(f"{self.name}: argument {i} is a {declared}, which cannot hold {value!r}") from e
        elif hasattr(value, "dtype") and hasattr(value, "tobytes") and getattr(value, "ndim", 1) == 0:
            data = value.tobytes()
            if len(data) > 8 or (declared in _SCALARS and len(data) != struct.calcsize("<" + _SCALARS[declared])):
                raise TypeError(f"{self.name}: argument {i} is a {declared}, but a {value.dtype} was given")
        else:
            raise TypeError(
                f"{self.name}: argument {i} must be a netcl tensor, a number, LocalMemory or None, not "
                f"{type(value).__name__}"
            )
        return [len(data), int.from_bytes(data.ljust(8, b"\0"), "little", signed=True)]


def _sizes(what: str, value: int | Sequence[int]) -> list[int]:
    sizes = [value] if isinstance(value, int) else [int(v) for v in value]
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        raise ValueError(f"{what} must be one to three positive numbers, got {value}")
    return sizes


def compile_kernel(source: str, name: str, options: str | Sequence[str] = ()) -> CompiledKernel:
    """The kernel `name` of a program in OpenCL C, for launches on netcl tensors.

    `options` go to the OpenCL compiler (``-DN=4``). The kernel is compiled at its first launch on a device (see
    :meth:`CompiledKernel.build`). Binaries are kept on disk beside netcl's own, and compiled again if a file that
    the source includes has changed. A compiler error then raises RuntimeError with the compiler's log. ValueError:
    the name is no C identifier or has more than 200 characters.

    >>> scale = torch_netcl.compile_kernel(
    ...     "__kernel void scale(__global float* x, float by) { x[get_global_id(0)] *= by; }", "scale"
    ... )
    >>> x = torch.ones(1000, device="netcl")
    >>> scale(x, 3.0, global_size=x.numel())

    For autograd, wrap it in ``torch.library.custom_op``; docs/interop.md shows how.
    """
    _check_names(source, name)
    text = options if isinstance(options, str) else " ".join(options)
    return CompiledKernel(source, name, f"-cl-kernel-arg-info {text}".strip())
