#!/usr/bin/env python3
"""Writes reference.txt: high-precision values of every function, with which the tests compare the functions.

Run it with mpmath in this folder; it always writes the same text. A line is

    NAME A [B] RESULT REST

with the bits of the operands, the bits of the f64 nearest to the result, and its difference from the result in units in
the last place. Half of the points are those of many candidates whose results are hardest to round.
"""

import math
import random
import struct

import mpmath as m
from mpmath import mp, mpf

random.seed(2026)
POINTS, CANDIDATES = 110, 900
LIMIT = mpf(2) ** 1024


def bits(x):
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def near(x):
    """A number and its neighbours."""
    return [math.nextafter(x, -math.inf), x, math.nextafter(x, math.inf)]


def line(low, high):
    return lambda: random.uniform(low, high)


def wide(low, high, signs=(1, -1)):
    """Numbers of all sizes from 2^low to 2^high."""
    return lambda: random.choice(signs) * math.ldexp(random.uniform(1, 2), random.randint(low, high - 1))


def around(x, low, high):
    """Numbers around x, at all distances."""
    step = wide(low, high)
    return lambda: x + step()


def turns():
    """Numbers near multiples of pi/2, of all sizes up to 1e300."""
    mp.prec = 1200
    sign, odd = random.choice((1, -1)), random.randint(1, 2 ** random.randint(1, 20))
    return float(sign * odd * 2 ** random.randint(0, 970) * m.pi / 2)


UP = (1,)
TRIG = [line(-1, 1), line(-20, 20), wide(-40, 30), wide(20, 1023), turns, wide(-1074, -1000)]
LOG = [around(1, -53, -1), wide(-1074, 1023, UP), line(0.5, 2), wide(-1074, -1022, UP)]
ONE_OPERAND = {
    "cbrt": (lambda x: m.sign(x) * m.cbrt(abs(x)), [wide(-1074, 1023), line(-10, 10)]),
    "exp": (m.exp, [line(-1, 1), line(-745, 709.7), line(-745.1, -708), wide(-60, 1)]),
    "exp2": (lambda x: mpf(2) ** x, [line(-1, 1), line(-1074, 1023.9), line(-1075, -1020), wide(-60, 1)]),
    "expm1": (m.expm1, [line(-1, 1), line(-40, 709.7), wide(-80, 1), line(0.34, 0.36)]),
    "log": (m.log, LOG),
    "log2": (lambda x: m.log(x) / m.log(2), LOG),
    "log10": (lambda x: m.log(x) / m.log(10), LOG),
    "log1p": (m.log1p, [line(-0.99, 2), wide(-80, -1), wide(0, 1023, UP), lambda: -1 + wide(-53, -1, UP)()]),
    "sin": (m.sin, TRIG),
    "cos": (m.cos, TRIG),
    "tan": (m.tan, TRIG),
    "asin": (m.asin, [line(-1, 1), wide(-60, -1), line(0.49, 0.51), lambda: 1 - wide(-53, -1, UP)()]),
    "acos": (m.acos, [line(-1, 1), wide(-60, -1), line(0.49, 0.51), lambda: 1 - wide(-53, -1, UP)()]),
    "atan": (m.atan, [line(-1, 1), wide(-60, 70), line(0.41, 0.42), line(2.4, 2.43)]),
    "sinh": (m.sinh, [line(-1, 1), line(-41, 41), line(700, 710.4), wide(-60, 1)]),
    "cosh": (m.cosh, [line(-1, 1), line(-41, 41), line(700, 710.4), wide(-60, 1)]),
    "tanh": (m.tanh, [line(-1, 1), line(-23, 23), wide(-60, 1)]),
    "asinh": (m.asinh, [line(-2, 2), wide(-60, 10), wide(0, 1023)]),
    "acosh": (m.acosh, [lambda: 1 + wide(-52, 2, UP)(), wide(1, 1023, UP), line(1, 3)]),
    "atanh": (m.atanh, [line(-0.99, 0.99), wide(-60, -1), lambda: 1 - wide(-53, -1, UP)()]),
}
EDGES = {
    "exp": [709.782712893384, -745.1, 0.34657359027997264], "exp2": [1023.5, -1074.0, 0.5],
    "expm1": [0.34657359027997264],
    "log": [2**0.5, 0.5**0.5], "log1p": [2**0.5 - 1, 0.5**0.5 - 1], "sin": [2.0**30, math.pi, 1e22],
    "cos": [2.0**30, math.pi / 2, 1e22],
    "tan": [2.0**30, math.pi / 4, math.pi / 2, 1e22], "asin": [0.5], "acos": [0.5, -0.5],
    "atan": [2**0.5 - 1, 2**0.5 + 1],
    "sinh": [40.0, 1e-8], "cosh": [40.0], "tanh": [22.0, 1e-8], "asinh": [2.0**28, 1e-8],
    "acosh": [2.0**28], "atanh": [1e-8],
    "cbrt": [8.0, 1.0, 27.0],
}  # fmt: skip


# The worst points of a large sweep of random ones.
WORST = {
    "exp": (-709.0148775900326,),
    "exp2": (-1022.9629246613113,),
    "expm1": (0.36106437301880834,),
    "log": (1.4045082600168606,),
    "log2": (1.3981351719593604,),
    "log10": (0.7514524378288396,),
    "log1p": (0.3990235486067768,),
    "sin": (15044.333639863216,),
    "cos": (-0.8085479931888464,),
    "tan": (2192.0505011908936,),
    "asin": (0.5069201424779147,),
    "acos": (0.5998832358845909,),
    "atan": (0.4184205286817177,),
    "sinh": (-0.35960557758019407,),
    "cosh": (-28.79588067317679,),
    "tanh": (0.18532663874763977,),
    "asinh": (0.37515459517493577,),
    "acosh": (1.0574750746263117,),
    "atanh": (-0.166633020484529,),
    "cbrt": (-4.304828357163345e-196,),
    "power": (1.4036040903641225, -2089.497715656713),
    "atan2": (1.645219983901346, 3.8929819389356974),
    "hypot": (2.074053865406886e-308, 6.3559295975e-314),
}


def powers():
    """Operands whose power is neither 0 nor infinite."""
    x = random.choice([line(0.1, 10), around(1, -53, -1), wide(-1074, 1023, UP)])()
    if x <= 0 or x == 1:
        return powers()
    exponents = [random.uniform(-745, 709.7) / math.log(x), random.uniform(-5, 5), float(random.randint(-20, 20))]
    y = random.choice(exponents)
    return x, y


def points():
    one = random.choice([line(-5, 5), wide(-500, 500), wide(-1074, 1022)])
    a = one()
    b = random.choice([one, lambda: a * 2 ** random.uniform(-30, 30), line(-5, 5)])()
    return a, b if math.isfinite(b) else 1.5


TWO_OPERANDS = {
    "power": (m.power, powers),
    "atan2": (m.atan2, points),
    "hypot": (lambda x, y: m.sqrt(x * x + y * y), points),
}


def reference(function, operands):
    """The bits of the nearest f64, and the remainder in units in the last place; None without a value."""
    mp.prec = 1400 if function in (m.sin, m.cos, m.tan) else 200
    exact = function(*(mpf(x) for x in operands))
    if not abs(exact) < LIMIT or exact == 0:
        return None
    unit = mpf(2) ** max(m.frexp(exact)[1] - 53, -1074)
    nearest = m.nint(exact / unit)
    if not abs(nearest * unit) < LIMIT:
        return None
    return bits(float(nearest * unit)), float(exact / unit - nearest)


def write(out, name, function, candidates):
    found = []
    for operands in candidates:
        result = reference(function, operands)
        if result:
            found.append((operands, *result))
    hardest = sorted(found[POINTS:], key=lambda one: -abs(one[2]))[:POINTS]
    for operands, result, rest in found[:POINTS] + hardest:
        out.write(f"{name} {' '.join(f'{bits(x):x}' for x in operands)} {result:x} {rest:.4f}\n")


with open("reference.txt", "w", encoding="ascii") as out:
    out.write(f"# Written by reference.py with mpmath {m.__version__}; see there.\n")
    for name, (function, ranges) in ONE_OPERAND.items():
        edges = [(x,) for edge in EDGES.get(name, []) for x in near(edge)] + [WORST[name]]
        random_ones = [(ranges[k % len(ranges)](),) for k in range(CANDIDATES)]
        inside = [x for x in edges + random_ones if name not in ("asin", "acos", "atanh") or abs(x[0]) <= 1]
        inside = [x for x in inside if not name.startswith("log1p") or x[0] > -1]
        inside = [x for x in inside if name not in ("log", "log2", "log10") or x[0] > 0]
        write(out, name, function, inside)
    for name, (function, pair) in TWO_OPERANDS.items():
        write(out, name, function, [WORST[name]] + [pair() for _ in range(CANDIDATES)])
