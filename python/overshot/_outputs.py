"""Outputs of a run: new arrays, arrays of the caller, and files."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from overshot import _core
from overshot._columns import gpu_array


def resolve(
    names: list[str], optional: list[str], given: dict[str, Any], inputs: list[tuple[str, Any]]
) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    """Returns the outputs of a run, `None` for a new array, and the arrays that are written after it, because they
    share memory with others."""
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
            elif any(np.may_share_memory(value, other) for other in used):
                copied[name], value = value, None
            else:
                used.append(value)
        outputs.append((name, value))
    if given:
        known = ", ".join(map(repr, names)) or "nothing"
        raise TypeError(f"there is no output {next(iter(given))!r}; the outputs are {known}")
    return outputs, copied


def opened(name: str, path: str | os.PathLike[str], report: _core.Report) -> np.ndarray:
    """Returns a file that was written as a memory map."""
    path = os.fspath(path)
    if path.endswith(".npy"):
        opened: np.ndarray = np.load(path, mmap_mode="r")
        return opened
    written = next(output for output in report.to_dict()["outputs"] if output["name"] == name)
    dtype = _core.numpy_type(written["dtype"])
    return np.memmap(path, dtype, "r") if written["rows"] else np.empty(0, dtype)
