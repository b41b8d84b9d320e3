"""Engines, and the functions that use one of their own."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from overshot import _core, _libraries
from overshot._columns import column, columns
from overshot._dtypes import name_of
from overshot._kernel import Kernel, halos
from overshot._names import names as names_of
from overshot._names import parsed
from overshot._outputs import finished, resolve
from overshot._partial import Partial, Rows, numbered, span
from overshot._progress import Progress, shown
from overshot._results import Results
from overshot._settings import Size, bytes_of, count_of, whole

_log = logging.getLogger("overshot")

Resume = bool | str | os.PathLike[str]
"""Whether a run continues after it was interrupted, or the path of its journal."""


class Options(NamedTuple):
    """The fraction of the chunks that a run verifies, how it multiplies, and whether outputs get checksums."""

    verify: float = 0.0
    precision: str = "full"
    checksum: bool = False


class Engine:
    """Devices and memory limits, with all that later runs use again: threads, memory, compiled kernels.

    >>> with ov.Engine(device="cpu") as engine:
    ...     engine.evaluate("sum(x)", x=np.ones(10))
    np.float64(10.0)

    `device` is `auto` (all GPUs and the cores together), `cpu`, `cuda`, `cuda:0`, `cuda:0,1` or `cpu+cuda`.
    `device_memory` and `pinned_memory` limit what a run takes; sizes are numbers of bytes or texts such as `"2GiB"`.
    The plan chooses `chunk` (bytes of a chunk) and `workers` (threads of a device) if they are not given. A GPU that
    takes longer than `device_timeout` seconds for a chunk is given up; there is no limit by default.
    """

    def __init__(
        self,
        device: str = "auto",
        *,
        device_memory: Size | None = None,
        pinned_memory: Size | None = None,
        chunk: Size | None = None,
        workers: int | None = None,
        device_timeout: float | None = None,
    ) -> None:
        limits = (bytes_of("device_memory", device_memory), bytes_of("pinned_memory", pinned_memory))
        counts = (bytes_of("chunk", chunk), count_of("workers", workers))
        self._settings = (device, *limits, *counts, device_timeout)
        self._core: _core.Engine | None = _core.Engine(*self._settings)
        self._may_use_gpu = "cuda" in device or device == "auto"

    def evaluate(
        self,
        text: str | _core.Expression,
        names: Mapping[str, Any] | None = None,
        /,
        *,
        out: Any = None,
        rows: int | None = None,
        progress: bool | Callable[[int, int], object] = False,
        timeline: bool = False,
        resume: Resume = False,
        verify: float = 0.0,
        precision: str = "full",
        checksum: bool = False,
        **arrays: Any,
    ) -> Any:
        """Evaluates an expression; see `overshot.evaluate`."""
        options = Options(verify, precision, checksum)
        return self._evaluate(text, names, arrays, out, rows, progress, timeline, resume, options, sys._getframe(1))

    def plan(
        self,
        text: str | _core.Expression,
        names: Mapping[str, Any] | None = None,
        /,
        *,
        out: Any = None,
        rows: int | None = None,
        precision: str = "full",
        **arrays: Any,
    ) -> _core.Plan:
        """Returns what `evaluate` would do: chunks, workers and memory. Nothing is opened or run."""
        return self._plan(text, names, arrays, out, rows, precision, sys._getframe(1))

    def run_rows(
        self,
        what: str | _core.Expression | Kernel,
        names: Mapping[str, Any] | None = None,
        /,
        *,
        rows: Rows | None = None,
        part: tuple[int, int] | None = None,
        total_rows: int | None = None,
        out: Any = None,
        progress: bool | Callable[[int, int], object] = False,
        verify: float = 0.0,
        precision: str = "full",
        **arrays: Any,
    ) -> Partial:
        """Runs some rows of a job; see `overshot.run_rows`."""
        options, frame = Options(verify, precision), sys._getframe(1)
        return self._run_rows(what, names, arrays, out, rows, part, total_rows, progress, options, frame)

    def resident(self, array: Any) -> _core.Resident:
        """Keeps an array or file in the memory of the GPUs, as far as it fits, for the runs of this engine.

        The first run that reads it copies its rows to the GPUs; later runs copy only those that do not fit. Use it in
        place of the array:

        >>> with ov.Engine(device="cpu") as engine:
        ...     x = engine.resident(np.arange(5.0))
        ...     engine.evaluate("sum(x)"), engine.evaluate("max(x)")
        (np.float64(10.0), np.float64(4.0))

        Do not change the array as long as the result exists; delete the result to free the memory. Without a GPU, every
        run reads the array.
        """
        values = column("array", array)
        return self._open([("array", values)], None).resident(values)

    def kernel(
        self,
        code: str | bytes,
        entry: str | None = None,
        *,
        parameters: str | None = None,
        threads: int | None = None,
        rows_per_block: int | None = None,
        shared_bytes: int | None = None,
        halo: int | tuple[int, int] | Mapping[str, int | tuple[int, int]] = 0,
        options: Sequence[str] = (),
        name: str = "kernel.cu",
    ) -> Kernel:
        """Makes a kernel in CUDA C++, PTX or device code a function of arrays; see `overshot.Kernel`."""
        given = {"threads": threads, "rows_per_block": rows_per_block, "shared_bytes": shared_bytes}
        launch = {name: count_of(name, value) for name, value in given.items()}
        return Kernel(self, code, entry, parameters, launch, halos(halo), list(options), name)

    def close(self) -> None:
        """Frees the devices' memory and ends the threads, when no run uses them any more."""
        self._core = None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<overshot.Engine {self._settings[0]!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _engine, self._settings

    def _open(
        self,
        columns: list[tuple[str, Any]],
        rows: int | None,
        job: _core.Expression | _core.Call | None = None,
        multiplies: bool = False,
    ) -> _core.Engine:
        """Returns the engine of the core for a job, after loading the libraries that the job may need."""
        if self._core is None:
            raise ValueError("the engine is closed")
        needs_gpu = "cuda" in self._settings[0] or isinstance(job, _core.Call)
        # With `auto`, runs of expressions over fewer bytes use no GPU.
        if self._may_use_gpu and (needs_gpu or _size(columns) + 8 * (rows or 0) >= 32 << 20):
            _libraries.nvrtc()
            if multiplies or (isinstance(job, _core.Expression) and "@" in job.text):
                _libraries.cublas()
        return self._core

    def _plan(
        self,
        text: str | _core.Expression,
        names: Mapping[str, Any] | None,
        arrays: Mapping[str, Any],
        out: Any,
        rows: int | None,
        precision: str,
        frame: FrameType,
    ) -> _core.Plan:
        rows = count_of("rows", rows)
        expression, inputs, outputs, _ = _bound(text, names, arrays, out, frame)
        return self._open(inputs, rows, expression).plan(expression, inputs, outputs, rows, precision)

    def _evaluate(
        self,
        text: str | _core.Expression,
        names: Mapping[str, Any] | None,
        arrays: Mapping[str, Any],
        out: Any,
        rows: int | None,
        progress: bool | Callable[[int, int], object],
        timeline: bool,
        resume: Resume,
        options: Options,
        frame: FrameType,
    ) -> Any:
        expression, inputs, outputs, copied = _bound(text, names, arrays, out, frame)
        journal = _journal(resume, outputs)
        values, report = self._run(expression, inputs, outputs, copied, rows, progress, timeline, journal, options)
        return returned(expression, Results(values, report))

    def _run_rows(
        self,
        what: str | _core.Expression | Kernel,
        names: Mapping[str, Any] | None,
        arrays: Mapping[str, Any],
        out: Any,
        rows: Rows | None,
        part: tuple[int, int] | None,
        total_rows: int | None,
        progress: bool | Callable[[int, int], object],
        options: Options,
        frame: FrameType | None,
    ) -> Partial:
        if (rows is None) == (part is None):
            raise TypeError("say which rows to run: rows=range(a, b), or part=(k, n) with k from 0 to n - 1")
        total_rows = count_of("total_rows", total_rows)
        job, inputs, outputs = _bound_parts(what, names, arrays, out, frame)
        engine = self._open(inputs + outputs, total_rows, job)
        if part is not None:
            wanted = engine.ranges(job, inputs, outputs, [numbered(part)], total_rows)[0]
        else:
            wanted = span(rows)
        show = shown(progress)
        try:
            return Partial(engine.run_rows(job, inputs, outputs, wanted, total_rows, show, *options[:2]))
        finally:
            if isinstance(show, Progress):
                show.close()

    def _ranges(
        self,
        what: str | _core.Expression | Kernel,
        names: Mapping[str, Any],
        out: Any,
        total_rows: int | None,
        of: int,
    ) -> list[tuple[int, int]]:
        """Divides the rows of a job into at most `of` ranges, none of which is empty."""
        job, inputs, outputs = _bound_parts(what, names, {}, out, None)
        parts, total_rows = [(part, of) for part in range(of)], count_of("total_rows", total_rows)
        ranges = self._open(inputs, total_rows, job).ranges(job, inputs, outputs, parts, total_rows)
        # A job without rows has one range, because its outputs have to be written, too.
        return [(first, end) for first, end in ranges if first < end] or ranges[:1]

    def _run(
        self,
        what: _core.Expression | _core.Call,
        inputs: list[tuple[str, Any]],
        outputs: list[tuple[str, Any]],
        copied: dict[str, Any],
        rows: int | None,
        progress: bool | Callable[[int, int], object],
        timeline: bool,
        journal: str | None = None,
        options: Options = Options(),
    ) -> tuple[dict[str, Any], _core.Report]:
        """Runs a job, and returns its arrays and numbers by name."""
        rows, show = count_of("rows", rows), shown(progress)
        try:
            results, new, report = self._execute(what, inputs, outputs, rows, show, timeline, journal, options)
        finally:
            if isinstance(show, Progress):
                show.close()
        values = finished(outputs, copied, new, report, _kept(what, report))
        values.update((name, value) for name, value in results if name not in values)
        return values, report

    def _execute(
        self,
        what: _core.Expression | _core.Call,
        inputs: list[tuple[str, Any]],
        outputs: list[tuple[str, Any]],
        rows: int | None,
        show: Callable[[int, int], object] | None = None,
        timeline: bool = False,
        journal: str | None = None,
        options: Options = Options(),
    ) -> tuple[list[tuple[str, Any]], list[tuple[str, np.ndarray]], _core.Report]:
        """Runs a job, and returns its results, its new arrays and its report."""
        engine = self._open(inputs + outputs, rows, what)
        done = engine.run(what, inputs, outputs, rows, show, timeline, journal, *options)
        log_notes(done[2])
        return done


def log_notes(report: _core.Report) -> None:
    """Logs the notes of a report."""
    if _log.isEnabledFor(logging.INFO):
        for note in report.notes:
            _log.info("%s", note)


def _kept(what: _core.Expression | _core.Call, report: _core.Report) -> dict[str, list[int]]:
    """Returns the shape of each output of an expression that may filter rows."""
    if isinstance(what, _core.Expression) and "[" in what.text:
        outputs = report.to_dict()["outputs"]
        return {output["name"]: output["shape"] for output in outputs if output["name"] in what.outputs}
    return {}


def _size(columns: list[tuple[str, Any]]) -> int:
    """Returns the bytes of columns; a file may have any number, and an array of a GPU needs one."""
    large = (_core.File, _core.GpuArray, _core.Resident)
    return sum(1 << 62 if isinstance(value, large) else getattr(value, "nbytes", 0) for _, value in columns)


def _journal(resume: Resume, outputs: list[tuple[str, Any]]) -> str | None:
    """Returns the path of the journal of a run; `None` if it has none."""
    if resume is False:
        return None
    if resume is not True:
        return os.fspath(resume)
    for _, value in outputs:
        if isinstance(value, _core.NewFile):
            return os.fspath(value.journal)
    raise ValueError("resume=True keeps a journal beside an output file: pass out= with a path, or resume=path")


def _engine(*settings: Any) -> Engine:
    names = ("device", "device_memory", "pinned_memory", "chunk", "workers", "device_timeout")
    return Engine(**dict(zip(names, settings)))


def _bound(
    text: str | _core.Expression,
    names: Mapping[str, Any] | None,
    arrays: Mapping[str, Any],
    out: Any,
    frame: FrameType | None,
) -> tuple[_core.Expression, list[tuple[str, Any]], list[tuple[str, Any]], dict[str, Any]]:
    """Returns the expression, its inputs, its outputs, and the arrays that are written after a run."""
    expression = parsed(text)
    own = names_of(expression)
    inputs = columns(own, names, arrays, frame)
    return expression, inputs, *resolve(own.results, own.optional, _given(expression, out), inputs)


def _bound_job(
    what: str | _core.Expression | Kernel,
    names: Mapping[str, Any] | None,
    arrays: Mapping[str, Any],
    out: Any,
    frame: FrameType | None,
) -> tuple[_core.Expression | _core.Call, list[tuple[str, Any]], list[tuple[str, Any]], dict[str, Any]]:
    """Returns an expression or a call of a kernel, with its inputs and outputs, and the arrays that are written after
    a run."""
    if isinstance(what, Kernel):
        return what._bound((), {**(names or {}), **arrays}, out)
    return _bound(what, names, arrays, out, frame)


def _bound_parts(
    what: str | _core.Expression | Kernel,
    names: Mapping[str, Any] | None,
    arrays: Mapping[str, Any],
    out: Any,
    frame: FrameType | None,
) -> tuple[_core.Expression | _core.Call, list[tuple[str, Any]], list[tuple[str, Any]]]:
    """Returns the job, its inputs and its outputs, which must be places that all parts write."""
    job, inputs, outputs, copied = _bound_job(what, names, arrays, out, frame)
    for name, value in outputs:
        if name in copied:
            raise ValueError(f"{name}: the output shares memory with an input, which other parts read: copy one")
        if value is None:
            raise ValueError(f"{name}: parts of a job write the same output: pass out= with a path or an array")
    return job, inputs, outputs


def returned(what: str | _core.Expression | Kernel, results: Results) -> Any:
    """Returns what `evaluate` or a kernel returns: the array or the number of one expression, or all results."""
    if isinstance(what, Kernel):
        return next(iter(results.values())) if len(results) == 1 else results
    return next(iter(results.values())) if names_of(parsed(what)).single else results


def _given(expression: _core.Expression, out: Any) -> dict[str, Any]:
    """Returns the outputs that the caller gives, by name."""
    single = names_of(expression).single
    if single and (expression.unnamed or not isinstance(out, Mapping)):
        return {} if out is None else {single: out}
    if out is None or isinstance(out, Mapping):
        # A result is returned anyway.
        return {name: value for name, value in (out or {}).items() if value is not None or name in expression.outputs}
    raise TypeError("several statements write several outputs: pass out={'name': array or path}")


_engines: dict[tuple[Any, ...], Engine] = {}
_engines_lock = threading.Lock()


def _shared(
    device: str, device_memory: Size | None, pinned_memory: Size | None, chunk: Size | None, workers: int | None
) -> Engine:
    """Returns the engine of all calls with these settings."""
    settings = (device, device_memory, pinned_memory, chunk, workers)
    engine = _engines.get(settings)
    if engine is None:
        with _engines_lock:
            engine = _engines.setdefault(settings, _engine(*settings))
    return engine


os.register_at_fork(after_in_child=lambda: globals().update(_engines_lock=threading.Lock()))


def evaluate(
    text: str | _core.Expression,
    names: Mapping[str, Any] | None = None,
    /,
    *,
    out: Any = None,
    rows: int | None = None,
    device: str = "auto",
    device_memory: Size | None = None,
    pinned_memory: Size | None = None,
    chunk: Size | None = None,
    workers: int | None = None,
    progress: bool | Callable[[int, int], object] = False,
    timeline: bool = False,
    resume: Resume = False,
    verify: float = 0.0,
    precision: str = "full",
    checksum: bool = False,
    **arrays: Any,
) -> Any:
    """Evaluates an expression over arrays and files.

    `text` is one expression, which returns its array, or its number for a reduction; or statements separated by `;`,
    which return a mapping by name, with the report of the run as `.report`:

    >>> a = np.arange(4.0)
    >>> ov.evaluate("a * a")
    array([0., 1., 4., 9.])
    >>> ov.evaluate("mean(x), std(x)", x=a)["mean(x)"]
    np.float64(1.5)

    Names are keyword arguments, keys of the mapping `names`, or variables of the caller. They stand for NumPy arrays,
    memory maps, `overshot.open` files, paths, other arrays in memory (DLPack, Arrow without nulls, buffers), or
    numbers. Arrays are used in place; do not write to them until the call returns. Arrays of different
    shapes are broadcast: each has all elements of a row, one element of each row, or one row for all rows.

    `out` is an array or a path for one expression, or a mapping by name for statements. Values without one are
    returned as new arrays, unless the text reads them again. A file gets its name when all rows are written.

    A filter, as in `x[x > 0]`, keeps the rows where a condition is true, and returns an array of one dimension. `out`
    has room for all rows: of an array the first ones are written and returned, and a file has the kept ones alone.

    `rows` is the number of rows of an expression without arrays, such as `"i * 0.5"`. `progress` shows a line, or is
    called with the finished rows and all rows. `timeline` records every stage of every chunk for the report. For the
    other arguments see `Engine`.

    With `resume=True`, the same call continues a run that was interrupted, and ends with the same bytes. Outputs are
    files, and a journal is kept beside the first one until the run is complete; `resume=path` keeps it elsewhere.

    With `precision="tf32"` or `"bf16x3"`, GPUs multiply matrices of `float32` on tensor cores, with 11 or 16 bits of
    their elements: several times as fast where products and not the link are what a run waits for.

    `verify=0.01` computes that fraction of the chunks once more, those of a GPU on the CPU, and raises `RuntimeError`
    if a byte differs. `checksum=True` adds the BLAKE3 hash of each output to the report
    (`report.to_dict()["outputs"]`): of the file, or of the array in row-major order.

    Raises `ValueError` if the expression does not fit its arrays, `NameError` for an unknown name, `TypeError` for an
    object that is no array of numbers, `OSError` for files, `MemoryError` if a limit is too small, `RuntimeError` for
    devices, and `KeyboardInterrupt` within a fraction of a second; no output file is written then.
    """
    engine = _shared(device, device_memory, pinned_memory, chunk, workers)
    options = Options(verify, precision, checksum)
    return engine._evaluate(text, names, arrays, out, rows, progress, timeline, resume, options, sys._getframe(1))


def run_rows(
    what: str | _core.Expression | Kernel,
    names: Mapping[str, Any] | None = None,
    /,
    *,
    rows: Rows | None = None,
    part: tuple[int, int] | None = None,
    total_rows: int | None = None,
    out: Any = None,
    device: str = "auto",
    device_memory: Size | None = None,
    pinned_memory: Size | None = None,
    chunk: Size | None = None,
    workers: int | None = None,
    progress: bool | Callable[[int, int], object] = False,
    verify: float = 0.0,
    precision: str = "full",
    **arrays: Any,
) -> Partial:
    """Runs some rows of a job, and returns their `Partial`, which other processes complete.

    >>> x = np.arange(10_000.0)
    >>> first = ov.run_rows("mean(x)", part=(0, 2))
    >>> first
    <overshot.Partial: rows 0 to 4096 of 10000>
    >>> first.merge(ov.run_rows("mean(x)", rows=range(4096, 10_000)))
    >>> first.finish()["mean(x)"]
    np.float64(4999.5)

    `what` is a text or a kernel of `Engine.kernel`, with its inputs and scalars by name; a kernel's own engine is not
    used, and it has no `resident` or `scratch` arguments here. Names and settings are those of `evaluate`. Results have
    the same bits for any division of the rows, on any devices. `part=(k, n)` is part k of n, from 0 on; `rows` is a
    range, a slice or a pair of numbers that begins and ends at multiples of 4096, or at the end of the job.
    `total_rows` is what `evaluate` calls `rows`: the rows of an expression without arrays.

    Every value that is not a reduction needs an output in `out`: a path, which all processes write in place under a
    hidden name until `Partial.finish` names it, or an array, of which only these rows are written. `progress` counts
    the rows of the part. `verify` and `precision` are those of `evaluate`.
    """
    engine = _shared(device, device_memory, pinned_memory, chunk, workers)
    options, frame = Options(verify, precision), sys._getframe(1)
    return engine._run_rows(what, names, arrays, out, rows, part, total_rows, progress, options, frame)


def plan(
    text: str | _core.Expression,
    names: Mapping[str, Any] | None = None,
    /,
    *,
    out: Any = None,
    rows: int | None = None,
    precision: str = "full",
    device: str = "auto",
    device_memory: Size | None = None,
    pinned_memory: Size | None = None,
    chunk: Size | None = None,
    workers: int | None = None,
    **arrays: Any,
) -> _core.Plan:
    """Returns what `evaluate` with the same arguments would do: chunks, workers and memory. Nothing is run."""
    engine = _shared(device, device_memory, pinned_memory, chunk, workers)
    return engine._plan(text, names, arrays, out, rows, precision, sys._getframe(1))


def open(
    path: str | os.PathLike[str],
    dtype: Any = None,
    *,
    read: str = "map",
    field: str | Sequence[str] | None = None,
    member: str | None = None,
    nulls: float | str | None = None,
    shape: Sequence[int] | None = None,
    timestamps: bool = False,
) -> _core.File:
    """Opens a `.npy` file, a column of a Parquet or Arrow file, or a raw file of rows, as an input of any size.

    A folder, or a pattern such as `"part-*.npy"`, stands for its files as one input, in natural order of their names.
    `dtype` is that of a raw file, and `shape` the lengths of its dimensions, if it has several.
    `field` is the column that is read of a Parquet or Arrow file, the array of a Zarr store, or the field of a `.npy`
    file of records (a structured array); or a key in the names of the folders of several files, as `year` of
    `sales/year=2024/part-0.parquet`. Several, as `["price", "size"]`, are read side by side, as an array of shape
    `(n, 2)`, and `["*"]` are all columns of a Parquet or Arrow file. If their dtypes differ, they become `float64`.
    `nulls` is the value that is read in the place of nulls, such as `0` or `nan`. Without it, nulls are an error.
    With `timestamps`, a column of timestamps is read as the integers (`int64`) that the file holds, in the file's unit.
    `member` is the array that is read of a `.npz` archive, which must not be compressed (`numpy.savez`).
    `read` is `"map"`, `"pread"` or `"direct"`, which bypasses the page cache. Do not write to the file during a run.
    """
    name = None if dtype is None else name_of(dtype)
    value = None if nulls is None else str(nulls)
    lengths = None if shape is None else [whole("shape", length) for length in shape]
    fields = field if field is None or isinstance(field, str) else list(field)
    return _core.File(os.fspath(path), name, read, fields, member, value, lengths, timestamps)


def create(
    path: str | os.PathLike[str],
    dtype: Any = None,
    *,
    force: bool = False,
    fsync: bool = False,
    codec: str | None = None,
    chunks: int | Sequence[int] | None = None,
    shards: int | Sequence[int] | None = None,
    dimensions: Sequence[str] | None = None,
) -> _core.NewFile:
    """Names a file as an output, which a run creates: `.npy`, a column of an Arrow file (`.arrow`, `.feather`,
    `.ipc`) or a Parquet file (`.parquet`, `.pq`), an array of a Zarr store (`.zarr`), or raw rows with any other name.

    Values are cast to `dtype`, if it is given. An existing file is an error, unless `force` is true.
    With `fsync`, the file is on the disk before it gets its name, and its name is before the run ends.
    `codec` compresses a Parquet file or a Zarr array: `"zstd:1"` unless it is given, `"zstd:19"`, `"gzip:6"`, `"lz4"`,
    `"snappy"` (Parquet) or `"none"`. `chunks` is the shape of the chunks of a Zarr array, or the number of rows of the
    row groups of a Parquet file. `shards` is the shape of the shards of a Zarr array, which are a multiple of the
    chunks along each axis: all chunks of a shard are in one file. `dimensions` has the names of its dimensions.
    """
    name = None if dtype is None else name_of(dtype)
    names = None if dimensions is None else list(dimensions)
    lengths = (_lengths("chunks", chunks), _lengths("shards", shards))
    return _core.NewFile(os.fspath(path), name, force, fsync, codec, *lengths, names)


def _lengths(name: str, shape: int | Sequence[int] | None) -> list[int] | None:
    return None if shape is None else [whole(name, length) for length in np.atleast_1d(shape)]
