"""Writes kernels/special/special_tables.h: Chebyshev and Taylor coefficients, computed with mpmath.

    pip install mpmath && python tools/special_tables.py > kernels/special/special_tables.h

Each table has the coefficients that `double` needs; `float` uses as many of the first ones as its precision needs.
The comments in bessel.cl, erf.cl and gamma.cl of kernels/special name the functions and intervals.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp

mp.mp.dps = 40
DOUBLE, FLOAT = mp.mpf("2e-17"), mp.mpf("6e-9")  # coefficients below this, relative to the largest, are left out
PI = mp.pi


def chebyshev(f: Callable, nodes: int = 80) -> list:
    """Coefficients of f's expansion in T_k on [-1, 1]; the first one is halved."""
    angles = [PI * (j + mp.mpf(1) / 2) / nodes for j in range(nodes)]
    values = [f(mp.cos(t)) for t in angles]
    c = [2 * sum(v * mp.cos(k * t) for v, t in zip(values, angles, strict=True)) / nodes for k in range(nodes)]
    c[0] /= 2
    return c


def used(c: list, tolerance: mp.mpf) -> int:
    """How many coefficients are above the tolerance."""
    top = max(abs(x) for x in c)
    return max(k for k, x in enumerate(c) if abs(x) > tolerance * top) + 1


def emit(name: str, c: list, doubles: int, floats: int) -> None:
    """Print a table with this number of coefficients for each type."""
    text = [f"K({mp.nstr(x, 20, min_fixed=1, max_fixed=0)})" for x in c[:doubles]]
    print(f"__constant ST {name}[] = {{")
    for part, guard in ((text[:floats], False), (text[floats:], True)):
        if guard and part:
            print("#ifdef ACC_DOUBLE")
        for i in range(0, len(part), 3):
            print("    " + ", ".join(part[i : i + 3]) + ",")
        if guard and part:
            print("#endif")
    print("};")


def table(name: str, f: Callable) -> None:
    """Print the expansion of f(u)."""
    c = chebyshev(f)
    emit(name, c, used(c, DOUBLE), used(c, FLOAT))


def large_order(f: Callable, limit: mp.mpf) -> Callable:
    """f as a function of u = 2 limit / x - 1."""
    return lambda u: f(2 * limit / (u + 1))


def bessel() -> None:
    """Print the tables of bessel.cl."""
    def square(limit: int, f: Callable) -> Callable:
        return lambda u: f(limit * mp.sqrt((u + 1) / 2))

    table("i0_small", lambda u: mp.exp(-4 * (u + 1)) * mp.besseli(0, 4 * (u + 1)))
    table("i0_large", large_order(lambda x: mp.sqrt(x) * mp.exp(-x) * mp.besseli(0, x), mp.mpf(8)))
    table("i1_small", lambda u: mp.exp(-4 * (u + 1)) * mp.besseli(1, 4 * (u + 1)) / (4 * (u + 1)))
    table("i1_large", large_order(lambda x: mp.sqrt(x) * mp.exp(-x) * mp.besseli(1, x), mp.mpf(8)))
    table("k0_small", square(2, lambda x: mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x)))
    table("k1_small", square(2, lambda x: x * (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x))))
    table("k0_large", large_order(lambda x: mp.sqrt(x) * mp.exp(x) * mp.besselk(0, x), mp.mpf(2)))
    table("k1_large", large_order(lambda x: mp.sqrt(x) * mp.exp(x) * mp.besselk(1, x), mp.mpf(2)))
    for n in (0, 1):
        zeros = [mp.besseljzero(n, k) for k in (1, 2)]
        for k, z in enumerate(zeros):
            head = mp.mpf(float(mp.nint(z * 2**16))) / 2**16
            print(f"#define J{n}_ZERO{k} K({mp.nstr(head, 17)})")
            print(f"#define J{n}_REST{k} K({mp.nstr(z - head, 17)})")
        table(
            f"j{n}_small",
            square(8, lambda x, z=zeros, n=n: mp.besselj(n, x) / x**n / (x**2 - z[0] ** 2) / (x**2 - z[1] ** 2)),
        )
    table("y0_small", square(8, lambda x: mp.bessely(0, x) - 2 / PI * mp.log(x) * mp.besselj(0, x)))
    table("y1_small", square(8, lambda x: (mp.bessely(1, x) - 2 / PI * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x))
    for n in (0, 1):

        def modulus(x: mp.mpf, n: int = n) -> tuple:
            c, s, r = mp.cos(x - (2 * n + 1) * PI / 4), mp.sin(x - (2 * n + 1) * PI / 4), mp.sqrt(PI * x / 2)
            j, y = mp.besselj(n, x), mp.bessely(n, x)
            return r * (j * c + y * s), r * (y * c - j * s)

        table(f"p{n}_large", lambda u, f=modulus: f(8 / mp.sqrt((u + 1) / 2))[0])
        table(f"q{n}_large", lambda u, f=modulus: f(8 / mp.sqrt((u + 1) / 2))[1] / mp.sqrt((u + 1) / 2))


def airy() -> None:
    """Print the tables of airy_ai in bessel.cl."""
    table("airy_middle", lambda u: mp.airyai(mp.mpf("3.25") * u - mp.mpf("1.25")))

    def right(zeta: mp.mpf) -> mp.mpf:
        x = (zeta * 3 / 2) ** (mp.mpf(2) / 3)
        return 2 * mp.sqrt(PI) * x ** mp.mpf("0.25") * mp.exp(zeta) * mp.airyai(x)

    table("airy_right", large_order(right, 4 * mp.sqrt(2) / 3))
    first = mp.mpf("4.5") ** mp.mpf("1.5") * 2 / 3

    def left(zeta: mp.mpf) -> tuple:
        x = (zeta * 3 / 2) ** (mp.mpf(2) / 3)
        r, c, s = mp.sqrt(PI) * x ** mp.mpf("0.25"), mp.cos(zeta - PI / 4), mp.sin(zeta - PI / 4)
        a, b = mp.airyai(-x), mp.airybi(-x)
        return r * (a * c - b * s), r * (a * s + b * c)

    table("airy_p", lambda u: left(first / mp.sqrt((u + 1) / 2))[0])
    table("airy_q", lambda u: left(first / mp.sqrt((u + 1) / 2))[1] / mp.sqrt((u + 1) / 2))


def erfcx() -> None:
    """Print the expansion of (1 + 2 x) erfcx(x) in (x - 3.75) / (x + 3.75)."""
    def f(u: mp.mpf) -> mp.mpf:
        x = mp.mpf("3.75") * (1 + u) / (1 - u)
        scaled = mp.exp(x * x) * mp.erfc(x) if x < 50 else mp.hyperu(0.5, 0.5, x * x) / mp.sqrt(PI)
        return (1 + 2 * x) * scaled

    table("erfcx_scaled", f)


def temme() -> None:
    """Print c_k(eta), |eta| < 0.36, of Temme's expansion of the incomplete gamma functions (DLMF 8.12.10 and 8.12.11).

    mu with eta^2 / 2 = mu - log(1 + mu) is a power series in eta, because mu mu' = eta (1 + mu); so is eta / mu.
    """
    n = 40
    m = [mp.mpf(0), mp.mpf(1)]
    for k in range(2, n + 2):
        # The coefficient of eta^k in mu mu' - eta mu - eta = 0.
        known = sum(m[i] * (k + 1 - i) * m[k + 1 - i] for i in range(2, k)) if k > 2 else mp.mpf(0)
        m.append((m[k - 1] - known) / (k + 1))
    quotient = [mp.mpf(1)]  # eta / mu
    for k in range(1, n + 1):
        quotient.append(-sum(m[i + 1] * quotient[k - i] for i in range(1, k + 1)))
    c = quotient[1:]  # c_0 = 1 / mu - 1 / eta
    sizes = []
    for k in range(8):
        size = [
            max([i for i, x in enumerate(c) if abs(x) * mp.mpf("0.36") ** i / mp.mpf(a) ** k > limit], default=-1) + 1
            for a, limit in ((100, mp.mpf("5e-18")), (20, mp.mpf("4e-9")))
        ]
        sizes.append(size)
        emit(f"temme{k}", c, max(size[0], 1), max(size[1], 1))
        slope = [i * x for i, x in enumerate(c)][1:]
        c = [slope[i] - slope[0] * quotient[i] for i in range(len(slope))][1:]


def main() -> None:
    """Print the header."""
    print("// Written by tools/special_tables.py, which says what the tables are. K(x) is x as the compute type ST.")
    for macro, part in (("BESSEL", bessel), ("AIRY", airy), ("ERF", erfcx), ("GAMMA", temme)):
        print(f"\n#ifdef {macro}_TABLES")
        part()
        print("#endif")


if __name__ == "__main__":
    main()
