"""NumExpr's interface on Overshot's engine: `import overshot.numexpr as ne` replaces `import numexpr as ne`.

>>> import overshot.numexpr as ne
>>> a, b = np.arange(3), np.array([[0.5], [2.0]])
>>> ne.evaluate("2 * a + b ** 2")
array([[0.25, 2.25, 4.25],
       [4.  , 6.  , 8.  ]])

Kinds of numbers, casting, broadcasting, `out`, `order` and the reductions `sum prod min max` are those of NumExpr.
With `axis`, Overshot computes the elements, and NumPy reduces them. So it does for the running sums and products of
Blosc2's `evaluate`, `cumsum`, `cumprod`, `cumulative_sum` and `cumulative_prod`. Complex numbers and strings raise
`NotImplementedError`. NumExpr itself is not needed. `use_engine` chooses devices and limits of memory.
"""

from __future__ import annotations

import ast
import math
import os
import re
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from overshot import _core, _engine, _numexpr
from overshot._core import __version__

__all__ = [
    "E",
    "MAX_THREADS",
    "NumExpr",
    "__version__",
    "detect_number_of_cores",
    "detect_number_of_threads",
    "disassemble",
    "evaluate",
    "get_num_threads",
    "get_vml_version",
    "ncores",
    "nthreads",
    "print_versions",
    "re_evaluate",
    "set_num_threads",
    "set_vml_accuracy_mode",
    "set_vml_num_threads",
    "use_engine",
    "use_vml",
    "validate",
]

# Overshot reads these as they are; arrays of others are copied first.
_READ = {np.dtype(name) for name in "? i1 i2 i4 i8 u1 u2 u4 u8 f4 f8".split()}
_TYPES: dict[Any, str] = {bool: "bool", int: "long", float: "float", np.double: "double"}
_TYPES.update({np.bool_: "bool", np.int32: "int", np.int64: "long", np.float32: "float"})
_CASTS = {"i4": "i32", "i8": "i64", "f4": "f32", "f8": "f64", "b1": "bool"}
# They ignore NaN, as NumExpr does.
_OF_NUMPY: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply, "min": np.fmin, "max": np.fmax}
_RUNNING: dict[str, np.ufunc] = {
    name: np.add if name.endswith("sum") else np.multiply for name in _numexpr.RUNNING
}


class NumExpr:
    """An expression that is compiled once for arguments of certain kinds.

    `signature` has the name and the type of each argument: `bool`, `numpy.int32`, `numpy.int64`, `float` for 32 bits,
    `numpy.double` for 64. Without one, arguments are doubles, in the order of their names. An argument is converted to
    its type, if `casting` allows it.
    """

    def __init__(
        self, ex: Any, signature: Sequence[tuple[str, Any]] = (), sanitize: bool = True, **kwargs: Any
    ) -> None:
        options = _options(kwargs)
        tree = ex.tree if isinstance(ex, _numexpr.Symbol) else _parsed(ex, sanitize)[0]
        names = _numexpr.variables(tree)
        kinds = {name: _signed(name, kind) for name, kind in signature} or dict.fromkeys(names, "double")
        if set(kinds) != set(names):
            raise ValueError(f"input names ({list(kinds)}) don't match those found in expression ({list(names)})")
        self._prepare(tree, kinds, options)

    def _prepare(self, tree: ast.expr, kinds: dict[str, str], optimization: str) -> None:
        self.input_names = tuple(kinds)
        self._dtypes = tuple(_numexpr.DTYPES[kind] for kind in kinds.values())
        # Names of our own: those of the caller may be constants of Overshot, such as `e` and `pi`.
        own = {name: (f"x{i}", kind) for i, (name, kind) in enumerate(kinds.items())}
        self._translation = _numexpr.translate(tree, own, optimization)
        self._dtype = _numexpr.DTYPES[self._translation.kind]
        reduction = self._translation.reduction
        self._is_elementwise = reduction is None or reduction in _RUNNING or self._translation.axis is not None
        self._expressions: dict[Any, tuple[_core.Expression, list[tuple[int, str]]]] = {}

    def __call__(
        self, *args: Any, out: Any = None, order: str = "K", casting: Any = "safe", ex_uses_vml: bool = False
    ) -> Any:
        """Evaluates the expression."""
        return self._run([np.asarray(each) for each in args], out, order, casting)

    run = __call__

    def __repr__(self) -> str:
        return f"<overshot.numexpr.NumExpr {self.input_names}: {'; '.join(disassemble(self))}>"

    def _run(self, arrays: list[np.ndarray], out: Any, order: str, casting: Any) -> Any:
        if order not in ("K", "C", "F", "A"):
            raise ValueError(f"order must be one of 'C', 'F', 'A' or 'K', not {order!r}")
        if out is not None and not hasattr(out, "dtype"):
            raise TypeError(f"out is an array, or an object with a dtype that is assigned to, not {type(out).__name__}")
        if out is not None and not np.can_cast(self._dtype, out.dtype, casting):
            raise _cast_error("the result", self._dtype, out.dtype, casting)
        expression, inputs = self._expression(arrays, casting)
        shapes = {each.shape for each in arrays if each.shape}
        shape = shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)
        axis, reduction = self._translation.axis, self._translation.reduction or ""
        if axis is not None and axis >= len(shape):
            raise ValueError(f"reduction axis is out of bounds: an array of shape {shape} has {len(shape)} axes")
        if reduction in _OF_NUMPY and hasattr(out, "shape"):
            _check_reduced(out.shape, shape, axis)
        if not self._is_elementwise:
            results = _run(expression, _inputs(arrays, inputs, shape), [], shape)[0]
            return _delivered(self._reduced(dict(results)), out, casting)
        if axis is None and reduction not in _RUNNING and self._fits(out, arrays, shape):
            return _elements(expression, arrays, inputs, shape, out)
        result = _elements(expression, arrays, inputs, shape, _new(arrays, shape, self._dtype, order))
        if reduction in _RUNNING:
            result = _accumulated(reduction, result, axis)
        elif axis is not None:
            result = np.asarray(_OF_NUMPY[reduction].reduce(result, axis, self._dtype))
        return _delivered(result, out, casting)

    def _fits(self, out: Any, arrays: list[np.ndarray], shape: tuple[int, ...]) -> bool:
        """Returns whether the elements can be written into an output directly."""
        return (
            isinstance(out, np.ndarray)
            and (out.dtype, out.shape) == (self._dtype, shape)
            and out.flags.behaved
            and not any(np.may_share_memory(out, each) for each in arrays)
        )

    def _expression(self, arrays: list[np.ndarray], casting: Any) -> tuple[_core.Expression, list[tuple[int, str]]]:
        """Returns the expression for arrays of these dtypes, and its inputs: their number and their name."""
        dtypes = [each.dtype for each in arrays]
        key = (casting, *dtypes)
        if key in self._expressions:
            return self._expressions[key]
        if len(dtypes) != len(self._dtypes):
            raise ValueError(f"{len(dtypes)} arguments for {len(self._dtypes)} names: {', '.join(self.input_names)}")
        text = "; ".join(self._text())
        casts = []
        for i, (name, dtype, wanted) in enumerate(zip(self.input_names, dtypes, self._dtypes, strict=True)):
            _kind(name, dtype)
            if not np.can_cast(dtype, wanted, casting):
                raise _cast_error(name, dtype, wanted, casting)
            if dtype in _READ and dtype != wanted and re.search(rf"\bx{i}\b", text):
                casts.append(f"x{i} = {_CASTS[wanted.str[1:]]}(a{i})")
        expression = _core.Expression("; ".join([*casts, text]))
        found = [(int(name[1:]), name) for name in expression.inputs]
        self._expressions[key] = expression, found
        return expression, found

    def _text(self) -> list[str]:
        statements, text, _, reduction, _ = self._translation
        if self._is_elementwise:
            return [*statements, f"r = {text}"]
        if reduction in ("sum", "prod") or self._dtype.kind != "f":
            return [*statements, f"r = {reduction}({text})"]
        # Overshot's extremes are NaN if any value is, and those of NumExpr if all are.
        other = "inf" if reduction == "min" else "(-inf)"
        return [*statements, f"v = {text}", f"r = {reduction}(where(isnan(v), {other}, v))", "n = all(isnan(v))"]

    def _reduced(self, results: dict[str, Any]) -> np.ndarray:
        value = results["r"]
        if value is None:
            raise ValueError(f"{self._translation.reduction} of no elements has no value; pass one element or more")
        return np.asarray(np.nan if results.get("n", False) else value).astype(self._dtype)


def _accumulated(name: str, values: np.ndarray, axis: int | None) -> np.ndarray:
    if axis is None and values.ndim != 1:
        if name.startswith("cumulative"):
            raise ValueError(f"{name} of {values.ndim} dimensions needs an axis, as in {name}(a, axis=0)")
        values = values.reshape(-1)
    result: np.ndarray = _RUNNING[name].accumulate(values, axis or 0, values.dtype)
    return result


E: Any = _numexpr.Symbols()


class _Last(NamedTuple):
    names: tuple[str, ...]
    compiled: NumExpr
    out: Callable[[], Any] | None
    order: str
    casting: Any


# A thread, or a task of asyncio, evaluates its own last expression again.
_last: ContextVar[_Last] = ContextVar("overshot.numexpr")


def evaluate(
    ex: str,
    local_dict: Mapping[str, Any] | None = None,
    global_dict: Mapping[str, Any] | None = None,
    out: Any = None,
    order: str = "K",
    casting: Any = "same_kind",
    sanitize: bool | None = None,
    _frame_depth: int = 3,
    disable_cache: bool = False,
    **kwargs: Any,
) -> Any:
    """Evaluates an expression over arrays of any shapes that broadcast together.

    Names are keys of `local_dict` and `global_dict`, or variables of the caller. `out` is an array that gets the
    result, or an object that takes it with `out[...] = result`. `order` is that of the result in memory. `casting` says
    which conversions of arguments and of the result are allowed. `optimization` (`none`, `moderate`, `aggressive`)
    decides the type of a power by a constant, and `truediv` decides nothing. `sanitize` refuses `; : [`, names such as
    `__a__`, and attributes, with `ValueError`; nothing in a text is ever executed. `disable_cache` keeps the expression
    from `re_evaluate`.
    """
    frame = sys._getframe(_frame_depth - 2)
    last, arrays, out = _looked_up(ex, local_dict, global_dict, frame, out, order, casting, sanitize, kwargs)
    if not disable_cache:
        _last.set(last)
    return last.compiled._run(arrays, out, order, casting)


def validate(
    ex: str,
    local_dict: Mapping[str, Any] | None = None,
    global_dict: Mapping[str, Any] | None = None,
    out: Any = None,
    order: str = "K",
    casting: Any = "safe",
    _frame_depth: int = 2,
    sanitize: bool | None = None,
    **kwargs: Any,
) -> Exception | None:
    """Returns the error of an expression, or `None` if `re_evaluate` can run it."""
    frame = sys._getframe(_frame_depth - 1)
    try:
        _last.set(_looked_up(ex, local_dict, global_dict, frame, out, order, casting, sanitize, kwargs)[0])
    except Exception as error:
        return error
    return None


def re_evaluate(
    local_dict: Mapping[str, Any] | None = None, global_dict: Mapping[str, Any] | None = None, _frame_depth: int = 2
) -> Any:
    """Evaluates the last expression of this thread again, with the values that its names have now."""
    last = _last.get(None)
    if last is None:
        raise RuntimeError("no expression was evaluated before; call evaluate or validate first")
    arrays = _arguments(last.names, local_dict, global_dict, sys._getframe(_frame_depth - 1))
    return last.compiled._run(arrays, None if last.out is None else last.out(), last.order, last.casting)


def disassemble(nex: NumExpr) -> list[str]:
    """Returns the statements that Overshot runs; `x0`, `x1`, … are the arguments, converted to their kinds."""
    return nex._text()


def getExprNames(text: str, context: Mapping[str, Any], sanitize: bool = True) -> tuple[list[str], bool]:
    """Returns the names of an expression, and that it does not use VML."""
    return list(_parsed(text, sanitize)[1]), False


def _looked_up(
    ex: str,
    local_dict: Mapping[str, Any] | None,
    global_dict: Mapping[str, Any] | None,
    frame: FrameType,
    out: Any,
    order: str,
    casting: Any,
    sanitize: bool | None,
    kwargs: dict[str, Any],
) -> tuple[_Last, list[np.ndarray], Any]:
    if not isinstance(ex, str):
        raise ValueError(f"must specify expression as a string, not as {type(ex).__name__}")
    if sanitize is None:
        sanitize = bool(int(os.environ.get("NUMEXPR_SANITIZE", "1")))
    optimization = _options(kwargs) if kwargs else "aggressive"
    _, names, named = _parsed(ex, sanitize)
    if named is not None:
        if out is not None:
            raise ValueError(f"the output is given twice: as an argument, and as {named!r} in the text")
        # Not as an array of its values, because it is assigned to.
        *values, out = _variables((*names, named), local_dict, global_dict, frame)
        arrays = [np.asarray(each) for each in values]
    else:
        arrays = _arguments(names, local_dict, global_dict, frame)
    kinds = tuple([_kind(name, array.dtype) for name, array in zip(names, arrays, strict=True)])
    compiled = _compiled(ex, sanitize, optimization, kinds)
    # An array lives no longer because it was an output once.
    kept = None if out is None else _weak(out)
    return _Last(names, compiled, kept, order, casting), arrays, out


def _weak(out: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(out)
    except TypeError:  # it has __slots__
        return lambda: out


_parsed = lru_cache(maxsize=1024)(_numexpr.parse)


def _compile(ex: str, sanitize: bool, optimization: str, kinds: tuple[str, ...]) -> NumExpr:
    tree, names, _ = _parsed(ex, sanitize)
    compiled = NumExpr.__new__(NumExpr)
    compiled._prepare(tree, dict(zip(names, kinds, strict=True)), optimization)
    return compiled


_compiled = lru_cache(maxsize=1024)(_compile)


def _options(kwargs: dict[str, Any]) -> str:
    allowed = {"optimization": ("none", "moderate", "aggressive"), "truediv": (False, True, "auto")}
    for name, value in kwargs.items():
        if name not in allowed:
            raise ValueError(f"Unknown keyword argument '{name}'; the options are optimization and truediv")
        if value not in allowed[name]:
            raise ValueError(f"'{name}' must be one of {allowed[name]}")
    return str(kwargs.get("optimization", "aggressive"))


def _arguments(
    names: tuple[str, ...],
    local_dict: Mapping[str, Any] | None,
    global_dict: Mapping[str, Any] | None,
    frame: FrameType,
) -> list[np.ndarray]:
    return [np.asarray(each) for each in _variables(names, local_dict, global_dict, frame)]


def _variables(
    names: tuple[str, ...],
    local_dict: Mapping[str, Any] | None,
    global_dict: Mapping[str, Any] | None,
    frame: FrameType,
) -> list[Any]:
    local_names = frame.f_locals if local_dict is None else local_dict
    global_names = frame.f_globals if global_dict is None else global_dict
    try:
        return [local_names[name] if name in local_names else global_names[name] for name in names]
    except KeyError as error:
        message = f"{error.args[0]} is not defined: make a variable of this name, or add it to local_dict"
        raise KeyError(message) from None
    finally:
        # Before Python 3.13, the variables of a function are a copy, which would keep its arrays alive.
        if local_dict is None and frame.f_code.co_flags & 1 and isinstance(local_names, dict):
            local_names.clear()


def _kind_of(dtype: np.dtype[Any]) -> str | None:
    """Returns the kind of values of a dtype: integers of up to 16 bits are `int`, and `uint32` is `long`."""
    if dtype.kind == "b":
        return "bool"
    if dtype.kind in "iu":
        return "int" if dtype.itemsize < 4 or dtype.str[1:] == "i4" else "long"
    if dtype.kind == "f":
        return "float" if dtype.itemsize <= 4 else "double"
    return None


_kinds = lru_cache(maxsize=256)(_kind_of)


def _kind(name: str, dtype: np.dtype[Any]) -> str:
    kind = _kinds(dtype)
    if kind is not None:
        return kind
    if dtype.kind == "c":
        raise _numexpr.unsupported("complex numbers", name)
    if dtype.kind in "SU":
        raise _numexpr.unsupported("strings", name)
    raise ValueError(f"{name}: unknown type {dtype.name}; pass an array of numbers")


def _signed(name: str, kind: Any) -> str:
    if kind in _TYPES:
        return _TYPES[kind]
    return _kind(name, np.dtype(kind))


def _cast_error(name: str, dtype: Any, wanted: Any, casting: Any) -> TypeError:
    message = f"Cannot cast {name} from {dtype} to {wanted} according to the rule {casting!r}"
    return TypeError(f"{message}; convert it with astype, or pass casting='unsafe'")


def _new(arrays: list[np.ndarray], shape: tuple[int, ...], dtype: np.dtype[Any], order: str) -> np.ndarray:
    if order == "K":
        like = next((each for each in arrays if each.shape == shape), None)
        if like is not None and len(shape) > 1:
            return np.empty_like(like, dtype, subok=False)
    elif order == "A":
        order = "F" if all(each.flags.f_contiguous for each in arrays) else "C"
    return np.empty(shape, dtype, "F" if order == "F" else "C")


def _inputs(
    arrays: list[np.ndarray], inputs: list[tuple[int, str]], shape: tuple[int, ...], axes: Sequence[int] = ()
) -> list[tuple[str, Any]]:
    named = []
    for i, name in inputs:
        array = arrays[i]
        if array.dtype not in _READ:
            array = array.astype(_numexpr.DTYPES[_kind(name, array.dtype)])
        if array.shape:
            if array.shape != shape:
                array = np.broadcast_to(array, shape)
            array = array.transpose(axes) if axes else array
        named.append((name, array))
    return named


def _elements(
    expression: _core.Expression,
    arrays: list[np.ndarray],
    inputs: list[tuple[int, str]],
    shape: tuple[int, ...],
    result: np.ndarray,
) -> np.ndarray:
    if shape:
        # In the order of the result's memory, so that arrays of the same order are used in place.
        axes = sorted(range(len(shape)), key=lambda axis: -abs(result.strides[axis]))
        target = result.transpose(axes)
    else:
        axes, target = [], result.reshape(1)
    _run(expression, _inputs(arrays, inputs, shape, axes), [("r", target)], shape)
    return result


def _run(expression: _core.Expression, inputs: Any, outputs: Any, shape: tuple[int, ...]) -> Any:
    rows = 1
    for size in shape:
        rows *= size
    engine = _chosen or _engine._shared("auto", None, None, None, None)
    return engine._execute(expression, inputs, outputs, rows)


def _check_reduced(own: tuple[int, ...], shape: tuple[int, ...], axis: int | None) -> None:
    """Refuses the shape of an output that a reduction would be broadcast to."""
    if axis is None and math.prod(own) != 1:
        raise ValueError(f"out argument must have size 1 for a full reduction, and its shape is {own}")
    reduced = own if axis is None else shape[:axis] + shape[axis + 1 :]
    if own != reduced:
        raise ValueError(f"out has the shape {own}, and the reduction {reduced}; pass an array of that shape")


def _delivered(result: np.ndarray, out: Any, casting: Any) -> Any:
    if out is None:
        return result
    if isinstance(out, np.ndarray):
        np.copyto(out, result, casting)
    else:
        out[...] = result
    return out


_chosen: _engine.Engine | None = None
_threads = 0


def use_engine(engine: _engine.Engine | None) -> None:
    """Makes all evaluations run on an engine, with its devices and limits; `None` stands for the usual one."""
    global _chosen
    _chosen = engine


# NumExpr's limit, which programs set before they import it.
MAX_THREADS = int(os.environ.get("NUMEXPR_MAX_THREADS") or 64)


def set_num_threads(nthreads: int) -> int:
    """Sets the threads of every device, and returns those before. They belong to an engine of their own."""
    global _threads
    if not 1 <= nthreads <= MAX_THREADS:
        raise ValueError(f"the number of threads must be from 1 to {MAX_THREADS} (NUMEXPR_MAX_THREADS)")
    before = _threads
    if nthreads != before or _chosen is None:
        _threads = nthreads
        use_engine(_engine.Engine(workers=nthreads))
    return before


def get_num_threads() -> int:
    """Returns the number of threads; as long as none is set, the plan of a run chooses how many of them it uses."""
    return _threads


def detect_number_of_cores() -> int:
    """Returns the number of cores."""
    return os.cpu_count() or 1


def _init_num_threads() -> int:
    global _threads
    wanted = os.environ.get("NUMEXPR_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS")
    # OpenMP's variable may have a number for each level of nesting.
    first = (wanted or "").split(",")[0].strip()
    if first.isdecimal() and int(first) > 0:
        set_num_threads(min(int(first), MAX_THREADS))
    else:
        _threads = min(detect_number_of_cores(), MAX_THREADS, 16)
    return _threads


detect_number_of_threads = _init_num_threads

ncores = detect_number_of_cores()
nthreads = _init_num_threads()

# There is no VML; programs set its threads nevertheless.
use_vml = False


def get_vml_version() -> None:
    """Returns `None`: Overshot does not use VML."""


get_vml_num_threads = get_vml_version


def set_vml_accuracy_mode(mode: str | None) -> None:
    """Does nothing: Overshot does not use VML."""


def set_vml_num_threads(nthreads: int) -> None:
    """Does nothing: Overshot does not use VML."""


def print_versions() -> None:
    """Prints the versions of Overshot and NumPy, and the number of threads."""
    print(f"Overshot {__version__}, NumPy {np.__version__}, {get_num_threads()} threads, {ncores} cores")


# Programs reach some of these names through NumExpr's modules.
utils = necompiler = sys.modules[__name__]
