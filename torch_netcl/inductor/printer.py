"""Index expressions as OpenCL C: one number, or a vector with a number per lane."""

from __future__ import annotations

from collections.abc import Callable

import sympy
from torch.utils._sympy.printers import ExprPrinter


class IndexPrinter(ExprPrinter):
    """`name` says how a symbol is written; `type` is that of every number: "long", or a vector's."""

    def __init__(self, type: str, name: Callable[[sympy.Symbol], str]) -> None:
        super().__init__()
        self._type, self._name = type, name

    def _print_Symbol(self, expr: sympy.Symbol) -> str:
        return self._name(expr)

    def _print_Integer(self, expr: sympy.Integer) -> str:
        return f"{int(expr)}" if abs(int(expr)) < 2**31 else f"{int(expr)}L"

    def _call(self, function: str, *args: sympy.Expr) -> str:
        return f"{function}({', '.join(f'({self._type})({self._print(a)})' for a in args)})"

    def _print_FloorDiv(self, expr: sympy.Expr) -> str:
        x, divisor = expr.args
        if x.is_nonnegative and divisor.is_positive:
            return f"({self._in_parens(x)} / {self._in_parens(divisor)})"
        return self._call(f"floor_div_{self._type}", x, divisor)

    def _in_parens(self, expr: sympy.Expr) -> str:
        text = self._print(expr)
        return text if expr.is_Atom else f"({text})"

    def _print_ModularIndexing(self, expr: sympy.Expr) -> str:
        x, divisor, modulus = expr.args
        quotient = self._in_parens(x) if divisor == 1 else f"({self._in_parens(x)} / {self._in_parens(divisor)})"
        if x.is_nonnegative:
            return f"({quotient} % {self._in_parens(modulus)})"
        if divisor != 1:
            quotient = self._call(f"floor_div_{self._type}", x, divisor)
        return f"floor_mod_{self._type}({quotient}, ({self._type})({self._print(modulus)}))"

    def _print_PythonMod(self, expr: sympy.Expr) -> str:
        return self._call(f"floor_mod_{self._type}", *expr.args)

    _print_Mod = _print_PythonMod

    def _nested(self, function: str, args: tuple[sympy.Expr, ...]) -> str:
        text = f"({self._type})({self._print(args[0])})"
        for a in args[1:]:
            text = f"{function}({text}, ({self._type})({self._print(a)}))"
        return text

    def _print_Min(self, expr: sympy.Expr) -> str:
        return self._nested("min", expr.args)

    def _print_Max(self, expr: sympy.Expr) -> str:
        return self._nested("max", expr.args)

    def _print_Abs(self, expr: sympy.Expr) -> str:
        x = self._print(expr.args[0])
        return f"max(({self._type})({x}), -({self._type})({x}))"

    def _print_PowByNatural(self, expr: sympy.Expr) -> str:
        base, exponent = expr.args
        if base == 2:
            return f"(({self._type})(1) << {self._in_parens(exponent)})"
        if exponent.is_Integer and 0 < int(exponent) < 16:
            return "(" + " * ".join([self._in_parens(base)] * int(exponent)) + ")"
        raise NotImplementedError(f"netcl: no code is generated for {expr}")

    def _print_Where(self, expr: sympy.Expr) -> str:
        c, a, b = (self._in_parens(x) for x in expr.args)
        return f"({c} ? ({self._type})({a}) : ({self._type})({b}))"

    def _print_Identity(self, expr: sympy.Expr) -> str:
        return self._print(expr.args[0])
