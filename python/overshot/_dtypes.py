"""Dtypes that arguments name."""

from __future__ import annotations

from typing import Any

import numpy as np


def name_of(dtype: Any, argument: str = "dtype") -> str:
    """Returns NumPy's name of a dtype, which says nothing of the order of its bytes: another one is refused."""
    own: np.dtype[Any] = np.dtype(dtype)
    if not own.isnative:
        problem = f"the bytes of {own.str!r} are in an order that is not that of this machine"
        raise TypeError(f"{argument}: {problem}; pass {own.name!r}, and convert the bytes with NumPy")
    return own.name
