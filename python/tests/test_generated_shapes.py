"""Random programs over arrays of one to four dimensions have the values, dtypes, shapes and errors of NumPy.

A program is the text of some statements. It is valid Python, so NumPy evaluates the same text, with the functions of
this file. Values are compared

- to the bit, where an operation has an exact result: arithmetic, comparisons, minima, counts, sums of integers,
  neighbours, windows, filters. 0 equals -0, because the least and the largest of all rows may be either;
- within a bound of the error, for sums of floats, whose order differs, for functions like `exp`, and for what is
  computed from these. `Near` carries the bound along. A program that would compare or round such a value is not used,
  because a small difference would become a large one.

Where NumPy raises, Overshot must raise. What docs/expressions.md says is refused must be refused.
"""

import operator
import re
from typing import Any

import numpy as np
import pytest

import overshot
from conftest import DEVICES

PROGRAMS = 5100
ERRORS = 900
PART = 300
DEVICE = DEVICES[-1]
# A GPU compiles each program.
OF_DEVICE = 4 if DEVICE in ("cpu", "emulated") else 30

DTYPES = {
    "bool": "?", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1", "u16": "u2", "u32": "u4", "u64": "u8",
    "f16": "f2", "f32": "f4", "f64": "f8",
}  # fmt: skip
SHIFTS = [1, 1, -1, 2, -3, 17, 700, -5000]
REFUSED = (ValueError, TypeError, IndexError, NameError)  # never a panic, `RuntimeError` or a wrong result

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


class UnknownError(Exception):
    """The bound of an error says nothing about the result of this operation."""


class Near:
    """An array of floats with a bound of the error of each element."""

    __array_ufunc__ = None  # an array leaves its operators to this class

    def __init__(self, value: Any, error: Any) -> None:
        self.value = np.asarray(value)
        last_bit = np.finfo(self.value.dtype).eps * np.abs(self.value.astype("f8"))
        smallest = float(np.finfo(self.value.dtype).smallest_subnormal)
        # Rounded in the dtype once here and once there.
        bound = np.asarray(error, "f8") + 2 * last_bit + 2 * smallest
        # Infinities and NaN are what they are, unless nothing is known.
        self.error = np.where(np.isfinite(self.value), bound, np.where(np.asarray(error) == np.inf, np.inf, 0))

    shape = property(lambda self: self.value.shape)
    dtype = property(lambda self: self.value.dtype)
    ndim = property(lambda self: self.value.ndim)

    def _both(self, other: Any, operation: Any, error: Any, *, turned: bool = False) -> "Near":
        a, b = (other, self) if turned else (self, other)
        (x, dx), (y, dy) = parts(a), parts(b)
        value = operation(x, y)
        if np.asarray(value).dtype.kind != "f":
            raise UnknownError
        big = [np.abs(np.asarray(v).astype("f8")) for v in (x, y, value)]
        return Near(value, error(*big, dx, dy))

    def __add__(self, other: Any) -> "Near":
        return self._both(other, operator.add, lambda x, y, v, dx, dy: dx + dy)

    def __radd__(self, other: Any) -> "Near":
        return self._both(other, operator.add, lambda x, y, v, dx, dy: dx + dy, turned=True)

    def __sub__(self, other: Any) -> "Near":
        return self._both(other, operator.sub, lambda x, y, v, dx, dy: dx + dy)

    def __rsub__(self, other: Any) -> "Near":
        return self._both(other, operator.sub, lambda x, y, v, dx, dy: dx + dy, turned=True)

    def __mul__(self, other: Any) -> "Near":
        return self._both(other, operator.mul, product_error)

    def __rmul__(self, other: Any) -> "Near":
        return self._both(other, operator.mul, product_error, turned=True)

    def __truediv__(self, other: Any) -> "Near":
        return self._both(other, operator.truediv, quotient_error)

    def __rtruediv__(self, other: Any) -> "Near":
        return self._both(other, operator.truediv, quotient_error, turned=True)

    def __neg__(self) -> "Near":
        return Near(-self.value, self.error)

    def __getitem__(self, rows: Any) -> "Near":
        if isinstance(rows, Near):
            raise UnknownError
        return Near(self.value[rows], self.error[rows])

    def _unknown(self, *_: Any) -> Any:
        raise UnknownError

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _unknown  # type: ignore[assignment]
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _unknown
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _unknown
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _unknown
    __hash__ = None  # type: ignore[assignment]


def product_error(x: Any, y: Any, v: Any, dx: Any, dy: Any) -> Any:
    # An infinite factor makes the product infinite or NaN, and `Near` gives these no error.
    return x * dy + y * dx + dx * dy


def quotient_error(x: Any, y: Any, v: Any, dx: Any, dy: Any) -> Any:
    # Nothing is known where the divisor may be zero.
    return np.where(dy < y, (dx + v * dy) / np.where(dy < y, y - dy, 1), np.where(dy == 0, 0, np.inf))


def parts(a: Any) -> tuple[Any, Any]:
    return (a.value, a.error) if isinstance(a, Near) else (a, 0.0)


def exact(*arguments: Any) -> None:
    if any(isinstance(a, Near) for a in arguments):
        raise UnknownError


# The functions of the language, in NumPy.


def of_exact(function: Any) -> Any:
    def call(*arguments: Any, **options: Any) -> Any:
        exact(*arguments)
        return function(*arguments, **options)

    return call


def near(function: Any) -> Any:
    """A function whose result is within a few units in the last place, computed in `f64`."""

    def call(*arguments: Any) -> Any:
        exact(*arguments)
        dtype = function(*[narrow(a)[:0] if np.ndim(a) else narrow(a) for a in arguments]).dtype
        value = function(*[np.asarray(a).astype("f8") for a in arguments])
        return Near(value.astype(dtype), 2 * np.finfo(dtype).eps * np.abs(value))

    return call


def narrow(a: Any) -> Any:
    """Float functions of `bool`, `i8` and `u8` give `f32` and not `f16`."""
    return np.asarray(a).astype("f4") if getattr(a, "dtype", None) in (np.bool_, np.int8, np.uint8) else a


def smaller(a: Any, b: Any) -> Any:
    return extreme(np.minimum, a, b)


def larger(a: Any, b: Any) -> Any:
    return extreme(np.maximum, a, b)


def extreme(function: Any, a: Any, b: Any) -> Any:
    (x, dx), (y, dy) = parts(a), parts(b)
    value = np.asarray(function(x, y))
    # Of 0 and -0 the first one.
    value = np.where(np.equal(x, y), np.asarray(x).astype(value.dtype), value)
    if isinstance(a, Near) or isinstance(b, Near):
        return Near(value, np.maximum(dx, dy))
    return value


def fits(number: Any, array: Any) -> None:
    """A number of the text that does not fit the dtype of the array is refused; for `where`, NumPy lets it wrap."""
    if type(number) is int and hasattr(array, "dtype") and array.dtype.kind in "iu":
        array.dtype.type(number)


def where(condition: Any, a: Any, b: Any) -> Any:
    exact(condition)
    (x, dx), (y, dy) = parts(a), parts(b)
    fits(x, y)
    fits(y, x)
    value = np.where(condition, x, y)
    if isinstance(a, Near) or isinstance(b, Near):
        if value.dtype.kind != "f":
            raise UnknownError
        return Near(value, np.where(condition, dx, dy))
    return value


def absolute(a: Any) -> Any:
    return Near(np.abs(a.value), a.error) if isinstance(a, Near) else np.abs(a)


def cast(to: str) -> Any:
    def call(a: Any) -> Any:
        target = np.dtype(DTYPES[to])
        if isinstance(a, Near):
            if target.kind != "f":
                raise UnknownError
            return Near(a.value.astype(target), a.error)
        a = np.asarray(a)
        if a.dtype.kind == "f" and target.kind in "iu":
            # NaN becomes 0, and what is out of range the nearest number.
            info = np.iinfo(target)
            low, high = a.astype("f8") <= float(info.min), a.astype("f8") >= float(info.max)
            inner = np.where(np.isnan(a) | low | high, 0, a).astype(target)
            return np.where(low, target.type(info.min), np.where(high, target.type(info.max), inner))
        if a.dtype.kind in "iu" and to == "f16":
            return a.astype("f4").astype("f2")
        return a.astype(target)

    return call


def reduction(name: str) -> Any:
    plain = {
        "sum": np.sum, "prod": np.prod, "mean": np.mean, "var": np.var, "std": np.std, "min": np.min, "max": np.max,
        "argmin": np.argmin, "argmax": np.argmax, "any": np.any, "all": np.all, "count": np.count_nonzero,
    }[name]  # fmt: skip

    def call(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        x, dx = parts(a)
        options = {"axis": axis, "keepdims": keepdims}
        if name in ("any", "all", "count", "argmin", "argmax"):
            exact(a)
            if name[0] == "a" and isinstance(axis, tuple) and name.startswith("arg"):
                # The number of the element in what is reduced, which is all of the last axes.
                kept = x.shape[: x.ndim - len(axis)]
                value = plain(x.reshape(*kept, int(np.prod(x.shape[len(kept) :]))), axis=-1)
                return value.reshape(kept + (1,) * len(axis)) if keepdims else value
            return np.asarray(plain(x, **options))
        if name in ("min", "max"):
            value = plain(x, **options)
            return Near(value, np.max(a.error, **options)) if isinstance(a, Near) else value
        value = plain(x, **options)
        if name in ("sum", "prod") and value.dtype.kind != "f":
            return value
        wide = np.asarray(x).astype(np.longdouble)
        n = np.size(x) / max(np.size(value), 1)
        eps = np.finfo("f8").eps
        if name == "sum":
            error = np.sum(np.abs(wide), **options) * n * eps + np.sum(np.broadcast_to(dx, wide.shape), **options)
        elif name == "mean":
            error = np.mean(np.abs(wide), **options) * n * eps + np.mean(np.broadcast_to(dx, wide.shape), **options)
        elif isinstance(a, Near):
            raise UnknownError
        elif name == "prod":
            error = np.abs(np.prod(wide, **options)) * n * eps
            # Where a product overflows or becomes 0 on the way, in some order, nothing is known.
            size = np.abs(np.where(np.isfinite(wide) & (wide != 0), wide, 1))
            ways = [np.sum(np.log2(limit(size, 1)), **options) for limit in (np.maximum, np.minimum)]
            error = np.where((ways[0] > 1000) | (ways[1] < -1000), np.inf, error)
        else:
            # The error of a variance is relative to the squares; that of its root, to their root.
            error = np.max(np.abs(wide), initial=0, **options) ** 2 * n * eps
            root = np.std(wide, **options)
            if name == "std":
                error = np.where(root**2 > error, error / np.where(root > 0, root, 1), np.sqrt(error))
        value = plain(wide, **options).astype(value.dtype)
        return Near(value, np.asarray(error).astype("f8"))

    return call


def one_or_two(one: Any, two: Any) -> Any:
    def call(*arguments: Any, **options: Any) -> Any:
        if len(arguments) == 1:
            return one(arguments[0], **options)
        result = arguments[0]
        for argument in arguments[1:]:
            result = two(result, argument)
        return result

    return call


def padded(x: np.ndarray, by: int, border: Any) -> np.ndarray:
    """`x` with as many rows more at both ends."""
    if isinstance(border, float) and np.isnan(border) and x.dtype.kind != "f":
        raise TypeError("only floats have a NaN")
    fits(border, x)
    dtype = x.dtype if isinstance(border, str) else np.where(x[:0] == 0, x[:0], border).dtype
    if len(x) == 0:
        return np.zeros((2 * by, *x.shape[1:]), dtype)
    rows = np.arange(-by, len(x) + by)
    inside = np.clip(rows, 0, len(x) - 1) if border != "wrap" else rows % len(x)
    result = x[inside].astype(dtype)
    if not isinstance(border, str):
        result[(rows < 0) | (rows >= len(x))] = border
    return result


def shift(a: Any, by: int, border: Any) -> Any:
    if isinstance(a, Near):
        return Near(shift(a.value, by, border), shift(a.error, by, border if isinstance(border, str) else 0.0))
    width = abs(by)
    return padded(a, width, border)[width - by :][: len(a)]


def diff(a: Any, border: Any) -> Any:
    return a - shift(a, 1, border)


def moving(name: str) -> Any:
    def call(x: Any, rows: int, border: Any) -> Any:
        exact(x)
        around = padded(x, rows, border)
        dtype = getattr(np, name)(np.zeros(1, around.dtype)).dtype
        if len(x) == 0:
            return np.zeros(x.shape, dtype)
        windows = np.lib.stride_tricks.sliding_window_view(around[1:], rows, axis=0)[: len(x)]
        if name in ("min", "max"):
            return getattr(np, name)(windows, axis=-1)
        # From the oldest row to the newest.
        wide = "f8" if dtype.kind == "f" else dtype
        sums = np.add.accumulate(windows.astype(wide), axis=-1)[..., -1]
        return (sums / rows if name == "mean" else sums).astype(dtype)

    return call


def quantile(x: Any, q: float) -> Any:
    exact(x)
    if np.asarray(x).dtype == np.bool_ or not np.all(np.isfinite(x)) or np.size(x) == 0:
        raise UnknownError
    value = np.asarray(np.quantile(x, q))
    # The two values beside it may differ by more than their dtype holds.
    wide = np.asarray(np.quantile(np.asarray(x).astype(np.longdouble), q), "f8")
    return Near(wide.astype(value.dtype), 4 * np.finfo("f8").eps * np.max(np.abs(np.asarray(x).astype("f8"))))


def topk(x: Any, k: int) -> Any:
    exact(x)
    if np.size(x) < k:
        raise UnknownError
    return np.sort(x, axis=None)[::-1][:k]  # NaN is the largest


def histogram(x: Any, bins: int, low: float, high: float) -> Any:
    exact(x)
    if np.asarray(x).dtype == np.bool_:
        raise UnknownError
    return np.histogram(x, bins, (low, high))[0]


def bincount(k: Any, n: int) -> Any:
    exact(k)
    if not np.all((0 <= k) & (k < n)):
        raise UnknownError
    return np.bincount(np.asarray(k).astype("i8").ravel(), minlength=n)


def rand(shape: tuple[int, ...]) -> Any:
    return lambda seed: np.random.Generator(np.random.Philox(key=seed)).random(shape)


def cumsum(x: Any) -> Any:
    exact(x)
    dtype = np.cumsum(x[:0]).dtype
    if dtype.kind != "f":
        return np.cumsum(x)
    wide = x.astype(np.longdouble)
    error = np.cumsum(np.abs(wide)) * len(x) * np.finfo("f8").eps
    return Near(np.cumsum(wide).astype(dtype), error.astype("f8"))


FUNCTIONS: dict[str, Any] = {
    "where": where, "abs": absolute, "clip": of_exact(np.clip), "shift": shift, "diff": diff, "cumsum": cumsum,
    "quantile": quantile, "median": lambda x: quantile(x, 0.5), "topk": topk, "histogram": histogram,
    "bincount": bincount,
    "min": one_or_two(reduction("min"), smaller), "max": one_or_two(reduction("max"), larger),
    "sqrt": of_exact(lambda a: np.sqrt(narrow(a))), "signbit": of_exact(lambda a: np.signbit(a) & ~np.isnan(a)),
    "atan2": near(lambda a, b: np.arctan2(narrow(a), narrow(b))),
    "hypot": near(lambda a, b: np.hypot(narrow(a), narrow(b))),
    "edge": "edge", "wrap": "wrap", "nan": np.nan, "inf": np.inf,
}  # fmt: skip
FUNCTIONS |= {name: reduction(name) for name in "sum prod mean var std argmin argmax any all count".split()}
FUNCTIONS |= {f"moving_{name}": moving(name) for name in ("sum", "mean", "min", "max")}
FUNCTIONS |= {name: cast(name) for name in DTYPES}
SAME = "floor ceil trunc round sign isnan isfinite isinf".split()
FUNCTIONS |= {name: of_exact(getattr(np, name)) for name in SAME}
SMOOTH = "exp expm1 sin cos tanh cbrt log1p exp2".split()
FUNCTIONS |= {name: near(getattr(np, name)) for name in SMOOTH}
# A rounded bool is a bool, and no float of 16 bits.
FUNCTIONS["round"] = of_exact(lambda a: a if getattr(a, "dtype", None) == np.bool_ else np.round(a))
FUNCTIONS |= {"atan": near(np.arctan), "asinh": near(np.arcsinh), "log": near(np.log)}


class Program:
    """A random program: its arrays, its text, and what NumPy says."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng([14, seed])
        self.given: dict[str, Any] = {}
        self.values: dict[str, Any] = {}
        self.statements: list[str] = []
        self.expected: dict[str, Any] = {}
        self.rows: list[str] = []  # names of values of the full shape
        self.columns: list[str] = []  # with one element of each row, in as many dimensions
        self.small: list[str] = []  # with one row for all rows
        self.single: list[str] = []  # with one element of each row, in one dimension
        self.of_rows: list[str] = []  # statements with a value for each row
        self.neighbours = False
        kind = self.random.choice(["same", "line", "table", "within", "kept"], p=[0.2, 0.2, 0.25, 0.2, 0.15])
        self.kind = str(kind)
        getattr(self, self.kind)()
        self.expected = self.unread()

    # Choices.

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def one(self, items: Any) -> Any:
        return items[self.random.integers(len(items))]

    def shape(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        rank = self.one(ranks)
        if rank == 1:
            return (int(self.one([0, 1, 2, 7, 100, 4096, 4097, 9001, 20_000])),)
        row = tuple(int(self.one([1, 2, 3, 5, 8])) for _ in range(rank - 1))
        if self.chance(0.1):
            row = (*row[:-1], int(self.one([33, 256, 300])))
        large = 20_000 // int(np.prod(row))
        rows = self.one([0, 1, 2, 3, 5, 8, 40, 200, large])
        return (int(rows), *row)

    def array(self, shape: tuple[int, ...], dtype: str | None = None) -> np.ndarray:
        dtype = DTYPES[dtype or str(self.one(list(DTYPES)))]
        r = self.random
        if dtype == "?":
            x = r.random(shape) < 0.5
        elif dtype[0] == "f":
            x = r.normal(1, 3, shape) if self.chance(0.6) else r.integers(-8, 9, shape).astype("f8")
            if self.chance(0.15):
                x[r.random(shape) < 0.1] = self.one([np.nan, np.inf, -np.inf])
        elif self.chance(0.1):
            info = np.iinfo(dtype)
            x = r.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        else:
            x = r.integers(0 if dtype[0] == "u" else -5, 10, shape)
        x = x.astype(dtype)
        if self.chance(0.1):  # in another order, or with gaps
            return np.asfortranarray(x) if self.chance(0.5) else np.repeat(x, 2, axis=-1)[..., ::2]
        return x

    def add(self, group: list[str], shape: tuple[int, ...], dtype: str | None = None) -> str:
        name = "abcdefgh"[len(self.given)]
        self.given[name] = self.values[name] = self.array(shape, dtype)
        group.append(name)
        return name

    # Expressions. Each is evaluated when it is made, so that those that have no certain result are not used.

    def value(self, text: str) -> Any:
        return eval(text, FUNCTIONS, self.values)

    def number(self) -> str:
        return str(self.one(["0", "1", "2", "3", "7", "-1", "-2", "0.5", "2.25", "-1.5", "True"]))

    def leaf(self, names: list[str]) -> str:
        return str(self.one(names))

    def expression(self, names: list[str], depth: int) -> str:
        """A random expression of these values, and of numbers."""
        if depth == 0 or self.chance(0.1):
            return self.leaf(names)
        kind = self.random.integers(12)
        a = self.expression(names, depth - 1)
        b = self.expression(names, depth - 1) if self.chance(0.7) else self.number()
        if kind < 5:
            sign = self.one(["+", "-", "*", "+", "-", "*", "/", "//", "%"])
            if self.chance(0.2):
                a, b = b, a
            return f"({a} {sign} {b})" if self.chance(0.8) else f"{a} {sign} {b}"
        if kind == 5:
            return f"({a} {self.one(['<', '<=', '>', '>=', '==', '!='])} {b})"
        if kind == 6:
            return f"({a} {self.one(['&', '|', '^'])} {self.expression(names, depth - 1)})"
        if kind == 7:
            c = f"({self.expression(names, depth - 1)} {self.one(['<', '>='])} {self.one(['1', '2', '0.5'])})"
            return f"where({c}, {a}, {b})"
        if kind == 8:
            return f"{self.one(['min', 'max'])}({a}, {b})"
        if kind == 9:
            function = self.one([*SAME, "abs", "abs", "sqrt", "signbit"])
            return f"{function}({a})"
        if kind == 10:
            return f"{self.one([*SMOOTH, 'atan', 'asinh', 'log'])}({a})"
        return f"{self.one(list(DTYPES))}({a})"

    def certain(self, make: Any) -> str:
        """A text of `make` that NumPy evaluates, to a result that is certain."""
        for _ in range(100):
            text: str = make()
            try:
                value = self.value(text)
            except (UnknownError, TypeError, OverflowError, ZeroDivisionError):
                continue
            if isinstance(value, Near) and not np.all(np.isfinite(value.error)):
                continue
            return text
        raise AssertionError("no such expression was found")

    def row_text(self, names: list[str], shape: tuple[int, ...], *, depth: int | None = None) -> str:
        deep = int(self.random.integers(1, 4)) if depth is None else depth
        whole = [*self.rows, "i"] if self.kind == "line" else self.rows
        whole = whole if any(name in whole for name in names) else names

        def make() -> str:
            for _ in range(100):
                text = self.expression(names, deep)
                if self.neighbours and self.chance(0.6):
                    of = self.certain(lambda: self.expression(self.moving, deep))
                    text = self.neighbour(of, self.one([k for k in SHIFTS if abs(k) * np.prod(shape[1:]) < 50_000]))
                    if self.chance(0.5):
                        text = f"{self.leaf(names)} - {text}"
                # Of what reads a small array alone there is no value of rows.
                if any(name in re.findall(r"\w+", text) for name in whole):
                    return text
            raise AssertionError

        for _ in range(200):
            text = self.certain(make)
            if np.shape(self.value(text)) == shape:
                return text
        raise AssertionError(f"no expression of the shape {shape} was found")

    @property
    def moving(self) -> list[str]:
        """Names of values that differ from row to row."""
        return self.rows + self.columns

    def reads_rows(self, text: str) -> bool:
        read = re.findall(r"\b\w+\b", text)
        return any(name in read for name in (*self.rows, *self.columns, *self.single, "i"))

    def neighbour(self, text: str, by: int) -> str:
        border = self.one(["edge", "wrap", "nan", "0", "-1.5", "2"])
        rows = int(self.one([1, 2, 3, 8, 31]))
        return str(
            self.one(
                [
                    f"shift({text}, {by}, {border})",
                    f"diff({text}, {border})",
                    f"moving_{self.one(['sum', 'mean', 'min', 'max'])}({text}, {rows}, {border})",
                ]
            )
        )

    def condition(self, names: list[str], shape: tuple[int, ...]) -> str:
        def make() -> str:
            text = self.expression(names, int(self.random.integers(0, 3)))
            return f"({text} {self.one(['>', '<', '>='])} {self.one(['1', '0', '2'])})"

        for _ in range(100):
            text = self.certain(make)
            if np.shape(self.value(text)) == shape and self.reads_rows(text):
                return text
        raise AssertionError

    # Statements.

    def state(self, name: str, text: str, *, result: bool = False) -> None:
        self.statements.append(f"{name} = {text}")
        self.values[name] = self.value(text)
        self.expected[name] = self.values[name]
        if not result:
            self.of_rows.append(name)

    def unread(self) -> dict[str, Any]:
        """What is returned: results, and those values of rows that no other statement reads."""
        read = {name for statement in self.statements for name in re.findall(r"\w+", statement.split("=", 1)[1])}
        return {k: v for k, v in self.expected.items() if k not in self.of_rows or k not in read}

    def reduced(self, text: str, name: str, options: str = "", kinds: str = "", *, result: bool = True) -> bool:
        words = (kinds or "sum sum prod mean var std min max argmin argmax any all count").split()
        for _ in range(20):
            reduction = f"{self.one(words)}({text}{options})"
            shape = np.shape(self.value(text))
            if 0 in shape and re.match("min|max|arg", reduction) and ("axis" not in options or "axis=0" in options):
                continue  # a minimum of no rows: see `test_no_rows`
            try:
                value = self.value(reduction)
            except UnknownError:
                continue
            if isinstance(value, Near) and not np.all(np.isfinite(value.error)):
                continue
            self.state(name, reduction, result=result)
            return True
        return False

    def ranked(self, name: str, names: list[str], shape: tuple[int, ...]) -> None:
        """A value found by its rank, or counts."""

        def make() -> str:
            of = self.row_text(names, shape, depth=1)
            kind = self.random.integers(5)
            if kind == 4 and np.asarray(parts(self.value(of))[0]).dtype.kind in "iu":
                return f"bincount(({of}) % 5, 5)"
            texts = ["median({})", f"quantile({{}}, {self.random.integers(11) / 10})", "topk({}, 3)"]
            return str([*texts, "histogram({}, 7, -4, 9)"][kind % 4].format(of))

        for _ in range(20):
            try:
                self.value(text := make())
            except UnknownError:
                continue
            self.state(name, text, result=True)
            return

    def same(self) -> None:
        """Elements are rows: all arrays have one shape, and reductions reduce all elements."""
        shape = self.shape((1, 2, 3, 4))
        for _ in range(self.random.integers(1, 4)):
            self.add(self.rows, shape)
        names = list(self.rows)
        if self.chance(0.3):
            self.given["k"] = self.values["k"] = self.one([2, -1.5, np.float32(0.5), np.int16(3)])
            names.append("k")
        if self.chance(0.4) and self.reduced(self.row_text(names, shape), "r"):
            names += ["r"]
        if self.chance(0.3):
            m = self.condition(names, shape)
            self.statements.append(f"m = {m}")
            self.values["m"] = self.value(m)
            for name in ("y", "z")[: self.random.integers(1, 3)]:
                self.state(name, f"({self.row_text(names, shape)})[m]")
            return
        self.state("y", self.row_text(names, shape))
        if self.chance(0.5):
            self.reduced(self.row_text(names, shape), "s")
        if self.chance(0.2):
            self.ranked("v", names, shape)
        if self.chance(0.3):
            kept = f"({self.row_text(names, shape)})[{self.condition(names, shape)}]"
            if np.prod(self.value(kept).shape) > 0:
                self.reduced(kept, "t", kinds="sum prod mean var std min max any all count")

    def line(self) -> None:
        """One dimension: neighbours, windows, numbers of rows, running sums."""
        shape = self.shape((1,))
        for _ in range(self.random.integers(1, 3)):
            self.add(self.rows, shape)
        self.neighbours = self.chance(0.6)
        self.values |= {"i": np.arange(shape[0]), "rand": rand(shape)}
        names = [*self.rows, "i"] + ["rand(7)"] * self.chance(0.2)
        if self.chance(0.3):
            self.reduced(self.row_text(self.rows, shape), "r")
            names += [name for name in self.expected if name == "r"]
        text = self.row_text(names, shape)
        if self.chance(0.25):
            running = f"cumsum({self.row_text(names, shape, depth=1)})"
            try:
                value = self.value(running)
                if not isinstance(value, Near) or np.all(np.isfinite(value.error)):
                    text = running
            except UnknownError:
                pass
        if self.chance(0.3):
            self.state("y", f"({text})[{self.condition(self.rows, shape)}]")
        else:
            self.state("y", text)
        if self.chance(0.2):
            self.ranked("v", self.rows, shape)
        if self.chance(0.4) or not self.arguments():
            self.reduced(self.row_text(self.rows, shape), "s")

    def arrays(self, shape: tuple[int, ...]) -> None:
        """Arrays that are broadcast to the shape of a table."""
        self.add(self.rows, shape)
        row = shape[1:]
        if self.chance(0.4):
            self.add(self.rows, shape)
        if self.chance(0.4):
            self.add(self.columns, (shape[0],) + (1,) * len(row))
        if self.chance(0.6):
            part = tuple(d if self.chance(0.7) else 1 for d in row)
            small = self.one([row, (1, *row), row[-1:], part, (1,)])
            if self.kind != "kept" or small != shape[:1]:  # a condition that reads it has a value of it for each row
                self.add(self.small, small)
        self.values["i"] = np.arange(shape[0]).reshape((-1,) + (1,) * len(row))

    def everything(self) -> list[str]:
        return [*self.rows, *self.rows, *self.columns, *self.small]

    def table(self) -> None:
        """Broadcasting and reductions over the rows; results are used in later statements."""
        shape = self.shape((2, 3, 4))
        self.arrays(shape)
        if len(self.given) == 1:
            self.add(self.small, shape[-1:])
        names = self.everything()
        self.neighbours = self.chance(0.3)
        names += [name for name in ("i", "rand(7)") if self.chance(0.2)]
        self.values["rand"] = rand(shape)
        if self.chance(0.6):
            options = self.one([", axis=0", ", axis=0", ", axis=0, keepdims=True", ""])
            if self.reduced(self.row_text(names, shape), "r", options):
                names += ["r"]
                if self.chance(0.3):
                    self.state("q", self.certain(lambda: f"({self.expression(['r'], 1)})"), result=True)
        self.state("y", self.row_text(names, shape))
        for name in ("s", "t")[: self.random.integers(3)]:
            options = self.one([", axis=0", ", axis=0, keepdims=True", ""])
            self.reduced(self.row_text(names, shape), name, options)
        if self.chance(0.2):
            self.ranked("w", names, shape)
        if self.columns and self.chance(0.4):
            self.state("v", self.row_text(self.columns, self.values[self.columns[0]].shape))
        if self.columns and self.chance(0.4):
            self.reduced(self.leaf(self.columns), "u", kinds="sum prod mean var std min max any all count")

    def within(self) -> None:
        """Reductions within rows."""
        shape = self.shape((2, 3, 4))
        rank = len(shape)
        last = self.chance(0.4)
        if last:  # the arrays have one shape, and other axes than all of a row are possible
            for _ in range(self.random.integers(1, 3)):
                self.add(self.rows, shape)
            over = int(self.random.integers(1, rank))
        else:
            self.arrays(shape)
            over = rank - 1
        axes = tuple(range(rank - over, rank))
        written = [str(axes), str(tuple(a - rank for a in axes)), str(tuple(reversed(axes)))]
        if over == 1:
            written += ["-1", str(rank - 1)] * 3
        names = self.everything()
        kept = shape[: rank - over] + (1,) * over
        if self.reduced(self.row_text(names, shape), "r", f", axis={self.one(written)}, keepdims=True", result=False):
            assert self.values["r"].shape == kept
            self.columns.append("r")
            names.append("r")
            self.state("y", self.row_text(names, shape) if self.chance(0.7) else f"{names[0]} * r")
        if self.reduced(self.row_text(names, shape), "s", f", axis={self.one(written)}", result=False):
            self.single.append("s")
            if self.chance(0.4):
                self.state("t", self.row_text(["s"], shape[: rank - over], depth=2))
            elif self.chance(0.5) and over == rank - 1:
                self.reduced("s", "t", kinds="sum mean min max any all count")

    def kept(self) -> None:
        """Filters of whole rows, by an array with a value for each row or by what is reduced within rows."""
        shape = self.shape((2, 3))
        self.arrays(shape)
        names = self.everything()
        if self.chance(0.5) and shape[0] > 1:
            key = self.add(self.single, shape[:1])
            m = self.condition([key], shape[:1])
        else:
            axis = 1 if len(shape) == 2 else "(1, 2)"

            def make() -> str:
                of = self.row_text(names, shape, depth=1)
                return f"{self.one(['max', 'min', 'sum', 'count'])}({of}, axis={axis}) > {self.one(['1', '3'])}"

            m = self.certain(make)
        self.statements.append(f"m = {m}")
        self.values["m"] = self.value(m)
        self.state("y", f"({self.row_text(names, shape)})[m]")
        if self.chance(0.3):
            self.state("z", f"({self.row_text(names, shape)})[m]")
        if np.any(self.values["m"]) and "axis" not in m:
            for name in ("s", "t")[: self.random.integers(3)]:
                options = self.one(["", ", axis=0", ", axis=0, keepdims=True"])
                kept = f"({self.row_text(names, shape)})[m]"
                self.reduced(kept, name, options, kinds="sum prod mean var std min max any all count")

    def text(self) -> str:
        return "; ".join(self.statements)

    def arguments(self) -> dict[str, Any]:
        read = set(re.findall(r"\w+", self.text()))
        return {name: value for name, value in self.given.items() if name in read}

    def __str__(self) -> str:
        arrays = [f"{k}: {np.asarray(v).dtype}{np.shape(v)}" for k, v in self.arguments().items()]
        return f"{self.text()!r} of {', '.join(arrays)}"


def check(found: Any, expected: Any, what: str) -> int:
    """Compares, and returns how many elements have no bound of their error."""
    value, error = parts(expected)
    value = np.asarray(value)
    found = np.asarray(found)
    assert (found.shape, found.dtype) == (value.shape, value.dtype), what
    if not isinstance(expected, Near):
        np.testing.assert_array_equal(found, value, err_msg=what)
        return 0
    known = np.isfinite(error)
    # A value at the end of the range may be infinite in another order.
    edge = np.abs(value.astype("f8")) + np.where(known, error, 0) >= float(np.finfo(value.dtype).max) * 0.999
    known &= ~(edge & np.isfinite(value)) & ~(edge & np.isinf(value) & np.isfinite(found))
    finite = known & np.isfinite(value)
    np.testing.assert_array_equal(found[known & ~finite], value[known & ~finite], err_msg=what)
    apart = np.abs(found[finite].astype("f8") - value[finite].astype("f8"))
    assert np.all(apart <= error[finite]), f"{what}: {apart.max()} apart, of {error[finite][apart.argmax()]}"
    return int(np.count_nonzero(~known))


@pytest.fixture(scope="module")
def engines() -> Any:
    """Five for the CPU with chunks of different sizes, and one for another device with the smallest ones."""
    sizes = np.random.default_rng(5).integers(1, 200_000, 4)
    made = [overshot.Engine(device="cpu", chunk=int(size)) for size in (1, *sizes)]
    made.append(overshot.Engine(device=DEVICE, chunk=1))
    yield made
    for engine in made:
        engine.close()


def results(engine: overshot.Engine, program: Program) -> Any:
    return engine.evaluate(program.text(), program.arguments())


@pytest.mark.parametrize("part", range(PROGRAMS // PART))
def test_programs_have_the_results_of_numpy(engines: Any, part: int) -> None:
    several = elements = unknown = 0
    for seed in range(part * PART, (part + 1) * PART):
        program = Program(seed)
        found = results(engines[seed % 5], program)
        assert set(program.expected) == set(found), program
        for name, expected in program.expected.items():
            elements += int(np.prod(expected.shape))
            unknown += check(found[name], expected, f"{name} of program {seed}, {program}")
        several += any(device["chunks"] > 1 for device in found.report.to_dict()["devices"])
        if seed % OF_DEVICE == 0:
            for name, value in results(engines[5], program).items():
                np.testing.assert_array_equal(value, found[name], err_msg=f"{name} on the device, {seed}, {program}")
    # Else these programs show little.
    assert several > PART / 10
    assert unknown < elements / 100


def broken(seed: int) -> tuple[str, dict[str, Any], type[Exception]]:
    """A text and arrays for which NumPy raises this."""
    random = np.random.default_rng([41, seed])
    for attempt in range(1000):
        program = Program(100_000 + 1000 * seed + attempt)
        text, given = program.text(), dict(program.arguments())
        arrays = [name for name, value in given.items() if np.ndim(value) and np.size(value)]
        if not arrays or "rand" in text:
            continue
        name = arrays[random.integers(len(arrays))]
        x = given[name]
        kind = random.integers(7)
        if kind == 0:  # another length of one dimension
            axis = random.integers(x.ndim)
            given[name] = np.repeat(x, [2] * (x.shape[axis] - 1) + [1 + random.integers(1, 3)], axis=axis)
        elif kind == 1:  # an axis that the array has not, or that is named twice
            rank = x.ndim
            axes = [str(rank), str(-rank - 1), f"({rank - 1}, {rank})", f"({rank - 1}, {-1})", f"(-1, {rank - 1}, 7)"]
            text = f"e = sum({name}, axis={axes[random.integers(len(axes))]})"
            given = {name: x}
        elif kind == 2:  # a condition for another number of rows
            mask = random.random((len(x) + 1, *x.shape[1:])[: 1 + random.integers(x.ndim)]) < 0.5
            text, given = f"e = {name}[m]", {name: x, "m": mask}
        elif kind == 3:  # a number that the dtype does not hold
            number = ["-1", "-129", "300", "70000", "5000000000"][random.integers(5)]
            text = ["e = {} + {}", "e = {} // {}", "e = {} & {}", "e = min({}, {})", "e = where({0} > 1, {0}, {1})"][
                random.integers(5)
            ].format(name, number)
        elif kind < 6:  # an operation that the dtypes do not have
            text = f"e = {program.expression([name], 2)}"
        elif random.random() < 0.5:
            text = re.sub(rf"\b{name}\b", "unknown_name", text, count=1)
        else:
            text = text[: len(text) * 2 // 3].rstrip("; ")
        length = max(len(value) for value in given.values() if np.ndim(value))
        environment = FUNCTIONS | {"i": np.arange(length).reshape((-1,) + (1,) * (x.ndim - 1))} | given
        try:
            for statement in text.split("; "):
                word, _, expression = statement.partition(" = ")
                if not expression:
                    raise UnknownError
                environment[word] = eval(expression.strip(), {"__builtins__": {}}, environment)
        except (UnknownError, ZeroDivisionError):
            continue
        except Exception as error:
            return text, given, type(error)
    raise AssertionError


@pytest.mark.parametrize("part", range(ERRORS // PART))
def test_what_numpy_refuses_is_refused(engines: Any, part: int) -> None:
    kinds = set()
    for seed in range(part * PART, (part + 1) * PART):
        text, given, kind = broken(seed)
        kinds.add(kind.__name__)
        shapes = {name: np.shape(value) for name, value in given.items()}
        for engine in (engines[seed % 5], engines[5]):
            with pytest.raises(REFUSED) as error:
                pytest.fail(f"{text!r} of {shapes} is {engine.evaluate(text, given)}, but NumPy has a {kind.__name__}")
            assert str(error.value)
    assert {"ValueError", "AxisError", "IndexError", "TypeError", "OverflowError", "NameError", "SyntaxError"} <= kinds


@pytest.mark.parametrize("rows", [1, 3, 4, 50])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("y = x - mean(x, axis=1)", "keepdims=True"),
        ("sum(x, axis=(0, 1))", "leave out `axis`"),
        ("sum(x, axis=-2)", "write `axis=0`"),
        ("sum(v, axis=1)", "all dimensions but the first|arrays of 3"),
        ("s = sum(x, axis=1); t = sum(x, axis=0)", "in jobs of their own"),
        ("r = sum(x, axis=1, keepdims=True); s = sum(r, axis=1)", "does not have all elements of each row"),
        ("s = argmax(sum(x, axis=1))", "one element for each row"),
        ("s = sum(x * 2, axis=0); t = sum(w, axis=0)", "one element for each row"),
        ("y = x * mu; s = sum(mu)", "one row for all rows"),
        ("y = x * mu; z = mu + 1", "the same for all rows"),
        ("y = x[x > 0]; z = x", "filtered"),
        ("y = x[x > 0]; z = x[x > 1]", "one condition|filter"),
        ("argmin(x[x > 0])", "argmin"),
        ("y = (x * 2)[x > 0]; s = sum(x, axis=1)", "a filter keeps whole rows"),
        ("x + key[key > 0]", "filter|dimensions of a row"),
        ("shift(x[x > 0], 1, edge)", "shift"),
        ("shift(mean(x), 1, edge)", "shift"),
        ("shift(x, 1)", "needs a rule"),
        ("shift(x, 1.5, edge)", "shift"),
        ("shift(x, 65537, edge)", "65536"),
        ("moving_sum(x, 0, edge)", "256"),
        ("moving_sum(x, 257, edge)", "256"),
        ("diff(n, nan)", "no NaN"),
        ("shift(u, 1, -1)", "does not fit"),
        ("where(u > 2, u, 300)", "does not fit"),
        ("cumsum(x)", "one dimension"),
        ("cumsum(key[key > 0])", "cumsum|filter"),
        ("median(x, axis=0)", "axis"),
        ("sqrt(x, axis=0)", "is no reduction"),
        ("mean(x, keepdims=True)", "needs an axis"),
        ("mean(x, axis=n)", "an axis is a number"),
        ("y = v * part", "within each row"),
        # The other dimensions of `b * few` are those of a row of the job, and not (1, 2).
        ("y = v * few; z = b * few", "all dimensions"),
        ("y = v * few; s = sum(b * few)", "all dimensions"),
        ("y = v * few; s = sum(b * few, axis=0)", "all dimensions"),
        ("y = v * few; s = max(b * few, axis=(1, 2))", "all dimensions"),
        ("y = v * few; s = median(b * few)", "all dimensions"),
        ("y = v * few; s = histogram(b * few, 4, 0, 2)", "all dimensions"),
        ("y = x * 2; s = sum(w * one)", "all dimensions"),
    ],
)
def test_what_the_language_does_not_have_is_refused(engines: Any, text: str, problem: str, rows: int) -> None:
    given: dict[str, Any] = {
        "x": np.ones((rows, 4)), "key": np.ones(rows), "n": np.ones(rows, "i4"), "u": np.ones(rows, "u1"),
        "v": np.ones((rows + 1, 3, 2)), "w": np.ones((rows, 1)), "mu": np.ones(4), "part": np.ones((rows + 1, 1, 2)),
        "b": np.ones((rows + 1, 1, 1)), "few": np.ones(2), "one": np.ones(1),
    }  # fmt: skip
    given = {name: value for name, value in given.items() if name in re.findall(r"\w+", text)}
    for engine in (engines[0], engines[5]):
        with pytest.raises(ValueError, match=problem):
            engine.evaluate(text, given)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # What is a constant whatever the input is has no shape of its own.
        ("y = (x ** 0) * k", {"y": (4, 3)}),
        ("s = sum((x ** 0) * k)", {"s": 12}),
        ("y = isfinite(u) * k", {"y": (4, 3)}),
        ("y = (u >= -1) | (k > 0)", {"y": (4, 3)}),
        ("s = sum((u >= -1) | (k > 0))", {"s": 12}),
        ("y = shift(u != -1, 1, 0)", {"y": (4, 3)}),
        ("r = max(u, axis=1, keepdims=True); y = r > -2", {"y": (4, 1)}),
        ("r = max(u, axis=1); y = r > -2", {"y": (4,)}),
        ("s = sum(isfinite(u)[n > 0])", {"s": 12}),
        # Kept rows of one element keep their dimension, and kept elements have none.
        ("y = k[max(k, axis=1) > 0]", {"y": (4, 1)}),
        ("y = k[n > 0]; s = sum(k[n > 0], axis=0)", {"y": (4, 1), "s": (1,)}),
        ("y = k[k > 0]; s = sum(max(k, axis=1))", {"y": (4,), "s": 4}),
        ("s = sum(k[k > 0], axis=0)", {"s": 4}),
        ("y = k[index() > 1]; s = sum(k[index() > 1], axis=0)", {"y": (2, 1), "s": (1,)}),
        # All other dimensions are there.
        ("y = v * mu + w; s = sum(w * mu + v)", {"y": (4, 3, 2), "s": 48}),
        ("y = w * mu * nu; z = v * 2", {"y": (4, 3, 2)}),
    ],
)
def test_what_random_programs_found(text: str, expected: dict[str, Any]) -> None:
    given: dict[str, Any] = {
        "v": np.ones((4, 3, 2)), "w": np.ones((4, 1, 1)), "mu": np.ones(2), "u": np.ones((4, 3), "u2"),
        "k": np.ones((4, 1)), "n": np.ones(4), "x": np.ones((4, 3)), "nu": np.ones((3, 1)),
    }  # fmt: skip
    given = {name: value for name, value in given.items() if name in re.findall(r"\w+", text)}
    found: Any = overshot.evaluate(text, given)
    for name, value in expected.items():
        of = found[name]
        assert of.shape == value if isinstance(value, tuple) else of == value


def test_no_rows(engines: Any) -> None:
    """Reductions of no rows have the values of NumPy, and no value where NumPy raises."""
    for shape in ((0,), (0, 3), (0, 2, 5)):
        for axis in ("", ", axis=0"):
            names = "sum prod mean var std any all count min max argmin argmax".split()
            found = engines[0].evaluate("; ".join(f"{n}_ = {n}(x{axis})" for n in names), x=np.zeros(shape, "f4"))
            for name in names[:8]:
                expected = FUNCTIONS[name](np.zeros(shape, "f4"), axis=0 if axis else None)
                check(found[f"{name}_"], expected, name)
            assert [found[f"{name}_"] for name in names[8:]] == [None] * 4
