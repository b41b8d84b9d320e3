#!/usr/bin/env python3
"""Writes coefficients.rs: every constant and polynomial of the functions in this folder.

Run it with mpmath in this folder; it always writes the same text.

A polynomial is fitted by least squares at the Chebyshev nodes of an interval; its largest error is
within a small factor
of the optimum (L. N. Trefethen, Approximation Theory and Approximation Practice, chapters 3 and 16). Coefficients are
rounded to f64 from the lowest to the highest. After each rounding the remaining ones are fitted again, so that they
compensate for its error. The error printed beside a polynomial was measured with the rounded coefficients, relative to
the function that uses it.
"""

from mpmath import asin, atan, atanh, cbrt, cos, exp, log, matrix, mp, mpf, pi, qr_solve, sin, sqrt

mp.dps = 60
LINES = []


def literal(value):
    """A f64 as a literal of Rust and C++."""
    return repr(float(value))


def rounded(value):
    return mpf(float(value))


def truncated(value, bits):
    """The leading bits of a value."""
    exponent = mp.frexp(value)[1]
    unit = mpf(2) ** (exponent - bits)
    return mp.floor(value / unit) * unit


def constant(name, comment, value):
    LINES.append(f"        /// {comment}")
    LINES.append(f"        const {name}: f64 = {literal(value)};")


def parts(name, comment, value, count, lead=53):
    """A number as the sum of several f64; the first has `lead` bits."""
    for index in range(count):
        part = truncated(value, lead) if index == 0 and lead < 53 else rounded(value)
        constant(f"{name}_{index + 1}", f"{comment}: part {index + 1}.", part)
        value -= part


def nodes(low, high, count):
    middle, half = (low + high) / 2, (high - low) / 2
    return [middle + half * cos(pi * (2 * k + 1) / (2 * count)) for k in range(count)]


def fit(function, low, high, degree):
    """Coefficients of f64, lowest first."""
    found = []
    points = nodes(low, high, 4 * (degree + 1))
    values = [function(x) for x in points]
    for lowest in range(degree + 1):
        rest = [value - sum(c * x**k for k, c in enumerate(found)) for x, value in zip(points, values)]
        powers = [[x**k for k in range(lowest, degree + 1)] for x in points]
        found.append(rounded(qr_solve(matrix(powers), matrix(rest))[0][0]))
    return found


def horner(coefficients, x):
    text = literal(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        text = f"fma({text}, {x}, {literal(c)})"
    return text


FUNCTIONS = []


def polynomial(name, comment, function, low, high, degree, weight):
    """`weight(x)` is the weight of an error at x in the result."""
    low, high = mpf(low), mpf(high)
    found = fit(function, low, high, degree)
    points = [low + (high - low) * k / 400 for k in range(401)]
    error = max(abs((sum(c * x**k for k, c in enumerate(found)) - function(x)) * weight(x)) for x in points)
    FUNCTIONS.append(f"    /// {comment}")
    FUNCTIONS.append(f"    /// For {float(low):.4g} to {float(high):.4g}, within 2^{float(mp.log(error, 2)):.1f}.")
    FUNCTIONS.append(f"    fn {name}(x: f64) -> f64 {{")
    FUNCTIONS.append(f"        return {horner(found, 'x')};")
    FUNCTIONS.append("    }")


def series(function, terms):
    """The Taylor polynomial near 0, where a quotient loses all digits; elsewhere the function."""
    return lambda x: terms(x) if abs(x) < mpf(2) ** -40 else function(x)


# Numbers.
constant("MAGIC", "1.5 * 2^52: added to a small number, it leaves the nearest integer in the low bits.", mpf(3) * 2**51)
constant("LOG2_E", "1 / ln 2.", 1 / log(2))
parts("LN_2", "ln 2", log(2), 2)
parts("LN_2_SHORT", "ln 2, to be multiplied by exponents without rounding", log(2), 2, lead=41)
parts("INVERSE_LN_2", "1 / ln 2", 1 / log(2), 2)
parts("INVERSE_LN_10", "1 / ln 10", 1 / log(10), 2)
constant("TWO_OVER_PI", "2 / pi.", 2 / pi)
parts("HALF_PI", "pi / 2", pi / 2, 3)
parts("QUARTER_PI", "pi / 4", pi / 4, 2)
parts("PI", "pi", pi, 2)
parts("TWO_THIRDS", "2 / 3", mpf(2) / 3, 2)
parts("TWO_FIFTHS", "2 / 5", mpf(2) / 5, 2)
constant("TAN_PI_8", "tan(pi / 8), where the arc tangent changes its reduction.", sqrt(2) - 1)
constant("UP", "2^700, which brings small numbers to where their squares do not vanish.", mpf(2) ** 700)
constant("DOWN", "2^-700, which brings large numbers to where their squares do not overflow.", mpf(2) ** -700)
constant("LEAST_NORMAL", "2^-1022.", mpf(2) ** -1022)
constant("UP_54", "2^54, which makes subnormal numbers normal.", mpf(2) ** 54)
constant("TWO_52", "2^52: from here on all numbers are integers.", mpf(2) ** 52)
constant("THIRD", "1 / 3.", mpf(1) / 3)

# exp(r) = 1 + r + r^2 / 2 + r^3 p(r)
bound = log(2) / 2 * (1 + mpf(2) ** -20)
polynomial("exp_tail", "(exp(x) - 1 - x - x^2 / 2) / x^3.",
           series(lambda x: (exp(x) - 1 - x - x**2 / 2) / x**3, lambda x: mpf(1) / 6 + x / 24 + x**2 / 120),
           -bound, bound, 9, lambda x: x**3)

# With z = s^2: log((1 + s) / (1 - s)) = 2 s + s z p(z)
bound = ((sqrt(2) - 1) / (sqrt(2) + 1)) ** 2 * (1 + mpf(2) ** -20)


def atanh_rest(first):
    """The terms of 2 atanh(s) / s from z^first on, divided by z^first."""
    def function(z):
        s = sqrt(z)
        return (2 * atanh(s) / s - sum(mpf(2) / (2 * k + 1) * z**k for k in range(first))) / z**first
    return series(function, lambda z: sum(mpf(2) / (2 * (first + k) + 1) * z**k for k in range(3)))


polynomial("log_tail", "(2 atanh(s) - 2 s) / s^3 for x = s^2.", atanh_rest(1), 0, bound, 6, lambda z: z / 2)
polynomial("log_far_tail", "(2 atanh(s) - 2 s - 2/3 s^3 - 2/5 s^5) / s^7 for x = s^2.", atanh_rest(3), 0, bound,
           6, lambda z: z**3 / 2)

# With z = r^2: sin(r) = r + r z p(z), cos(r) = 1 - z / 2 + z^2 q(z)
bound = (pi / 4) ** 2 * (1 + mpf(2) ** -20)
polynomial("sin_tail", "(sin(r) - r) / r^3 for x = r^2.",
           series(lambda z: (sin(sqrt(z)) / sqrt(z) - 1) / z, lambda z: -mpf(1) / 6 + z / 120 - z**2 / 5040),
           0, bound, 6, lambda z: z)
polynomial("cos_tail", "(cos(r) - 1 + r^2 / 2) / r^4 for x = r^2.",
           series(lambda z: (cos(sqrt(z)) - 1 + z / 2) / z**2, lambda z: mpf(1) / 24 - z / 720 + z**2 / 40320),
           0, bound, 5, lambda z: z**2 / cos(sqrt(z)))

# With z = x^2: atan(x) = x + x z p(z), asin(x) = x + x z q(z)
bound = (sqrt(2) - 1) ** 2 * (1 + mpf(2) ** -20)
polynomial("atan_tail", "(atan(t) - t) / t^3 for x = t^2.",
           series(lambda z: (atan(sqrt(z)) / sqrt(z) - 1) / z, lambda z: -mpf(1) / 3 + z / 5 - z**2 / 7),
           0, bound, 10, lambda z: z)
polynomial("asin_tail", "(asin(t) - t) / t^3 for x = t^2.",
           series(lambda z: (asin(sqrt(z)) / sqrt(z) - 1) / z, lambda z: mpf(1) / 6 + 3 * z / 40 + 5 * z**2 / 112),
           0, mpf(1) / 4, 12, lambda z: z)

# The initial approximation of 1 / cbrt(x).
polynomial("inverse_cbrt", "1 / cbrt(x), roughly.", lambda x: 1 / cbrt(x), 1, 8, 6, lambda x: cbrt(x))

# 64 zero bits and the fraction bits of 2 / pi: enough for any finite f64.
words, rest = [0], 2 / pi
mp.dps = 500
rest = 2 / pi
for _ in range(20):
    rest *= 2**64
    words.append(int(mp.floor(rest)))
    rest -= words[-1]

with open("coefficients.rs", "w", encoding="ascii") as out:
    out.write("//! Constants and polynomials. Written by `coefficients.py`, which says where they come from.\n\n")
    out.write("#![allow(clippy::all)] // literals with all their digits\n\n")
    out.write("use super::language::*;\n\n")
    out.write("/// 64 zero bits and the bits of 2 / pi.\n")
    out.write(f"pub(super) static TWO_OVER_PI_BITS: [u64; {len(words)}] = [\n")
    out.write("".join(f"    {word:#018x},\n" for word in words))
    out.write("];\n\ndefine! {\n    constants {\n" + "\n".join([*LINES, "    }", *FUNCTIONS]) + "\n}\n")
