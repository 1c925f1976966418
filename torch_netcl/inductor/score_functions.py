"""What flex_attention's functions do to a score, as OpenCL C for kernels/attention_blocks.h."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._guards import detect_fake_mode
from torch._inductor import ir
from torch._inductor.codegen.common import CSEVariable
from torch._inductor.codegen.simd_kernel_features import SIMDKernelFeatures
from torch._inductor.graph import GraphLowering
from torch._inductor.index_propagation import IndexPropagation
from torch._inductor.subgraph_lowering import PointwiseSubgraphLowering
from torch._inductor.virtualized import V, ops

from . import dtypes
from .body import Loop
from .kernel import OpenCLKernel

#: The parameters of a function: batch, head, query, and the key of the first lane.
PLACES = ("batch", "head", "query", "xindex")
#: Those that are numbers per lane.
_VALUES = ("score", "grad")
#: More keys than a tensor has; indices of so many take 32 bits.
_KEYS = sympy.Integer(1 << 30)


@dataclass
class Source:
    """A program's text without its kernel, whose lines end in "@", since Inductor prints arguments in comments; the
    captured tensors that it reads, by their number; and the sizes that it gets, each by a tensor and its dimension."""

    text: str
    captured: list[int]
    sizes: list[tuple[int, int]]


class _Function(OpenCLKernel):
    """The body of a function; its lanes are neighbouring keys."""

    def _real(self, name: str) -> str:
        return name

    def python_of(self, expr: sympy.Basic) -> str:
        return str(expr)  # of a number that source() refuses

    def load(self, name: str, index: sympy.Expr) -> CSEVariable:
        return self.variable(name, torch.float32) if name in _VALUES else super().load(name, index)

    def lines(self, result: Any) -> list[str]:
        """All statements, and the return."""
        self.code.effect(f"return {result};")
        fixed, rest = self.code.write(lambda _: False, lambda _: False, Loop([], [], ("lanes", "lanes"), None))
        return [*fixed, *rest]


class _Places(IndexPropagation):
    """Reads a captured tensor by a known place as it lies in memory; any other index is checked."""

    def indirect_indexing(self, index: Any, size: Any, check: bool = True, wrap_neg: bool = True) -> Any:
        if getattr(index, "is_symbolic", False):
            expr = sympy.sympify(index.value.expr)
            if self.statically_true(expr >= 0) and self.statically_true(expr < size):
                return expr
        with V.set_ops_handler(self._inner):
            return self._inner.indirect_indexing(self.unwrap(index), size, check, wrap_neg)


class ScoreFunctions:
    """Writes functions of the scores of queries and keys. ``captured`` are the fake tensors that they may read, and
    sizes."""

    def __init__(self, gm: torch.fx.GraphModule, query: torch.Tensor, key: torch.Tensor, captured: Any) -> None:
        self._device = query.device
        self._graph = GraphLowering(gm, shape_env=detect_fake_mode((query,)).shape_env)
        self._extents = [_expr(n) for n in (*query.shape[:3], key.size(2))]
        self._functions: list[_Function] = []
        self._texts: list[str] = []
        with V.set_graph_handler(self._graph):
            self._captured = [
                self._input(f"captured{i}", t) if isinstance(t, torch.Tensor) else _expr(t)
                for i, t in enumerate(captured)
            ]
        self._sizes = {
            _expr(n): (i, d)
            for i, t in enumerate(captured)
            if isinstance(t, torch.Tensor)
            for d, n in enumerate(t.shape)
        }

    def _input(self, name: str, like: torch.Tensor) -> Any:
        size, stride = [_expr(n) for n in like.shape], [_expr(n) for n in like.stride()]
        layout = ir.FixedLayout(self._device, like.dtype, size, stride)
        self._graph.graph_inputs[name] = box = ir.TensorBox.create(ir.InputBuffer(name=name, layout=layout))
        return box

    def add(self, name: str, function: Any, parameters: Sequence[str], captured: Sequence[int]) -> None:
        """A function of `parameters`, which are values and places, and of captured tensors. mask_mod()'s result is a
        mask."""
        with V.set_graph_handler(self._graph), self._graph.set_current_device(self._device):
            kernel = _Function({"x": _KEYS}, SIMDKernelFeatures([], _KEYS))
            if self._functions:
                kernel.args = self._functions[0].args
            self._functions.append(kernel)
            with V.set_kernel_handler(kernel):
                key = kernel.range_trees[0].lookup(sympy.S.One, _KEYS).symbol()
            symbols = [*(sympy.Symbol(p, integer=True, nonnegative=True) for p in PLACES[:3]), key]
            given = {p: self._place(s) for p, s in zip(PLACES, symbols, strict=True)}
            given |= {p: self._input(p, torch.empty((), device="meta")) for p in _VALUES}
            lowering = PointwiseSubgraphLowering(function, self._graph)
            with V.set_graph_handler(lowering):  # type: ignore[arg-type]
                lowering.run(*(given[p] for p in parameters), *(self._captured[i] for i in captured))
            result = lowering.graph_outputs
            first = result[0] if isinstance(result, (list, tuple)) else result
            dtype = torch.bool if name == "mask_mod" else torch.float32
            with kernel:
                places = _Places(V.get_ops_handler(), dict(zip(symbols, self._extents, strict=True)), {})
                with V.set_ops_handler(places):
                    value = ops.to_dtype(first.make_loader()([]), dtype)
                lines = kernel.lines(places.unwrap(value.value))
        values = [f"VECTOR(f32) {p}" for p in parameters if p in _VALUES]
        declared = ", ".join([*values, *(f"long {p}" for p in PLACES), "int lanes CAPTURED"])
        head = f"static inline {dtypes.vector(dtype)} {name}({declared}) {{"
        self._texts += [head, "  CAPTURED_POINTERS", *(f"  {line}" for line in lines), "}"]

    def _place(self, symbol: sympy.Symbol) -> Any:
        def at(_: Any) -> Any:
            return ops.index_expr(symbol, torch.int32)

        return ir.Pointwise.create(device=self._device, dtype=torch.int32, inner_fn=at, ranges=[])

    def source(self) -> Source:
        """The functions that were added, as CAPTURED (their last parameters), GIVEN (what a call gives for them) and
        CAPTURED_BUFFERS (the kernel's parameters) have them."""
        first, *others = self._functions
        for f in others:
            first.includes.update(f.includes)
            first.functions.update(f.functions)
            first.float8.update(f.float8)
            first.math |= f.math
        with V.set_graph_handler(self._graph), self._graph.set_current_device(self._device):
            prelude, buffers = first._prelude(), first.buffers()
        if torch.float64 in first.math:
            raise NotImplementedError("netcl: functions of float64 in a kernel that computes in float32")
        sizes = first.args.sizevars
        if any(f.numbers for f in self._functions) or not all(expr in self._sizes for expr in sizes):
            raise NotImplementedError("netcl: a number that changes is no size of a captured tensor")
        tags = {inner: dtypes.TAGS[self._graph.get_dtype(outer)] for outer, inner in buffers}
        parameters = [*(f"BUF({n})" for n in (*tags, "err")), *(f"long {n}" for n in sizes.values()), "int code"]
        given = [*(f"{n}_buf, {n}_off" for n in (*tags, "err")), *sizes.values(), "code"]
        pointers = [f"__global const STORAGE({t})* {n} = PTR({n}, const STORAGE({t}));" for n, t in tags.items()]
        lines = [
            # Of these, the others' files have a part that is for some kernels only, where a file would be read once.
            '#include "args/args.h"',
            '#include "common/transpose.h"',
            *prelude,
            "#define MODIFIED",
            f"#define CAPTURED , {', '.join(parameters)}",
            f"#define CAPTURED_BUFFERS {', '.join(parameters)},",
            f"#define GIVEN , {', '.join(given)}",
            f"#define CAPTURED_POINTERS {' '.join(pointers)}",
            *self._texts,
        ]
        text = "".join(f"{line}@" for line in lines).replace("\n", "@")
        captured = [int(outer.removeprefix("captured")) for outer, _ in buffers]
        return Source(text, captured, [self._sizes[expr] for expr in sizes])


def _expr(n: Any) -> Any:
    return n.node.expr if isinstance(n, torch.SymInt) else sympy.Integer(n)
