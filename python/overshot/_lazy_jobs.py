"""Jobs that compute lazy arrays: which they are, in which order, and the text of each."""

from __future__ import annotations

import contextvars
import math
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from overshot import _engine
from overshot._lazy import PRODUCT_WITH_MATRIX, Array, _check_views, _is_same, _Key, _result, _Step, _View

# Settings of the function of `jit` that is called, for arrays that are computed on the way.
settings_of_jit: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("overshot.jit")


def compute(*arrays: Array, **settings: Any) -> tuple[Any, ...]:
    """Computes lazy arrays together, and returns NumPy arrays, and NumPy's numbers for reductions.

    Arrays of the same shape are computed in one pass over the data. A value that depends on reductions needs one more
    pass. `settings` are those of `overshot.evaluate`: `device`, `device_memory`, `progress`, …
    """
    for values in arrays:
        if not isinstance(values, Array):
            raise TypeError(f"{type(values).__name__} is not a lazy array")
    settings = {**settings_of_jit.get({}), **settings}
    wanted = list(dict.fromkeys(map(_Key, arrays)))
    while pending := [key.of for key in wanted if key.of._value is None]:
        inner = _unresolved(pending)
        # Steps that need others wait for those below them; everything that waits for none is computed now.
        for roots in _jobs(inner or [each for each in pending if each._value is None]):
            _run(roots, settings)
    return tuple(_result(values, settings) for values in arrays)


def _rows_of(values: Array) -> tuple[tuple[int, ...], ...]:
    """Returns the shapes of the rows over which a value is computed: of several ones, if it is a product."""
    operands = values._arguments if isinstance(values._form, _Step) else (values,)
    return tuple(each._mask.shape + each._shape[1:] if each._mask is not None else each._shape for each in operands)


def _jobs(ready: Iterable[Array]) -> list[list[Array]]:
    """Divides what can be computed now into jobs."""
    jobs: dict[Any, list[Array]] = {}
    alone: list[Array] = []
    for each in ready:
        form = each._form
        if isinstance(form, _Step) and form.axis is None and not form.is_rows and form.name != "matmul":
            alone.append(each)
            continue
        # The outputs of a job are filtered by one condition; and reductions are over the rows, or within them.
        axes = (form.axis or form.name) if isinstance(form, _Step) else None
        mask = None
        if each._mask is not None:
            same = (key[2] for key in jobs if key[2] is not None and _is_same(key[2].of, each._mask))
            mask = next(same, _Key(each._mask))
        jobs.setdefault((_rows_of(each), axes, mask), []).append(each)
    # Other results go with any job over the same rows.
    for each in alone:
        rows = _rows_of(each)
        key = next((key for key in jobs if key[0] == rows), (rows, None, None))
        jobs.setdefault(key, []).append(each)
    # So do outputs that are not filtered with reductions along an axis.
    for key in [key for key in jobs if key[1:] == (None, None)]:
        joined = next((other for other in jobs if other[0] == key[0] and isinstance(other[1], tuple)), key)
        if joined != key:
            jobs[joined] += jobs.pop(key)
    return list(jobs.values())


def _unresolved(roots: Iterable[Array]) -> list[Array]:
    """Returns what is below the roots, has to be computed before, and depends on nothing of that kind.

    Views of what is computed get their values on the way.
    """
    found: dict[_Key, None] = {}
    waits: dict[_Key, bool] = {}
    stack = [(root, False) for root in roots]
    for_root = {_Key(root) for root in roots}
    while stack:
        node, is_done = stack.pop()
        key = _Key(node)
        if key in waits or node._value is not None:
            continue
        below = [each for each in node._arguments if isinstance(each, Array) and each._value is None]
        if not is_done:
            stack.append((node, True))
            stack.extend((each, False) for each in below)
            continue
        if isinstance(node._form, _View) and not below:
            for each in node._arguments:
                _check_views(each)
            _settle(node, np.asarray(node._form.function(*map(_result, node._arguments))))
            continue
        needed = below if isinstance(node._form, _View) else [each for each in below if isinstance(each._form, _Step)]
        found.update((_Key(each), None) for each in needed if not waits[_Key(each)])
        waits[key] = bool(needed) or any(waits[_Key(each)] for each in below)
    # The steps among the roots come along, so that they need no pass of their own.
    if found:
        for key in for_root:
            if isinstance(key.of._form, _Step) and not waits.get(key, True):
                found[key] = None
    return [key.of for key in found]


def _settle(values: Array, value: Any) -> None:
    """Gives an array its value."""
    if isinstance(value, np.ndarray):
        # What is computed later reads it again, so nobody may write to it.
        value = value.view()
        value.flags.writeable = False
    values._form, values._arguments, values._value, values._mask = "", (), value, None
    if values._shape and values._shape[0] is None:
        values._shape = value.shape


def _form_of(node: Array) -> str:
    if isinstance(node._form, _Step):
        return node._form.text
    # No job has these: they are computed before it.
    return "{}[...]" if isinstance(node._form, _View) else node._form


def statements(roots: list[Array], for_people: bool = False) -> tuple[str, dict[str, Any], list[str], list[str]]:
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
    # The right side of a product with a matrix is no column, also if a column is the same array.
    products = [node for node in order if isinstance(node._form, _Step) and node._form.text == PRODUCT_WITH_MATRIX]
    matrices = {_Key(node._arguments[1]) for node in products}
    names: dict[str, Any] = {}
    columns: dict[str, Any] = {}
    texts: dict[_Key, str] = {}
    depths: dict[_Key, int] = {}
    statements: list[str] = []
    is_root = {_Key(root) for root in roots}
    kept: list[str] = []
    for node in order:
        key = _Key(node)
        if node._value is not None:
            name = f"a{len(names)}"
            if key not in matrices:
                known = (known for known, value in columns.items() if _is_same_array(value, node._value))
                name = next(known, name)
                columns[name] = node._value
            names[name] = node._value
            texts[key] = name
            continue
        parts = [texts[_Key(each)] if isinstance(each, Array) else number(each) for each in node._arguments]
        text = _form_of(node).format(*parts)
        depth = 1 + max((depths.get(_Key(each), 0) for each in node._arguments if isinstance(each, Array)), default=0)
        # Expressions nest 200 levels deep at most, and an operation takes up to two.
        is_deep = depth > 80
        depths[key] = 0 if is_deep else depth
        if key in is_root or uses[key] > 1 or is_deep:
            name = f"t{len(statements)}"
            statements.append(f"{name} = {text}")
            text = name
            if key in is_root and not (isinstance(node._form, _Step) and not node._form.is_rows):
                kept.append(name)
        texts[key] = text
    names.update({name: float(text.strip("()")) for text, name in floats.items()})
    return "; ".join(statements), names, [texts[_Key(root)] for root in roots], kept


def _is_same_array(one: Any, other: Any) -> bool:
    if one is other:
        return True
    # Two views of the same elements, such as the transpose of a transpose.
    if not (isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.dtype == other.dtype):
        return False
    first, second = one.__array_interface__, other.__array_interface__
    return one.size > 0 and (first["data"], one.shape, one.strides) == (second["data"], other.shape, other.strides)


def _literal(value: Any) -> str:
    # `repr` of a float is `nan`, `inf` or a number, as in the language. A member of an enumeration has another one.
    kind = next(kind for kind in (bool, int, float) if isinstance(value, kind))
    text = repr(kind(value))
    return f"({text})" if text.startswith("-") else text


def text(values: Array) -> str:
    """Returns the expression of an array for people."""
    text = statements([values], for_people=True)[0]
    return text.removeprefix("t0 = ") if text.startswith("t0 = ") and ";" not in text else text


def _run(roots: list[Array], settings: dict[str, Any]) -> None:
    """Computes arrays over the same rows in one pass."""
    empty = [root for root in roots if isinstance(root._form, _Step) and root._form.axis and 0 in _rows_of(root)[0]]
    for root in empty:
        _settle(root, _of_no_elements(root))
    roots = [root for root in roots if root._value is None]
    if not roots:
        return
    text, names, results, kept = statements(roots)
    rows = None
    if not any(getattr(value, "shape", ()) for value in names.values()):
        rows = math.prod(_rows_of(roots[0])[0])
    values = _engine.evaluate(text, names, out={name: None for name in kept}, rows=rows, **settings)
    for root, name in zip(roots, results, strict=True):
        value = values[name]
        if value is None:
            function = root._form.name if isinstance(root._form, _Step) else ""
            raise ValueError(f"zero-size array to reduction operation {function} which has no identity")
        if isinstance(root._form, _Step):
            value = value.astype(root.dtype, copy=False)
        _settle(root, value if root._mask is not None else value.reshape(root._shape)[()])


def _of_no_elements(root: Array) -> Any:
    """Returns NumPy's value of a reduction along an axis, or raises its error."""
    assert isinstance(root._form, _Step)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        value = getattr(np, root._form.name)(np.empty(_rows_of(root)[0], root._arguments[0].dtype), root._form.axis)
    return np.asarray(value).reshape(root._shape)
