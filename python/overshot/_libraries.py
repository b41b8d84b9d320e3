"""Libraries of CUDA, from their wheels.

The core finds a library that the process has loaded, so it needs no `LD_LIBRARY_PATH` for these.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import importlib.util
import os


def nvrtc() -> str | None:
    """Loads NVRTC, the compiler of kernels, from the wheel that `pip install overshot[cuda13]` brings, and returns its
    path, or `None` without one."""
    return _load("libnvrtc.so.1[3-9]")


def cublas() -> str | None:
    """Loads cuBLAS, which multiplies matrices, from the wheel `nvidia-cublas`, and returns its path, or `None` without
    one."""
    # cuBLAS needs this one, which its own search path may not name.
    return _load("libcublas.so.1[3-9]") if _load("libcublasLt.so.1[3-9]") else None


def _load_anew(name: str) -> str | None:
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for path in sorted(glob.glob(os.path.join(folder, "cu1[3-9]", "lib", name))):
            try:
                ctypes.CDLL(path)
            except OSError:
                # A library of another system, or a cut one. The core says what is missing if it needs one.
                continue
            return path
    return None


_load = functools.lru_cache(_load_anew)
