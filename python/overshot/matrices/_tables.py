"""Tables of rows: their shapes, some of their rows, and runs over all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from overshot import _core
from overshot._columns import column
from overshot._engine import evaluate


def run(text: str, names: dict[str, Any], options: dict[str, Any], **more: Any) -> Any:
    """Evaluates a text with the options of the caller, on the caller's engine if `engine` is one of them."""
    own = dict(options)
    engine = own.pop("engine", None)
    return (evaluate if engine is None else engine.evaluate)(text, names, **own, **more)


def table(name: str, values: Any) -> Any:
    """The table that an argument stands for, which has a dtype and a shape."""
    found = column(name, values)
    if not hasattr(found, "dtype"):
        found = np.asarray(found)
    if len(found.shape) != 2:
        raise ValueError(f"{name} is a table of the shape (n, d), and not {tuple(found.shape)}")
    return found


def mapped(values: Any) -> Any:
    """The same values as an array that NumPy can index, if they are one or the file of one."""
    if not isinstance(values, _core.File) or values.field or values.member:
        return values
    try:
        return np.load(values.path, mmap_mode="r")
    except (OSError, ValueError):
        return values  # several files, or raw rows


def per_row(name: str, values: Any) -> Any:
    """A column with one value for each row, as a table of the shape `(n, 1)` where it is an array."""
    found = mapped(column(name, values))
    if isinstance(found, memoryview):
        found = np.asarray(found)
    return found[:, None] if isinstance(found, np.ndarray) and found.ndim == 1 else found


def some_rows(values: Any, numbers: np.ndarray, options: dict[str, Any]) -> np.ndarray:
    """The rows with these ascending numbers."""
    array = mapped(values)
    if isinstance(array, np.ndarray):
        return np.asarray(array[numbers])
    # A pass over everything reads any kind of table.
    is_wanted = np.zeros(values.shape[0], bool)
    is_wanted[numbers] = True
    own = {name: option for name, option in options.items() if name != "precision"}  # nothing is multiplied
    found: np.ndarray = run("y = x[is_wanted]", {"x": values, "is_wanted": is_wanted}, own)["y"]
    return found


def dtype_of_products(values: Any) -> np.dtype[Any]:
    """The dtype in which the rows are multiplied without loss: `float32`, or `float64` for what does not fit there."""
    return np.result_type(values.dtype, np.float32)
