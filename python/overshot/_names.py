"""Parsed texts and their names, which are kept for later calls: asking for them takes as long as a small job."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from overshot import _core

_parse = lru_cache(maxsize=1024)(_core.Expression)


def parsed(text: str | _core.Expression) -> _core.Expression:
    """Returns an expression for a text."""
    return text if isinstance(text, _core.Expression) else _parse(text)


class Names(NamedTuple):
    """The names of an expression."""

    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    results: tuple[str, ...]
    """Its outputs and then its reductions."""
    optional: tuple[str, ...]
    """The results that need no place."""
    single: str | None
    """The result that is the whole expression, if it is one without a name. That of a reduction is its text."""


def _names(expression: _core.Expression) -> Names:
    outputs, unread, reductions = expression.outputs, expression.unread, expression.reductions
    text = " ".join(expression.text.split())
    is_reduction = reductions == [text] and not outputs
    return Names(
        inputs=tuple(expression.inputs),
        constants=tuple(expression.constants),
        results=(*outputs, *reductions),
        optional=(*(name for name in outputs if name not in unread), *reductions),
        single=expression.unnamed or (text if is_reduction else None),
    )


names = lru_cache(maxsize=1024)(_names)
"""Returns the names of an expression."""
