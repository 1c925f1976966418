"""``python -m benchmarks.gpu_cases STAGE``: the stages of gpu.py that compute something, each in a process of its own.

Every case prints a line of JSON before it begins, and one with its result. What is timed on netcl is then timed on
torch's CUDA device, if there is one, in the same process and by the same code.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile

from . import operators, training
from .harness import Case, Run, Timer, measure, synchronize

sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))

HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
# float32 by products that round nothing, and by those that round to tf32 where the device has them.
VARIANTS = {"float32": torch.float32, "tf32": torch.float32, **HALVES}
Work = tuple[str, Callable[[], dict]]  # a name, and what computes its row


def has_cuda() -> bool:
    """Whether torch has a CUDA device to compare with."""
    return torch.cuda.is_available()


# --- timing -------------------------------------------------------------------------------------------------


def allow_tf32(name: str) -> None:
    """Let products round to tf32 in a case of that name, and in no other."""
    rounds = "tf32" in name.split("/")
    torch.set_float32_matmul_precision("high" if rounds else "highest")
    torch.backends.cudnn.allow_tf32 = rounds


def timing(case: Case) -> dict:
    """The times of a case on netcl, and on CUDA, or else on torch's CPU device."""
    allow_tf32(case.name)
    row = measure(case, samples=3, sample_seconds=0.02, compare=not has_cuda()).as_dict() | {"cuda": None}
    torch.netcl.empty_cache()
    if has_cuda():
        try:
            timer = Timer("cuda", case, 0.02)
            row["cuda"] = statistics.median(timer.sample() for _ in range(3))
        except Exception as error:  # say, too little memory: netcl's own time is still of interest
            row["cuda_problem"] = str(error).splitlines()[0]
        torch.cuda.empty_cache()
    return row


def timed(cases: Iterator[Case]) -> Iterator[Work]:
    """Work that times cases."""
    for case in cases:
        yield case.name, lambda case=case: timing(case)


def products() -> Iterator[Case]:
    """Square products of 512 to 8192, skinny and batched ones; the smallest come first."""
    shapes: list[tuple[int, ...]] = [(n, n, n) for n in (512, 1024, 2048, 4096)]
    shapes += [(1, 4096, 4096), (16, 4096, 4096), (4096, 16, 4096), (64, 50000, 64), (64, 128, 128, 128), (8192,) * 3]
    for shape in shapes:
        *batch, m, k, n = shape
        work = 2 * m * k * n * (batch[0] if batch else 1)
        if small() and work > 3e9:
            continue
        for name, dtype in VARIANTS.items():
            make = operators.of(torch.matmul, (*batch, m, k), (*batch, k, n), dtype=dtype)
            yield Case(f"gemm/{name}/{'x'.join(map(str, shape))}", make, 0, work, cpu=name == "float32" and work < 1e10)


# Channels in and out, side, taps, stride, groups: ResNet-50's layers and a depthwise one.
CONVOLUTIONS = {
    "3x3_64": (64, 64, 56, 3, 1, 1), "1x1_256_64": (256, 64, 56, 1, 1, 1), "3x3_512": (512, 512, 7, 3, 1, 1),
    "stem_7x7": (3, 64, 224, 7, 2, 1), "3x3_128_stride2": (128, 128, 56, 3, 2, 1),
    "depthwise_3x3_96": (96, 96, 56, 3, 1, 96),
}  # fmt: skip


def convolutions() -> Iterator[Case]:
    """Forward and both gradients, in each dtype."""
    n = 1 if small() else 32
    for dtype, (name, (cin, cout, side, k, stride, groups)) in itertools.product(VARIANTS, CONVOLUTIONS.items()):
        out = (side + 2 * (k // 2) - k) // stride + 1
        flops = 2 * n * cout * out * out * (cin // groups) * k * k

        shape = (n, cin, cout, side, k, stride, groups)
        for which in operators.DIRECTIONS:
            make = functools.partial(operators.convolution, which, shape, dtype=VARIANTS[dtype])
            yield Case(f"convolution/{dtype}/{name}/{which}", make, 0, flops, cpu=dtype == "float32")


def attention() -> Iterator[Case]:
    """Causal attention of 16 heads of 64."""
    attend = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)  # noqa: E731
    lengths, kinds = ((512,) if small() else (512, 2048, 4096)), {"float32": torch.float32, **HALVES}
    for length, (dtype, kind) in itertools.product(lengths, kinds.items()):
        shape = (1 if small() else 4096 // length, 16, length, 64)
        flops = 2 * shape[0] * 16 * length * length * 64  # half of the work of two full products
        cpu = dtype == "float32" and length == 512
        operands = (attend, shape, shape, shape)
        yield Case(f"attention/{dtype}/forward/{length}", operators.of(*operands, dtype=kind), 0, flops, cpu=cpu)
        back = operators.grad_of(*operands, dtype=kind)
        yield Case(f"attention/{dtype}/backward/{length}", back, 0, 2.5 * flops, cpu=cpu)


# --- models -------------------------------------------------------------------------------------------------


class Bottleneck(nn.Module):
    """Convolutions of 1x1, 3x3 and 1x1 with batch norm, and a shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        plan = [(channels, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1)]
        layers: list[nn.Module] = []
        for cin, cout, k, s in plan:
            layers += [nn.Conv2d(cin, cout, k, s, k // 2, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers[:-1])
        self.shortcut: nn.Module = nn.Identity()
        if channels != 4 * width:
            conv = nn.Conv2d(channels, 4 * width, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(4 * width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.layers(x) + self.shortcut(x))


def resnet50(count: int = 32, side: int = 224) -> tuple[nn.Module, training.Batch]:
    """ResNet-50 on `count` images."""
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    blocks, channels = [], 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        for i in range(depth):
            blocks.append(Bottleneck(channels, 64 << stage, 2 if stage and i == 0 else 1))
            channels = 256 << stage
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    return nn.Sequential(*stem, *blocks, *head), images(count, side)


class ViT(nn.Module):
    """Patches of 16 x 16, encoder layers of torch, and a linear layer on their mean."""

    def __init__(self, width: int = 768, layers: int = 12, heads: int = 12, side: int = 224) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.positions = nn.Parameter(torch.randn(1, (side // 16) ** 2, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.encoder(x).mean(1))


def vit(count: int = 32) -> tuple[nn.Module, training.Batch]:
    """ViT-B/16 on `count` images."""
    return ViT(), images(count, 224)


def images(count: int, side: int) -> training.Batch:
    """Random images and their classes."""
    return torch.randn(count, 3, side, side), torch.randint(1000, (count,))


def gpt2() -> tuple[nn.Module, training.Batch]:
    """12 layers, width 768, context 1024, 4 sequences: the size of GPT-2's smallest model without its vocabulary."""
    config = training.GPTConfig(context=1024, layers=12, heads=12, width=768)
    tokens = torch.randint(256, (4, 1025))
    return training.GPT(config), (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())


def models() -> dict[str, Callable[[], tuple[nn.Module, training.Batch]]]:
    """The models to train: those that fit on a GPU, or small ones in a rehearsal on a CPU."""
    if small():
        return {"gpt": training.gpt, "resnet50": lambda: resnet50(2, 64), "mlp": training.mlp}
    return {
        "gpt2": gpt2, "resnet50": resnet50, "vit": vit, "gpt": training.gpt, "lstm": training.lstm, "mlp": training.mlp,
    }  # fmt: skip


def small() -> bool:
    """Whether this is a rehearsal on a CPU, which computes no large cases."""
    return torch.netcl.get_device_properties().device_type == "cpu"


def training_steps() -> Iterator[Case]:
    """Steps in float32, in float32 with tf32 and under autocast to 16 bits; with GradScaler for float16."""
    for name, build in models().items():
        for variant in VARIANTS:
            step = training.training_step(build, HALVES.get(variant))
            yield Case(f"training/{variant}/{name}", step, cpu=variant == "float32" and small())


# --- where the time of a step goes --------------------------------------------------------------------------


def busiest(run: Run, device: str, count: int = 15) -> tuple[list, list]:
    """The operators, and the kernels, in which a call spends most time on the device: (name, calls, milliseconds)."""
    for _ in range(3):
        run()
    synchronize(device)
    activity = ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.PrivateUse1
    with profile(activities=[ProfilerActivity.CPU, activity]) as p:
        run()
        synchronize(device)
    cpu = torch.autograd.DeviceType.CPU
    entries = [(e, e.self_device_time_total * 1e-3) for e in p.key_averages() if e.self_device_time_total > 0]
    entries.sort(key=lambda entry: -entry[1])
    of_kind = lambda host: [(e.key, e.count, t) for e, t in entries if (e.device_type == cpu) == host]  # noqa: E731
    return of_kind(True)[:count], of_kind(False)[:count]


def step_times() -> Iterator[Work]:
    """The operators and kernels of a step of a GPT and a ResNet-50."""
    available = models()
    names = ("gpt2" if "gpt2" in available else "gpt", "resnet50")
    for variant, name in itertools.product(("bfloat16", "float32"), names):

        def work(name: str = name, variant: str = variant) -> dict:
            row: dict = {}
            for device in ("netcl", "cuda"):
                there = device == "netcl" or has_cuda()
                run = training.training_step(available[name], HALVES.get(variant))(device) if there else None
                row[f"{device}_operators"], row[f"{device}_kernels"] = busiest(run, device) if run else ([], [])
            return row

        yield f"operators/{variant}/{name}", work


# --- copies, launches, memory, streams ----------------------------------------------------------------------


def copies() -> Iterator[Case]:
    """Between host and device, from ordinary and from pinned memory, and within the device."""
    largest = (25, "128MiB") if small() else (28, "1GiB")
    sizes = {"4KiB": 1 << 10, "1MiB": 1 << 18, largest[1]: 1 << largest[0]}
    for name, n in sizes.items():
        for pinned in (False, True):

            def host(device: str, n: int = n, pinned: bool = pinned) -> torch.Tensor:
                x = torch.ones(n)
                return x.pin_memory(device) if pinned and device != "cpu" else x

            def upload(device: str, n: int = n, host=host) -> Run:
                source, target = host(device), torch.empty(n, device=device)
                return lambda: target.copy_(source, non_blocking=True)

            def download(device: str, n: int = n, host=host) -> Run:
                source, target = torch.ones(n, device=device), host(device)
                return lambda: target.copy_(source, non_blocking=True)

            memory = "pinned" if pinned else "pageable"
            yield Case(f"copies/to_device/{memory}/{name}", upload, 4 * n, cpu=False)
            yield Case(f"copies/to_host/{memory}/{name}", download, 4 * n, cpu=False)
        yield Case(f"copies/within/{name}", operators.of(torch.clone, (n,)), 8 * n, cpu=False)
    n = 1 << 26
    if small():
        return
    yield Case("copies/fill/256MiB", operators.of(lambda x: x.zero_(), (n,)), 4 * n, cpu=False)
    yield Case("copies/add/768MiB", operators.of(torch.add, (n,), (n,)), 12 * n, cpu=False)
    yield Case("copies/transpose/512MiB", operators.of(lambda x: x.t().contiguous(), (8192, 8192)), 8 * n, cpu=False)
    yield Case("copies/sum/256MiB", operators.of(torch.sum, (n,)), 4 * n, cpu=False)


def overhead() -> Iterator[Case]:
    """Launches, until they are enqueued and until they have run; the host waiting for a number; small steps."""
    from .small import mlp_step, waited

    yield Case("overhead/add_16_enqueue", operators.of(torch.add, (16,), (16,)), enqueue=True)
    yield Case("overhead/add_16", operators.of(torch.add, (16,), (16,)))
    yield Case("overhead/mm_16", operators.of(torch.mm, (16, 16), (16, 16)))
    yield Case("overhead/add_sum_item", waited(lambda x, y: (x + y).sum(), (16,), (16,)))
    yield Case("overhead/linear_8x64x64_item", waited(lambda x, w: F.linear(x, w)[0, 0], (8, 64), (64, 64)))
    yield Case("overhead/empty", operators.of(torch.empty_like, (1 << 16,)))
    yield Case("overhead/mlp_step", mlp_step)
    yield Case("overhead/foreach_add_1000", foreach)
    yield Case("overhead/adamw_100x100000", training.optimizer_step(torch.optim.AdamW, fused=True), 28e7)


def foreach(device: str) -> Run:
    """One operator on a thousand tensors."""
    tensors = [torch.ones(100, device=device) for _ in range(1000)]
    return lambda: torch._foreach_add_(tensors, 1.0)


def fact(function: Callable[[], str]) -> Callable[[], dict]:
    """Work that finds out something."""
    return lambda: {"value": function()}


def memory() -> Iterator[Work]:
    """Limits of buffers and of the device's memory. On a CPU, which shares it with others, little is taken."""
    p = torch.netcl.get_device_properties()
    gib = 1 << 30

    def largest() -> str:
        n = min(p.max_mem_alloc_size, 2 * gib if small() else p.max_mem_alloc_size)
        x = torch.zeros(n, dtype=torch.uint8, device="netcl")
        x[0], x[-1] = 1, 2
        ends = x[:8].sum().item(), x[-8:].sum().item()
        return f"{n / gib:.2f} GiB; its ends are {'right' if ends == (1, 2) else f'WRONG: {ends}'}"

    def too_large() -> str:
        try:
            torch.empty(p.max_mem_alloc_size + (1 << 20), dtype=torch.uint8, device="netcl")
        except RuntimeError as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
        return "was allocated"

    def wide() -> str:
        n = (1 << 31) + 10
        if small() or n > p.max_mem_alloc_size:
            return "not tried"
        x = torch.ones(n, dtype=torch.uint8, device="netcl")
        x[-1] = 7
        right = x.sum(dtype=torch.int64).item() == n + 6 and (x * 2)[-1].item() == 14
        return "right" if right else "WRONG"

    def exhaust() -> str:
        if small():
            return "not tried"
        held = []
        try:
            while len(held) < 4096:
                held.append(torch.ones(gib >> 2, device="netcl"))
        except torch.OutOfMemoryError as error:
            text = str(error).splitlines()[0][:200]
        else:
            return "no end after 4 TiB"
        wrong = sum(x[-1].item() != 1 for x in (held[0], held[-1]))
        count = len(held)
        held.clear()
        torch.netcl.empty_cache()
        again = torch.ones(1000, device="netcl").sum().item() == 1000
        after = "works" if again else "does NOT work"
        return f"{count} GiB of {p.total_memory / gib:.1f}, {wrong} wrong; {after} after that: {text}"

    yield "largest buffer", fact(largest)
    yield "beyond the largest buffer", fact(too_large)
    yield "2^31 + 10 elements", fact(wide)
    yield "until the memory is full", fact(exhaust)
    yield "free and total", fact(lambda: " of ".join(f"{n / gib:.2f} GiB" for n in torch.netcl.mem_get_info()))


def streams() -> Iterator[Work]:
    """Whether kernels of two streams, and copies and kernels, run at the same time."""

    def best(run: Callable[[], object]) -> float:
        times = []
        for _ in range(4):
            torch.netcl.synchronize()
            start = time.perf_counter()
            run()
            torch.netcl.synchronize()
            times.append(time.perf_counter() - start)
        return min(times[1:])

    def kernels() -> str:
        side = torch.netcl.Stream()
        a, b = (torch.randn(256, 256, device="netcl") / 16 for _ in range(2))  # few work-groups each
        torch.netcl.synchronize()

        def chain(x: torch.Tensor) -> torch.Tensor:
            for _ in range(50):
                x = x @ a
            return x

        def two() -> None:
            side.wait_stream(torch.netcl.current_stream())
            with torch.netcl.stream(side):
                chain(b)
            chain(b)
            torch.netcl.current_stream().wait_stream(side)

        one, both = best(lambda: chain(b)), best(two)
        return f"one chain of 50 products {one * 1e3:.2f} ms, two of them on two streams {both * 1e3:.2f} ms"

    def copy_beside_kernels() -> str:
        side = torch.netcl.Stream()
        side_length, numbers = (256, 1 << 20) if small() else (1024, 1 << 24)
        source, target = torch.ones(numbers).pin_memory("netcl"), torch.empty(numbers, device="netcl")
        a = torch.randn(side_length, side_length, device="netcl")

        def work() -> None:
            for _ in range(20):
                a @ a

        def upload() -> None:
            for _ in range(4):
                target.copy_(source, non_blocking=True)

        def both() -> None:
            with torch.netcl.stream(side):
                upload()
            work()

        times = [best(run) * 1e3 for run in (upload, work, both)]
        return "copies {:.2f} ms, products {:.2f} ms, both {:.2f} ms".format(*times)

    def order() -> str:
        side, x = torch.netcl.Stream(), torch.zeros(1 << 20, device="netcl")
        for i in range(50):
            side.wait_stream(torch.netcl.current_stream())
            with torch.netcl.stream(side):
                x.mul_(2).add_(i)
            torch.netcl.current_stream().wait_stream(side)
            x.sub_(i).div_(2)
        return "right" if bool((x == 0).all()) else "WRONG"

    yield "waits between streams", fact(order)
    yield "kernels of two streams", fact(kernels)
    yield "copies beside kernels", fact(copy_beside_kernels)


def profiler() -> Iterator[Work]:
    """Whether the profiler's times of kernels add up to the time of a step."""

    def times() -> str:
        run = training.training_step(training.mlp, None)("netcl")
        _, kernels = busiest(run, "netcl", 1000)
        start, end = (torch.netcl.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.netcl.synchronize()
        total, count = sum(t for *_, t in kernels), sum(n for _, n, _ in kernels)
        return f"{count} kernels, {total:.3f} ms; events around a step: {start.elapsed_time(end):.3f} ms"

    yield "a step of the MLP", fact(times)


def cpu() -> Iterator[Work]:
    """Products of the machine's own CPU, whose AMX torch uses, by torch; and whether netcl could use it."""
    flags = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), "")
    known = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8", "amx_fp16")
    yield "instructions", fact(lambda: ", ".join(name for name in known if name in flags.split()) or "none of these")
    yield "cores", fact(lambda: f"{os.cpu_count()}, {len(os.sched_getaffinity(0))} of them for this process")

    def rate(n: int, dtype: torch.dtype) -> str:
        a, b = (torch.randn(n, n).to(dtype) for _ in range(2))
        taken = []
        for _ in range(4):
            start = time.perf_counter()
            a @ b
            taken.append(time.perf_counter() - start)
        return f"{2e-9 * n**3 / min(taken[1:]):.0f} GFLOP/s"

    for n in (1024, 4096):
        if n == 1024 or not small():
            for name in ("float32", "bfloat16") if "avx512_bf16" in flags or "amx_bf16" in flags else ("float32",):
                yield f"torch CPU, {name}, {n}", fact(lambda n=n, name=name: rate(n, getattr(torch, name)))


# --- right or wrong -----------------------------------------------------------------------------------------


def families() -> Iterator[Work]:
    """Small programs of every operator family, forward and backward, against torch's CPU device: the first of each
    family, then the second, since time may not suffice for all."""
    import oclgrind_programs as p

    runs: dict[str, list] = {
        family: [(e, lambda d, e=e: p.results(e, d)) for e in " ".join(text.split()).split("; ")]
        for family, text in p.PROGRAMS.items()
    }
    runs["rnn"] = [(kind, lambda d, k=kind: p.rnn(k, d)) for kind in p.RNN]
    runs["optimizers"] = [
        (f"{kind}, {fused=}", lambda d, k=kind, f=fused: p.optimizer(k, d, f))
        for kind, fused in itertools.product(("AdamW", "SGD"), (False, True))
    ]

    def attempt(run: Callable, device: str) -> tuple[object, str]:
        torch.manual_seed(0)
        try:
            return run(device), ""
        except Exception as error:
            return None, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:500]

    def work(family: str, run: Callable) -> dict:
        (ours, wrong), (expected, refused) = (attempt(run, device) for device in ("netcl", "cpu"))
        if "only supports CPU" in wrong:  # older torches, of devices that are not their own
            refused = wrong
        if refused:
            return {"family": family, "wrong": "", "refused": refused}
        return {"family": family, "wrong": wrong or p.problem(ours, expected)[:500]}

    columns = [[(family, *program) for program in programs] for family, programs in runs.items()]
    for family, name, run in filter(None, itertools.chain(*itertools.zip_longest(*columns))):
        yield f"{family}: {name}", lambda family=family, run=run: work(family, run)


def device() -> Iterator[Work]:
    """Everything about the machine."""
    import subprocess

    from torch_netcl.__main__ import report

    report()
    name = torch.cuda.get_device_name() if has_cuda() else "no CUDA here"
    print(f"\ntorch CUDA: {name}, built for {torch.version.cuda}")
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "")
    print(f"CPU: {os.cpu_count()} x {model.partition(': ')[2]}")
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,ecc.mode.current,mig.mode.current"]
        print(subprocess.run([*query, "--format=csv,noheader"], capture_output=True, text=True, timeout=10).stdout)
    except (OSError, subprocess.TimeoutExpired):
        print("no nvidia-smi")
    yield from ()


STAGES: dict[str, Callable[[], Iterator[Work]]] = {
    "device": device,
    "families": families,
    "gemm": lambda: timed(products()),
    "convolution": lambda: timed(convolutions()),
    "attention": lambda: timed(attention()),
    "training": lambda: timed(training_steps()),
    "operators": step_times,
    "copies": lambda: timed(copies()),
    "overhead": lambda: timed(overhead()),
    "memory": memory,
    "streams": streams,
    "profiler": profiler,
    "cpu": cpu,
}


def main() -> int:
    """Run a stage until its time is over; returns the exit status: 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_cases", description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=list(STAGES))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--skip", action="append", default=[], metavar="CASE")
    parser.add_argument("--only", action="append", metavar="CASE")
    args = parser.parse_args()
    end, failed, left = time.monotonic() + args.seconds, 0, 0
    warnings.simplefilter("ignore")
    # Devices without fp16 arithmetic compute in float32 and store halves.
    torch.netcl.amp.set_fp16_storage()
    for name, work in STAGES[args.stage]():
        if name in args.skip or (args.only and name not in args.only):
            continue
        if time.monotonic() > end:
            left += 1
            continue
        print(json.dumps({"begin": name}), flush=True)
        try:
            row = work()
        except Exception as error:
            failed, row = 1, {"problem": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"}
        failed |= bool(row.get("wrong"))
        print(json.dumps({"name": name} | {k: v for k, v in row.items() if k != "name"}), flush=True)
        torch.netcl.empty_cache()
    if left:
        print(json.dumps({"name": f"{left} more", "problem": "no time left"}), flush=True)
    stats = torch.netcl.kernel_cache_stats()
    text = f"{stats['compiled']} compiled in {stats['compile_seconds']:.1f} s, {stats['disk_hits']} read from disk"
    print(json.dumps({"name": "kernels", "value": text}), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
