"""Functions of arrays that become one job."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from overshot import _core
from overshot._lazy import Array, array
from overshot._lazy_jobs import check_settings, compute, settings_of_jit


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
    check_settings(settings)
    if function is None:
        return functools.partial(jit, **settings)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        lazy = [_argument(each) for each in arguments]
        before = settings_of_jit.set(settings)
        try:
            return _computed(function(*lazy, **{name: _argument(each) for name, each in named.items()}), settings)
        finally:
            settings_of_jit.reset(before)

    return call


def _argument(value: Any) -> Any:
    is_array = isinstance(value, (np.ndarray, _core.File, _core.Resident))
    is_array |= hasattr(value, "shape") and (hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__"))
    return array(value) if is_array and not isinstance(value, Array) else value


def _values(arrays: list[Array], settings: dict[str, Any]) -> Iterator[Any]:
    """Returns the values of lazy arrays. The caller owns those that are new: lazy arrays that read them are gone."""
    is_new = [each._value is None for each in arrays]
    for value, is_own in zip(compute(*arrays, **settings), is_new, strict=True):
        # Elements that a view repeats, and maps of files, stay read-only, as with NumPy.
        if is_own and isinstance(value, np.ndarray) and 0 not in value.strides and _is_writable(value.base):
            value.flags.writeable = True
        yield value


def _is_writable(base: Any) -> bool:
    return isinstance(base, np.ndarray) and base.flags.writeable


def _computed(returned: Any, settings: dict[str, Any]) -> Any:
    if isinstance(returned, Array):
        return next(_values([returned], settings))
    if isinstance(returned, dict):
        values = _computed(list(returned.values()), settings)
        return dict(zip(returned, values, strict=True))
    if isinstance(returned, (tuple, list)):
        values = _values([each for each in returned if isinstance(each, Array)], settings)
        each_value = [next(values) if isinstance(each, Array) else each for each in returned]
        if hasattr(returned, "_fields"):
            return type(returned)(*each_value)
        return type(returned)(each_value)
    return returned
