"""A line that shows how far a run is, in a terminal or a notebook."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any


class Progress:
    """Shows finished rows, at most ten times a second."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._next = self._begin + 0.5
        self._handle: Any = None
        self._shown = ""
        self._done = 0
        self._notebook = _notebook()

    def __call__(self, done: int, rows: int) -> None:
        now = time.monotonic()
        if done < self._done:  # another pass
            self._begin = now
        self._done = done
        if now < self._next or rows == 0 or now == self._begin:
            return
        self._next = now + 0.1
        rate = done / (now - self._begin)
        left = f", {(rows - done) / rate:.0f} s left" if done else ""
        self._show(f"{100 * done / rows:3.0f} % of {rows:,} rows{left}")

    def _show(self, text: str) -> None:
        if self._notebook is not None:
            if self._handle is None:
                self._handle = self._notebook({"text/plain": text}, raw=True, display_id=True)
            else:
                self._handle.update({"text/plain": text}, raw=True)
        elif sys.stderr.isatty():
            sys.stderr.write("\r" + text.ljust(len(self._shown)))
            sys.stderr.flush()
        self._shown = text

    def close(self) -> None:
        """Removes the line."""
        if self._handle is not None:
            self._handle.update({"text/plain": ""}, raw=True)
        elif self._shown and sys.stderr.isatty():
            sys.stderr.write("\r" + " " * len(self._shown) + "\r")
            sys.stderr.flush()


def _notebook() -> Callable[..., Any] | None:
    """Returns the function that displays, in a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    display: Callable[..., Any] = importlib.import_module("IPython.display").display
    return display


def shown(progress: bool | Callable[[int, int], object]) -> Callable[[int, int], object] | None:
    """Returns the function that shows progress."""
    return Progress() if progress is True else progress if callable(progress) else None
