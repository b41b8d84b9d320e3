"""Names of an expression, and the objects that they stand for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import FrameType, ModuleType
from typing import Any

import numpy as np

from overshot import _core
from overshot._names import Names

_NUMBERS = (bool, int, float, np.generic)
_READY = (*_NUMBERS, _core.File, _core.Blocks, _core.Resident, _core.GpuArray)
_GPUS = (2, 13)  # of DLPack's devices: memory of CUDA, managed memory of CUDA


def gpu_array(value: Any, name: str = "array") -> _core.GpuArray | None:
    """Returns an array of another library in the memory of a GPU; `None` for other objects."""
    if isinstance(value, (np.ndarray, memoryview, bytearray, str)):
        return None
    device = getattr(value, "__dlpack_device__", None)
    is_on_gpu = device()[0] in _GPUS if callable(device) else hasattr(value, "__cuda_array_interface__")
    try:
        return _core.GpuArray(value) if is_on_gpu else None
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from error


def column(name: str, value: Any) -> Any:
    """Returns what the core takes for an input: an object with a buffer, a file, an array of a GPU, or a number.

    Nothing is copied.
    """
    kind = type(value)
    if kind is np.ndarray or isinstance(value, _READY):
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name}: the mask of a masked array would be ignored; pass {name}.data or {name}.filled(...)")
    if isinstance(value, (str, os.PathLike)):
        return _core.File(os.fspath(value))
    if isinstance(value, np.ndarray):
        return value
    nulls = null_count(value)
    if nulls:
        # NumPy would make floats of what has no value, and of all other elements.
        raise ValueError(f"{name}: the {kind.__name__} has {nulls} nulls; fill them first")
    if hasattr(value, "__arrow_c_array__") and hasattr(value, "null_count"):
        return _in_place(name, value)
    try:
        return memoryview(value)
    except TypeError:
        pass
    on_gpu = gpu_array(value, name)
    if on_gpu is not None:
        return on_gpu
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeError(f"{name}: {kind.__name__} is not an array of numbers")
    return array


def null_count(value: Any) -> int:
    """Returns how many elements of an object of Arrow, Polars or pandas are null. NaN is a number."""
    # Attributes of a table of pandas may be its columns.
    kind = type(value)
    if hasattr(kind, "null_count"):
        count = value.null_count
        counts = np.asarray(count() if callable(count) else count)
        # What is lazy has no counts. It is no array of numbers, either, which `column` says.
        return 0 if counts.dtype == object else int(counts.sum())
    if hasattr(kind, "itercolumns"):
        return sum(map(null_count, value.itercolumns()))
    if not hasattr(kind, "isna"):
        return 0
    if getattr(value, "ndim", 1) > 1:
        return sum(null_count(own) for _, own in value.items())
    # Where NaN stands for what is absent, as with dtypes of NumPy, pandas cannot tell them apart.
    own_null = getattr(getattr(value, "dtype", None), "na_value", np.nan)
    return 0 if isinstance(own_null, float) else int(np.asarray(value.isna()).sum())


def _in_place(name: str, value: Any) -> Any:
    """Returns the elements of an array of PyArrow without nulls."""
    try:
        return value.to_numpy(zero_copy_only=True)
    except ValueError as error:
        if str(value.type) == "bool":
            problem = f"pass {name}.to_numpy(zero_copy_only=False), because the bools of Arrow are single bits"
            raise TypeError(f"{name}: {problem}") from error
        raise TypeError(f"{name}: an Arrow array of {value.type} is not an array of numbers") from error


def field(name: str, value: Any, own: str) -> Any:
    """Returns a field of the records that a name stands for: a `.npy` file, or a structured array."""
    if isinstance(value, (str, os.PathLike)):
        return _core.File(os.fspath(value), field=own)
    if not isinstance(value, np.ndarray) or value.dtype.names is None:
        if isinstance(value, ModuleType):
            raise TypeError(f"{name}.{own}: an expression has no modules; write {own}")
        what = "neither the path of a file of records nor a structured array"
        raise TypeError(f"{name}: {what}, so it has no field {own!r}")
    if own not in value.dtype.names:
        raise TypeError(f"{name}: has no field {own!r}, only {', '.join(value.dtype.names)}")
    return value[own]


def columns(
    expression: Names, names: Mapping[str, Any] | None, given: Mapping[str, Any], frame: FrameType | None
) -> list[tuple[str, Any]]:
    """Returns the inputs of an expression: those that are given, and others from the variables of a frame."""
    own: dict[str, Any] = dict(names or {})
    own.update(given)
    variables: tuple[Mapping[str, Any], ...] = ()
    # To ask for the variables of a function may copy all of them.
    if frame is not None and not all(name in own for name in (*expression.inputs, *expression.constants)):
        variables = (frame.f_locals, frame.f_globals)
    found = []
    bases = set()  # of names of fields
    for name in expression.inputs:
        place = own if name in own else next((place for place in variables if name in place), None)
        if place is not None:
            found.append((name, column(name, place[name])))
            own.pop(name, None)
            continue
        base, _, own_field = name.partition(".")
        records = next((place for place in (own, *variables) if own_field and base in place), None)
        if records is None:
            make = "make a variable of this name, or " if variables else ""
            raise NameError(f"name {name!r} is not defined: {make}pass {name}=...", name=name)
        found.append((name, column(name, field(base, records[base], own_field))))
        bases.add(base)
    # A variable with the name of a constant takes its place, as in Python.
    for name in expression.constants:
        for place in (own, *variables):
            if name in place:
                found.append((name, column(name, place[name])))
                own.pop(name, None)
                break
    for base in bases:
        own.pop(base, None)
    if own:
        known = ", ".join(repr(known) for known in (*expression.inputs, *expression.constants)) or "nothing"
        raise TypeError(f"the expression has no name {next(iter(own))!r}; it reads {known}")
    return found
