"""What a worker of another process needs to run some rows of a job."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from overshot import _core, _engine
from overshot._columns import column
from overshot._kernel import Kernel
from overshot._names import parsed
from overshot._parts import Ranges, count_of
from overshot._partial import Partial


class Failed(NamedTuple):
    """The exception of a run. It is returned, so that exceptions of a task always mean that its worker is lost."""

    exception: Exception


class Work(NamedTuple):
    """A job as paths and numbers, which any process can open, and inputs whose blocks come later."""

    what: str | Kernel
    names: dict[str, Any]
    out: Any
    rows: int | None
    options: _engine.Options
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

    def new_outputs(self) -> list[str]:
        """Returns the names of the outputs that have no path."""
        new = [name for name, value in self._bound()[2] if value is None]
        if new and self.out is not None:
            raise TypeError(
                f"{new[0]} would stay on the workers, and other outputs are files: pass out= with a path for every "
                "output, or for none, because rows that a lost worker had are run again"
            )
        return new

    def size(self) -> tuple[int, int, int]:
        """Returns the rows of the job, of which parts begin at multiples of how many, and those of an outer row."""
        job, inputs, outputs = self._bound()
        engine = self.engine()._open(inputs, self.rows)
        rows = engine.ranges(job, inputs, outputs, [(0, 1)], self.rows)[0][1]
        shapes = [value.shape for _, value in inputs if isinstance(value, (_core.File, _core.Blocks))]
        inner = math.prod(max(shapes, key=len)[1:]) if shapes else 1
        return rows, engine.part_step(job, inputs, outputs, self.rows), inner

    def _bound(self) -> tuple[_core.Expression | _core.Call, list[tuple[str, Any]], list[tuple[str, Any]]]:
        """Returns the job, its inputs and its outputs, `None` for those without a path."""
        return _engine._bound_job(self.what, self.names, {}, self.out, None)[:3]

    def finish(self, ranges: Ranges) -> Any:
        """Returns what `evaluate` returns."""
        assert ranges.partial is not None, "a job has one range at least"
        return _engine.returned(self.what, ranges.partial.finish())


def run(work: Work, rows: tuple[int, int]) -> Partial | Failed:
    """Runs some rows, in a worker."""
    what, names, out, total_rows, options, _ = work
    try:
        return work.engine()._run_rows(what, names, {}, out, rows, None, total_rows, False, options, None)
    except Exception as exception:
        return Failed(exception)


def run_part(
    work: Work,
    rows: tuple[int, int],
    total_rows: int,
    pieces: Mapping[str, list[tuple[int, int, Any]]],
    new: list[str],
) -> dict[str, Any]:
    """Runs some rows, in a worker, of inputs whose elements in these rows are given: the number of the first one of a
    piece, how many it has, and an array.

    Returns the rows of new outputs by name, and the partial with an empty name.
    """
    blocks = {
        name: work.names[name].with_blocks([(first, _checked(name, block, count)) for first, count, block in given])
        for name, given in pieces.items()
    }
    work = work._replace(names={**work.names, **blocks})
    made = {name: _core.NewRows(*rows, total_rows) for name in new}
    if made:
        is_unnamed = isinstance(work.what, str) and parsed(work.what).unnamed is not None
        work = work._replace(out=next(iter(made.values())) if is_unnamed else made)
    result = run(work, rows)
    if isinstance(result, Failed):
        raise result.exception
    return {"": result, **{name: array.take() for name, array in made.items()}}


def _checked(name: str, block: Any, count: int) -> Any:
    """Returns a piece of so many elements as an array in the memory of the host."""
    array = column(name, block)
    if not isinstance(array, (np.ndarray, memoryview)):
        raise TypeError(f"{name}: its blocks are of {type(block).__name__}: make them arrays of NumPy with map_blocks")
    own = np.asarray(array).size
    if own != count:
        problem = f"{own} elements of a block were computed, but its dask array says {count}"
        raise ValueError(f"{name}: {problem}: check its chunks")
    return array


def prepare(
    what: str | _core.Expression | Kernel,
    given: Mapping[str, Any],
    out: Any,
    rows: int | None,
    options: _engine.Options,
    settings: tuple[Any, ...],
) -> Work:
    """Returns the job as something that can be sent. Paths become absolute, because workers have other folders."""
    sent = {name: _sent(name, value) for name, value in given.items()}
    outputs: Any = {name: _path(name, value) for name, value in out.items()} if isinstance(out, Mapping) else out
    if outputs is not None and outputs is out:
        outputs = _path("out", out)
    what = what.text if isinstance(what, _core.Expression) else what
    return Work(what, sent, outputs or None, rows, options, settings)


def _sent(name: str, value: Any) -> Any:
    if isinstance(value, (str, os.PathLike)):
        return _absolute(value)
    if isinstance(value, _core.File):
        path, dtype, read, field, member, nulls, shape, timestamps = value.__getnewargs__()
        return _core.File(_absolute(path), dtype, read, field, member, nulls, shape, timestamps)
    is_number = isinstance(value, np.ndarray) and value.ndim == 0
    if is_number or isinstance(value, (_core.Blocks, bool, int, float, np.generic)):
        return value
    if type(value).__module__.startswith("dask."):
        raise TypeError(
            f"{name}: a {type(value).__name__} of Dask is in the memory of its workers: overshot.dask.evaluate takes "
            "dask arrays, such as those of to_dask_array(lengths=True); others need a file and its path"
        )
    raise TypeError(
        f"{name}: a {type(value).__name__} is in the memory of this process, and is not sent to the workers: write it "
        "with numpy.save to a file that all workers see, and pass its path"
    )


def _absolute(path: str | os.PathLike[str]) -> str:
    """Returns the path that is the same in every folder. A URL is."""
    text = os.fspath(path)
    return text if "://" in text else os.path.abspath(text)


def _path(name: str, value: Any) -> Any:
    if isinstance(value, (str, os.PathLike)):
        return _core.NewFile(os.path.abspath(value))
    if isinstance(value, _core.NewFile):
        path, dtype, force, fsync, codec, chunks, shards, dimensions = value.__getnewargs__()
        return _core.NewFile(os.path.abspath(path), dtype, force, fsync, codec, chunks, shards, dimensions)
    raise TypeError(f"{name}: workers write files: pass a path that all of them see, not a {type(value).__name__}")
