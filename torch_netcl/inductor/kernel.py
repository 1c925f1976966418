"""OpenCL C for a group of fused nodes.

A kernel has one of three shapes (those of csrc/aten/Compiled.cpp). It takes vectors of elements; or rows, each of which
is reduced along the lanes of vectors (on a GPU along a work-group); or columns, each of which is reduced in a lane.
"""

from __future__ import annotations

import itertools
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable, is_buffer_removed
from torch._inductor.codegen.simd import IterationRangesEntry, SIMDKernel
from torch._inductor.utils import sympy_subs
from torch._inductor.virtualized import V, ops
from torch.utils._sympy.functions import FloorDiv
from torch.utils._sympy.symbol import SymT, symbol_is_type
from torch.utils._sympy.value_ranges import ValueRanges

from . import dtypes, reductions
from .body import COLUMNS, COSTLY, ELEMENTS, LANES, NAMES, ROWS, Body, Loop, Statement
from .overrides import OpenCLOverrides
from .printer import HostPrinter, IndexPrinter, hoisted, is_real

#: Lanes of a vector on a CPU, and bytes that a kernel keeps of a row at most.
_LANES, _KEPT_BYTES = 16, 64 * 1024
#: A reduction fetches what it will read of a buffer of at least so many elements. It lies so many elements ahead: the
#: next row, unless rows are very short or long (FETCH_AHEAD of kernels/common/rows.h).
_FETCHED, _AHEAD = 1 << 18, (4096, 8192)
#: A buffer of at least as many bytes is stored past the cache.
_PAST_CACHE_BYTES = 32 << 20
#: Buffers of a set, if one launch serves many (MultiTensor::kMaxColumns).
_MOST_COLUMNS = 8
#: How a launch passes a number, since it takes integers, and how the kernel reads it.
_NUMBERS = {
    torch.float32: ("netcl_host.bits32({})", "as_float((int){})"),
    torch.float64: ("netcl_host.bits64({})", "as_double({})"),
    torch.bool: ("int({})", "-(int){}"),
}
#: The parts of kernels/special/special_tables.h: a program includes the file once, with what all functions need.
_TABLES = ("AIRY", "BESSEL", "ERF", "GAMMA")


class OpenCLKernel(SIMDKernel[CSEVariable]):
    """Collects the values of a group of nodes; :meth:`source` writes the kernel."""

    overrides = OpenCLOverrides  # type: ignore[assignment]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.code = Body()
        self.includes: dict[str, None] = {}
        self.functions: dict[str, None] = {}  # what kernels/common/compiled.h defines by a macro
        self.math: set[torch.dtype] = set()
        self.scratch: list[str] = []  # local memory and the like, which a kernel declares at its beginning
        self.float8: dict[str, None] = {}  # tags of the float8 dtypes that it reads, writes or rounds to
        self.drawn: dict[tuple[str, str], str] = {}  # words of random numbers, by seed and places
        self.read: set[str] = set()  # buffers that are loaded
        self.written: set[str] = set()  # buffers that are stored to
        self.whole: dict[str, None] = {}  # those of them that vectors of neighbours are stored to
        self.asserts = False
        self.messages: list[str] = []  # of device_assert_async
        self.known: dict[str, str] = {}  # Python of the values that depend on sizes and constants only
        self.numbers: dict[str, tuple[str, torch.dtype]] = {}  # those that it may get as arguments, by name
        self._needed: dict[str, tuple[str, torch.dtype]] = {}  # the arguments that it gets for them
        self._names = itertools.count()
        self.shape = ROWS if self.features.is_reduction() else ELEMENTS
        #: Elements of a row that no vector crosses, by the prefix of its range tree.
        self.width: dict[str, sympy.Expr] = {t.prefix: t.numel for t in self.range_trees}
        for tree in self.range_trees:
            loop = tree.is_reduction
            self.code.add(Statement("", [], tree.name, "long", loop, varies=True, work=0))
            self.code.statements.pop()  # the loops declare it

    def should_use_persistent_reduction(self) -> bool:
        return True  # the loops are ours (body.py): nothing is to be flushed

    def dtype_to_str(self, dtype: torch.dtype) -> str:
        return "long"

    # --- shape ---------------------------------------------------------------------------------------------------

    @property
    def lane_prefix(self) -> str:
        return "r0_" if self.shape == ROWS else "x"

    def finalize_indexing(self, indices: Any) -> None:
        simple = [self.simplify_indexing(i) for i in indices]
        used = set().union(*(i.free_symbols for i in simple)) if simple else set()
        if self.features.is_reduction():
            self.shape = self._reduction_shape(simple)
        for tree in self.range_trees:
            if tree.prefix == self.lane_prefix:
                self.width[tree.prefix] = self._row_width(tree, used)

    def _neighbours(self, index: sympy.Expr, reduction: bool) -> bool:
        """Whether consecutive elements of the reduction (or else of the rest) are neighbours in memory."""
        steps = {s: s + 1 for s in index.free_symbols if self._is_first(s, reduction)}
        return bool(steps) and sympy.expand(sympy_subs(index, steps) - index) == 1

    def _is_first(self, symbol: sympy.Symbol, reduction: bool) -> bool:
        entry = self.range_tree_nodes.get(symbol)
        return entry is not None and entry.root.is_reduction == reduction and entry.divisor == 1

    def _reduction_shape(self, indices: list[sympy.Expr]) -> int:
        columns = next(t.numel for t in self.range_trees if not t.is_reduction)
        if isinstance(columns, sympy.Integer) and columns < _LANES // 2:
            return ROWS
        reduced = [i for i in indices if any(self._of_reduction(s) for s in i.free_symbols)]
        along = sum(self._neighbours(i, True) for i in reduced)
        across = sum(self._neighbours(i, False) for i in reduced)
        return COLUMNS if across > along else ROWS

    def _of_reduction(self, symbol: sympy.Symbol) -> bool:
        entry = self.range_tree_nodes.get(symbol)
        return entry is not None and entry.root.is_reduction

    def _row_width(self, tree: Any, used: set[sympy.Symbol]) -> sympy.Expr:
        """The elements of a row that no vector crosses: within it, each index changes by a constant or not at all."""
        ends: list[sympy.Expr] = []
        for symbol, entry in self.range_tree_nodes.items():
            if symbol in used and entry.root is tree:
                ends.append(entry.length if entry.divisor == 1 else entry.divisor)
        if not ends:
            return tree.numel
        if all(isinstance(e, sympy.Integer) for e in ends):
            width = sympy.Integer(sympy.gcd_list(ends)) if len(ends) > 1 else ends[0]
            if width < _LANES and tree.numel != width:  # most lanes would idle: rather read lane by lane
                return tree.numel
            return width
        for e in ends:
            if all(V.graph.sizevars.statically_known_multiple_of(o, e) for o in ends):
                return e
        return tree.numel

    # --- values --------------------------------------------------------------------------------------------------

    def value(self, text: str, dtype: torch.dtype, bounds: Any = None, work: int = 1, reads: str = "") -> CSEVariable:
        """A variable for an expression. ``reads`` is the buffer that it is loaded from."""
        dtype = dtypes.computed(dtype)
        if bounds is None:
            bounds = ValueRanges.unknown()
        type = dtypes.vector(dtype)
        name = self.code.known(text, type)
        if name is None:
            name = self.new_name()
            self.code.value(name, type, text, work=work).reads = reads
        else:
            known = self.cse.varname_map[name]
            known.use_count += 1
            return known
        return self.variable(name, dtype, bounds)

    def new_name(self) -> str:
        """The name of a value that no value has so far."""
        return f"tmp{next(self._names)}"

    def variable(self, name: str, dtype: torch.dtype, bounds: Any = None) -> CSEVariable:
        """The value that a statement assigns to ``name``."""
        v = CSEVariable(name, bounds if bounds is not None else ValueRanges.unknown(), dtype, ())
        self.cse.varname_map[name] = v
        return v

    def literal(self, value: bool | int | float, dtype: torch.dtype) -> CSEVariable:
        v = CSEVariable(dtypes.literal(value, dtype), ValueRanges.unknown(), dtypes.computed(dtype), ())
        v.number = value
        return v

    def number(self, text: str, dtype: torch.dtype) -> CSEVariable:
        """A value that Python computes when the kernel is launched. It becomes an argument if the kernel needs it."""
        given = (text, dtype)
        name = next((n for n, known in self.numbers.items() if known == given), f"number{len(self.numbers)}")
        self.numbers[name] = given
        self.known[name] = f"netcl_host.float32({text})" if dtype is torch.float32 else text
        return self.cse.varname_map[name] if name in self.cse.varname_map else self.variable(name, dtype)

    def python_of(self, expr: sympy.Basic) -> str:
        """An expression of sizes."""
        for s in expr.free_symbols:
            V.graph.wrapper_code.ensure_size_computed(s)
        return HostPrinter().doprint(expr)

    # --- indices -------------------------------------------------------------------------------------------------

    def codegen_iteration_ranges_entry(self, entry: IterationRangesEntry) -> None:
        kind = self._kind(entry)
        if kind == "lanes":
            return  # a vector, made when it is needed
        text = self._printed(self.rename_indexing(entry.expr))
        self.code.value(entry.name, "long", text, loop=entry.root.is_reduction, work=0)

    def _kind(self, entry: IterationRangesEntry) -> str:
        """How an index changes from lane to lane: not ("same"), by one ("next"), or in another way ("lanes")."""
        if entry.root.prefix != self.lane_prefix:
            return "same"
        width, known = self.width[entry.root.prefix], V.graph.sizevars.statically_known_multiple_of
        if entry.divisor == 1 and (entry.length == width or known(entry.length, width)):
            return "next"
        return "same" if entry.divisor != 1 and known(entry.divisor, width) else "lanes"

    def rename_indexing(self, index: Any) -> Any:
        if isinstance(index, (list, tuple)):
            return [self.rename_indexing(i) for i in index]
        return super().rename_indexing(hoisted(V.graph.sizevars.simplify(index), self._argument))

    def _argument(self, expr: sympy.Basic) -> sympy.Basic:
        """A symbol for an expression of sizes, which becomes an argument."""
        if is_real(expr):
            return sympy.Symbol(self.number(self.python_of(expr), dtypes.real()).name, real=True, integer=False)
        if not isinstance(expr, sympy.Expr):
            expr = sympy.Piecewise((sympy.S.One, expr), (sympy.S.Zero, True))
        name = self.args.sizevars.setdefault(expr, f"ks{len(self.args.sizevars)}")
        return sympy.Symbol(name, integer=True, nonnegative=expr.is_nonnegative)

    def _printed(self, index: sympy.Expr) -> str:
        return IndexPrinter("long", str, dtypes.TAGS[dtypes.real()]).doprint(index)

    def index_to_str(self, index: sympy.Expr) -> str:
        return self._printed(self.rename_indexing(index))

    def lanes_of(self, index: sympy.Expr, wide: bool = True) -> str:
        """An index as a vector."""
        return self._lanes_printed(self.rename_indexing(index), "longs" if wide else "ints")

    def _lanes_printed(self, index: sympy.Expr, type: str) -> str:
        return IndexPrinter(type, lambda s: self._lane_symbol(s, type), dtypes.TAGS[dtypes.real()]).doprint(index)

    def _lane_symbol(self, symbol: sympy.Symbol, type: str) -> str:
        if symbol_is_type(symbol, SymT.TMP):
            tag = "i64" if type == "longs" else "i32"
            return self._made(f"{symbol}_{type}", type, f"CONVERT({tag}, VEC, {symbol})")
        entry = self.range_tree_nodes.get(symbol)
        root = next((t for t in self.range_trees if t.name == str(symbol)), None)
        numbers = "LANE_LONGS" if type == "longs" else "LANE_INTS"
        if root is not None and root.prefix == self.lane_prefix:
            return self._made(f"{symbol}_{type}", type, f"({type})({symbol}) + {numbers}")
        if entry is not None and self._kind(entry) == "next":
            return self._made(f"{symbol}_{type}", type, f"({type})({symbol}) + {numbers}")
        if entry is not None and self._kind(entry) == "lanes":
            expr = self.rename_indexing(entry.expr)
            return self._made(f"{symbol}_{type}", type, self._lanes_printed(expr, type))
        return f"({type})({symbol})"

    def _made(self, name: str, type: str, text: str) -> str:
        if name not in self.code.named:
            self.code.value(name, type, text, work=0)
        return name

    def step(self, index: sympy.Expr) -> sympy.Expr | None:
        """How far apart the lanes of an index are; None if that differs."""
        moving = {}
        for s in index.free_symbols:
            if symbol_is_type(s, SymT.TMP):
                return None
            entry = self.range_tree_nodes.get(s)
            kind = self._kind(entry) if entry is not None else "same"
            if kind == "lanes":
                return None
            if kind == "next":
                moving[s] = s + 1
        if not moving:
            return sympy.S.Zero
        step = sympy.expand(sympy_subs(index, moving) - index)
        return None if any(s in self.range_tree_nodes for s in step.free_symbols) else step

    def counts(self) -> str:
        """A mask of the lanes that count."""
        return f"LANES_BELOW({LANES})"

    # --- memory --------------------------------------------------------------------------------------------------

    def _storage(self, dtype: torch.dtype) -> str:
        if dtype not in dtypes.TAGS:
            raise NotImplementedError(f"netcl: no code is generated for {dtype}")
        tag = dtypes.TAGS[dtype]
        if dtype in dtypes.FLOAT8:
            self.float8[tag] = None
        self.functions[f"NETCL_IO({tag}, {'i32' if tag == 'bool' else dtypes.tag(dtype)})"] = None
        return tag

    def load(self, name: str, index: sympy.Expr) -> CSEVariable:
        pointer = self.args.input(name)
        self.read.add(self._real(name))
        dtype = V.graph.get_dtype(name)
        index = self.prepare_indexing(index)
        tag, step = self._storage(dtype), self.step(index)
        mask, work = self._load_mask, 1
        if step == 0 and mask is None:
            text = f"splat_{tag}({pointer} + {self.index_to_str(index)})"
        elif mask is not None:
            text, work = f"masked_{tag}({pointer}, {self.lanes_of(index)}, {LANES}, {mask})", COSTLY
            if step == 1:
                text = f"near_{tag}({pointer}, {self.index_to_str(index)}, {LANES}, {mask})"
        elif step == 1:
            text = f"load_{tag}({pointer} + {self.index_to_str(index)}, {LANES})"
            self._fetch_ahead(name, pointer, index)
        elif step is not None:
            text = f"strided_{tag}({pointer} + {self.index_to_str(index)}, {self.index_to_str(step)}, {LANES})"
            work = COSTLY
        else:
            text, work = f"gather_{tag}({pointer}, {self.lanes_of(index)}, {LANES})", COSTLY
        if dtype is torch.bool:
            text = f"-{text}"
        return self.value(text, dtype, work=work, reads=name)

    def _fetch_ahead(self, name: str, pointer: str, index: sympy.Expr) -> None:
        if self.shape != ROWS or not any(self._is_row(s) for s in index.free_symbols):
            return
        sizes = V.graph.sizevars.simplify(V.graph.get_numel(name)), self.width["r0_"]
        if not all(isinstance(n, sympy.Integer) for n in sizes) or sizes[0] < _FETCHED:
            return
        text = f"FETCH_NEXT({pointer} + {self.index_to_str(index)}, {min(max(int(sizes[1]), _AHEAD[0]), _AHEAD[1])})"
        if not any(s.text == f"{text};" for s in self.code.statements):
            self.code.effect(f"{text};", loop=True).ahead = True

    def _is_row(self, symbol: sympy.Symbol) -> bool:
        entry = self.range_tree_nodes.get(symbol)
        return entry is not None and not entry.root.is_reduction

    def store(self, name: str, index: sympy.Expr, value: CSEVariable, mode: Any = None) -> None:
        pointer = self.args.output(name)
        self.written.add(self._real(name))
        dtype = V.graph.get_dtype(name)
        index = self.prepare_indexing(index)
        tag, step = self._storage(dtype), self.step(index)
        stored = f"{OpenCLOverrides.to_dtype(value, dtype)}"
        if dtype is torch.bool:
            stored = f"({stored} & 1)"
        alone = self.shape == ROWS and not self.inside_reduction
        lanes = "1" if alone else LANES
        if mode == "atomic_add":
            wide = "_8" if dtype.itemsize == 8 else ""
            self.functions[f"NETCL_ATOMIC_ADD{wide}({tag}, {dtypes.tag(dtype)})"] = None
            text = f"atomic_add_{tag}({pointer}, {self.lanes_of(index)}, {lanes}, {stored});"
        elif mode is not None:
            raise NotImplementedError(f"netcl: stores of mode {mode}")
        elif step == 0:
            text = f"first_{tag}({pointer} + {self.index_to_str(index)}, {stored});"
        elif step == 1 and not alone:
            self.whole[name] = None
            text = f"store_{tag}({pointer} + {self.index_to_str(index)}, {LANES}, {stored});"
        elif step is not None and not alone:
            at, by = self.index_to_str(index), self.index_to_str(step)
            text = f"spread_{tag}({pointer} + {at}, {by}, {LANES}, {stored});"
        else:
            text = f"scatter_{tag}({pointer}, {self.lanes_of(index)}, {lanes}, {stored});"
        if alone:
            text = f"if (LOCAL_ID == 0) {text}"
        self.code.effect(text, buffer=name, loop=self.inside_reduction and self.features.is_reduction())

    def check_bounds(self, expr: sympy.Expr, size: sympy.Expr, lower: bool, upper: bool) -> None:
        pass  # OpenCLOverrides.indirect_indexing has done it, before it made the index a safe one

    def device_assert_async(self, cond: CSEVariable, msg: str) -> None:
        self.asserts = True
        self.messages.append(msg)
        text = f"if (ANY(~{OpenCLOverrides.to_dtype(cond, torch.bool)} & {self.counts()})) "
        self.code.effect(text + f"netcl_report(PTR(err, int), (int)message{len(self.messages) - 1}, 0, 0);")

    # --- reductions ----------------------------------------------------------------------------------------------

    def reduction(self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: Any, value: Any) -> Any:
        key = (src_dtype, reduction_type, value)
        if key not in self.cse.reduction_cache:
            self.cse.reduction_cache[key] = reductions.reduce(self, dtype, src_dtype, reduction_type, value)
        return self.cse.reduction_cache[key]

    def welford(self, dtype: torch.dtype, value: CSEVariable) -> Any:
        return self.welford_reduce_fallback(dtype, value)

    # --- text ----------------------------------------------------------------------------------------------------

    def _number(self, prefix: str) -> tuple[str, str]:
        """The extent of a tree and the width of its rows, as text."""
        tree = next(t for t in self.range_trees if t.prefix == prefix)
        extent = str(tree.numel) if isinstance(tree.numel, sympy.Integer) else f"{prefix}numel"
        width = self.width[prefix]
        return extent, self.index_to_str(width) if width != tree.numel else extent

    def _lane_count(self, width: str, place: str) -> str:
        if width.isdigit():
            if int(width) % _LANES == 0:
                return "VEC"
            if int(width) == 1:
                return "1"
        return f"(int)min((long)VEC, (long)({width}) - {place})"

    def _reduction_loop(self) -> Loop:
        lanes = ("VEC", "rlanes") if self.shape == ROWS else ("xlanes", "xlanes")
        trees = [t for t in self.range_trees if t.is_reduction]
        if not trees:
            return Loop([], [], lanes, None)
        extent, width = self._number("r0_")
        name = trees[0].name
        rounds = int(trees[0].numel) if isinstance(trees[0].numel, sympy.Integer) else None
        if self.shape == COLUMNS:
            kept = str(rounds) if rounds and rounds * 4 * _LANES <= _KEPT_BYTES else None
            most = _KEPT_BYTES // (rounds * 4 * _LANES) if kept else 0
            return Loop([f"for (long {name} = 0; {name} < {extent}; {name}++) {{"], ["}"], lanes, kept, most)
        kept = None
        if rounds and rounds * 4 <= _KEPT_BYTES and extent == width:
            kept = f"({rounds} + VEC * GROUP - 1) / (VEC * GROUP)"
        open_loop = [
            f"EACH_OF_ROWS({extent}, {width}) {{",
            f"  const long {name} = rrow + rcol;",
            f"  const int rlanes = {self._lane_count(width, 'rcol')};",
        ]
        return Loop(open_loop, ["}"], lanes, kept, _KEPT_BYTES // (rounds * 4) if kept else 0)

    def _real(self, name: str) -> str:
        """The buffer whose memory a mutation of it has."""
        return V.graph.scheduler.mutation_real_name.get(name, name)

    def _mutated(self, name: str) -> bool:
        real = self._real(name)
        return name in self.args.inplace_buffers or (real in self.read and real in self.written)

    def _body(self) -> tuple[list[str], list[str]]:
        return self.code.write(is_buffer_removed, self._mutated, self._reduction_loop())

    def _past_cache(self) -> bool:
        """Whether every output would leave the cache before it is read (csrc/aten/support/PastCache.h)."""
        names = [n for n in self.whole if not is_buffer_removed(n)]
        return bool(names) and not any(self._mutated(n) for n in names) and all(map(self._is_large, names))

    def _is_large(self, name: str) -> bool:
        elements = V.graph.sizevars.simplify(V.graph.get_numel(name))
        return isinstance(elements, sympy.Integer) and elements * V.graph.get_dtype(name).itemsize >= _PAST_CACHE_BYTES

    def _prelude(self) -> list[str]:
        double = torch.float64 in self.math
        acc = "f64" if double else "f32"  # what functions of kernels/ compute in
        lines = [f"#define ACC {acc}", *(["#define ACC_DOUBLE"] if double else [])]
        lines += ["#define FLOAT8", *(f"#define FLOAT8_{tag}" for tag in self.float8)] if self.float8 else []
        lines += ["#define PAST_CACHE"] if self._past_cache() else []
        lines.append('#include "common/compiled.h"')
        if self.includes:
            special = any(f.startswith("special/") for f in self.includes)
            lines += [
                "#define ACC_FLOATING",
                f"#define COMMON {acc}",
                *(f"#define {t}_TABLES" for t in _TABLES if special),
                *(f'#include "{file}"' for file in self.includes),
            ]
        order = ["NETCL_IO", "NETCL_INTEGER", "NETCL_REDUCE", "NETCL_ATOMIC"]
        return lines + sorted(self.functions, key=lambda f: next(i for i, o in enumerate(order) if f.startswith(o)))

    def buffers(self) -> list[tuple[str, str]]:
        """(name in the graph, name in the kernel) of each buffer."""
        defs, calls, _, types = self.args.python_argdefs()
        return [(c, d.name) for c, d, t in zip(calls, defs, types, strict=True) if isinstance(t, torch.dtype)]

    def scalars(self) -> list[tuple[str, str]]:
        """(Python expression, name in the kernel) of each number that is known when the kernel is launched."""
        defs, calls, _, types = self.args.python_argdefs()
        found = [(c, d.name) for c, d, t in zip(calls, defs, types, strict=True) if not isinstance(t, torch.dtype)]
        printed = [(self.python_of(c) if isinstance(c, sympy.Basic) else c, n) for c, n in found]
        for tree in self.range_trees:
            if not isinstance(tree.numel, sympy.Integer):
                printed.append((V.graph.wrapper_code.val_to_arg_str(tree.numel), f"{tree.prefix}numel"))
        return [*printed, *((_NUMBERS[dtype][0].format(text), name) for name, (text, dtype) in self._needed.items())]

    def writes(self) -> list[int]:
        """The positions, among its buffers, of those that the kernel writes."""
        return [i for i, (_, inner) in enumerate(self.buffers()) if not inner.startswith("in_ptr")]

    def takes_many(self) -> bool:
        """Whether one launch can serve several sets of buffers."""
        return self.shape == ELEMENTS and not self.asserts and 0 < len(self.buffers()) <= _MOST_COLUMNS

    def codegen_kernel(self, name: str | None = None, many: bool = False) -> str:
        """The program; KERNEL_NAME stands for the kernel's name. With ``many``, it takes many sets of buffers."""
        fixed, body = self._body()  # first: it may need arguments
        named = set(NAMES.findall("\n".join([*fixed, *body])))
        self._needed = {f"{name}_bits": given for name, given in self.numbers.items() if name in named}
        width = self._number("x")[1]
        arguments = ["MT_PARAMS"] if many else [f"BUF({inner})" for _, inner in self.buffers()]
        arguments += ["BUF(err)"] if self.asserts else []
        arguments += [f"long {inner}" for _, inner in self.scalars()]
        arguments += ["long xrows", "long xwidth"]
        arguments += [f"long message{i}" for i in range(len(self.messages))]
        arguments += ["long per", "long items" if many else "int code"]
        lines = [f"#define MANY {len(self.buffers())}"] if many else []
        lines += [*self._prelude(), "", f"__kernel void KERNEL_NAME({', '.join(arguments)}) {{"]
        lines += ["  SET_OF_BUFFERS"] if many else []
        for i, (outer, inner) in enumerate(self.buffers()):
            storage = dtypes.TAGS.get(V.graph.get_dtype(outer))
            address = f"MT_PTR({i}, {storage})" if many else f"PTR({inner}, STORAGE({storage}))"
            lines.append(f"  __global STORAGE({storage}) *{inner} = {address};")
        for name, (_, dtype) in self._needed.items():
            type, text = dtypes.vector(dtype), _NUMBERS[dtype][1].format(name)
            lines.append(f"  const {type} {name.removesuffix('_bits')} = ({type})({text});")
        lines += [f"  {line}" for line in (*self.scratch, *fixed)]
        if self.shape == ROWS:
            lines += ["  const long first = (long)get_group_id(0) * per, last = min(first + per, xrows);"]
            lines += ["  for (long xindex = first; xindex < last; xindex++) {"]
        else:
            width = width if width.isdigit() else "xwidth"
            lines += [f"  EACH_VECTOR(xrows, {width}) {{", f"    const long xindex = xrow * {width} + xcol;"]
            lines += [f"    const int xlanes = {self._lane_count(width, 'xcol')};"]
        lines += [f"    {line}" for line in body]
        return "\n".join([*lines, "  }", "  STORES_DONE();", "}", ""])

    def extents(self) -> list[str]:
        """Rows, elements per row, and how many elements each of those reduces, as Python expressions."""
        text = V.graph.wrapper_code.val_to_arg_str
        x = next(t for t in self.range_trees if not t.is_reduction)
        reduced = next((t.numel for t in self.range_trees if t.is_reduction), sympy.S.One)
        if self.shape == ROWS:
            return [text(x.numel), "1", text(reduced)]
        width = self.width["x"]
        rows = V.graph.sizevars.simplify(FloorDiv(x.numel, width))
        return [text(rows), text(width), text(reduced)]

    def call_kernel(self, name: str, node: Any = None, deallocate_ws: bool = True) -> None:
        wrapper = V.graph.wrapper_code
        buffers = [outer for outer, _ in self.buffers()]
        numbers = [*(text for text, _ in self.scalars()), *self.extents()]
        arguments = [f"[{', '.join(buffers)}]", f"[{', '.join(numbers)}]"]
        wrapper.generate_kernel_call(name, arguments, triton=False, arg_types=[list, list], raw_args=buffers)

    def masked_value(self, mask: CSEVariable, body: Any, other: Any) -> CSEVariable:
        with self.mask_loads(mask, other) as together:
            result = body()
        return OpenCLOverrides.where(together, result, ops.constant(other, result.dtype))
