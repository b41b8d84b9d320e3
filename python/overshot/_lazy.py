"""Lazy arrays: NumPy's operators and functions that become one expression."""

from __future__ import annotations

import functools
import math
import operator
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from overshot import _core, _engine
from overshot._columns import column, gpu_array
from overshot._dtypes import name_of

_BINARY = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "true_divide": "/",
    "floor_divide": "//",
    "remainder": "%",
    "power": "**",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "left_shift": "<<",
    "right_shift": ">>",
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_OF_ONE = (
    "absolute arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil cos cosh exp exp2 expm1 floor isfinite isinf "
    "isnan log log10 log1p log2 sign signbit sin sinh sqrt tan tanh trunc"
).split()
_OF_TWO = ("arctan2", "copysign", "fmod", "hypot", "maximum", "minimum", "nextafter")

# The expression of each ufunc of NumPy, with a place for each argument.
_UFUNCS: dict[np.ufunc, str] = {getattr(np, name): f"({{}} {sign} {{}})" for name, sign in _BINARY.items()}
_UFUNCS.update({getattr(np, name): f"{name}({{}})" for name in _OF_ONE})
_UFUNCS.update({getattr(np, name): f"{name}({{}}, {{}})" for name in _OF_TWO})
_UFUNCS.update(
    {
        np.negative: "(-{})",
        np.positive: "(+{})",
        np.invert: "(~{})",
        # Integers become floats, as in NumPy.
        np.rint: "round({} * 1.0)",
        np.logical_and: "(bool({}) & bool({}))",
        np.logical_or: "(bool({}) | bool({}))",
        np.logical_xor: "(bool({}) ^ bool({}))",
        np.logical_not: "(~bool({}))",
    }
)


def _square(x: Any) -> Any:
    # NumPy computes with 8 bits for bools.
    return (x.astype("int8") if x.dtype == np.bool_ else x) * x


def _reciprocal(x: Any) -> Any:
    # The kind of bfloat16 is "V".
    if x.dtype.kind in "biu":
        raise _unsupported("numpy.reciprocal of integers", ())
    return 1 / x


def _logaddexp(x: Any, y: Any) -> Any:
    # Differences of integers overflow, and that of two equal infinities is NaN.
    x, y = x * 1.0, y * 1.0
    distance = np.where(x == y, 0.0, abs(x - y))
    return np.maximum(x, y) + np.log1p(np.exp(-distance))


# Those that several operations make.
_COMPOSED: dict[np.ufunc, Callable[..., Any]] = {
    np.square: _square,
    np.reciprocal: _reciprocal,
    np.logaddexp: _logaddexp,
}

# Keys that pick elements by their place, beside arrays of integers. Masks are filters of the language.
_KEYS = (int, np.integer, slice, type(None), type(...))

_REDUCTIONS = ("sum", "prod", "mean", "min", "max", "var", "std", "any", "all", "argmin", "argmax")
_REDUCING_UFUNCS: dict[np.ufunc, str] = {
    np.add: "sum",
    np.multiply: "prod",
    np.minimum: "min",
    np.maximum: "max",
    np.logical_and: "all",
    np.logical_or: "any",
}

# A filter, whose second argument is the condition.
_FILTER = "{}[{}]"
# Functions of one dimension that look at other rows: views cannot be moved to what they read.
_OF_SEVERAL_ROWS = ("cumsum(", "shift(")
# Rows that are wider than this are better read as columns.
_WIDEST_ROW = 1 << 18


class _Step(NamedTuple):
    """An operation on whole arrays: a job computes it, and its value is an input of the jobs that come after."""

    # NumPy's function, which says what the dtype is.
    name: str
    text: str
    # If rows are reduced to one, or each row to a value: the axes of NumPy.
    axis: tuple[int, ...] | None = None
    # Its value has rows, as those of elementwise operations, and is not a result of all of them.
    is_rows: bool = False


class _View(NamedTuple):
    """A function of NumPy that picks, orders or repeats elements of an array, or of several, computed before."""

    function: Callable[..., Any]


PRODUCT_OVER_ROWS = "({}).T @ ({})"
PRODUCT_WITH_MATRIX = "({}) @ ({})"

# Threads may share lazy arrays: it is held while arrays are read that may get their values, and not while jobs run.
state_lock = threading.RLock()
os.register_at_fork(after_in_child=state_lock._at_fork_reinit)  # type: ignore[attr-defined]

# Computes an array before what uses it.
_own = _View(operator.methodcaller("view"))


class Array(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that is not computed yet: an expression over arrays and files.

    NumPy's operators and functions on it build the expression. It is computed, in as few passes over the data as
    possible, by `numpy.asarray`, `float`, or `overshot.compute`, which computes several at once:

    >>> x = ov.array(np.arange(4.0))
    >>> y = np.sqrt(x * x + 1)
    >>> y
    <overshot.Array of shape (4,): sqrt(((a0 * a0) + 1))>
    >>> np.asarray(y)
    array([1.        , 1.41421356, 2.23606798, 3.16227766])
    >>> ov.compute(y.max(), (x - x.mean()) / x.std())
    (np.float64(3.1622776601683795), array([-1.34164079, -0.4472136 ,  0.4472136 ,  1.34164079]))
    """

    __slots__ = ("_arguments", "_dtype", "_form", "_mask", "_shape", "_value")

    def __init__(
        self,
        form: str | _Step | _View,
        arguments: tuple[Any, ...],
        shape: tuple[Any, ...],
        value: Any = None,
        mask: Array | None = None,
    ) -> None:
        # An input has no form.
        self._form = form
        self._arguments = arguments
        self._value = value
        # The condition of the rows that are kept. Their number is not known before they are computed, and is `None`.
        self._mask = mask
        self._dtype: np.dtype[Any] | None = None
        self._shape = shape

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape. That of a filtered array is known from its values only, so it is computed."""
        return _known(self)._shape

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def device(self) -> str:
        """Where the standard puts the array. The devices that compute it are a setting of `overshot.compute`."""
        return "cpu"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values, which are not computed for it."""
        with state_lock:
            return self._known_dtype()

    def _known_dtype(self) -> np.dtype[Any]:
        # From the operands up, and without recursion, because expressions may be deep.
        stack = [self]
        while stack:
            node = stack.pop()
            if node._dtype is None:
                operands = node._arguments if node._value is None else ()
                waiting = [each for each in operands if isinstance(each, Array) and each._dtype is None]
                if waiting:
                    stack += [node, *waiting]
                elif node._value is not None:
                    node._dtype = np.dtype((gpu_array(node._value) or node._value).dtype)
                elif isinstance(node._form, _View) or node._form == _FILTER:
                    node._dtype = operands[0]._dtype
                else:
                    dtypes = (each._dtype if isinstance(each, Array) else each for each in operands)
                    node._dtype = _dtype_of(node._form, *dtypes)
        assert self._dtype is not None
        return self._dtype

    def astype(self, dtype: Any, *, copy: bool = True) -> Array:
        """The values, converted. Lazy arrays are never written to, so that there is no need for a copy."""
        name = name_of(dtype)
        short = {"bool": "bool", "bfloat": "bf", "float": "f", "uint": "u", "int": "i"}
        kind = next((kind for kind in short if name.startswith(kind)), None)
        if kind is None:
            raise TypeError(f"lazy arrays have no values of dtype {name}")
        return _of(f"{short[kind]}{name[len(kind) :] if kind != 'bool' else ''}({{}})", self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a lazy array has to be computed: copy=False is not possible")
        from overshot import _lazy_jobs

        value = np.asarray(_lazy_jobs.compute(self)[0], dtype)
        # NumPy does not copy what this returns, also where it was asked to.
        return value.copy() if copy else value

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        from overshot import array_api

        if api_version is not None and not "2021.12" <= api_version <= array_api.__array_api_version__:
            own = array_api.__array_api_version__
            raise ValueError(f"version {api_version} of the array API is not supported; the latest that is is {own}")
        return array_api

    def to_device(self, device: Any, /, *, stream: Any = None) -> Array:
        if device != "cpu" or stream is not None:
            raise ValueError("lazy arrays are on 'cpu', without streams; overshot.compute(x, device=...) computes them")
        return self

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        if stream is not None or dl_device not in (None, (1, 0)):
            raise BufferError("lazy arrays are computed into the memory of the host, without streams")
        # Memory maps and repeated elements are read-only, which only newer consumers know.
        return np.array(self, copy=True).__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "__call__" and not options:
            if ufunc in _UFUNCS:
                return _of(_UFUNCS[ufunc], *inputs)
            if ufunc in _COMPOSED:
                return _COMPOSED[ufunc](*inputs)
        if method == "reduce" and ufunc in _REDUCING_UFUNCS and set(options) <= {"axis", "keepdims"}:
            # Of ufuncs, the first axis is the default.
            return _reduced(_REDUCING_UFUNCS[ufunc], inputs[0], **{"axis": 0, **options})
        from overshot import _lazy_functions

        if method == "__call__" and not options and ufunc in _lazy_functions.UFUNCS:
            return _lazy_functions.UFUNCS[ufunc](*inputs)
        if method == "accumulate" and ufunc is np.add and set(options) <= {"axis"}:
            return _lazy_functions.cumsum(inputs[0], **{"axis": 0, **options})
        what = f"numpy.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
        raise _unsupported(what, options)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        from overshot import _lazy_functions

        return _lazy_functions.call(function, arguments, options)

    # Arrays are values, so `x += y` makes another one, as with numbers.
    __iadd__ = np.lib.mixins.NDArrayOperatorsMixin.__add__
    __isub__ = np.lib.mixins.NDArrayOperatorsMixin.__sub__
    __imul__ = np.lib.mixins.NDArrayOperatorsMixin.__mul__
    __itruediv__ = np.lib.mixins.NDArrayOperatorsMixin.__truediv__
    __ifloordiv__ = np.lib.mixins.NDArrayOperatorsMixin.__floordiv__
    __imod__ = np.lib.mixins.NDArrayOperatorsMixin.__mod__
    __ipow__ = np.lib.mixins.NDArrayOperatorsMixin.__pow__
    __iand__ = np.lib.mixins.NDArrayOperatorsMixin.__and__
    __ior__ = np.lib.mixins.NDArrayOperatorsMixin.__or__
    __ixor__ = np.lib.mixins.NDArrayOperatorsMixin.__xor__
    __ilshift__ = np.lib.mixins.NDArrayOperatorsMixin.__lshift__
    __imatmul__ = np.lib.mixins.NDArrayOperatorsMixin.__matmul__
    __irshift__ = np.lib.mixins.NDArrayOperatorsMixin.__rshift__

    def sum(self, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
        return _reduced_as("sum", self, axis, dtype, keepdims)

    def prod(self, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
        return _reduced_as("prod", self, axis, dtype, keepdims)

    def mean(self, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Array:
        return _reduced_as("mean", self, axis, dtype, keepdims)

    def min(self, axis: Any = None, *, keepdims: bool = False) -> Array:
        return _reduced("min", self, axis, keepdims)

    def max(self, axis: Any = None, *, keepdims: bool = False) -> Array:
        return _reduced("max", self, axis, keepdims)

    def var(self, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Array:
        return _reduced("var", self, axis, keepdims) if ddof == 0 else _corrected("var", self, axis, ddof, keepdims)

    def std(self, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Array:
        return _reduced("std", self, axis, keepdims) if ddof == 0 else _corrected("std", self, axis, ddof, keepdims)

    def any(self, axis: Any = None, *, keepdims: bool = False) -> Array:
        return _reduced("any", self, axis, keepdims)

    def all(self, axis: Any = None, *, keepdims: bool = False) -> Array:
        return _reduced("all", self, axis, keepdims)

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Array:
        return _reduced("argmin", self, axis, keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Array:
        return _reduced("argmax", self, axis, keepdims)

    def cumsum(self, axis: int | None = None, dtype: Any = None) -> Array:
        from overshot import _lazy_functions

        return _lazy_functions.cumsum(self, axis, dtype)

    def dot(self, other: Any) -> Array:
        from overshot import _lazy_functions

        return _lazy_functions.dot(self, other)

    def reshape(self, *shape: Any) -> Array:
        new = shape[0] if len(shape) == 1 else shape
        return _viewed(self, operator.methodcaller("reshape", new))

    def __iter__(self) -> Iterator[Array]:
        return (self[k] for k in range(len(self)))

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def __getitem__(self, key: Any) -> Array:
        keys = key if isinstance(key, tuple) else (key,)
        masks = [each for each in keys if isinstance(each, (Array, np.ndarray)) and each.dtype == np.bool_]
        if masks and len(keys) > 1:
            raise _unsupported("indexing by a mask and other keys at once", ())
        if masks:
            # A copy, as of places: the mask is that of when the array was indexed.
            mask = array(masks[0].copy() if isinstance(masks[0], np.ndarray) else masks[0])
            # One without dimensions keeps all elements, or none, in a new first dimension.
            return _filtered(self, mask) if mask.ndim else _filtered(self[None], mask[None])
        picked = tuple(each if isinstance(each, _KEYS) else _places(each) for each in keys)
        if any(isinstance(each, bool) for each in picked):
            raise _unsupported("indexing by True and False", ())
        return _viewed(self, operator.itemgetter(picked if isinstance(key, tuple) else picked[0]))

    @property
    def T(self) -> Array:
        if _is_on_gpu(self) or isinstance(self._value, _core.File):
            # On a GPU there is no such view, but a product reads what is transposed, and a file as it is.
            return Array(_View(np.transpose), (self,), self.shape[::-1])
        return _viewed(self, np.transpose)

    @property
    def mT(self) -> Array:
        return _viewed(self, operator.methodcaller("swapaxes", -1, -2))

    def __bool__(self) -> bool:
        return bool(self.__array__())

    def __int__(self) -> int:
        return int(self.__array__())

    def __float__(self) -> float:
        return float(self.__array__())

    def __complex__(self) -> complex:
        return complex(self.__array__())

    def __index__(self) -> int:
        return operator.index(self.__array__()[()])

    def __repr__(self) -> str:
        from overshot import _lazy_jobs

        # The number of rows that a filter keeps is not computed for it.
        shape = str(self._shape).replace("None", "?")
        text = "" if self._value is not None else f": {_lazy_jobs.text(self)}"
        return f"<overshot.Array of shape {shape}{text}>"

    # As NumPy's arrays: `==` compares the values.
    __hash__ = None  # type: ignore[assignment]


def array(values: Any) -> Array:
    """Makes a lazy array of an array, memory map, file or path. Nothing is copied or read."""
    if isinstance(values, Array):
        return values
    if isinstance(values, (str, os.PathLike)):
        values = _core.File(os.fspath(values))
    values = column("array", values)
    if isinstance(values, _core.GpuArray):
        return Array("", (), values.shape, values.owner)
    if not isinstance(values, (_core.File, _core.Resident)):
        values = np.asarray(values)
    return Array("", (), tuple(values.shape), values)


class _Key:
    """A lazy array as a key: by identity, because `==` makes another lazy array."""

    __slots__ = ("of",)

    def __init__(self, of: Array) -> None:
        self.of = of

    def __hash__(self) -> int:
        return id(self.of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other.of is self.of


def _unsupported(what: str, options: Any) -> TypeError:
    given = f" with {', '.join(options)}" if options else ""
    return TypeError(f"{what}{given} is not supported on lazy arrays; compute them first: numpy.asarray(x)")


def _of(form: str, *arguments: Any) -> Array:
    """Makes the array of an operation."""
    operands = tuple(_operand(each) for each in arguments)
    arrays = [each for each in operands if isinstance(each, Array) and each._shape]
    # Rows that one condition keeps are combined as they are. With any others, they are computed.
    first = arrays[0] if arrays else None
    with state_lock:
        if first is not None and first._mask is not None:
            if all(each._shape == first._shape and _is_same(each._mask, first._mask) for each in arrays):
                return Array(form, operands, first._shape, mask=first._mask)
    shapes = {each._shape if each._mask is None else each.shape for each in arrays}
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        one, other = sorted(shapes)[:2]
        raise ValueError(f"arrays of shapes {one} and {other} cannot be broadcast; index or reshape one") from None
    if len(shapes) > 1:
        operands = tuple(_broadcast_to(each, shape) if isinstance(each, Array) else each for each in operands)
    return Array(form, operands, shape)


def _broadcast_to(values: Array, shape: tuple[int, ...]) -> Array:
    # Numbers are the same in all rows without that.
    is_same = values.shape in ((), shape)
    return values if is_same else _viewed(values, functools.partial(np.broadcast_to, shape=shape))


def _known(values: Array) -> Array:
    """Returns an array whose shape is known: a filtered one is computed."""
    if values._mask is not None:
        from overshot import _lazy_jobs

        _lazy_jobs.compute(values)
    return values


def _places(key: Any) -> np.ndarray:
    """Returns numbers of elements, which are known when the array is indexed."""
    # A copy, because a view may be made later.
    places = np.array(key) if isinstance(key, (Array, np.ndarray, list)) else np.array(None)
    if not places.size and isinstance(key, list):
        places = places.astype(np.intp)
    if places.dtype.kind not in "iu":
        kind = f"lists or arrays of {places.dtype}" if places.dtype.kind != "O" else type(key).__name__
        raise _unsupported(f"indexing by {kind}", ())
    return places


def _is_on_gpu(values: Array) -> bool:
    is_resident = isinstance(values._value, _core.Resident)
    return is_resident or (values._value is not None and gpu_array(values._value) is not None)


def _check_views(values: Array) -> None:
    if _is_on_gpu(values):
        raise TypeError("a lazy array has no views of arrays on a GPU; index the array itself first")


def _is_whole(node: Array) -> bool:
    """Returns whether views of an array are views of its value, and not of what it reads."""
    return not isinstance(node._form, str) or node._form.startswith(_OF_SEVERAL_ROWS)


def _viewed(values: Array, view: Callable[[Any], Any]) -> Array:
    """Returns a view of an array: a function of NumPy that picks, orders or repeats elements, without their values.

    A view of an elementwise expression is the expression of the views of what it reads. Nothing is computed for it, and
    the elements that the view leaves out are never computed. What is no elementwise expression is computed first.
    """
    _known(values)
    with state_lock:
        return _view_of(values, view)


def _view_of(values: Array, view: Callable[[Any], Any]) -> Array:
    made: dict[_Key, Array] = {}
    # Views of views meet again, as `x[1:][:-1]` and `x[:-1][1:]`: without this, graphs would double each time.
    same: dict[Any, Array] = {}
    stack = [values]
    while stack:
        node = stack.pop()
        if _Key(node) in made:
            continue
        # Numbers have no elements to pick: they are the same in all rows of any shape.
        is_expression = node._value is None and node.shape != () and not _is_whole(node)
        below = [each for each in node._arguments if isinstance(each, Array) and each.shape] if is_expression else []
        waiting = [each for each in below if _Key(each) not in made]
        if waiting:
            stack += [node, *waiting]
            continue
        if node._value is not None:
            _check_views(node)
            new = array(np.asarray(view(_result(node))))
        else:
            viewed = tuple(made.get(_Key(each), each) if isinstance(each, Array) else each for each in node._arguments)
            if below:
                new = Array(node._form, viewed, made[_Key(below[0])].shape)
            else:
                shape = view(np.broadcast_to(np.int8(0), node.shape)).shape
                if node.shape and not is_expression:
                    new = Array(_View(view), (node,), shape)
                else:
                    # It repeats the number itself, so that a shape in between is none of the job's.
                    new = Array("{}", node._arguments if node.shape else (node,), shape)
        made[_Key(node)] = same.setdefault(_identity(new), new)
    return made[_Key(values)]


def _identity(node: Array) -> Any:
    """Returns a key that is the same for the same elements of memory, and for one operation on the same operands."""
    if node._value is not None or not isinstance(node._form, str):
        return elements_of(node._value) if node._value is not None else id(node)
    parts = (id(each) if isinstance(each, Array) else (type(each), repr(each)) for each in node._arguments)
    return (node._form, node._shape, *parts)


def elements_of(value: Any) -> Any:
    """Returns a key that is the same for views of the same elements of memory, as long as the value exists."""
    if not isinstance(value, np.ndarray) or not value.size:
        return id(value)
    return value.__array_interface__["data"], value.shape, value.strides, value.dtype


def _of_rows(values: Array) -> Array:
    """Returns the same values, with an array among what they read: numbers alone do not say how many rows there are."""
    stack, seen = [values], set()
    while stack:
        node = stack.pop()
        if node._shape and (node._value is not None or not isinstance(node._form, str)):
            return values
        if _Key(node) not in seen and isinstance(node._form, str):
            seen.add(_Key(node))
            stack += [each for each in node._arguments if isinstance(each, Array)]
    return Array(_own, (values,), values.shape)


def _without_other_rows(values: Array) -> Array:
    """Returns the same values, computed before what uses them if they are functions of other rows themselves."""
    stack, seen = [values], set()
    while stack:
        node = stack.pop()
        if node._value is None and isinstance(node._form, str) and _Key(node) not in seen:
            if node._form.startswith(_OF_SEVERAL_ROWS):
                return Array(_own, (values,), values.shape)
            seen.add(_Key(node))
            stack += [each for each in node._arguments if isinstance(each, Array)]
    return values


def _is_same(one: Any, other: Any) -> bool:
    """Returns whether two conditions are the same: one array, or one short text of the same arrays."""
    stack = [(one, other)]
    for _ in range(20):
        if not stack:
            return True
        a, b = stack.pop()
        # The texts of numbers, because 0.0 and -0.0 are equal.
        if a is b or (type(a) is type(b) and isinstance(a, (bool, int, float)) and repr(a) == repr(b)):
            continue
        is_text = isinstance(a, Array) and isinstance(b, Array) and isinstance(a._form, str)
        if not is_text or a._value is not None or b._value is not None or (a._form, a._shape) != (b._form, b._shape):
            return False
        stack += zip(a._arguments, b._arguments, strict=True)
    return False


def _filtered(values: Array, mask: Array) -> Array:
    """Returns the elements, or the rows, where a mask is true."""
    # As in NumPy, a mask without elements keeps none.
    fits = [own in (length, 0) for own, length in zip(mask.shape, values.shape, strict=False)]
    if mask.ndim > values.ndim or not all(fits):
        message = f"a mask of shape {mask.shape} does not fit an array of shape {values.shape}"
        raise IndexError(f"{message}; its shape has to be that of the array, or of the array's first axes")
    tail = values.shape[mask.ndim :]
    if values.size == 0 or mask.size == 0:
        kept = np.count_nonzero(np.asarray(mask))
        return array(np.empty((kept, *tail), values.dtype))
    if mask.ndim > 1 and tail:
        values = _viewed(values, operator.methodcaller("reshape", (mask.size, *tail)))
        mask = _viewed(mask, operator.methodcaller("reshape", mask.size))
    mask = _of_rows(mask)
    return Array(_FILTER, (_of_rows(values), mask), (None, *tail), mask=mask)


def _operand(value: Any) -> Any:
    # Numbers of Python are part of the text: as in NumPy, they take the dtype of what they meet.
    if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
        return value
    return array(value)


def _operation_dtype(form: str | _Step, *operands: Any) -> np.dtype[Any]:
    """Returns the dtype of an operation on arrays of dtypes and on numbers of Python."""
    if isinstance(form, _Step):
        if form.name in ("matmul", "roll"):
            first: np.dtype[Any] = operands[0]
            return first
        options = {"quantile": (0.5,), "histogram": (1, (0, 1))}.get(form.name, ())
        value = getattr(np, form.name)(np.ones(1, operands[0]), *options)
        dtype: np.dtype[Any] = (value[0] if isinstance(value, tuple) else value).dtype
        return dtype
    from overshot import _lazy_jobs

    columns = tuple(array(np.ones(1, each)) if isinstance(each, np.dtype) else each for each in operands)
    text, names, outputs, _ = _lazy_jobs.statements([Array(form, columns, (1,))])
    planned = _engine.plan(text, names, rows=1, device="cpu").to_dict()["columns"]
    return np.dtype(_core.numpy_type(next(each["dtype"] for each in planned if each["name"] == outputs[0])))


_dtype_of = functools.lru_cache(maxsize=1024, typed=True)(_operation_dtype)


def _reduced(name: str, values: Any, axis: Any = None, keepdims: bool = False) -> Array:
    values = array(values)
    if not values.ndim and axis in (0, -1) and name not in ("mean", "var", "std"):
        # As NumPy, which lets these pass.
        axis = None
    if name.startswith("arg"):
        if axis is not None:
            axis = operator.index(axis)
        # The places of kept rows are not known in the pass that keeps them.
        values = _known(values)
    axes = _axes(axis, values.ndim)
    if len(axes) == values.ndim:
        whole = Array(_Step(name, f"{name}({{}})"), (values,), ())
        return _viewed(whole, functools.partial(np.broadcast_to, shape=(1,) * values.ndim)) if keepdims else whole
    # Kept rows are computed, unless they are reduced to one.
    own_shape = values._shape if axes == (0,) else values.shape
    shape = tuple(1 if k in axes else n for k, n in enumerate(own_shape) if keepdims or k not in axes)
    if not axes:
        values = _viewed(values, operator.methodcaller("reshape", (*values.shape, 1)))
        axes += (values.ndim - 1,)
    kept = [k for k in range(values.ndim) if k not in axes]
    if values._mask is not None or _by_columns(values.shape, axes):
        order, places = [*axes, *kept], range(1)
    else:
        order, places = [*kept, *axes], range(-len(axes), 0)
    if order != sorted(order):
        values = _viewed(values, functools.partial(np.transpose, axes=order))
    own = tuple(places)
    text = f"{name}({{}}, axis={own[0] if len(own) == 1 else own})"
    return Array(_Step(name, text, own), (_of_rows(values),), shape)


def _by_columns(shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Returns whether to reduce the rows to one, and not each row to a value."""
    if len(axes) > 1:
        return False
    length = shape[axes[0]]
    width = math.prod(shape[: axes[0]] + shape[axes[0] + 1 :])
    # Elements that are near to each other in memory make a row, unless the row is too wide.
    return length > _WIDEST_ROW or width <= _WIDEST_ROW if axes[0] == 0 else length > _WIDEST_ROW >= width


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    given = range(ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = [operator.index(each) for each in given]
    for each in axes:
        if not -ndim <= each < ndim:
            raise np.exceptions.AxisError(f"axis {each} does not exist: the array has {ndim} dimensions")
    if len({each % ndim for each in axes}) < len(axes):
        raise ValueError(f"axis={axis} names an axis twice")
    return tuple(sorted(each % ndim for each in axes))


def _reduced_as(name: str, values: Any, axis: Any, dtype: Any, keepdims: bool) -> Array:
    if dtype is None:
        return _reduced(name, values, axis, keepdims)
    return _reduced(name, array(values).astype(dtype), axis, keepdims).astype(dtype)


def _corrected(name: str, values: Array, axis: Any, ddof: float, keepdims: bool) -> Array:
    """Returns a variance, or its root, that is divided by another number than that of the elements."""
    is_short = values.dtype.kind not in "biu" and values.dtype != np.float64
    # What has fewer bits is rounded at the end only.
    variance: Any = _reduced("var", values.astype("f8") if is_short else values, axis, keepdims)
    # As NumPy, which divides by zero if there are not enough elements.
    count = math.prod(values.shape[k] for k in _axes(axis, values.ndim))
    variance = variance * float(count) / max(count - float(ddof), 0.0)
    value = array(np.sqrt(variance) if name == "std" else variance)
    return value.astype(values.dtype) if is_short else value


def _result(values: Array, settings: dict[str, Any] | None = None) -> Any:
    value = values._value
    if isinstance(value, _core.File):
        mapped = _mapped(value)
        if mapped is not None:
            return mapped
    if isinstance(value, (_core.File, _core.Resident)) or gpu_array(value) is not None:
        return _engine.evaluate("values", {"values": value}, **settings or {})
    return value


def _mapped(file: _core.File) -> Any:
    """Returns the map of a file that has the values as they are in memory, and `None` for all others."""
    if file.field is not None or file.member is not None or not os.path.isfile(file.path) or 0 in file.shape:
        return None
    if os.fspath(file.path).endswith(".npy"):
        own = np.load(file.path, mmap_mode="r")
        return own if (own.shape, own.dtype) == (file.shape, np.dtype(file.dtype)) else None
    with open(file.path, "rb") as opened:
        is_table = opened.read(6).startswith((b"PAR1", b"ARROW1"))
    dtype = np.dtype(file.dtype)
    if is_table or os.path.getsize(file.path) != math.prod(file.shape) * dtype.itemsize:
        return None
    return np.memmap(file.path, dtype, "r", shape=file.shape)
