"""Random programs for test_fuzz_programs.py: lines of Python on tensors `v0`, `v1`, … of the device `d`.

Numbers are small integers, also in floats, so every sum is exact in every order and results can be compared bit by
bit; a line that makes larger numbers is rejected. The result of an inexact operator (tanh, division, softmax) is
multiplied and rounded in the same line, which is accepted only if no value lies near a tie. A backward pass is accepted
only if all its gradients are exact, which that of a maximum among three equal elements is not.

A kernel is compiled for an operator and its dtypes, which takes longer than a program. So only one in eleven of the
full tier's programs mixes all dtypes in every binary operator and its out=. The others use five dtypes and bool,
and only add, sub and mul take two at once. Views, layouts and all other lines are the same in both.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch

FLOATS = [torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
# Integers up to these are exact, and so are sums and products of a few of them before they are rounded.
LARGEST = {
    torch.float32: 4096,
    torch.float64: 4096,
    torch.float16: 1024,
    torch.bfloat16: 128,
    torch.int8: 100,
    torch.uint8: 200,
}
NEAR_A_TIE = 0.01
QUICK = [torch.float32, torch.int64]
FEW = 2 * QUICK + [torch.float16, torch.bfloat16, torch.uint8]
# Parts of lines that write to memory. Such a line may read the same elements, but no others of that memory: their
# values would depend on the order of the work.
WRITES = ("_(", "out=", "] = ")
# Errors of the CPU that do not matter: a dtype that its kernel lacks, or a name that shrinking removed.
NOT_COMPARED = ("NotImplementedError", "NameError")
# An error that CUDA has too: it accumulates in a copy, which it cannot write back to an expanded tensor.
AS_ON_CUDA = ("index_put_(", "more than one element of the written-to tensor")

# The quick tier uses the first ones of each list, so that few kernels are compiled.
BINARY = ["add", "mul", "maximum", "sub", "minimum", "eq", "ne", "lt", "ge"]
UNARY = ["neg", "abs", "clone", "contiguous", "square", "sign", "relu", "floor", "logical_not"]
INEXACT = [
    "torch.tanh({x}) * 5",
    "torch.sin({x}) * 7",
    "torch.exp(-{x}.abs()) * 9",
    "torch.sqrt({x}.abs()) * 3",
    "torch.sigmoid({x}) * 11",
    "torch.log1p({x}.abs()) * 3",
    "torch.atan2({x}, {x} + 0.5) * 3",
    "{x} / 3",
    "torch.softmax({x}, {dim}) * 13",
    "{x}.mean({dim}) * 3",
    "{x}.std({dim}, correction=0) * 3",
    "torch.logsumexp({x}, {dim})",
    "torch.nn.functional.gelu({x}) * 3",
    "torch.linalg.vector_norm({x}, dim={dim})",
]


def overlaps_itself(x: torch.Tensor) -> bool:
    """Whether elements share memory in a way that PyTorch does not check (2: too hard), as after unfold."""
    if torch._debug_has_internal_overlap(x) != 2:
        return False
    places = {0}
    for size, stride in zip(x.shape, x.stride(), strict=True):
        places = {p + i * stride for p in places for i in range(size)}
    return len(places) < x.numel()


class Writer:
    """Writes a program and runs it on the CPU at the same time, to know the shapes."""

    def __init__(self, seed: int, quick: bool, fp64: bool = False):
        self.rng = random.Random(seed)
        self.quick = quick
        self.mixed = quick or seed % 11 == 0
        every = 2 * QUICK + FLOATS + INTEGERS + [torch.float64] * fp64
        self.dtypes = QUICK if quick else every if self.mixed else FEW
        self.lines: list[str] = []
        self.machine = Machine("cpu")
        self.count = 0

    # Parts of lines.

    def pick(self, where: Callable[[torch.Tensor], bool] = lambda x: True) -> str | None:
        names = [n for n, x in self.machine.tensors().items() if where(x)]
        return self.rng.choice(names) if names else None

    def like(self, x: torch.Tensor, dtype: torch.dtype | None = None) -> str:
        """A tensor whose shape usually broadcasts with that of x; of `dtype`, if one is given."""

        def fits(y: torch.Tensor) -> bool:
            return dtype in (None, y.dtype) and (
                all(a == b or b == 1 for a, b in zip(x.shape[::-1], y.shape[::-1], strict=False)) and y.dim() <= x.dim()
            )

        return (self.rng.random() < 0.95 and self.pick(fits)) or self.pick(lambda y: dtype in (None, y.dtype)) or "1"

    def dim(self, x: torch.Tensor) -> int:
        return self.rng.randint(-x.dim(), max(x.dim() - 1, 0)) if self.rng.random() < 0.98 else 5

    def shape(self, limit: int = 4) -> list[int]:
        dims = self.rng.choice([0, 1, 1, 2, 2, 2, 3, 3, 4][: 5 + limit])
        return [self.rng.choice([1, 2, 3, 3, 4, 5, 8, 17] if dims < 3 else [1, 2, 3, 4]) for _ in range(dims)]

    def fresh(self, dtype: torch.dtype, shape: list[int], low: int = -4, high: int = 4) -> str:
        a, b, n = self.rng.choice([3, 5, 7, 11]), self.rng.randint(0, 50), torch.Size(shape).numel()
        if dtype is torch.bool:
            low, high = 0, 1
        elif dtype is torch.uint8:
            low = max(low, 0)
        values = f"(torch.arange({n}) * {a} + {b}) // 2 % {max(high - low + 1, 1)} + {low}"
        # clone() makes it no view, also on the CPU.
        return f"({values}).to({dtype}).view({shape}).clone().to(d)"

    def indices(self, n: int, shape: list[int] | None = None) -> str:
        return self.fresh(torch.int64, shape if shape is not None else [self.rng.randint(0, 4)], 0, max(n - 1, 0))

    def index(self, x: torch.Tensor) -> str:
        """The text of an index between brackets."""
        parts = []
        for n in x.shape:
            r = self.rng.random()
            if r < 0.3:
                a = self.rng.randint(0, n)
                parts.append(f"{a}:{self.rng.randint(a, n)}:{self.rng.randint(1, 2)}")
            elif r < 0.5:
                parts.append(":")
            elif r < 0.6 and n:
                parts.append(str(self.rng.randint(-n, n - 1)))
            elif r < 0.7:
                parts.append("None, :")
            elif r < 0.85 and n:
                parts.append(self.indices(n, [3]))
            else:
                break
        return ", ".join(parts) or "..."

    # Lines. Each function returns one, or None if no tensor is suitable.

    def view(self) -> str | None:
        x = self.pick()
        t = self.machine.names[x]
        n = t.dim()
        r = self.rng
        i, j = self.dim(t), self.dim(t)
        choices = [f"{x}[{self.slices(t)}]", f"{x}.unsqueeze({r.randint(0, n)})", f"{x}.reshape(-1)", f"{x}.detach()"]
        if n:
            size = t.shape[0]
            choices += [
                f"{x}.transpose({i}, {j})",
                f"{x}.select(0, {r.randint(-size, max(size - 1, 0))})",
                f"{x}.squeeze()",
            ]
            choices += [
                f"{x}.view({list(t.shape[:-2]) + [-1]})",
                f"{x}.flatten({r.randint(0, n - 1)})",
                f"{x}.unbind({i})[0]",
            ]
            choices += [
                f"{x}.expand(2, {', '.join(map(str, t.shape))})",
                f"{x}.narrow({i}, 0, 1)",
                f"{x}.split(2, {i})[-1]",
            ]
            choices += [f"{x}.unfold({i}, 2, 1)", f"{x}.movedim({i}, {j})", f"{x}.chunk(2, {i})[0]"]
        if n > 1:
            order = list(range(n))
            r.shuffle(order)
            choices += [f"{x}.permute({order})", f"{x}.mT", f"{x}.diagonal()"]
        return self.assign(r.choice(choices))

    def slices(self, t: torch.Tensor) -> str:
        parts = []
        for n in t.shape[: self.rng.randint(0, t.dim())]:
            a = self.rng.randint(0, n)
            parts.append(f"{a}:{self.rng.randint(a, n)}:{self.rng.randint(1, 3)}")
        return ", ".join(parts) or "..."

    def assign(self, expression: str) -> str:
        self.count += 1
        return f"v{self.count} = {expression}"

    def scalar(self) -> str:
        return str(self.rng.choice([2, -1, 3, 0, True, 1.0, "torch.tensor(2)", "torch.tensor(3.0)"]))

    def operand(self, t: torch.Tensor, dtype: torch.dtype | None = None) -> str:
        return self.scalar() if self.rng.random() < 0.3 else self.like(t, dtype)

    def binary(self) -> str | None:
        x = self.pick()
        t = self.machine.names[x]
        r = self.rng
        op = r.choice(BINARY[:2] if self.quick else BINARY)
        dtype = None if self.mixed or op in ("add", "sub", "mul") else t.dtype
        y = self.like(t, dtype) if op in ("maximum", "minimum") else self.operand(t, dtype)
        if r.random() < 0.5:
            return self.assign(f"torch.{op}({x}, {y})")
        if op in ("add", "sub", "mul") and r.random() < 0.6:
            return f"{x}.{op}_({y})"
        # A comparison may write to a tensor that requires a gradient, and autograd does not notice.
        wanted = torch.bool if op in BINARY[5:] else dtype
        out = self.pick(
            lambda u: (not u.requires_grad or op in BINARY[:5]) and (dtype is None or u.dtype is wanted)
        ) or x
        return f"torch.{op}({x}, {y}, out={out})"

    def ternary(self) -> str | None:
        x = self.pick()
        t = self.machine.names[x]
        y, z = self.like(t), self.like(t)
        mask = self.pick(lambda m: m.dtype is torch.bool and m.shape == t.shape) or f"({x} > 0)"
        return self.rng.choice(
            [
                self.assign(f"torch.where({mask}, {y}, {z})"),
                f"{x}.masked_fill_({mask}, 2)",
                f"{x}.addcmul_({y}, {z}, value=2)",
                self.assign(f"{x}.clamp(-2, 3)"),
                f"{x}.clamp_(min=-1)",
                self.assign(f"torch.add({x}, {y}, alpha=2)"),
            ]
        )

    def unary(self) -> str | None:
        x = self.pick()
        op = self.rng.choice(UNARY[:4] if self.quick else UNARY)
        if op not in ("clone", "contiguous") and self.rng.random() < 0.4:
            return f"{x}.{op}_()"
        return self.assign(f"{x}.{op}()")

    def inexact(self) -> str | None:
        x = self.pick(lambda t: t.dtype is torch.float32 and t.numel() > 0)
        if x is None:
            return None
        e = self.rng.choice(INEXACT[:2] if self.quick else INEXACT)
        return self.assign(f"rounded({e.format(x=x, dim=self.dim(self.machine.names[x]))})")

    def cast(self) -> str | None:
        x = self.pick()
        dtype = self.rng.choice([*self.dtypes, torch.bool])
        if dtype is torch.uint8:
            return self.assign(f"{x}.abs().to({dtype})")
        return self.assign(f"{x}.to({dtype})")

    def reduction(self) -> str | None:
        x = self.pick()
        t = self.machine.names[x]
        dim, keep = self.dim(t), self.rng.random() < 0.5
        choices = [f"{x}.sum({dim}, keepdim={keep})", f"{x}.sum()", f"{x}.any({dim})", f"{x}.cumsum({dim})"]
        choices += [f"{x}.amax({dim}, keepdim={keep})", f"{x}.count_nonzero({dim})"]
        if not self.quick:
            choices += [f"{x}.argmax({dim})", f"{x}.max({dim})[0]", f"{x}.all()", f"{x}.amin()", f"{x}.prod({dim})"]
            choices += [
                f"{x}.sort({dim}, stable=True)[{self.rng.randint(0, 1)}]",
                f"{x}.cummax({dim})[0]",
                f"{x}.median()",
            ]
            choices += [
                f"{x}.unique()",
                # Here PyTorch does not define which of several equal values gets a gradient, unlike for max and cummax.
                f"torch.topk({x}.detach(), 1, {dim})[0]",
                f"{x}.detach().sort({dim})[0]",
                f"{x}.detach().kthvalue(1, {dim})[0]",
                # On the CPU, PyTorch 2.13's median reads past the end of an expanded tensor; clone() makes it dense.
                f"{x}.detach().clone().median({dim})[0]",
                f"{x}.logcumsumexp({dim}).mul(0)",
                f"{x}.flip({dim})",
            ]
        return self.assign(self.rng.choice(choices))

    def indexing(self) -> str | None:
        x = self.pick(lambda t: t.dim() > 0)
        if x is None:
            return None
        t = self.machine.names[x]
        i = self.dim(t)
        n = t.shape[i] if -t.dim() <= i < t.dim() else 1
        if n == 0:
            return None  # every index is out of range, but this is found only if there is something to read
        count = self.rng.randint(1, 4)
        at = self.indices(n, [count])
        rest = list(t.shape)
        if -t.dim() <= i < t.dim():
            rest[i] = count
        y = self.fresh(t.dtype, rest)
        everywhere = self.indices(n, rest)
        r = self.rng.random()
        choices = [
            self.assign(f"{x}[{self.index(t)}]"),
            self.assign(f"{x}[{x} > 0]"),
            f"{x}[{self.index(t)}] = {self.scalar()}",
            f"{x}[{x} > 1] = {self.rng.choice(['1', f'{x}[{x} > 1] - 1'])}",
            self.assign(f"{x}.index_select({i}, {at})"),
            self.assign(f"{x}.gather({i}, {everywhere})"),
            f"{x}.index_add_({i}, {at}, {y})",
            f"{x}.index_fill_({i}, {at}, 3)",
            f"{x}.index_put_(({self.indices(t.shape[0], [3])},), {self.fresh(t.dtype, [1])}, accumulate={r < 0.5})",
        ]
        if not self.quick:
            choices += [
                f"{x}.index_copy_({i}, {self.indices(n, [1])}, {self.fresh(t.dtype, [*rest[:i], 1, *rest[i + 1 :]])})"
                if i >= 0
                else None,
                f"{x}.scatter_add_({i}, {everywhere}, {y})",
                f"{x}.scatter_({i}, {everywhere}, 2)",
                f"{x}.scatter_reduce_({i}, {everywhere}, {y}, 'amax')",
                self.assign(f"{x}.masked_select({x} > 0)"),
                self.assign(f"{x}.nonzero()"),
                self.assign(f"{x}.take({self.indices(t.numel(), [3])})") if t.numel() else None,
                f"{x}.masked_scatter_({x} > 0, {self.fresh(t.dtype, [t.numel()])})",
                self.assign(f"torch.take_along_dim({x}, {everywhere}, {i})"),
            ]
        return self.rng.choice(choices)

    def product(self) -> str | None:
        x = self.pick(lambda t: t.dim() > 0 and t.is_floating_point())
        if x is None:
            return None
        t = self.machine.names[x]
        n = t.shape[-1]
        if t.dim() == 1:
            return self.assign(
                self.rng.choice(
                    [f"torch.dot({x}, {x})", f"torch.outer({x}, {x})", f"{x} @ {self.fresh(t.dtype, [n, 3])}"]
                )
            )
        other = self.fresh(t.dtype, [n, self.rng.randint(1, 5)], -2, 2)
        choices = [f"{x} @ {other}", f"{x} @ {x}.mT", f"torch.nn.functional.linear({x}, {self.fresh(t.dtype, [3, n])})"]
        choices += [
            f"torch.addmm({self.fresh(t.dtype, [1])}, {x}, {other}, beta=2)",
            f"torch.mv({x}, {self.fresh(t.dtype, [n])})",
        ]
        out = self.pick(lambda y: y.dtype == t.dtype and not y.requires_grad)
        if out and out != x and self.rng.random() < 0.3:
            return f"torch.matmul({x}, {other}, out={out})"
        return self.assign(self.rng.choice(choices[:2] if self.quick else choices))

    def join(self) -> str | None:
        x = self.pick()
        t = self.machine.names[x]
        y = self.pick(lambda u: u.shape == t.shape) or x
        dim = self.dim(t)
        choices = [f"torch.cat([{x}, {y}], {dim})", f"torch.stack([{x}, {y}], {dim})", f"torch.roll({x}, 1, {dim})"]
        if not self.quick:
            choices += [
                f"{x}.flip({dim})",
                f"torch.tril({x})",
                f"{x}.repeat_interleave(2, {dim})",
                f"{x}.repeat({[2] * max(t.dim(), 1)})",
            ]
            choices += [f"torch.nn.functional.pad({x}, (1, 2))", f"torch.diag_embed({x})", f"torch.zeros_like({x})"]
        if self.rng.random() < 0.2:
            return f"torch.cat([{x}, {y}], {dim}, out={self.pick()})"
        return self.assign(self.rng.choice(choices))

    def write(self) -> str | None:
        x = self.pick()
        t = self.machine.names[x]
        return self.rng.choice(
            [f"{x}.copy_({self.like(t)})", f"{x}.fill_(2)", f"{x}.zero_()", f"{x}.t_()", f"{x}.unsqueeze_(0)"]
        )

    def foreach(self) -> str | None:
        names = [self.pick() for _ in range(self.rng.randint(1, 3))]
        xs = f"[{', '.join(names)}]"
        ys = f"[{', '.join(self.like(self.machine.names[x]) for x in names)}]"
        choices = [f"torch._foreach_add_({xs}, {ys})", f"torch._foreach_mul_({xs}, 2)", f"torch._foreach_neg_({xs})"]
        choices += [f"torch._foreach_addcmul_({xs}, {ys}, {ys})", f"torch._foreach_sub_({xs}, {ys}, alpha=2)"]
        choices += [
            f"torch._foreach_zero_({xs})",
            f"torch._foreach_copy_({xs}, {ys})",
            f"torch._foreach_clamp_max_({xs}, 3)",
        ]
        choices += [
            self.assign(f"torch._foreach_add({xs}, {ys})[-1]"),
            self.assign(f"torch._foreach_maximum({xs}, {ys})[0]"),
        ]
        return self.rng.choice(choices[:3] if self.quick else choices)

    KINDS = (
        [view] * 5
        + [binary] * 4
        + [ternary] * 2
        + [unary] * 2
        + [inexact]
        + [cast]
        + [reduction] * 2
        + [indexing] * 3
        + [product]
        + [join]
        + [write]
        + [foreach]
    )

    def program(self) -> list[str]:
        r = self.rng
        with_grad = r.random() < 0.4
        for _ in range(r.randint(2, 3)):
            dtype = r.choice(self.dtypes)
            grad = ".requires_grad_()" if with_grad and dtype.is_floating_point else ""
            self.take(self.assign(self.fresh(dtype, self.shape()) + grad))
        wanted = r.randint(5, 28)
        for _ in range(3 * wanted):
            if len(self.lines) >= wanted:
                break
            line = r.choice(self.KINDS)(self)
            if line and r.random() < 0.1:
                line = f"with side(): {line}"
            if line:
                self.take(line)
        if with_grad:
            heads = [n for n, x in self.machine.tensors().items() if x.requires_grad and x.grad_fn is not None]
            if heads:
                terms = " + ".join(f"{n}.float().sum()" for n in heads[-3:])
                self.machine.watch_gradients(heads[-3:])
                self.take(f"({terms}).backward()")
        return self.lines

    def overlapping(self, line: str) -> bool:
        """Whether the tensor that the line writes overlaps itself, or shares memory with another tensor of the line,
        unless both have the same elements in the same order.

        An `out` must not share memory with any tensor that is read, since it may be resized first.
        """
        names = re.findall(r"\bv\d+", line)
        if "out=" in line and names[-1] in names[:-1]:
            return True
        known = self.machine.names
        written = names if "_foreach" in line else names[-1:] if "out=" in line else names[:1]
        if any(overlaps_itself(known[n]) for n in written if isinstance(known.get(n), torch.Tensor)):
            return True
        # A number on the CPU is copied to a tensor there, which raises if that is expanded; on a device, it fills it.
        if "] = torch.tensor(" in line and torch._debug_has_internal_overlap(known[names[0]]) == 1:
            return True
        tensors = [known[n] for n in set(names) if n in known]
        for x, y in itertools.combinations(tensors, 2):
            if x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr():
                same = (x.shape, x.stride(), x.storage_offset()) == (y.shape, y.stride(), y.storage_offset())
                if not same or "out=" in line:
                    return True
        return False

    def take(self, line: str) -> None:
        """Adds the line, unless its result is too large or near a tie."""
        writes = any(mark in line for mark in WRITES)
        error = "NameError: a guess" if writes and self.overlapping(line) else self.machine.run(line)
        taken = error is None or (not error.startswith(NOT_COMPARED) and self.rng.random() < 0.2)
        try:
            taken = taken and self.machine.small()
        except RuntimeError:
            taken = False  # such as a view of several that was written: not even its grad_fn is accessible
        if taken:
            self.lines.append(line)
            return
        self.machine = Machine("cpu")
        for old in self.lines:
            self.machine.run(old)


class Machine:
    """The state of a program on one device."""

    def __init__(self, device: str):
        self.device = torch.device(device)
        self.near_a_tie = False
        self.rounded_gradients: list[bool] = []
        self.versions: dict[str, int] = {}
        self.names: dict[str, Any] = {"torch": torch, "d": self.device, "rounded": self.rounded, "side": self.side}

    def rounded(self, x: torch.Tensor) -> torch.Tensor:
        if x.device.type == "cpu":
            off = (x.detach().double() % 1 - 0.5).abs()
            self.near_a_tie |= bool((off < NEAR_A_TIE).any())
        return torch.round(x)

    @contextlib.contextmanager
    def side(self) -> Iterator[None]:
        """Runs on a stream that waits for the current one, and which the current one waits for at the end."""
        if self.device.type == "cpu":
            yield
            return
        current, stream = torch.netcl.current_stream(), torch.netcl.Stream()
        stream.wait_stream(current)
        try:
            with torch.netcl.stream(stream):
                yield
        finally:
            current.wait_stream(stream)

    def run(self, line: str) -> str | None:
        """The error that the line raised, if any."""
        try:
            exec(line, self.names)
        except Exception as e:
            return f"{type(e).__name__}: {e}"
        return None

    def watch_gradients(self, names: list[str]) -> None:
        """From now on, small() is False once a gradient of these tensors is no multiple of 1 / 64."""

        rounded = self.rounded_gradients  # the graph must not refer to this machine, which refers to the graph

        def look(inputs: tuple[torch.Tensor | None, ...], outputs: tuple[torch.Tensor | None, ...]) -> None:
            rounded.extend(bool((g.double() * 64 % 1).any()) for g in inputs if g is not None)

        nodes, seen = [self.names[n].grad_fn for n in names], set()
        while nodes:
            node = nodes.pop()
            if node is not None and node not in seen:
                seen.add(node)
                node.register_hook(look)
                nodes += [n for n, _ in node.next_functions]

    def count_writes(self) -> None:
        """From now on, difference() also compares which tensors were written."""
        self.versions = {n: x._version for n, x in self.tensors().items()}

    def tensors(self) -> dict[str, torch.Tensor]:
        return {n: x for n, x in self.names.items() if n[0] == "v" and isinstance(x, torch.Tensor)}

    def small(self) -> bool:
        if self.near_a_tie or any(self.rounded_gradients):
            return False
        for x in self.tensors().values():
            for y in (x, x.grad if x.is_leaf else None):
                if y is None or not y.numel():
                    continue
                if y.numel() > 4000 or y.dim() > 6 or not bool(y.detach().isfinite().all()):
                    return False
                low, high = (int(f(y.detach().double())) for f in (torch.min, torch.max))
                if max(-low, high) > LARGEST.get(y.dtype, 4096) or (
                    y.is_floating_point() and bool((y.detach() % 1).any())
                ):
                    return False
        return True


def difference(cpu: Machine, device: Machine) -> str | None:
    """The first variable that differs between the two."""
    ours = device.tensors()
    for name, x in cpu.tensors().items():
        y = ours.get(name)
        if y is None:
            return f"{name} does not exist"
        for what in ("dtype", "shape", "requires_grad"):
            if getattr(x, what) != getattr(y, what):
                return f"{name}.{what} is {getattr(y, what)}, not {getattr(x, what)}"
        # The number of writes may differ, if one operator consists of others.
        if (x._version > cpu.versions.get(name, 0)) != (y._version > device.versions.get(name, 0)):
            return f"{name}._version is {y._version}, not {x._version}"
        pairs = [(name, x.detach(), y.detach())]
        if x.is_leaf and (x.grad is not None or y.grad is not None):
            if x.grad is None or y.grad is None:
                return f"only one {name}.grad exists"
            pairs.append((f"{name}.grad", x.grad, y.grad))
        for label, a, b in pairs:
            b = b.cpu()
            if a.shape != b.shape or a.dtype != b.dtype or not bool((a == b).all()):
                return f"{label} is {b.tolist()}, not {a.tolist()}"
    return None


def failure(lines: list[str], device: str, each: bool) -> str | None:
    """How the program differs on `device`: compared after each line, or at the end, without a wait in between."""
    cpu, ours = Machine("cpu"), Machine(device)
    for line in lines:
        if each:
            cpu.count_writes()
            ours.count_writes()
        wanted, got = cpu.run(line), ours.run(line)
        if (wanted or "").startswith(NOT_COMPARED):
            return None
        if wanted is None and got and AS_ON_CUDA[0] in line and AS_ON_CUDA[1] in got:
            return None
        if (wanted is None) != (got is None):
            return f"`{line}` raises {got or 'nothing'}; on the CPU {wanted or 'nothing'}"
        if each:
            found = difference(cpu, ours)
            if found:
                return f"after `{line}`, {found}"
    if ours.device.type != "cpu":
        torch.netcl.synchronize()
    return difference(cpu, ours)


def shrunk(lines: list[str], device: str, each: bool) -> list[str]:
    """A shorter program that still differs."""
    changed = True
    while changed:
        changed = False
        for i in reversed(range(len(lines))):
            fewer = lines[:i] + lines[i + 1 :]
            try:
                found = failure(fewer, device, each)
            except RuntimeError:
                continue
            if found:
                lines, changed = fewer, True
    return lines


def snippet(lines: list[str], device: str) -> str:
    head = ["import torch", f'd = torch.device("{device}")', "rounded = torch.round"]
    if any("side()" in line for line in lines):
        head.append("from contextlib import nullcontext as side  # a stream of its own, which waits and is waited for")
    return "\n".join([*head, *lines])
