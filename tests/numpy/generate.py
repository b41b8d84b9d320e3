#!/usr/bin/env python3
"""Writes cases.txt, the table that holds Overshot's expressions to NumPy's results.

Run it with NumPy 2.4 in this folder; it always writes the same text. Expressions are valid Python: they are evaluated
with the names below, so that NumPy computes each result. The table has four kinds of lines, with tabs in place of |:

    values NAME DTYPE HEX HEX …              the bits of an input column
    case BOUND | EXPRESSION | a=NAME b=NAME | DTYPE | HEX HEX …   every row of the result
    reduce BOUND | EXPRESSION | a=NAME | DTYPE | HEX              the one value of all rows
    error | EXPRESSION | a=NAME b=NAME       NumPy refuses, and so must we

BOUND is `exact` (the same bits; any NaN equals any other), `zero` (the same, but 0 equals -0), `ulp` (a function
without an exact result: a few units in the last place, see the test) or `close` (sums, which differ by their order).

Left out, because NumPy leaves them to the processor or we differ on purpose: float to integer beyond the range, integer
arrays to negative powers, results in float16 of other dtypes (ours are float32).
"""

import warnings

import numpy as np

warnings.simplefilter("ignore")

DTYPES = {
    "bool": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
NAMES = {np.dtype(t): n for n, t in DTYPES.items()}
INTS = [n for n in DTYPES if n[0] in "iu"]
FLOATS = ["f16", "f32", "f64"]
UNARY = "sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh".split()
ARCS = "asin acos atan asinh acosh atanh".split()


def fold(function):
    def many(*arguments):
        if len(arguments) == 1:
            return function.reduce(arguments[0])
        result = arguments[0]
        for argument in arguments[1:]:
            result = function(result, argument)
        return result

    return many


NAMESPACE = {
    "where": np.where, "min": fold(np.minimum), "max": fold(np.maximum), "clip": np.clip, "abs": np.abs,
    "floor": np.floor, "ceil": np.ceil, "round": np.round, "trunc": np.trunc, "isnan": np.isnan, "isinf": np.isinf,
    "isfinite": np.isfinite, "atan2": np.arctan2, "hypot": np.hypot, "pi": float(np.pi), "e": float(np.e),
    "inf": float("inf"), "nan": float("nan"), "sum": np.sum, "mean": np.mean, "var": np.var, "std": np.std,
    "count": lambda a: np.int64(np.count_nonzero(a)), "any": np.any, "all": np.all,
    "argmin": np.argmin, "argmax": np.argmax, "prod": np.prod, "sign": np.sign, "signbit": np.signbit,
    "fmod": np.fmod, "copysign": np.copysign, "nextafter": np.nextafter,
}  # fmt: skip
NAMESPACE |= {name: getattr(np, name) for name in UNARY}
NAMESPACE |= {name: getattr(np, "arc" + name[1:]) for name in ARCS}
NAMESPACE |= {name: (lambda t: lambda a: np.asarray(a).astype(t))(t) for name, t in DTYPES.items()}

VALUES = {}
LINES = []


def bits(array):
    array = np.atleast_1d(array)
    if array.dtype == np.bool_:
        return " ".join("1" if v else "0" for v in array)
    return " ".join(f"{v:x}" for v in array.view(f"u{array.dtype.itemsize}"))


def values(name, dtype, items):
    VALUES[name] = np.array(items, dtype=DTYPES[dtype])
    LINES.append(f"values {name} {dtype} {bits(VALUES[name])}")


def specials(dtype):
    """Values where things go wrong, of one dtype."""
    if dtype == "bool":
        return [False, True]
    if dtype in FLOATS:
        info = np.finfo(DTYPES[dtype])
        small = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.75, 1e-3, 100.25]
        large = [float(info.tiny), float(info.smallest_subnormal), float(info.max), float("inf"), 16777217.0, 1e10]
        return [s * v for v in small + large for s in (1, -1)] + [float("nan")]
    info = np.iinfo(DTYPES[dtype])
    items = [0, 1, 2, 3, 5, 7, 8, 10, 31, 63, 64, 100, info.max, info.max - 1, info.max // 2]
    if info.min < 0:
        items += [-1, -2, -3, -7, -10, -100, info.min, info.min + 1]
    if info.bits == 64:
        items += [2**53 + 1, 2**62 + 1]
    return items


def run(expression, columns):
    names = {name: VALUES[column] for name, column in columns.items()}
    return eval(expression, NAMESPACE, names)


def used(columns):
    return " ".join(f"{name}={column}" for name, column in columns.items())


def case(bound, expression, **columns):
    try:
        result = np.asarray(run(expression, columns))
    except (TypeError, OverflowError):
        LINES.append(f"error\t{expression}\t{used(columns)}")
        return
    rows = len(VALUES[next(iter(columns.values()))])
    if result.dtype == np.float16 and np.float16 not in (VALUES[column].dtype for column in columns.values()):
        return
    result = np.broadcast_to(result, rows)
    LINES.append(f"case {bound}\t{expression}\t{used(columns)}\t{NAMES[result.dtype]}\t{bits(result.copy())}")


def reduce(bound, expression, **columns):
    result = np.asarray(run(expression, columns))
    LINES.append(f"reduce {bound}\t{expression}\t{used(columns)}\t{NAMES[result.dtype]}\t{bits(result)}")


def pairs(left, right):
    """Two columns in which every special value of each dtype meets several of the other."""
    a, b = specials(left), specials(right)
    rows = min(len(a) * len(b), max(len(a), len(b)) + 5)
    for name, items, stride in ((f"{left}_{right}_l", a, 1), (f"{left}_{right}_r", b, 3)):
        if name not in VALUES:
            dtype = left if name.endswith("_l") else right
            turns = [items[(row * stride + row // len(items)) % len(items)] for row in range(rows)]
            values(name, dtype, turns)
    return {"a": f"{left}_{right}_l", "b": f"{left}_{right}_r"}


def operators():
    for left in DTYPES:
        for right in DTYPES:
            columns = pairs(left, right)
            for sign in "+ - * / // % & | ^ << >> == != < <= > >=".split():
                case("exact", f"a {sign} b", **columns)
            for name in ("min", "max"):
                case("zero", f"{name}(a, b)", **columns)
            case("exact", "where(a, a, b)", **columns)
            case("ulp", "atan2(a, b)", **columns)
            case("ulp", "hypot(a, b)", **columns)
            for name in ("fmod", "copysign", "nextafter"):
                case("exact", f"{name}(a, b)", **columns)


def powers():
    for left in DTYPES:
        for right in DTYPES:
            positive = [v for v in specials(right) if right in FLOATS or v >= 0]
            base = [v for v in specials(left)]
            rows = max(len(positive), len(base)) + 5
            values(f"base_{left}_{right}", left, [base[(k * 3 + k // len(base)) % len(base)] for k in range(rows)])
            values(f"exponent_{left}_{right}", right, [positive[k % len(positive)] for k in range(rows)])
            bound = "ulp" if np.result_type(DTYPES[left], DTYPES[right]).kind == "f" else "exact"
            case(bound, "a ** b", a=f"base_{left}_{right}", b=f"exponent_{left}_{right}")


def unary():
    for dtype in DTYPES:
        values(f"all_{dtype}", dtype, specials(dtype))
        column = f"all_{dtype}"
        for name in "floor ceil trunc round abs isnan isinf isfinite sqrt sign signbit".split():
            case("exact", f"{name}(a)", a=column)
        for sign in "+-~":
            case("exact", f"{sign}a", a=column)
        for name in UNARY[1:] + ARCS:
            case("ulp", f"{name}(a)", a=column)
        for exponent in ("2", "0.5", "-1.0", "1.0", "0.0", "2.0"):
            if dtype != "bool":
                case("exact", f"a ** {exponent}", a=column)
        for exponent in ("3", "3.0", "-2.5"):
            case("ulp" if dtype in FLOATS or "." in exponent else "exact", f"a ** {exponent}", a=column)
    for dtype in FLOATS:
        line = [k / 8 for k in range(-20, 21)]
        values(f"line_{dtype}", dtype, line)
        for name in UNARY + ARCS:
            case("exact" if name == "sqrt" else "ulp", f"{name}(a)", a=f"line_{dtype}")
        for name in "floor ceil trunc round".split():
            case("exact", f"{name}(a)", a=f"line_{dtype}")
        random = np.random.default_rng(7)
        wide = random.standard_normal(60) * np.exp(random.uniform(-20, 20, 60))
        values(f"wide_{dtype}", dtype, wide)
        for name in UNARY + ARCS:
            case("exact" if name == "sqrt" else "ulp", f"{name}(a)", a=f"wide_{dtype}")


def literals():
    numbers = "0 1 2 -1 7 100 127 128 -128 -129 200 255 256 65535 65536 70000 2147483648 4294967296".split()
    numbers += "0.1 -1.5 1e300 pi nan inf".split()
    for dtype in DTYPES:
        column = f"some_{dtype}"
        items = specials(dtype)
        values(column, dtype, items if dtype == "bool" else items[1::4] + items[-2:])
        for number in numbers + ["9223372036854775808", "18446744073709551615", "True"]:
            is_large = number in ("9223372036854775808", "18446744073709551615")
            # NumPy refuses these with bools and lets them wrap in `where`; here they are u64.
            if is_large and dtype == "bool":
                continue
            for sign in "+ - * / // % & << == < >=".split():
                case("exact", f"a {sign} {number}", a=column)
            case("exact", f"{number} - a" if dtype != "bool" else f"{number} * a", a=column)
            case("exact", f"{number} < a" if dtype != "bool" else f"{number} * a", a=column)
            case("zero", f"max(a, {number})", a=column)
            if not is_large:
                case("exact", f"where(a == a, {number}, {number})", a=column)
    for expression in (
        "a + 7 // 2", "a + -7 // 2", "a + -7 % 3", "a + 7 % -3", "a + 7.5 // -2", "a + 7.5 % -2", "a + 2 ** 3 ** 1",
        "a + -2 ** 2", "a + 2 ** -1", "a + 7 / 2", "a + (1 << 5)", "a + (-5 >> 1)", "a + (6 & 3 | 8 ^ 1)", "a + ~5",
        "a + (True + True)", "a + (3 < 4)", "a * -3.5", "a + 1_000", "a + 0x1f", "a + 0b11", "a + 0o17", "a + 1e-3",
        "a + .5", "a + 5.", "a + sqrt(2)", "a + abs(-3)", "a + min(1, 2)", "a + max(1, 2.5)", "a + f32(1)",
        "a + (a < 1) * 3", "a - 1 - 1", "a / 2 / 2", "a < 2 & 1", "-a ** 2", "2 ** a", "a * 2 + 1 << 1",
        "fmod(a, 3)", "fmod(-7, a)", "fmod(a, 2.5)", "copysign(a, -2)", "copysign(a, -2.5)", "copysign(-1, a)",
        "nextafter(a, 3)", "nextafter(1, a)", "a + fmod(-7, 4)", "a + sign(-3)", "a + copysign(3, -1)",
        "signbit(a - 2)", "sign(a - 2)",
    ):  # fmt: skip
        for dtype in ("i16", "i64", "f32", "f64"):
            values(f"few_{dtype}", dtype, [0, 1, 2, 3, 5, 11]) if f"few_{dtype}" not in VALUES else None
            bound = "ulp" if expression == "2 ** a" and dtype in FLOATS else "exact"
            case(bound, expression, a=f"few_{dtype}")


def casts():
    for dtype in DTYPES:
        for to in DTYPES:
            items = specials(dtype)
            if dtype in FLOATS and to not in FLOATS and to != "bool":
                info = np.iinfo(DTYPES[to])
                items = [v for v in items if v == v and info.min < DTYPES[dtype](v) < info.max]
                items = [v for v in items if float(DTYPES[dtype](v)) < 2.0**63]
            values(f"cast_{dtype}_{to}", dtype, items)
            case("exact", f"{to}(a)", a=f"cast_{dtype}_{to}")


def three():
    for dtype in DTYPES:
        for other in ("bool", "i8", "u16", "i64", "u64", "f32", "f64"):
            columns = pairs(dtype, other)
            case("exact", "where(a < b, a, b)", **columns)
            case("zero", "clip(a, b, a)", **columns)
            case("zero", "clip(a, 1, b)", **columns)
            case("exact", "where(b, 1, a)", **columns)
            case("exact", "where(b, a, 2.5)", **columns)
            case("zero", "min(a, b, a)", **columns)


def reductions():
    random, near = np.random.default_rng(11), np.random.default_rng(12)
    for dtype in DTYPES:
        columns = {"special": specials(dtype)}
        if dtype in FLOATS:
            columns["special"] = [v for v in specials(dtype) if abs(v) < 1e9]
            columns["nan"] = [3.0, 1.0, float("nan"), -1.0, float("nan"), 7.0]
            columns["inf"] = [3.0, float("inf"), 1.0]
            columns["infs"] = [-float("inf"), float("inf"), 1.0]
            columns["random"] = random.standard_normal(700) * 10 + 3
            # Their product has no overflow.
            columns["near"] = np.exp(near.standard_normal(700) / 9) * near.choice([1, -1], 700)
        elif dtype == "bool":
            columns["random"] = random.integers(0, 2, 700)
        else:
            info = np.iinfo(DTYPES[dtype])
            columns["random"] = random.integers(info.min, info.max, 700, dtype=DTYPES[dtype], endpoint=True)
        columns["one"] = [1]
        columns["zeros"] = [0] * 10
        columns["ties"] = [1, 0, 1, 0, 1, 1, 0] * 50
        for name, items in columns.items():
            column = f"{name}_{dtype}"
            values(column, dtype, items)
            for kind in "min max count any all argmin argmax".split():
                reduce("exact", f"{kind}(a)", a=column)
            for kind in ("sum", "prod"):
                reduce("close" if dtype in FLOATS else "exact", f"{kind}(a)", a=column)
            for kind in "mean var std".split():
                reduce("close", f"{kind}(a)", a=column)
            reduce("exact", "count(a == 1)", a=column)


operators()
powers()
unary()
literals()
casts()
three()
reductions()
with open("cases.txt", "w", encoding="ascii") as table:
    table.write(f"# Written by generate.py with NumPy {np.__version__}; see there.\n")
    table.write("\n".join(LINES) + "\n")
