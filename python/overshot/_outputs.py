"""Outputs of a run: new arrays, arrays of the caller, and files."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from overshot import _core
from overshot._columns import gpu_array


def resolve(
    names: Sequence[str], optional: Sequence[str], given: dict[str, Any], inputs: list[tuple[str, Any]]
) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    """Returns the outputs of a run, `None` for a new array, and the arrays that are written after it, because they
    share memory with others: the run writes an array like them."""
    outputs: list[tuple[str, Any]] = []
    copied: dict[str, Any] = {}
    used = [value for _, value in inputs if isinstance(value, (np.ndarray, memoryview))]
    for name in names:
        if name in optional and name not in given:
            continue
        value = given.pop(name, None)
        if isinstance(value, (str, os.PathLike)):
            value = _core.NewFile(os.fspath(value))
        elif value is not None and not isinstance(value, (_core.NewFile, _core.NewRows)):
            on_gpu = gpu_array(value, name)
            if on_gpu is not None:
                value = on_gpu
            elif getattr(value, "ndim", 1) == 0:
                problem = "an array without dimensions is no output; leave it out, and take the value that is returned"
                raise ValueError(f"{name}: {problem}")
            elif any(np.may_share_memory(value, other) for other in used):
                copied[name], value = value, _like(name, value)
            else:
                used.append(value)
        outputs.append((name, value))
    if given:
        known = ", ".join(map(repr, names)) or "nothing"
        raise TypeError(f"there is no output {next(iter(given))!r}; the outputs are {known}")
    return outputs, copied


def finished(
    outputs: list[tuple[str, Any]],
    copied: dict[str, Any],
    new: Iterable[tuple[str, np.ndarray]],
    report: _core.Report,
    kept: Mapping[str, list[int]] = {},
) -> dict[str, Any]:
    """Returns the arrays and memory maps of a run that has ended. `kept` has the shapes of outputs that may have fewer
    rows than they have room for."""
    values: dict[str, Any] = {name: value for name, value in outputs if value is not None}
    values.update(new)
    for name, array in copied.items():
        whole, own = np.asarray(array), values[name]
        if name in kept:
            count = math.prod(kept[name])
            whole.flat[:count] = own.flat[:count]
        else:
            whole[...] = own
        values[name] = array
    for name, shape in kept.items():
        if isinstance(values[name], np.ndarray):
            values[name] = _first(values[name], shape)
    for name, value in values.items():
        if isinstance(value, _core.NewFile):
            values[name] = opened(name, value.path, report, value.is_encoded)
        elif isinstance(value, _core.GpuArray):
            values[name] = value.owner
    return values


def _like(name: str, array: Any) -> np.ndarray:
    """Returns a new array with the dtype and the shape of the caller's, so that the run checks both before it begins.

    What it cannot see in the new array is checked here.
    """
    whole = np.asarray(array)
    if not whole.flags.writeable:
        raise ValueError(f"{name}: the array is read-only")
    extent = whole.itemsize
    for stride, length in sorted((abs(each), n) for each, n in zip(whole.strides, whole.shape) if n > 1):
        if stride < extent and whole.size:
            raise ValueError(f"{name}: elements of the array overlap; pass a copy of it")
        extent += stride * (length - 1)
    return np.empty_like(whole, subok=False)


def _first(array: np.ndarray, shape: list[int]) -> np.ndarray:
    """Returns the first rows of an array, or its first elements, as an array of this shape."""
    if list(array.shape[1:]) == shape[1:]:
        return array[: shape[0]]
    return array.reshape(-1)[: math.prod(shape)].reshape(shape)


def opened(name: str, path: str | os.PathLike[str], report: _core.Report, is_encoded: bool = False) -> Any:
    """Returns a file that was written: a memory map, or an input of other runs if it is encoded."""
    path = os.fspath(path)
    ending = os.path.splitext(path)[1].lower()
    if is_encoded:
        same = [output for output in report.to_dict()["outputs"] if _is_same(output["path"], path)]
        return _core.File(path, field=name if len(same) > 1 else None)
    if ending == ".npy":
        opened: np.ndarray = np.load(path, mmap_mode="r")
        return opened
    outputs = report.to_dict()["outputs"]
    place = next(place for place, output in enumerate(outputs) if output["name"] == name)
    written = outputs[place]
    dtype = np.dtype(_core.numpy_type(written["dtype"]))
    if not written["rows"]:
        return np.empty(0, dtype)
    first = 0
    if ending in (".arrow", ".feather", ".ipc"):
        same = [output["bytes"] for output in outputs[:place] if _is_same(output["path"], path)]
        # Each column takes a multiple of 64 bytes.
        first = _values(path) + sum(-(-count // 64) * 64 for count in same)
    return np.memmap(path, dtype, "r", first, (written["bytes"] // dtype.itemsize,))


def _is_same(path: str | None, other: str) -> bool:
    return path is not None and os.path.realpath(path) == os.path.realpath(other)


def _values(path: str) -> int:
    """Returns where the values begin in an Arrow file that was written: behind the descriptions of the columns and of
    the record batch. Another file of such a name has rows only."""
    with open(path, "rb") as file:
        if file.read(8) != b"ARROW1\0\0":
            return 0
        for _ in range(2):
            _, length = struct.unpack("=Ii", file.read(8))
            file.seek(length, os.SEEK_CUR)
        return file.tell()
