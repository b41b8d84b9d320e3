"""Lazy arrays: NumPy's operators and functions that become one expression."""

from __future__ import annotations

import functools
import math
import operator
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from overshot import _core, _engine
from overshot._columns import column, gpu_array

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

# Keys that pick elements by their place. Those of NumPy's other keys are known only from values.
_KEYS = (int, np.integer, slice, type(None), type(...))

_REDUCTIONS = ("sum", "prod", "mean", "min", "max", "var", "std", "any", "all", "argmin", "argmax")
# Of NumPy, with its own name of each.
_REDUCING: dict[Any, str] = {getattr(np, name): name for name in _REDUCTIONS}
_REDUCING.update({np.amin: "min", np.amax: "max"})
_REDUCING_UFUNCS: dict[np.ufunc, str] = {
    np.add: "sum",
    np.multiply: "prod",
    np.minimum: "min",
    np.maximum: "max",
    np.logical_and: "all",
    np.logical_or: "any",
}


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

    __slots__ = ("_arguments", "_dtype", "_form", "_value", "shape")

    def __init__(self, form: str, arguments: tuple[Any, ...], shape: tuple[int, ...], value: Any = None) -> None:
        # An input has no form; a reduction has the name of its function.
        self._form = form
        self._arguments = arguments
        self._value = value
        self._dtype: np.dtype[Any] | None = None
        self.shape = shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

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
                else:
                    dtypes = (each._dtype if isinstance(each, Array) else each for each in operands)
                    node._dtype = _dtype_of(node._form, *dtypes)
        assert self._dtype is not None
        return self._dtype

    def astype(self, dtype: Any) -> Array:
        """The values, converted."""
        name = np.dtype(dtype).name
        short = {"bool": "bool", "bfloat": "bf", "float": "f", "uint": "u", "int": "i"}
        kind = next((kind for kind in short if name.startswith(kind)), None)
        if kind is None:
            raise TypeError(f"lazy arrays have no values of dtype {name}")
        return _of(f"{short[kind]}{name[len(kind) :] if kind != 'bool' else ''}({{}})", self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a lazy array has to be computed: copy=False is not possible")
        # NumPy does not copy what this returns, also where it was asked to.
        return np.array(compute(self)[0], dtype, copy=copy)

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
        if method == "reduce" and set(options) <= {"axis"} and options.get("axis", 0) in (None, 0) and self.ndim == 1:
            if ufunc in _REDUCING_UFUNCS:
                return _reduced(_REDUCING_UFUNCS[ufunc], self)
        if method == "__call__" and not options:
            if ufunc in _UFUNCS:
                return _of(_UFUNCS[ufunc], *inputs)
            if ufunc in _COMPOSED:
                return _COMPOSED[ufunc](*inputs)
        what = f"numpy.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
        raise _unsupported(what, options)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        if function is np.where and len(arguments) == 3 and not options:
            return _of("where(bool({}), {}, {})", *arguments)
        if function is np.clip and len(arguments) == 3 and not options:
            return _of("clip({}, {}, {})", *arguments)
        if function is np.round and len(arguments) == 1 and not options:
            return _of("round({})", *arguments)
        if function in _REDUCING and len(arguments) == 1 and not options:
            return _reduced(_REDUCING[function], arguments[0])
        if function is np.count_nonzero and len(arguments) == 1 and not options:
            return _reduced("sum", _of("i64(bool({}))", *arguments))
        if function is np.shape:
            return self.shape
        raise _unsupported(f"numpy.{function.__name__}", options)

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
    __irshift__ = np.lib.mixins.NDArrayOperatorsMixin.__rshift__

    def sum(self) -> Array:
        return _reduced("sum", self)

    def prod(self) -> Array:
        return _reduced("prod", self)

    def mean(self) -> Array:
        return _reduced("mean", self)

    def min(self) -> Array:
        return _reduced("min", self)

    def max(self) -> Array:
        return _reduced("max", self)

    def var(self) -> Array:
        return _reduced("var", self)

    def std(self) -> Array:
        return _reduced("std", self)

    def any(self) -> Array:
        return _reduced("any", self)

    def all(self) -> Array:
        return _reduced("all", self)

    def argmin(self) -> Array:
        return _reduced("argmin", self)

    def argmax(self) -> Array:
        return _reduced("argmax", self)

    def __iter__(self) -> Iterator[Array]:
        return (self[k] for k in range(len(self)))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def __getitem__(self, key: Any) -> Array:
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(each, bool) or not isinstance(each, _KEYS) for each in keys):
            raise _unsupported("indexing by arrays and lists", ())
        return _viewed(self, lambda values: values[key])

    @property
    def T(self) -> Array:
        return _viewed(self, np.transpose)

    @property
    def mT(self) -> Array:
        return _viewed(self, lambda values: np.swapaxes(values, -1, -2))

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
        if self._value is not None:
            return f"<overshot.Array of shape {self.shape}>"
        return f"<overshot.Array of shape {self.shape}: {_text(self)}>"

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


def compute(*arrays: Array, **settings: Any) -> tuple[Any, ...]:
    """Computes lazy arrays together, and returns NumPy arrays, and NumPy's numbers for reductions.

    Arrays of the same shape are computed in one pass over the data. A value that depends on reductions needs one more
    pass. `settings` are those of `overshot.evaluate`: `device`, `device_memory`, `progress`, …
    """
    for values in arrays:
        if not isinstance(values, Array):
            raise TypeError(f"{type(values).__name__} is not a lazy array")
    wanted = list(dict.fromkeys(map(_Key, arrays)))
    while pending := [key.of for key in wanted if key.of._value is None]:
        inner = _unresolved(pending)
        # Reductions of reductions wait for those below them; everything that waits for none is computed now.
        ready = inner or pending
        by_rows: dict[tuple[int, ...], list[Array]] = {}
        for each in ready:
            by_rows.setdefault(_rows_of(each), []).append(each)
        for roots in by_rows.values():
            _run(roots, settings)
    return tuple(_result(values, settings) for values in arrays)


def jit(function: Callable[..., Any] | None = None, **settings: Any) -> Any:
    """Makes a function of arrays one job: its NumPy operators and functions are computed chunk by chunk, together.

    >>> @ov.jit
    ... def f(a, b):
    ...     return np.where(a > 1, np.log(a), 0) * b
    >>> f(np.array([1.0, np.e]), np.array([3.0, 4.0]))
    array([0., 4.])

    Arrays, memory maps and files among the arguments become lazy arrays. The function returns a lazy array, or a tuple,
    list or dictionary of them; the caller gets the values. `settings` are those of `overshot.evaluate`.
    """
    if function is None:
        return functools.partial(jit, **settings)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        lazy = [_argument(each) for each in arguments]
        return _computed(function(*lazy, **{name: _argument(each) for name, each in named.items()}), settings)

    return call


def _argument(value: Any) -> Any:
    is_array = isinstance(value, (np.ndarray, _core.File, _core.Resident))
    is_array |= hasattr(value, "shape") and (hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__"))
    return array(value) if is_array and not isinstance(value, Array) else value


def _computed(returned: Any, settings: dict[str, Any]) -> Any:
    if isinstance(returned, Array):
        return compute(returned, **settings)[0]
    if isinstance(returned, dict):
        values = _computed(list(returned.values()), settings)
        return dict(zip(returned, values, strict=True))
    if isinstance(returned, (tuple, list)):
        values = iter(compute(*(each for each in returned if isinstance(each, Array)), **settings))
        each_value = [next(values) if isinstance(each, Array) else each for each in returned]
        if hasattr(returned, "_fields"):
            return type(returned)(*each_value)
        return type(returned)(each_value)
    return returned


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
    shapes = {each.shape for each in operands if isinstance(each, Array) and each.shape}
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        first, second = sorted(shapes)[:2]
        raise ValueError(f"arrays of shapes {first} and {second} cannot be broadcast; index or reshape one") from None
    if len(shapes) > 1:
        operands = tuple(_broadcast_to(each, shape) if isinstance(each, Array) else each for each in operands)
    return Array(form, operands, shape)


def _broadcast_to(values: Array, shape: tuple[int, ...]) -> Array:
    # Numbers are the same in all rows without that.
    return _viewed(values, lambda own: np.broadcast_to(own, shape)) if values.shape not in ((), shape) else values


def _viewed(values: Array, view: Callable[[Any], Any]) -> Array:
    """Returns a view of an array: a function of NumPy that picks, orders or repeats elements, without their values.

    A view of an elementwise expression is the expression of the views of what it reads. Nothing is computed for it, and
    the elements that the view leaves out are never computed.
    """
    made: dict[_Key, Array] = {}
    stack = [values]
    while stack:
        node = stack.pop()
        if _Key(node) in made:
            continue
        # Numbers have no elements to pick: they are the same in all rows of any shape.
        is_expression = node._value is None and node.shape != ()
        below = [each for each in node._arguments if isinstance(each, Array) and each.shape] if is_expression else []
        waiting = [each for each in below if _Key(each) not in made]
        if waiting:
            stack += [node, *waiting]
            continue
        if isinstance(node._value, _core.Resident) or (node._value is not None and gpu_array(node._value)):
            raise TypeError("a lazy array has no views of arrays on a GPU; index the array itself first")
        if node._value is not None:
            new = array(np.asarray(view(_result(node))))
        else:
            shape = view(np.broadcast_to(np.int8(0), node.shape)).shape
            viewed = (made.get(_Key(each), each) if isinstance(each, Array) else each for each in node._arguments)
            new = Array(node._form, tuple(viewed), shape) if is_expression else Array("{}", (node,), shape)
        made[_Key(node)] = new
    return made[_Key(values)]


def _operand(value: Any) -> Any:
    # Numbers of Python are part of the text: as in NumPy, they take the dtype of what they meet.
    if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
        return value
    return array(value)


def _operation_dtype(form: str, *operands: Any) -> np.dtype[Any]:
    """Returns the dtype of an operation on arrays of dtypes and on numbers of Python."""
    if form in _REDUCTIONS:
        one: np.generic = getattr(np, form)(np.ones(1, operands[0]))
        return one.dtype
    columns = tuple(array(np.ones(1, each)) if isinstance(each, np.dtype) else each for each in operands)
    text, names, outputs, _ = _statements([Array(form, columns, (1,))])
    planned = _engine.plan(text, names, rows=1, device="cpu").to_dict()["columns"]
    return np.dtype(_core.numpy_type(next(each["dtype"] for each in planned if each["name"] == outputs[0])))


_dtype_of = functools.lru_cache(maxsize=1024, typed=True)(_operation_dtype)


def _reduced(name: str, values: Any) -> Array:
    return Array(name, (array(values),), ())


def _rows_of(values: Array) -> tuple[int, ...]:
    """Returns the shape of the rows over which a value is computed."""
    return values._arguments[0].shape if values._form in _REDUCTIONS else values.shape


def _unresolved(roots: Iterable[Array]) -> list[Array]:
    """Returns the reductions below the roots that are not computed and depend on no others."""
    found: dict[_Key, None] = {}
    depends: dict[_Key, bool] = {}
    stack = [(root, False) for root in roots]
    for_root = {_Key(root) for root in roots}
    while stack:
        node, is_done = stack.pop()
        key = _Key(node)
        if key in depends or node._value is not None:
            continue
        below = [each for each in node._arguments if isinstance(each, Array) and each._value is None]
        if not is_done:
            stack.append((node, True))
            stack.extend((each, False) for each in below)
            continue
        waits = any(depends.get(_Key(each), False) or each._form in _REDUCTIONS for each in below)
        depends[key] = waits
        if node._form in _REDUCTIONS and not waits and key not in for_root:
            found[key] = None
    # The roots among them come along, so that they need no pass of their own.
    if found:
        for key in for_root:
            if key.of._form in _REDUCTIONS and not depends.get(key, True):
                found[key] = None
    return [key.of for key in found]


def _literal(value: Any) -> str:
    # `repr` of a float is `nan`, `inf` or a number, as in the language. A member of an enumeration has another one.
    kind = next(kind for kind in (bool, int, float) if isinstance(value, kind))
    text = repr(kind(value))
    return f"({text})" if text.startswith("-") else text


def _statements(roots: list[Array], for_people: bool = False) -> tuple[str, dict[str, Any], list[str], list[str]]:
    """Returns the text of a job, its names, and the names of the outputs or results of the roots, and all outputs."""

    def number(value: Any) -> str:
        # Floats have names, so that the same function with other floats is the same text, and compiles nothing. A
        # kernel takes a limited number of arguments.
        if for_people or type(value) is not float or (len(floats) >= 64 and _literal(value) not in floats):
            return _literal(value)
        return floats.setdefault(_literal(value), f"k{len(floats)}")

    floats: dict[str, str] = {}
    uses: dict[_Key, int] = {}
    order: list[Array] = []
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, is_done = stack.pop()
        key = _Key(node)
        if is_done:
            order.append(node)
            continue
        uses[key] = uses.get(key, 0) + 1
        if uses[key] == 1:
            stack.append((node, True))
            if node._value is None:
                stack.extend((each, False) for each in reversed(node._arguments) if isinstance(each, Array))
    names: dict[str, Any] = {}
    texts: dict[_Key, str] = {}
    depths: dict[_Key, int] = {}
    statements: list[str] = []
    is_root = {_Key(root) for root in roots}
    kept: list[str] = []
    for node in order:
        key = _Key(node)
        if node._value is not None:
            name = next((known for known, value in names.items() if value is node._value), f"a{len(names)}")
            names[name] = node._value
            texts[key] = name
            continue
        parts = [texts[_Key(each)] if isinstance(each, Array) else number(each) for each in node._arguments]
        text = f"{node._form}({parts[0]})" if node._form in _REDUCTIONS else node._form.format(*parts)
        depth = 1 + max((depths.get(_Key(each), 0) for each in node._arguments if isinstance(each, Array)), default=0)
        # Expressions nest 200 levels deep at most, and an operation takes up to two.
        is_deep = depth > 80
        depths[key] = 0 if is_deep else depth
        if key in is_root or uses[key] > 1 or is_deep:
            name = f"t{len(statements)}"
            statements.append(f"{name} = {text}")
            text = name
            if key in is_root and node._form not in _REDUCTIONS:
                kept.append(name)
        texts[key] = text
    names.update({name: float(text.strip("()")) for text, name in floats.items()})
    return "; ".join(statements), names, [texts[_Key(root)] for root in roots], kept


def _text(values: Array) -> str:
    """Returns the expression of an array for people."""
    text = _statements([values], for_people=True)[0]
    return text.removeprefix("t0 = ") if text.startswith("t0 = ") and ";" not in text else text


def _run(roots: list[Array], settings: dict[str, Any]) -> None:
    """Computes arrays over the same rows in one pass."""
    text, names, results, kept = _statements(roots)
    rows = None
    if not any(getattr(value, "shape", ()) for value in names.values()):
        rows = math.prod(_rows_of(roots[0]))
    values = _engine.evaluate(text, names, out={name: None for name in kept}, rows=rows, **settings)
    for root, name in zip(roots, results, strict=True):
        value = values[name]
        if root._form in _REDUCTIONS:
            if value is None:
                raise ValueError(f"zero-size array to reduction operation {root._form} which has no identity")
            value = value.astype(root.dtype)
        else:
            value = value.reshape(root.shape)[()]
        root._value = value
        root._arguments = ()


def _result(values: Array, settings: dict[str, Any] | None = None) -> Any:
    value = values._value
    is_remote = isinstance(value, _core.File) and "://" in os.fspath(value.path)
    if is_remote or isinstance(value, _core.Resident) or gpu_array(value) is not None:
        return _engine.evaluate("values", {"values": value}, **settings or {})
    if not isinstance(value, _core.File):
        return value
    if os.fspath(value.path).endswith(".npy"):
        return np.load(value.path, mmap_mode="r")
    return np.memmap(value.path, value.dtype, "r", shape=value.shape)
