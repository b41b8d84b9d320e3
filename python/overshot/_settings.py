"""Settings that are numbers: counts, and sizes in bytes."""

from __future__ import annotations

import operator
import re
from typing import Any

Size = int | str
"""A number of bytes, or a text such as `"2GiB"` or `"500MB"`."""

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS.update({"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40})


def whole(name: str, value: Any) -> int:
    """Returns a setting that is a whole number and not negative."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name}={value!r} is not a whole number; pass an int") from None
    if not 0 <= number < 1 << 63:
        raise ValueError(f"{name}={number} is out of range; pass a number from 0 to 2**63 - 1")
    return number


def count_of(name: str, value: Any) -> int | None:
    """Returns a setting that is a whole number; `None` if it is not given."""
    return None if value is None else whole(name, value)


def bytes_of(name: str, size: Size | None) -> int | None:
    """Returns the number of bytes of a setting that is a size."""
    if not isinstance(size, str):
        return count_of(name, size)
    parts = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", size)
    if parts is None or parts[2].lower() not in _UNITS:
        raise ValueError(f"{name}={size!r} is not a size, such as '2GiB' or '500MB'")
    return int(float(parts[1]) * _UNITS[parts[2].lower()])
