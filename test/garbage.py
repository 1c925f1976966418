"""Calls with garbage arguments, for test_garbage.py; as a program it makes the calls that a file lists.

An operator's i-th call is always the same. It starts either from a recorded call of OpInfo's samples, of which one
or two arguments are then spoilt, or from the schema alone, with tensors of one shape and dtype.
"""

from __future__ import annotations

import faulthandler
import inspect
import json
import os
import pickle
import random
import resource
import signal
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import torch_netcl
import torch_netcl.interop

HANG_SECONDS = 120  # a call compiles a few kernels at most
DATA_BYTES = 6 << 30  # memory limit of the process: an absurd size fails at once
DEVICE_FRACTION = 0.03  # of the memory of the device

# The same call ends the process on the CPU too, before it reaches a netcl kernel: name or pattern -> why.
DIES_ON_CPU = {
    "aten::_foreach_*out": "lists of other lengths are read past their ends",
    "aten::_foreach_copy": "lists of other lengths are read past their ends",
    "aten::_chunk_cat.out": "the same call on CPU tensors ends in a segmentation fault too",
    "aten::_nnpack_spatial_convolution.out": "paddings and strides of other lengths, or of 0",
    "aten::native_group_norm": "a sparse weight leads to a function of ATen's that divides by num_groups unseen",
    "aten::quantized_lstm_cell": "the same call on CPU tensors ends in a segmentation fault too",
    "aten::_slow_conv2d_backward.grad_input": "sizes of other lengths are read past their ends",
    "aten::_slow_conv2d_backward.output_mask": "sizes of other lengths are read past their ends",
    "aten::choose_qparams_optimized": "numbers of bins that cannot be end the CPU's function too, or keep it for ever",
    "aten::_new_zeros_with_same_feature_meta": "a number of batch dimensions that cannot be",
    "aten::_remove_batch_dim": "a level without functorch's interpreter",
    "aten::_nnpack_spatial_convolution": "strides of 0 and numbers that are missing",
    "aten::_sobol_engine_initialize_state_": "sizes that are not those of an engine's state",
    "aten::_stack": "it takes the first of no tensors",
    "aten::_thnn_differentiable_*_cell_backward": "it takes the sizes of tensors that are missing",
    "aten::promote_types": "numbers that are no dtype index a table",
    "aten::unsafe_split.Tensor_out": "outputs that are missing are written",
}

PLAIN = (
    torch.Tensor,
    int,
    float,
    complex,
    str,
    type(None),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
SAMPLES = 6  # recorded calls per operator

SHAPES = [
    (),
    (0,),
    (1,),
    (3,),
    (2, 3),
    (3, 3),
    (0, 3),
    (2, 0, 3),
    (2, 3, 4),
    (1, 2, 3, 4),
    (2, 3, 4, 5),
    (1, 1, 2, 2, 2),
]
DTYPES = [
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
    torch.complex32,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float8_e4m3fn,
]
HUGE = [-(2**63), 2**63 - 1, -(2**40), 2**40, 2**31, 2**31 - 1, -(2**31), 10**6, 1000, -1000]
FLOATS = [0.0, 1.0, -1.0, 0.5, 2.0, -0.0, float("nan"), float("inf"), float("-inf"), 1e300, 1e-300, 1e10]
STRINGS = [
    "",
    "none",
    "mean",
    "sum",
    "prod",
    "amax",
    "amin",
    "max",
    "reflect",
    "ij",
    "xy",
    "tanh",
    "linear",
    "higher",
    "floor",
    "trunc",
    "linalg",
    "L",
    "lower",
    "default",
    "gesvd",
    "zeros",
    "i,j->ij",
    "ii->i",
    "...",
    "abc->",
    "cpu",
    "netcl",
    "é",
    "x" * 1000,
    "\0",
]


def filled(rng: random.Random, shape: tuple, dtype: torch.dtype) -> torch.Tensor:
    """A tensor on the CPU, filled without torch's generator: usually small numbers, else some that are no valid index
    or size."""
    n = torch.Size(shape).numel()
    if dtype.is_floating_point or dtype.is_complex:
        values = [rng.choice(FLOATS) if rng.random() < 0.05 else rng.uniform(-2, 2) for _ in range(n)]
        return torch.tensor(values, dtype=torch.float32).reshape(shape).to(dtype)
    kind = rng.random()
    values = [
        rng.randint(0, 2) if kind < 0.6 else rng.randint(-3, 9) if kind < 0.8 else rng.choice(HUGE) for _ in range(n)
    ]
    return torch.tensor(values, dtype=torch.int64).reshape(shape).to(dtype)


def spoilt(rng: random.Random, x: torch.Tensor, device: str, other: str) -> Any:
    """A version of `x`, on `device`, that a function may not expect."""

    def storage(bytes_left: int) -> torch.Tensor:
        y = x.clone()
        y.untyped_storage().resize_(bytes_left)
        return y

    def overlapping() -> torch.Tensor:
        return torch.zeros(8, dtype=x.dtype, device=device).as_strided(x.shape, [1] * x.dim())

    kinds: list[Callable[[], Any]] = [
        lambda: x.to(rng.choice(DTYPES)),
        lambda: x.to(rng.choice(DTYPES)),
        lambda: x.new_empty(()),
        lambda: x.new_zeros(rng.choice(SHAPES)),
        lambda: x.new_zeros(rng.choice(SHAPES)),
        lambda: x.unsqueeze(0),
        lambda: x.flatten(),
        lambda: x[..., :0],
        lambda: x.mT if x.dim() > 1 else x[::2],
        lambda: x.permute(*range(x.dim() - 1, -1, -1)),
        lambda: x[(0,) * x.dim()].expand(x.shape) if x.numel() else x,
        lambda: x[..., ::2],
        lambda: x[None].expand(3, *x.shape),
        lambda: torch.stack([x, x], -1)[..., 1],
        lambda: x.repeat(*[2] * x.dim()),
        overlapping,
        lambda: storage(0),
        lambda: storage(4),
        lambda: x.cpu(),
        lambda: x.to(other),
        lambda: x.to("meta"),
        lambda: x.to_sparse(),
        lambda: x.to_sparse_csr(),
        lambda: x.cpu().to_sparse_csr().to(device),
        lambda: torch.nested.nested_tensor([x, x[:1]]),
        lambda: torch.nested.nested_tensor([x, x[:1]], layout=torch.jagged),
        lambda: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8),
        lambda: torch.quantize_per_tensor(x.cpu().float(), 0.1, 0, torch.qint8).to(device),
        lambda: torch.quantize_per_tensor(x.cpu().float(), 0.1, 0, torch.quint8),
        lambda: x.cpu().to_mkldnn(),
        lambda: torch._efficientzerotensor(x.shape, device=device, dtype=x.dtype),
        lambda: x.conj(),
        lambda: torch._neg_view(x),
        lambda: x.new_zeros(x.shape[::-1]),
        lambda: x.detach().requires_grad_(),
        lambda: torch.nn.Parameter(x),
        lambda: x * 1e30 if x.is_floating_point() else x * 1000,
        lambda: -x - 1,
        lambda: None,
        lambda: [x, x],
        lambda: 1.5,
        lambda: "x",
    ]
    for _ in range(10):
        try:
            return rng.choice(kinds)()
        except Exception:
            continue
    return x


class Arguments:
    """Values for the parameters of a schema."""

    def __init__(self, rng: random.Random, device: str):
        self.rng, self.device = rng, device
        self.other = f"{device}:1" if device != "cpu" and torch.netcl.device_count() > 1 else "cpu"
        self.shape = rng.choice(SHAPES)
        self.dtype = torch.float32 if rng.random() < 0.7 else rng.choice(DTYPES)

    def tensor(self, spoil: float = 0.3) -> Any:
        dtype = self.dtype if self.rng.random() < 0.8 else self.rng.choice([torch.int64, torch.bool, torch.float32])
        x = filled(self.rng, self.shape, dtype).to(self.device)
        return spoilt(self.rng, x, self.device, self.other) if self.rng.random() < spoil else x

    def integer(self, huge: float = 0.1) -> int:
        return self.rng.choice(HUGE) if self.rng.random() < huge else self.rng.randint(-2, 5)

    def number(self) -> Any:
        return self.rng.choice([self.integer(), self.rng.choice(FLOATS), True, 1j, complex("nan+infj")])

    def several(self, make: Callable[[], Any]) -> list:
        return [make() for _ in range(self.rng.choice([0, 1, 1, 2, 2, 2, 3, 4, 5]))]

    def enumeration(self, name: str) -> Any:
        """A value for an int of the schema that stands for an enumeration; other values would index torch's own
        tables."""
        choices: dict[str, list] = {
            "dtype": [torch.float32, torch.qint8, torch.float8_e5m2, *DTYPES],
            "layout": [
                torch.strided,
                torch.sparse_coo,
                torch.sparse_csr,
                torch.sparse_bsr,
                torch.jagged,
                torch._mkldnn,
            ],
            "memory_format": [
                torch.contiguous_format,
                torch.channels_last,
                torch.channels_last_3d,
                torch.preserve_format,
            ],
        }
        return self.rng.choice(choices[name])

    def value(self, kind: str, name: str) -> Any:
        r = self.rng
        if r.random() < 0.02 and "dtype" not in name:
            return r.choice([None, -1, 2.5, "x", [], [None], torch.float32, object(), 2**70, [[1]], self.tensor()])
        if kind.startswith("Optional["):
            return None if r.random() < 0.5 else self.value(kind[9:-1], name)
        if kind.startswith("List["):
            return self.several(lambda: self.value(kind[5:-1], name))
        if name in ("dtype", "layout", "memory_format") or "dtype" in name:
            return self.enumeration("dtype" if "dtype" in name else name)
        makers: dict[str, Callable[[], Any]] = {
            "Tensor": self.tensor,
            "int": self.integer,
            "bool": lambda: r.random() < 0.5,
            "float": lambda: r.choice(FLOATS),
            "number": self.number,
            "str": lambda: r.choice(STRINGS),
            "Device": lambda: r.choice(
                [self.device, self.device, "cpu", "meta", self.other, f"{self.device}:77", "cuda", "x"]
            ),
            "Generator": lambda: torch.Generator(r.choice([self.device, self.device, "cpu", self.other])),
            "Storage": lambda: self.tensor().untyped_storage(),
            "Stream": lambda: torch.Stream(device=self.device),
        }
        return makers[kind]() if kind in makers else object()


def operator(name: str) -> Any:
    """The overload of this name in the dispatcher's table."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")


def arguments(name: str, i: int, samples: dict, device: str) -> tuple[list, dict]:
    """The arguments of the i-th call of the operator `name`."""
    rng = random.Random(f"{name} {i}")
    make = Arguments(rng, device)
    schema = operator(name)._schema
    recorded = samples.get(name)
    if not recorded or rng.random() < 0.25:
        args, kwargs = [], {}
        for a in schema.arguments:
            if a.has_default_value() and rng.random() < 0.4:
                if not a.kwarg_only:
                    args.append(a.default_value)
            elif a.kwarg_only:
                kwargs[a.name] = make.value(str(a.type), a.name)
            else:
                args.append(make.value(str(a.type), a.name))
        return args, kwargs

    args, kwargs = tree_map(
        lambda x: renewed(x, device), rng.choice(recorded), is_leaf=lambda x: isinstance(x, Recorded)
    )
    args, kwargs = list(args), dict(kwargs)
    places: list = [(args, i) for i in range(len(args))] + [(kwargs, k) for k in kwargs]
    for a in schema.arguments[len(args) :]:
        if a.name not in kwargs and rng.random() < 0.3:
            kwargs[a.name] = make.value(str(a.type), a.name)
    for where, key in rng.sample(places, min(len(places), rng.choice([0, 1, 1, 1, 2, 2]))):
        old = where[key]
        if isinstance(old, torch.Tensor):
            where[key] = spoilt(rng, old, device, make.other)
        elif isinstance(old, list) and old and isinstance(old[0], torch.Tensor):
            n = rng.randrange(len(old))
            where[key] = rng.choice(
                [[], old[:n], old + old[:1], [*old[:n], spoilt(rng, old[n], device, make.other), *old[n + 1 :]]]
            )
        else:
            a = schema.arguments[key] if isinstance(key, int) else next(a for a in schema.arguments if a.name == key)
            where[key] = make.value(str(a.type), a.name)
    return args, kwargs


class Recorded(NamedTuple):
    """A tensor, in a form that pickle takes for every dtype."""

    shape: tuple
    dtype: torch.dtype
    values: list

    @classmethod
    def of(cls, x: Any) -> Any:
        return cls(tuple(x.shape), x.dtype, x.flatten().tolist()) if isinstance(x, torch.Tensor) else x


def renewed(x: Any, device: str = "netcl") -> Any:
    """An argument of a recorded call, for this device."""
    if isinstance(x, Recorded):
        return torch.tensor(x.values, dtype=x.dtype).reshape(x.shape).to(device)
    return torch.device(device) if isinstance(x, torch.device) else x


class Recorder(TorchDispatchMode):
    """Keeps the first small calls of each operator."""

    def __init__(self, keep: dict, device: str):
        super().__init__()
        self.keep, self.device = keep, device

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        calls = self.keep.setdefault(func._schema.name + ("." + func._schema.overload_name).rstrip("."), [])
        leaves = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if len(calls) < SAMPLES and all(type(x) is torch.Tensor and x.numel() <= 4096 for x in leaves):
            if all(x.layout is torch.strided and x.device.type == self.device and not x.is_quantized for x in leaves):
                if all(isinstance(x, PLAIN) for x in tree_leaves((args, kwargs))):
                    calls.append(tree_map(Recorded.of, (list(args), kwargs or {})))
        return func(*args, **(kwargs or {}))


def record(infos: Iterable, per_info: int, device: str = "cpu") -> dict[str, list]:
    """Operator -> its calls on the device in samples of `infos`, forward and backward."""
    keep: dict[str, list] = {}
    warnings.simplefilter("ignore")
    for info in infos:
        dtype = torch.float32 if torch.float32 in info.dtypes else next(iter(info.dtypes), None)
        torch.manual_seed(0)
        try:
            smooth = info.supports_autograd and dtype.is_floating_point
            samples = info.sample_inputs(device, dtype, requires_grad=smooth)
            for _, sample in zip(range(per_info), samples, strict=False):
                with Recorder(keep, device):
                    out = info(sample.input, *sample.args, **sample.kwargs)
                    heads = [x for x in tree_leaves(out) if isinstance(x, torch.Tensor) and x.requires_grad]
                    if heads and all(x.is_floating_point() for x in heads):
                        torch.autograd.backward(heads, [torch.ones_like(x) for x in heads])
        except Exception:
            continue  # the sample is for other devices
    return keep


# These are not called: their arguments are addresses of OpenCL objects, or they end the whole process.
NOT_CALLED = {
    "netcl::initialize",
    "netcl::shutdown",
    "netcl::_inject_error",
    "netcl::tensor_from_buffer",
    "netcl::wait_event",
}

MORE_OF_PYTHON: dict[str, Callable] = {
    "CompiledKernel()": lambda *a, **k: torch_netcl.CompiledKernel(COPY, "copy", "")(*a, **k),
    "torch.Stream": lambda *a, **k: torch.Stream(*a, device="netcl", **k).synchronize(),
    "torch.Stream of numbers": lambda i=0, d=0, t=20, *a: torch.Stream(
        stream_id=i, device_index=d, device_type=t
    ).synchronize(),
    "with torch.Stream of numbers": lambda i=0, d=0, *a: use(torch.Stream(stream_id=i, device_index=d, device_type=20)),
    "torch.Event": lambda *a: torch.Event("netcl", *a).record(),
    "torch.Event.wait": lambda *a: torch.Event("netcl").wait(*a),
    "torch.Event.elapsed_time": lambda *a: torch.Event("netcl", enable_timing=True).elapsed_time(*a),
    "torch.Generator": lambda *a: torch.Generator("netcl", *a),
    "torch.Generator.set_state": lambda *a: torch.Generator("netcl").set_state(*a),
    "torch.Generator.manual_seed": lambda *a: torch.Generator("netcl").manual_seed(*a),
    "torch.Generator.set_offset": lambda *a: torch.Generator("netcl").set_offset(*a),
    "Tensor.record_stream": lambda *a: torch.ones(2, device="netcl").record_stream(*a),
    "Tensor.netcl": lambda *a: torch.ones(2).netcl(*a),
    "UntypedStorage": lambda *a: torch.UntypedStorage(*a, device="netcl"),
    "UntypedStorage.resize_": lambda *a: torch.ones(2, device="netcl").untyped_storage().resize_(*a),
    "UntypedStorage.copy_": lambda *a: torch.ones(2, device="netcl").untyped_storage().copy_(*a),
    "torch.from_dlpack": lambda *a: torch.from_dlpack(*a),
    "Tensor.__dlpack__": lambda *a: torch.ones(2, device="netcl").__dlpack__(stream=a[0] if a else None),
    "torch.accelerator.set_stream": lambda *a: torch.accelerator.set_stream(*a),
    "torch.accelerator.set_device_index": lambda *a: torch.accelerator.set_device_index(*a),
    "torch.accelerator.synchronize": lambda *a: torch.accelerator.synchronize(*a),
    "torch.accelerator.memory_stats": lambda *a: torch.accelerator.memory_stats(*a),
    "torch.accelerator.reset_peak_memory_stats": lambda *a: torch.accelerator.reset_peak_memory_stats(*a),
    "torch.accelerator.get_memory_info": lambda *a: torch.accelerator.get_memory_info(*a),
    "torch.autocast": lambda *a: torch.autocast("netcl", *a).__enter__(),
    "torch.amp.GradScaler": lambda *a: torch.amp.GradScaler("netcl", *a).scale(torch.ones(2, device="netcl")),
}
COPY = "__kernel void copy(__global float* y, __global const float* x) { y[get_global_id(0)] = x[get_global_id(0)]; }"


def use(stream: torch.Stream) -> None:
    with stream:
        torch.ones(2, device="netcl").cpu()


def python_names() -> list[str]:
    """Functions, classes and methods of torch_netcl's modules: "module:name"."""
    names = [f":{n}" for n in MORE_OF_PYTHON]
    for module in (torch.netcl, torch.netcl.amp, torch_netcl, torch_netcl.interop, torch_netcl.memory):
        for name, value in inspect.getmembers(module):
            if not name.startswith("_") and getattr(value, "__module__", "").startswith("torch_netcl"):
                names.append(f"{module.__name__}:{name}")
                if inspect.isclass(value):
                    methods = [m for m in vars(value) if not m.startswith("_") and callable(getattr(value, m))]
                    names += [f"{module.__name__}:{name}.{m}" for m in methods]
    return sorted(set(names))


def call_python(name: str, i: int) -> Any:
    rng = random.Random(f"{name} {i}")
    make = Arguments(rng, "netcl")
    module, _, path = name.partition(":")
    kinds = ["Tensor", "int", "bool", "float", "number", "str", "Device", "Generator", "Storage", "Stream"]
    kinds += ["List[Tensor]", "List[int]", "dtype", "object", "Optional[int]"]

    def garbage() -> Any:
        kind = rng.choice(kinds)
        return make.enumeration(kind) if kind == "dtype" else make.value(kind, "")

    args = [garbage() for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3, 4]))]
    if not module:
        return MORE_OF_PYTHON[path](*args)
    f: Any = sys.modules[module]
    for part in path.split("."):
        if inspect.isclass(f):
            f = f() if rng.random() < 0.8 else f(*args[:1])
        f = getattr(f, part)
    result = f(*args)
    if hasattr(result, "__enter__"):
        with result:
            torch.ones(2, device="netcl").cpu()
    return result


def main(jobs_file: str, first: str) -> None:
    with open(jobs_file) as f:
        jobs = json.load(f)
    device = jobs["device"]
    faulthandler.enable()
    warnings.simplefilter("ignore")
    with open(jobs["samples"], "rb") as f:
        samples = pickle.load(f)
    if device != "cpu":
        torch.zeros(2, device=device)
        torch.netcl.set_per_process_memory_fraction(DEVICE_FRACTION)
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    args: Any = None
    for number, (name, i) in enumerate(jobs["calls"][int(first) :], int(first)):
        os.write(1, f"{number}\n".encode())
        signal.alarm(HANG_SECONDS)
        try:
            if "::" in name:
                args, kwargs = arguments(name, i, samples, device)
                if jobs.get("verbose"):
                    print(name, describe((args, kwargs)), file=sys.stderr, flush=True)
                result = operator(name)(*args, **kwargs)
            else:
                result = call_python(name, i)
            for x in tree_leaves((result, args)):
                if isinstance(x, torch.Tensor) and x.layout is torch.strided and x.numel() < 100_000:
                    x.cpu()
        except Exception as e:
            if jobs.get("verbose"):
                print(type(e).__name__, str(e)[:300], file=sys.stderr)
        try:
            if device != "cpu":
                torch.netcl.synchronize()
        except Exception:
            pass  # a kernel's assertion
        args = kwargs = result = x = None
    os.write(1, b"done\n")


def describe(value: Any) -> str:
    def one(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            try:
                return f"<{x.device} {x.dtype} {tuple(x.shape)} {x.stride()} {x.layout}>"
            except Exception:
                return f"<{x.device} {x.dtype} {x.layout}>"
        return x

    return str(tree_map(one, value))


if __name__ == "__main__":
    main(*sys.argv[1:])
