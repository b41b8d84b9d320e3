"""NVRTC, the compiler of CUDA kernels, from its wheel."""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import os


_loaded: list[str | None] = []


def load() -> str | None:
    """Loads NVRTC from the wheel that `pip install overshot[cuda13]` brings, and returns its path, or `None` without
    one. The core then finds it as it finds every library that the process has loaded, and needs no
    `LD_LIBRARY_PATH`."""
    if not _loaded:
        _loaded.append(_find())
    return _loaded[0]


def _find() -> str | None:
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for path in sorted(glob.glob(os.path.join(folder, "cu1[3-9]", "lib", "libnvrtc.so.1[3-9]"))):
            ctypes.CDLL(path)
            return path
    return None
