"""Expressions of sizes and indices: as OpenCL C, one number or a vector with a number per lane, and as Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import sympy
import torch.utils._sympy.functions as functions
from torch.utils._sympy.printers import ExprPrinter, PythonPrinter
from torch.utils._sympy.symbol import SymT, symbol_is_type

_OF_THE_GRAPH = (SymT.SIZE, SymT.UNBACKED_INT, SymT.PRECOMPUTED_SIZE, SymT.FLOAT, SymT.UNBACKED_FLOAT)
_SIMPLE = (
    sympy.Add,
    sympy.Mul,
    sympy.Integer,
    sympy.Symbol,
    functions.FloorDiv,
    functions.CleanDiv,
    functions.ModularIndexing,
    functions.Mod,
    functions.PythonMod,
    functions.Max,
    functions.Min,
    functions.Identity,
)
_REAL = (
    sympy.Float,
    functions.ToFloat,
    functions.IntTrueDiv,
    functions.FloatTrueDiv,
    functions.FloatPow,
    functions.TruncToFloat,
    functions.RoundDecimal,
)
_AS_ARGUMENTS = (sympy.Add, sympy.Mul, functions.Max, functions.Min, sympy.Abs, functions.Identity)


def is_known_at_launch(expr: sympy.Basic) -> bool:
    """Whether an expression depends on sizes of the graph alone."""
    return bool(expr.free_symbols) and all(symbol_is_type(s, _OF_THE_GRAPH) for s in expr.free_symbols)


def is_simple(expr: sympy.Basic) -> bool:
    """Whether a kernel computes it with few operations on integers."""
    return all(isinstance(e, _SIMPLE) for e in sympy.preorder_traversal(expr)) and not is_real(expr)


def is_real(expr: sympy.Basic) -> bool:
    """Whether its values are floats. SymPy's own is_integer is also true of 2.0."""
    if isinstance(expr, sympy.Symbol):
        return expr.is_integer is False or symbol_is_type(expr, (SymT.FLOAT, SymT.UNBACKED_FLOAT))
    if isinstance(expr, _AS_ARGUMENTS):
        return any(map(is_real, expr.args))
    if isinstance(expr, sympy.Pow):
        return is_real(expr.base) or not (expr.exp.is_integer and expr.exp.is_nonnegative)
    if isinstance(expr, functions.Where):
        return any(map(is_real, expr.args[1:]))
    if isinstance(expr, sympy.Piecewise):
        return any(is_real(value) for value, _ in expr.args)
    if isinstance(expr, sympy.Number):
        return not expr.is_Integer
    return isinstance(expr, _REAL) or type(expr).__name__.startswith("OpaqueUnaryFn_")


def hoisted(expr: sympy.Basic, argument: Callable[[sympy.Basic], sympy.Basic]) -> sympy.Basic:
    """Replaces what depends on sizes alone, unless it is simple, by arguments of the kernel."""
    if not expr.args or is_simple(expr):
        return expr
    if is_known_at_launch(expr):
        return argument(expr)
    return expr.func(*(hoisted(a, argument) for a in expr.args))


class HostPrinter(PythonPrinter):
    """Python for expressions of sizes: Inductor's own, with the functions that it lacks."""

    def _print_Where(self, expr: sympy.Expr) -> str:
        c, a, b = map(self._print, expr.args)
        return f"(({a}) if ({c}) else ({b}))"

    def _print_TruncToFloat(self, expr: sympy.Expr) -> str:
        return f"float(math.trunc({self._print(expr.args[0])}))"

    def _print_Function(self, expr: sympy.Expr) -> str:
        return f"math.{type(expr).__name__.removeprefix('OpaqueUnaryFn_')}({self._print(expr.args[0])})"


class IndexPrinter(ExprPrinter):
    """`name` says how a symbol is written; `type` is that of every integer: "long", or a vector's. `real` is the tag of
    numbers with a fraction."""

    def __init__(self, type: str, name: Callable[[sympy.Symbol], str], real: str = "f64") -> None:
        super().__init__()
        self._type, self._name, self._tag = type, name, real
        self._width = "1" if type == "long" else "VEC"

    def _print_Symbol(self, expr: sympy.Symbol) -> str:
        return f"(VTYPE({self._tag}, {self._width}))({expr})" if is_real(expr) else self._name(expr)

    def _print_Integer(self, expr: sympy.Integer) -> str:
        return f"{int(expr)}" if abs(int(expr)) < 2**31 else f"{int(expr)}L"

    def _call(self, function: str, *args: sympy.Expr) -> str:
        return f"{function}({', '.join(f'({self._type})({self._print(a)})' for a in args)})"

    def _in_parens(self, expr: sympy.Expr) -> str:
        text = self._print(expr)
        return text if expr.is_Atom else f"({text})"

    # --- integers ------------------------------------------------------------------------------------------------

    def _print_FloorDiv(self, expr: sympy.Expr) -> str:
        x, divisor = expr.args
        if x.is_nonnegative and divisor.is_positive:
            return self._call(f"quotient_{self._type}", x, divisor)
        return self._call(f"floor_div_{self._type}", x, divisor)

    def _print_ModularIndexing(self, expr: sympy.Expr) -> str:
        x, divisor, modulus = expr.args
        quotient = self._print(x) if divisor == 1 else self._print(functions.FloorDiv(x, divisor))
        function = f"rest_{self._type}" if x.is_nonnegative and divisor.is_positive else f"floor_mod_{self._type}"
        return f"{function}(({self._type})({quotient}), ({self._type})({self._print(modulus)}))"

    def _print_PythonMod(self, expr: sympy.Expr) -> str:
        return self._call(f"floor_mod_{self._type}", *expr.args)

    _print_Mod = _print_PythonMod

    def _print_PowByNatural(self, expr: sympy.Expr) -> str:
        base, exponent = expr.args
        if base == 2:
            return f"(({self._type})(1) << ({self._type})({self._print(exponent)}))"
        if exponent.is_Integer and int(exponent) > 0:
            return "(" + " * ".join([self._in_parens(base)] * int(exponent)) + ")"
        raise NotImplementedError(f"netcl: no code is generated for {expr}")

    # --- floats --------------------------------------------------------------------------------------------------

    def _real(self, expr: sympy.Expr) -> str:
        text = self._print(expr)
        return text if is_real(expr) else f"CONVERT({self._tag}, {self._width}, ({self._type})({text}))"

    def _integer(self, real: str) -> str:
        return f"CONVERT({'i32' if self._type == 'ints' else 'i64'}, {self._width}, {real})"

    def _print_Float(self, expr: sympy.Float) -> str:
        return f"(VTYPE({self._tag}, {self._width}))({float(expr)!r}{'f' if self._tag == 'f32' else ''})"

    def _print_Rational(self, expr: sympy.Rational) -> str:
        return self._print_Float(sympy.Float(expr))

    def _joined(self, sign: str, args: Iterable[sympy.Expr]) -> str:
        return "(" + f" {sign} ".join(f"({self._real(a)})" for a in args) + ")"

    def _print_Add(self, expr: sympy.Expr, order: str | None = None) -> str:
        return self._joined("+", expr.args) if is_real(expr) else super()._print_Add(expr, order)

    def _print_Mul(self, expr: sympy.Expr) -> str:
        return self._joined("*", expr.args) if is_real(expr) else super()._print_Mul(expr)

    def _print_FloatTrueDiv(self, expr: sympy.Expr) -> str:
        return self._joined("/", expr.args)

    _print_IntTrueDiv = _print_FloatTrueDiv

    def _print_FloatPow(self, expr: sympy.Expr) -> str:
        return f"pow({self._real(expr.args[0])}, {self._real(expr.args[1])})"

    def _print_Pow(self, expr: sympy.Expr) -> str:
        if not is_real(expr):
            return super()._print_Pow(expr)
        return f"pow({self._real(expr.base)}, {self._real(expr.exp)})"

    def _print_ToFloat(self, expr: sympy.Expr) -> str:
        return self._real(expr.args[0])

    def _print_FloorToInt(self, expr: sympy.Expr) -> str:
        return self._integer(f"floor({self._real(expr.args[0])})")

    _print_floor = _print_FloorToInt

    def _print_CeilToInt(self, expr: sympy.Expr) -> str:
        return self._integer(f"ceil({self._real(expr.args[0])})")

    _print_ceiling = _print_CeilToInt

    def _print_TruncToInt(self, expr: sympy.Expr) -> str:
        return self._integer(f"trunc({self._real(expr.args[0])})")

    def _print_TruncToFloat(self, expr: sympy.Expr) -> str:
        return f"trunc({self._real(expr.args[0])})"

    def _print_RoundToInt(self, expr: sympy.Expr) -> str:
        return self._integer(f"rint({self._real(expr.args[0])})")

    def _print_RoundDecimal(self, expr: sympy.Expr) -> str:
        number, digits = expr.args
        scale = self._print_Float(sympy.Float(10.0 ** abs(int(digits))))
        there, back = ("*", "/") if digits >= 0 else ("/", "*")
        return f"(rint({self._real(number)} {there} {scale}) {back} {scale})"

    def _print_Function(self, expr: sympy.Expr) -> str:
        name = type(expr).__name__.removeprefix("OpaqueUnaryFn_")
        if name == type(expr).__name__:
            raise NotImplementedError(f"netcl: no code is generated for {expr}")
        return f"{name}({self._real(expr.args[0])})"

    # --- both ----------------------------------------------------------------------------------------------------

    def _either(self, expr: sympy.Expr, real: bool) -> str:
        return self._real(expr) if real else f"({self._type})({self._print(expr)})"

    def _nested(self, function: str, expr: sympy.Expr) -> str:
        first, *others = (self._either(a, is_real(expr)) for a in expr.args)
        for other in others:
            first = f"{function}({first}, {other})"
        return first

    def _print_Min(self, expr: sympy.Expr) -> str:
        return self._nested("min", expr)

    def _print_Max(self, expr: sympy.Expr) -> str:
        return self._nested("max", expr)

    def _print_Abs(self, expr: sympy.Expr) -> str:
        x = self._either(expr.args[0], is_real(expr))
        return f"max({x}, -({x}))"

    def _print_Where(self, expr: sympy.Expr) -> str:
        condition, *values = expr.args
        a, b = (self._either(x, is_real(expr)) for x in values)
        return f"({self._in_parens(condition)} ? {a} : {b})"

    def _print_Piecewise(self, expr: sympy.Expr) -> str:
        text = "0"
        for value, condition in reversed(expr.args):
            chosen = self._either(value, is_real(expr))
            text = chosen if condition == sympy.true else f"({self._in_parens(condition)} ? {chosen} : {text})"
        return text

    def _print_Relational(self, expr: sympy.Expr) -> str:
        real = any(map(is_real, expr.args))
        a, b = (self._either(x, real) for x in expr.args)
        return f"({a} {expr.rel_op} {b})"

    def _print_And(self, expr: sympy.Expr) -> str:
        return "(" + " && ".join(map(self._in_parens, expr.args)) + ")"

    def _print_Or(self, expr: sympy.Expr) -> str:
        return "(" + " || ".join(map(self._in_parens, expr.args)) + ")"

    def _print_Not(self, expr: sympy.Expr) -> str:
        return f"(!{self._in_parens(expr.args[0])})"

    def _print_Identity(self, expr: sympy.Expr) -> str:
        return self._print(expr.args[0])
