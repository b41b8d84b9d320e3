"""Jobs that compute lazy arrays: which they are, in which order, and the text of each."""

from __future__ import annotations

import contextvars
import math
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from overshot import _engine
from overshot._lazy import (
    _FILTER,
    PRODUCT_WITH_MATRIX,
    Array,
    _check_views,
    _is_same,
    _Key,
    _result,
    _Step,
    _View,
    elements_of,
    state_lock,
)

# Settings of the function of `jit` that is called, for arrays that are computed on the way.
settings_of_jit: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("overshot.jit")


# Outputs and rows are those of each job.
_SETTINGS = tuple(name for name in _engine.evaluate.__kwdefaults__ or () if name not in ("out", "rows"))


def check_settings(settings: Iterable[str]) -> None:
    """Refuses what is no setting: a job would take it for one of its own names."""
    for name in settings:
        if name not in _SETTINGS:
            raise TypeError(f"there is no setting {name!r}; the settings are {', '.join(_SETTINGS)}")


def compute(*arrays: Array, **settings: Any) -> tuple[Any, ...]:
    """Computes lazy arrays together, and returns NumPy arrays, and NumPy's numbers for reductions.

    Arrays of the same shape are computed in one pass over the data, except that reductions along different axes take a
    pass each. A value that depends on reductions needs one more pass. `settings` are those of `overshot.evaluate`:
    `device`, `device_memory`, `progress`, …
    """
    for values in arrays:
        if not isinstance(values, Array):
            raise TypeError(f"{type(values).__name__} is not a lazy array")
    check_settings(settings)
    settings = {**settings_of_jit.get({}), **settings}
    wanted = list(dict.fromkeys(map(_Key, arrays)))
    while pending := [key.of for key in wanted if key.of._value is None]:
        for job in _next_jobs(pending):
            _run(job, settings)
    return tuple(_result(values, settings) for values in arrays)


class _Job(NamedTuple):
    """A job, and what it takes to give its roots their values: other threads may have done so when it ends."""

    text: str
    names: dict[str, Any]
    outputs: list[str]
    rows: int | None
    roots: list[_Root]


class _Root(NamedTuple):
    of: Array
    name: str
    # How many rows a filter keeps is not known.
    shape: tuple[int, ...] | None
    # Of steps: NumPy's function, and the dtype.
    function: str = ""
    dtype: np.dtype[Any] | None = None


def _next_jobs(pending: list[Array]) -> list[_Job]:
    """Returns the jobs that can run now. Their texts are those of one moment: none reads what another one computes."""
    with state_lock:
        inner = _unresolved(pending)
        # Steps that need others wait for those below them; everything that waits for none is computed now.
        ready = inner or [each for each in pending if each._value is None]
        jobs = [[root for root in roots if not _is_of_no_elements(root)] for roots in _jobs(ready)]
        return [_job(roots) for roots in jobs if roots]


def _rows_of(values: Array) -> tuple[tuple[int, ...], ...]:
    """Returns the shapes of the rows over which a value is computed: of several ones, if it is a product."""
    operands = values._arguments if isinstance(values._form, _Step) else (values,)
    return tuple(each._mask.shape + each._shape[1:] if each._mask is not None else each._shape for each in operands)


def _layout(values: Array) -> str | None:
    """Returns what a job has to read: whole rows, or elements that need not make up rows. `None` is either."""
    form = values._form
    if isinstance(form, _Step) and not _is_of_all(form):
        return "rows"
    operand = values._arguments[0] if isinstance(form, _Step) else values
    if operand._mask is None or (operand._mask.ndim == 1 and operand.ndim == 1):
        return None
    return "elements" if operand._mask.ndim > 1 else "rows"


def _is_of_all(step: _Step) -> bool:
    """Returns whether a step has one result of all elements."""
    return step.axis is None and not step.is_rows and step.name != "matmul"


def _jobs(ready: Iterable[Array]) -> list[list[Array]]:
    """Divides what can be computed now into jobs."""
    jobs: dict[Any, list[Array]] = {}
    alone: list[tuple[str | None, Array]] = []
    for each in ready:
        form = each._form
        if isinstance(form, _Step) and _is_of_all(form):
            alone.append((_layout(each), each))
            continue
        # The outputs of a job are filtered by one condition; and reductions are over the rows, or within them.
        axes = (form.axis or form.name) if isinstance(form, _Step) else None
        mask = None
        if each._mask is not None:
            same = (key[3] for key in jobs if key[3] is not None and _is_same(key[3].of, each._mask))
            mask = next(same, _Key(each._mask))
        jobs.setdefault((_rows_of(each), _layout(each), axes, mask), []).append(each)
    # Other results go with any job over the same rows: first those that need a layout.
    for layout, each in sorted(alone, key=lambda pair: pair[0] is None):
        rows = _rows_of(each)
        fits = (key for key in jobs if key[0] == rows and layout in (None, key[1]))
        jobs.setdefault(next(fits, (rows, layout, None, None)), []).append(each)
    # So do outputs that are not filtered, unless the job has other outputs.
    for key in [key for key in jobs if key[1:] == (None, None, None)]:
        others = (other for other in jobs if other[0] == key[0] and other != key)
        joined = next((other for other in others if isinstance(other[2], tuple) or other[2:] == (None, None)), key)
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
    for_root = dict.fromkeys(map(_Key, roots))
    while stack:
        node, is_done = stack.pop()
        key = _Key(node)
        if key in waits or node._value is not None:
            continue
        below = _below(node)
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
        needed += _kept_before(node)
        found.update((_Key(each), None) for each in needed if not waits[_Key(each)])
        waits[key] = bool(needed) or any(waits[_Key(each)] for each in below)
    # The steps among the roots come along, so that they need no pass of their own; and so do others over the same rows,
    # so that a later pass reads their values, where it would compute them again.
    if found:
        ready = [key for key in for_root if not waits.get(key, True)]
        rows = {_rows_of(key.of) for key in found}
        for key in ready:
            if isinstance(key.of._form, _Step) or (key.of._mask is None and _rows_of(key.of) in rows):
                found[key] = None
    return [key.of for key in found]


def _below(node: Array) -> list[Array]:
    return [each for each in node._arguments if isinstance(each, Array) and each._value is None]


def _kept_before(node: Array) -> list[Array]:
    """Returns the operands of kept rows that have to be computed before, because others have their values already.

    If all of them have, what they make is an array like any other.
    """
    if node._mask is None or node._form == _FILTER:
        return []
    operands = [each for each in node._arguments if isinstance(each, Array) and each._shape]
    if all(each._mask is not None and _is_same(each._mask, node._mask) for each in operands):
        return []
    waiting = [each for each in operands if each._mask is not None]
    if not waiting:
        # In this order, because an array without a mask has a shape.
        node._shape, node._mask = operands[0]._shape, None
    return waiting


def _settle(values: Array, value: Any) -> None:
    """Gives an array its value."""
    if isinstance(value, np.ndarray):
        # What is computed later reads it again, so nobody may write to it.
        value = value.view()
        value.flags.writeable = False
    with state_lock:
        if values._value is not None:
            return
        values._form, values._arguments, values._value = "", (), value
        if values._shape and values._shape[0] is None:
            values._shape = value.shape
        values._mask = None


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
    columns: dict[Any, str] = {}
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
                # The transpose of a transpose is the same column.
                name = columns.setdefault(elements_of(node._value), name)
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


def _literal(value: Any) -> str:
    # `repr` of a float is `nan`, `inf` or a number, as in the language. A member of an enumeration has another one.
    kind = next(kind for kind in (bool, int, float) if isinstance(value, kind))
    text = repr(kind(value))
    return f"({text})" if text.startswith("-") else text


def text(values: Array) -> str:
    """Returns the expression of an array for people."""
    text = statements([values], for_people=True)[0]
    return text.removeprefix("t0 = ") if text.startswith("t0 = ") and ";" not in text else text


def _job(roots: list[Array]) -> _Job:
    """Returns the job of arrays over the same rows, which are computed in one pass."""
    text, names, results, kept = statements(roots)
    rows = None
    if not any(getattr(value, "shape", ()) for value in names.values()):
        rows = math.prod(_rows_of(roots[0])[0])
    own = []
    for root, name in zip(roots, results, strict=True):
        shape = root._shape if root._mask is None else None
        if isinstance(root._form, _Step):
            own.append(_Root(root, name, shape, root._form.name, root.dtype))
        else:
            own.append(_Root(root, name, shape))
    return _Job(text, names, kept, rows, own)


def _run(job: _Job, settings: dict[str, Any]) -> None:
    values = _engine.evaluate(job.text, job.names, out=dict.fromkeys(job.outputs), rows=job.rows, **settings)
    for root in job.roots:
        value = values[root.name]
        if value is None:
            raise ValueError(f"zero-size array to reduction operation {root.function} which has no identity")
        if root.dtype is not None:
            value = value.astype(root.dtype, copy=False)
        _settle(root.of, value if root.shape is None else value.reshape(root.shape)[()])


def _is_of_no_elements(root: Array) -> bool:
    """Returns whether an array is a reduction along an axis of no elements, and gives it its value: no job has one."""
    is_empty = isinstance(root._form, _Step) and bool(root._form.axis) and 0 in _rows_of(root)[0]
    if is_empty:
        _settle(root, _of_no_elements(root))
    return is_empty


def _of_no_elements(root: Array) -> Any:
    """Returns NumPy's value of a reduction along an axis, or raises its error."""
    assert isinstance(root._form, _Step)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        axis: Any = root._form.axis
        # Only those that have places take no tuple.
        axis = axis[0] if root._form.name.startswith("arg") and axis else axis
        value = getattr(np, root._form.name)(np.empty(_rows_of(root)[0], root._arguments[0].dtype), axis)
    return np.asarray(value).reshape(root._shape)
