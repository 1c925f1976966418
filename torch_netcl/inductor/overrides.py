"""Inductor's operators as OpenCL C. Operands are promoted here, since decompositions mix dtypes. A bool is a mask."""

from __future__ import annotations

import functools
import math
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable, OpOverrides
from torch._inductor.utils import generate_assert
from torch._inductor.virtualized import OpsValue, V
from torch.utils._sympy.value_ranges import ValueRanges

from . import dtypes, host
from .body import COSTLY
from .printer import is_known_at_launch, is_real

#: Functions of floats: (name of the operator in a file of kernels/, file). They are the eager kernels' own.
_UNARY = {
    name: (name, "unary.cl")
    for name in (
        "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
        "erfc lgamma sigmoid floor ceil trunc round"
    ).split()
} | {
    "erf": ("erf", "unary.cl"),
    "erfinv": ("erfinv", "special/erf.cl"),
    "ndtri": ("special_ndtri", "special/erf.cl"),
    "erfcx": ("special_erfcx", "special/erf.cl"),
    "log_ndtr": ("special_log_ndtr", "special/erf.cl"),
    "digamma": ("digamma", "special/gamma.cl"),
    "airy_ai": ("special_airy_ai", "special/bessel.cl"),
    "spherical_bessel_j0": ("special_spherical_bessel_j0", "special/bessel.cl"),
    "i0": ("i0", "special/bessel.cl"),
    "i1": ("special_i1", "special/bessel.cl"),
    "i0e": ("special_i0e", "special/bessel.cl"),
    "i1e": ("special_i1e", "special/bessel.cl"),
    "modified_bessel_i0": ("i0", "special/bessel.cl"),
    "modified_bessel_i1": ("special_i1", "special/bessel.cl"),
    **{
        name: (f"special_{name}", "special/bessel.cl")
        for name in (
            "bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 "
            "scaled_modified_bessel_k1"
        ).split()
    },
}
_BINARY = {
    "atan2": ("atan2", "binary.cl"),
    "hypot": ("hypot", "binary.cl"),
    "nextafter": ("nextafter", "binary.cl"),
    "copysign": ("copysign", "binary.cl"),
    "zeta": ("zeta", "special/gamma.cl"),
    "igamma": ("igamma", "special/gamma.cl"),
    "igammac": ("igammac", "special/gamma.cl"),
    "gammainc": ("igamma", "special/gamma.cl"),
    "gammaincc": ("igammac", "special/gamma.cl"),
    **{
        name: (name, "special/polynomials.cl")
        for name in (
            "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w "
            "shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
            "shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l "
            "legendre_polynomial_p"
        ).split()
    },
}
#: Functions that integers have as well: (name in binary.cl for floats, name in integer_math.h).
_NUMERIC = {
    "floordiv": ("div_floor", "floor_quotient"),
    "mod": ("fmod", "safe_rest"),
    "fmod": ("fmod", "safe_rest"),
    "remainder": ("remainder", "floor_rest"),
    "pow": ("pow_tensor_tensor", "map_pow_int"),
}
#: Functions of integers: their names in integer_math.h.
_INTEGER = {
    "truncdiv": "safe_quotient",
    "bitwise_left_shift": "map_left_shift",
    "bitwise_right_shift": "map_right_shift",
}
#: Little enough work to be done once more in a later loop.
_CHEAP = {"sqrt", "rsqrt", "floor", "ceil", "trunc", "round", "copysign", "floordiv"}


def _value(text: str, dtype: torch.dtype, costly: bool = False) -> CSEVariable:
    return V.kernel.value(text, dtype, work=COSTLY if costly else 1)


def _plain(x: Any) -> Any:
    return x.value if isinstance(x, OpsValue) else x


def _as_variable(x: Any) -> CSEVariable:
    x = _plain(x)
    if isinstance(x, CSEVariable):
        return x
    kind = torch.bool if isinstance(x, bool) else torch.int64 if isinstance(x, int) else torch.float32
    return V.kernel.literal(x, kind)


def _category(dtype: torch.dtype) -> int:
    return 2 if dtype.is_floating_point else 0 if dtype is torch.bool else 1


def _together(*operands: Any) -> tuple[list[CSEVariable], torch.dtype]:
    """The operands, in the dtype that they have together. A constant adapts to the others, unless it is of a higher
    kind."""
    given = [_as_variable(x) for x in operands]
    others = [x.dtype for x in given if not dtypes.is_literal(x.name)] or [x.dtype for x in given]
    dtype = functools.reduce(torch.promote_types, others)
    for x in given:
        if _category(x.dtype) > _category(dtype):
            dtype = torch.promote_types(dtype, x.dtype)
    dtype = dtypes.computed(dtype)
    return [OpenCLOverrides.to_dtype(x, dtype) for x in given], dtype


def _floating(*operands: Any) -> tuple[list[CSEVariable], torch.dtype]:
    given, dtype = _together(*operands)
    if not dtype.is_floating_point:
        dtype = torch.float32
        given = [OpenCLOverrides.to_dtype(x, dtype) for x in given]
    return given, dtype


def _numbers(*operands: Any) -> tuple[list[CSEVariable], torch.dtype]:
    """As _together, with masks as ints."""
    given, dtype = _together(*operands)
    if dtype is torch.bool:
        dtype = torch.int32
        given = [OpenCLOverrides.to_dtype(x, dtype) for x in given]
    return given, dtype


def _function(name: str, file: str, operands: tuple[Any, ...], costly: bool) -> CSEVariable:
    given, dtype = _floating(*operands)
    V.kernel.math.add(dtype)
    V.kernel.includes[file] = None
    if name == "nextafter":  # OpenCL's, of either dtype
        return _value(f"OP_{name}({', '.join(map(str, given))})", dtype, costly)
    call = f"CALL{len(given)}_{dtypes.tag(dtype)}"
    return _value(f"{call}({', '.join([f'OP_{name}', *map(str, given)])})", dtype, costly)


def _compared(sign: str, a: Any, b: Any) -> CSEVariable:
    (a, b), dtype = _numbers(a, b)
    return _value(f"TRUTH_{dtypes.size(dtype)}({a} {sign} {b})", torch.bool)


def _integer(name: str, dtype: torch.dtype, *operands: CSEVariable) -> CSEVariable:
    """A function of kernels/common/integer_math.h."""
    tag = dtypes.tag(dtype)
    V.kernel.includes.setdefault("common/integer_math.h")
    V.kernel.functions[f"NETCL_INTEGER_MATH(_{tag}, VECTOR({tag}), CTYPE({tag}))"] = None
    return _value(f"{name}_{tag}({', '.join(map(str, operands))})", dtype)


class OpenCLOverrides(OpOverrides):
    """One method per operator; each returns a typed variable."""

    # --- constants, casts ----------------------------------------------------------------------------------------

    @staticmethod
    def constant(value: Any, dtype: torch.dtype) -> CSEVariable:
        return V.kernel.literal(value, dtype)

    @staticmethod
    def to_dtype(x: Any, dtype: torch.dtype, src_dtype: Any = None, use_compute_types: bool = True) -> CSEVariable:
        x, target = _as_variable(x), dtypes.computed(dtype)
        source = x.dtype
        if not use_compute_types and dtype in (torch.float16, torch.bfloat16):
            return _value(f"ROUND({dtypes.TAGS[dtype]}, f32, VEC, {OpenCLOverrides.to_dtype(x, target)})", target)
        if dtype in (torch.float16, torch.bfloat16) and _is_uniform(x):
            return _value(f"random_of_16_bits({x}, {13 if dtype == torch.float16 else 16})", target)
        if dtype in dtypes.FLOAT8:
            V.kernel.float8[dtypes.FLOAT8[dtype]] = None
            return _value(f"ROUND({dtypes.FLOAT8[dtype]}, f32, VEC, {OpenCLOverrides.to_dtype(x, target)})", target)
        if source == target:
            return x
        if x.name in V.kernel.known and target.is_floating_point:
            return V.kernel.number(V.kernel.known[x.name], target)
        if dtypes.is_literal(x.name) and (known := _known_literal(x, target)) is not None:
            return known
        tag = dtypes.tag(target)
        if target is torch.bool:
            return _value(f"TRUTH_{dtypes.size(source)}({x} != {dtypes.literal(0, source)})", target)
        if source is torch.bool:
            return _value(f"CONVERT({tag}, VEC, -{x})", target)
        narrow = target.itemsize < 4 or target in (torch.uint32, torch.uint64)
        if source.is_floating_point and not target.is_floating_point and narrow:
            return _value(f"CONVERT({tag}, VEC, CONVERT(i64, VEC, {x}))", target)  # wraps, as on the CPU
        return _value(f"CONVERT({tag}, VEC, {x})", target)

    @staticmethod
    def to_dtype_bitcast(x: Any, dtype: torch.dtype, src_dtype: torch.dtype) -> CSEVariable:
        x = OpenCLOverrides.to_dtype(x, src_dtype)
        bits = dtypes.bits(src_dtype)
        if bits is not None:
            x = _value(f"BITS({dtypes.stored(src_dtype)}, {x})", bits)
        bits = dtypes.bits(dtype)
        if bits is None:
            return x if x.dtype is dtype else _value(f"AS({dtypes.tag(dtype)}, {x})", dtype)
        if x.dtype is not bits:
            x = _value(f"AS({dtypes.tag(bits)}, {x})", bits)
        return _value(f"OF_BITS({dtypes.stored(dtype)}, {x})", dtype)

    @staticmethod
    def index_expr(expr: sympy.Expr, dtype: torch.dtype) -> CSEVariable:
        kernel = V.kernel
        expr = V.graph.sizevars.simplify(expr)
        if is_real(expr) and is_known_at_launch(expr):
            target = dtypes.computed(dtype) if dtype.is_floating_point else dtypes.real()
            return OpenCLOverrides.to_dtype(kernel.number(kernel.python_of(expr), target), dtype)
        index = kernel.prepare_indexing(expr)
        if not isinstance(index, sympy.Expr):
            index = sympy.Piecewise((sympy.S.One, index), (sympy.S.Zero, True))
        real = is_real(index)
        wide = real or dtype.itemsize == 8 or kernel.features.select_index_dtype() != torch.int32
        text = kernel.lanes_of(index, wide)
        if real:
            x = kernel.value(text, dtypes.real())
        else:
            x = kernel.value(f"{'(longs)' if wide else '(ints)'}({text})", torch.int64 if wide else torch.int32)
        if is_known_at_launch(expr):
            kernel.known[x.name] = f"int({kernel.python_of(expr)})"
        return OpenCLOverrides.to_dtype(x, dtype)

    @staticmethod
    def value_expr(expr: sympy.Expr, dtype: torch.dtype) -> CSEVariable:
        return OpenCLOverrides.index_expr(expr, dtype)

    def indirect_indexing(self, var: Any, size: Any, check: bool = True, wrap_neg: bool = True) -> sympy.Symbol:
        """Reports an index out of range as eager kernels do, and goes on with 0."""
        kernel = V.kernel
        x = OpenCLOverrides.to_dtype(var, torch.int64)
        inside = x.bounds.lower >= 0 and isinstance(size, sympy.Number) and x.bounds.upper < size
        if dtypes.is_literal(x.name):
            x = _value(x.name, torch.int64)
        elif not inside:
            extent = kernel.index_to_str(size)
            if generate_assert(check):
                counts = kernel.counts() + (f" & {kernel._load_mask}" if kernel._load_mask else "")
                kernel.asserts = True
                text = f"CHECK_INDEX({x}, {extent}, {counts}, PTR(err, int), code);"
                kernel.code.effect(text, loop=False)
            x = _value(f"PICK_8(TRUTH_8({x} >= (longs)(0) && {x} < (longs)({extent})), {x}, (longs)(0))", torch.int64)
        return sympy.Symbol(x.name, integer=True, nonnegative=True)

    # --- masks ---------------------------------------------------------------------------------------------------

    @staticmethod
    def masked(mask: Any, body: Any, other: Any) -> CSEVariable:
        return V.kernel.masked_value(OpenCLOverrides.to_dtype(mask, torch.bool), body, _plain(other))

    @staticmethod
    def where(condition: Any, a: Any, b: Any) -> CSEVariable:
        (a, b), dtype = _together(a, b)
        mask = OpenCLOverrides.to_dtype(condition, torch.bool)
        return _value(f"PICK_{dtypes.size(dtype)}({mask}, {a}, {b})", dtype)

    @staticmethod
    def logical_not(a: Any) -> CSEVariable:
        return _value(f"~{OpenCLOverrides.to_dtype(a, torch.bool)}", torch.bool)

    @staticmethod
    def _logical(sign: str, a: Any, b: Any) -> CSEVariable:
        a, b = (OpenCLOverrides.to_dtype(x, torch.bool) for x in (a, b))
        return _value(f"{a} {sign} {b}", torch.bool)

    @staticmethod
    def _bitwise(sign: str, a: Any, b: Any) -> CSEVariable:
        (a, b), dtype = _together(a, b)
        return _value(f"{a} {sign} {b}", dtype)

    @staticmethod
    def bitwise_not(x: Any) -> CSEVariable:
        x = _as_variable(x)
        return _value(f"~{x}", x.dtype)

    @staticmethod
    def isnan(x: Any) -> CSEVariable:
        (x,), dtype = _floating(x)
        return _value(f"TRUTH_{dtypes.size(dtype)}({x} != {x})", torch.bool)

    @staticmethod
    def isinf(x: Any) -> CSEVariable:
        (x,), dtype = _floating(x)
        return _value(f"TRUTH_{dtypes.size(dtype)}(fabs({x}) == {dtypes.literal(float('inf'), dtype)})", torch.bool)

    @staticmethod
    def signbit(x: Any) -> CSEVariable:
        x = _as_variable(x)
        if not x.dtype.is_floating_point:
            return _compared("<", x, 0)
        word = torch.int32 if x.dtype is torch.float32 else torch.int64
        bits = f"CAT(CAT(as_, CTYPE({dtypes.tag(word)})), CAT(V_, VEC))({x})"
        return _value(f"TRUTH_{word.itemsize}({bits} < {dtypes.literal(0, word)})", torch.bool)

    # --- arithmetic ----------------------------------------------------------------------------------------------

    @staticmethod
    def _arithmetic(sign: str, a: Any, b: Any) -> CSEVariable:
        (a, b), dtype = _numbers(a, b)
        return _value(f"{a} {sign} {b}", dtype)

    @staticmethod
    def add(a: Any, b: Any) -> CSEVariable:
        for x, one in ((a, b), (b, a)):
            if (of := _operand_of_erf(_plain(x))) is not None and getattr(_as_variable(one), "number", None) == 1:
                return _function("erf_plus_one", "unary.cl", (of,), True)
        return OpenCLOverrides._arithmetic("+", a, b)

    @staticmethod
    def neg(x: Any) -> CSEVariable:
        (x,), dtype = _numbers(x)
        return _value(f"-{x}", dtype)

    @staticmethod
    def abs(x: Any) -> CSEVariable:
        (x,), dtype = _numbers(x)
        if dtype.is_floating_point:
            return _value(f"fabs({x})", dtype)
        if not dtype.is_signed:
            return x
        return _value(f"{x} < {dtypes.literal(0, dtype)} ? -{x} : {x}", dtype)

    @staticmethod
    def sign(x: Any) -> CSEVariable:
        (x,), dtype = _numbers(x)
        zero, one, minus = (dtypes.literal(n, dtype) for n in (0, 1, -1 if dtype.is_signed else 0))
        return _value(f"{x} > {zero} ? {one} : ({x} < {zero} ? {minus} : {zero})", dtype)

    @staticmethod
    def exp(x: Any) -> CSEVariable:
        (x,), dtype = _floating(x)
        if dtype is not torch.float32 or not _below_its_maximum(x):
            return _function("exp", "unary.cl", (x,), True)
        V.kernel.includes["common/exp_below.h"] = None
        return _value(f"EXP_BELOW({x})", dtype, costly=True)

    @staticmethod
    def truediv(a: Any, b: Any) -> CSEVariable:
        (a, b), dtype = _floating(a, b)
        if _is_part_of_softmax(a, b):
            return OpenCLOverrides.mul(a, _value(f"{dtypes.literal(1, dtype)} / {b}", dtype))
        return _value(f"{a} / {b}", dtype)

    int_truediv = truediv
    div_rn = truediv

    @staticmethod
    def fma(x: Any, y: Any, z: Any) -> CSEVariable:
        (x, y, z), dtype = _together(x, y, z)
        text = f"fma({x}, {y}, {z})" if dtype.is_floating_point else f"{x} * {y} + {z}"
        return _value(text, dtype)

    @staticmethod
    def _numeric(of_floats: str, of_integers: str, costly: bool, a: Any, b: Any) -> CSEVariable:
        (a, b), dtype = _numbers(a, b)
        if dtype.is_floating_point:
            return _function(of_floats, "binary.cl", (a, b), costly)
        return _integer(of_integers, dtype, a, b)

    @staticmethod
    def _integral(name: str, a: Any, b: Any) -> CSEVariable:
        (a, b), dtype = _numbers(a, b)
        return _integer(name, dtype, a, b)

    @staticmethod
    def _extreme(sign: str, bit: str, a: Any, b: Any) -> CSEVariable:
        (a, b), dtype = _together(a, b)
        if dtype is torch.bool:
            return _value(f"{a} {bit} {b}", dtype)
        nan = f" || {a} != {a}" if dtype.is_floating_point else ""
        return _value(f"({a} {sign} {b}{nan}) ? {a} : {b}", dtype)

    @staticmethod
    def relu(x: Any) -> CSEVariable:
        return OpenCLOverrides.maximum(x, 0)

    @staticmethod
    def frexp(x: Any) -> tuple[CSEVariable, CSEVariable]:
        file = "common/frexp_parts.h"
        mantissa, exponent = (_function(f"frexp_{part}", file, (x,), True) for part in ("mantissa", "exponent"))
        return mantissa, OpenCLOverrides.to_dtype(exponent, torch.int32)

    @staticmethod
    def polygamma(order: Any, x: Any) -> CSEVariable:
        """``order`` is a number of the program; a multiple of zeta(order + 1, x), as in eager mode."""
        text = order.name.split(")", 1)[-1].strip("()").rstrip("fL") if isinstance(order, CSEVariable) else order
        n = int(float(text))
        if n == 0:
            return OpenCLOverrides.digamma(x)
        factor = math.factorial(n) * (-1.0) ** (n + 1)
        return OpenCLOverrides.mul(OpenCLOverrides.zeta(n + 1, x), factor)

    @staticmethod
    def ldexp(x: Any, n: Any) -> CSEVariable:
        """x * 2^n, as ATen computes it."""
        x = _as_variable(x)
        return OpenCLOverrides.mul(x, OpenCLOverrides.pow(OpenCLOverrides.constant(2.0, x.dtype), n))

    @staticmethod
    def ndtr(x: Any) -> CSEVariable:
        return OpenCLOverrides.mul(OpenCLOverrides.erfc(OpenCLOverrides.mul(x, -math.sqrt(0.5))), 0.5)

    @staticmethod
    def rand(seed: Any, offset: Any) -> CSEVariable:
        kernel = V.kernel
        seed, offset = (OpenCLOverrides.to_dtype(x, torch.int64) for x in (seed, offset))
        drawn = kernel.drawn.get((seed.name, offset.name))
        if drawn is None:
            drawn = kernel.drawn[seed.name, offset.name] = f"drawn_{len(kernel.drawn)}"
            kernel.scratch.append(f"DRAWN({drawn})")
        return _random(f"RANDOM_UNIFORM({drawn}, ", seed, offset, torch.float32)

    @staticmethod
    def randn(seed: Any, offset: Any) -> CSEVariable:
        return _random("random_normal(", seed, offset, torch.float32)

    @staticmethod
    def randint64(seed: Any, offset: Any, low: Any, high: Any) -> CSEVariable:
        low, high = (OpenCLOverrides.to_dtype(x, torch.int64) for x in (low, high))
        return _random("random_integer(", seed, offset, torch.int64, f", {low}, {high}")


def _operand_of_erf(x: Any) -> CSEVariable | None:
    """What it is the error function of, if it is one."""
    s = V.kernel.code.named.get(x.name) if isinstance(x, CSEVariable) else None
    if s is None or len(s.needs) != 1 or "(OP_erf, " not in s.text:
        return None
    return V.kernel.cse.varname_map[s.needs[0].name]


def _below_its_maximum(x: CSEVariable) -> bool:
    """Whether it is a value minus the greatest such value of the row, as in a softmax."""
    s = V.kernel.code.named.get(x.name)
    if s is None or len(s.needs) != 2 or s.text != f"{s.needs[0].name} - {s.needs[1].name}":
        return False
    return s.needs[1].of == ("max", s.needs[0].name)


def _is_uniform(x: CSEVariable) -> bool:
    """Whether it is a uniform random number as it was drawn."""
    s = V.kernel.code.named.get(x.name)
    return s is not None and s.text.startswith("RANDOM_UNIFORM(")


def _is_part_of_softmax(a: CSEVariable, b: CSEVariable) -> bool:
    """Whether it is an exponential over the sum of those of the row, which is at least 1."""
    exponential, total = (V.kernel.code.named.get(x.name) for x in (a, b))
    if exponential is None or total is None or total.of != ("sum", a.name):
        return False
    return exponential.text.startswith("EXP_BELOW(")


def _random(call: str, seed: Any, offset: Any, dtype: torch.dtype, more: str = "") -> CSEVariable:
    V.kernel.includes["common/random_lanes.h"] = None
    seed, offset = (OpenCLOverrides.to_dtype(x, torch.int64) for x in (seed, offset))
    return _value(f"{call}{seed}, {offset}{more})", dtype, costly=True)


def _known_literal(x: CSEVariable, dtype: torch.dtype) -> CSEVariable | None:
    """A constant in another dtype, if it is a plain number."""
    text = x.name.split(")", 1)[1].strip("()").rstrip("fLul") if ")" in x.name else ""
    try:
        number = float(text) if any(c in text for c in ".en") or "INF" in text else int(text)
    except ValueError:
        special = {"NAN": float("nan"), "INFINITY": float("inf"), "-INFINITY": float("-inf")}
        name = x.name.split(")", 1)[1].strip("()")
        if name not in special or not dtype.is_floating_point:
            return None
        number = special[name]
    if x.dtype is torch.bool:
        number = bool(number)
    if isinstance(number, float) and not dtype.is_floating_point and dtype is not torch.bool:
        number = int(number)
    return V.kernel.literal(bool(number) if dtype is torch.bool else number, dtype)


def _python(x: Any) -> str | None:
    """Python of a value that is known when the kernel is launched, or before."""
    if not isinstance(x, CSEVariable):
        x = V.kernel.literal(x, torch.float64)
    if dtypes.is_literal(x.name):
        number = getattr(x, "number", None)
        return f"float('{number}')" if isinstance(number, float) and not math.isfinite(number) else repr(number)
    return V.kernel.known.get(x.name)


def _on_host(name: str, method: Any, *operands: Any) -> Any:
    """The operator, or its result if that is a float64 which Python can compute when the kernel is launched."""
    given = [_plain(x) for x in operands]
    if not any(isinstance(x, CSEVariable) and x.name in V.kernel.known for x in given):
        return method(*operands)
    texts = [_python(x) for x in given]
    if None in texts or "None" in texts:
        return method(*operands)
    compared = name in ("lt", "le", "gt", "ge", "eq", "ne")
    _, dtype = _numbers(*(given[1:] if name == "where" else given))
    if name in ("sqrt", "pow", "truediv") and not dtype.is_floating_point:
        return method(*operands)
    if not (dtype is torch.float64 or (compared and dtype is torch.int64)):
        return method(*operands)
    return V.kernel.number(f"netcl_host.{name}({', '.join(texts)})", torch.bool if compared else dtype)


def _define() -> None:
    def method(name: str, function: Any) -> None:
        function.__name__ = name
        setattr(OpenCLOverrides, name, staticmethod(function))

    for name, (op, file) in _UNARY.items():
        if name == "exp":
            continue
        method(name, lambda x, op=op, file=file, name=name: _function(op, file, (x,), name not in _CHEAP))
    for name, (op, file) in _BINARY.items():
        method(name, lambda a, b, op=op, file=file: _function(op, file, (a, b), True))
    for name, (of_floats, of_integers) in _NUMERIC.items():
        method(name, functools.partial(OpenCLOverrides._numeric, of_floats, of_integers, name not in _CHEAP))
    for name, function in _INTEGER.items():
        method(name, functools.partial(OpenCLOverrides._integral, function))
    for name, sign in dict(sub="-", mul="*", mul_rn="*").items():
        method(name, functools.partial(OpenCLOverrides._arithmetic, sign))
    for name, sign in dict(lt="<", le="<=", gt=">", ge=">=", eq="==", ne="!=").items():
        method(name, functools.partial(_compared, sign))
    for name, sign in dict(logical_and="&", logical_or="|", logical_xor="^", and_="&", or_="|", xor="^").items():
        method(name, functools.partial(OpenCLOverrides._logical, sign))
    for name, sign in dict(bitwise_and="&", bitwise_or="|", bitwise_xor="^").items():
        method(name, functools.partial(OpenCLOverrides._bitwise, sign))
    method("maximum", functools.partial(OpenCLOverrides._extreme, ">", "|"))
    method("minimum", functools.partial(OpenCLOverrides._extreme, "<", "&"))
    for name in host.FUNCTIONS:
        method(name, functools.partial(_on_host, name, getattr(OpenCLOverrides, name)))


_define()
__all__ = ["OpenCLOverrides", "ValueRanges"]
