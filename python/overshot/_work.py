"""What a worker of another process needs to run some rows of a job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from overshot import _core, _engine
from overshot._kernel import Kernel
from overshot._parts import Ranges, count_of
from overshot._partial import Partial


class Failed(NamedTuple):
    """The exception of a run. It is returned, so that exceptions of a task always mean that its worker is lost."""

    exception: Exception


class Work(NamedTuple):
    """A job as paths and numbers, which any process can open."""

    what: str | Kernel
    names: dict[str, Any]
    out: Any
    rows: int | None
    verify: float
    settings: tuple[Any, ...]

    def engine(self) -> _engine.Engine:
        """Returns the engine of this process for these settings."""
        return _engine._shared(*self.settings)

    def ranges(self, count: int | None, workers: int) -> Ranges:
        """Divides the rows into `count` ranges, or as many as are good for so many workers."""
        if count is not None and count < 1:
            raise ValueError(f"ranges={count}: a job has one range at least")

        def divide(of: int) -> list[tuple[int, int]]:
            return self.engine()._ranges(self.what, self.names, self.out, self.rows, of)

        rows = divide(1)[0][1]
        # A worker that runs a copy could still write, or make its file anew, when the outputs have their names.
        return Ranges(divide(count or count_of(rows, max(workers, 1))), copies=self.out is None)

    def finish(self, ranges: Ranges) -> Any:
        """Returns what `evaluate` returns."""
        assert ranges.partial is not None, "a job has one range at least"
        return _engine.returned(self.what, ranges.partial.finish())


def run(work: Work, rows: tuple[int, int]) -> Partial | Failed:
    """Runs some rows, in a worker."""
    what, names, out, total_rows, verify, _ = work
    try:
        return work.engine()._run_rows(what, names, {}, out, rows, None, total_rows, False, verify, None)
    except Exception as exception:
        return Failed(exception)


def prepare(
    what: str | _core.Expression | Kernel,
    names: Mapping[str, Any] | None,
    given: Mapping[str, Any],
    out: Any,
    rows: int | None,
    verify: float,
    settings: tuple[Any, ...],
) -> Work:
    """Returns the job as something that can be sent. Paths become absolute, because workers have other folders."""
    sent = {name: _sent(name, value) for name, value in {**(names or {}), **given}.items()}
    outputs: Any = {name: _path(name, value) for name, value in out.items()} if isinstance(out, Mapping) else out
    if outputs is not None and outputs is out:
        outputs = _path("out", out)
    what = what.text if isinstance(what, _core.Expression) else what
    return Work(what, sent, outputs or None, rows, verify, settings)


def _sent(name: str, value: Any) -> Any:
    if isinstance(value, (str, os.PathLike)):
        return os.path.abspath(value)
    if isinstance(value, _core.File):
        path, dtype, read = value.__getnewargs__()
        return _core.File(os.path.abspath(path), dtype, read)
    if isinstance(value, (bool, int, float, np.generic)) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value
    if type(value).__module__.startswith("dask."):
        raise TypeError(
            f"{name}: the rows of a dask array are in the memory of one worker each, and every worker must see all "
            "rows of an input: write it to a file that all workers see, and pass its path"
        )
    raise TypeError(
        f"{name}: a {type(value).__name__} is in the memory of this process, and is not sent to the workers: write it "
        "with numpy.save to a file that all workers see, and pass its path"
    )


def _path(name: str, value: Any) -> Any:
    if isinstance(value, (str, os.PathLike)):
        return _core.NewFile(os.path.abspath(value))
    if isinstance(value, _core.NewFile):
        path, dtype, force, fsync = value.__getnewargs__()
        return _core.NewFile(os.path.abspath(path), dtype, force, fsync)
    raise TypeError(f"{name}: workers write files: pass a path that all of them see, not a {type(value).__name__}")
