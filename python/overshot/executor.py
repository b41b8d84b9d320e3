"""Jobs on any executor of `concurrent.futures`.

>>> from concurrent.futures import ProcessPoolExecutor
>>> from overshot import executor
>>> with ProcessPoolExecutor(4) as pool:                        # doctest: +SKIP
...     executor.evaluate(pool, "y = sin(x) * 2; sum(x), std(x)", x="x.npy", out={"y": "y.npy"})
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from typing import Any

from overshot import _core
from overshot._engine import Options
from overshot._kernel import Kernel
from overshot._partial import Partial
from overshot._parts import Ranges
from overshot._progress import Progress, shown
from overshot._settings import Size
from overshot._work import Failed, Work, prepare, run

__all__ = ["evaluate"]

_AGAIN = 1.0  # seconds after which it is asked again which running range is late


def evaluate(
    executor: Executor,
    what: str | _core.Expression | Kernel,
    names: Mapping[str, Any] | None = None,
    /,
    *,
    out: Any = None,
    rows: int | None = None,
    ranges: int | None = None,
    parallel: int | None = None,
    device: str = "auto",
    device_memory: Size | None = None,
    pinned_memory: Size | None = None,
    chunk: Size | None = None,
    workers: int | None = None,
    progress: bool | Callable[[int, int], object] = False,
    verify: float = 0.0,
    precision: str = "full",
    **paths: Any,
) -> Any:
    """Evaluates an expression with an executor, and returns what `overshot.evaluate` returns, to the bit. A kernel of
    `Engine.kernel` works as an expression does, as for `overshot.run_rows`.

    The executor's processes run ranges of rows, `parallel` of them at a time: as many as a pool of Python's standard
    library or `mpi4py.futures` has workers. Another executor needs the number. One process for each host is best,
    because it uses all GPUs and cores.

    Names are paths that all processes see, files of `overshot.open`, or numbers; outputs are paths. The rows are
    divided into `ranges`, 32 for each worker if the job is large. `rows`, `progress`, `verify`, `precision` and the
    settings are those of `overshot.evaluate`; each process keeps its engine for later calls. Variables of the caller
    are not looked up.

    A task that ends with an exception is taken for a lost worker, and its range runs again, twice at most; an error of
    Overshot in a worker is raised here, when the ranges that run at that time have ended. A `ProcessPoolExecutor` is
    broken when one of its processes dies, and `BrokenProcessPool` is raised: call again with a new one.
    """
    settings = (device, device_memory, pinned_memory, chunk, workers)
    work = prepare(what, {**(names or {}), **paths}, out, rows, Options(verify, precision), settings)
    parallel = _parallel(executor) if parallel is None else parallel
    if parallel < 1:
        raise ValueError(f"parallel={parallel}: one range at least runs at a time")
    parts = work.ranges(ranges, parallel)
    show = shown(progress)
    try:
        _drive(executor, work, parts, parallel, show)
    finally:
        if isinstance(show, Progress):
            show.close()
    return work.finish(parts)


def _parallel(executor: Executor) -> int:
    for name in ("_max_workers", "num_workers"):
        count = getattr(executor, name, None)
        if isinstance(count, int) and count > 0:
            return count
    raise TypeError(f"a {type(executor).__name__} does not tell how many workers it has: pass parallel=")


def _drive(
    executor: Executor, work: Work, parts: Ranges, parallel: int, show: Callable[[int, int], object] | None
) -> None:
    """Runs all ranges. An executor has no names for its workers, so they are the numbers of places for tasks."""
    places: dict[Future[Partial | Failed], tuple[int, int]] = {}
    try:
        while not parts.is_complete:
            for place in parts.fastest(place for place in range(parallel) if place not in parts):
                claim = parts.claim(place, time.monotonic())
                if claim is None:
                    break
                places[executor.submit(run, work, claim.rows)] = (place, claim.number)
            ended, _ = wait(places, _AGAIN if len(places) < parallel else None, FIRST_COMPLETED)
            for future in ended:
                _take(future, *places.pop(future), parts)
                if show is not None:
                    show(parts.rows_done, parts.partial.total_rows if parts.partial is not None else 0)
    except BrokenExecutor:
        raise
    except Exception:
        # When the caller gets the error, no task reads the files any more.
        wait([future for future in places if not future.cancel()])
        raise
    finally:
        for future in places:
            future.cancel()


def _take(future: Future[Partial | Failed], place: int, number: int, parts: Ranges) -> None:
    try:
        result = future.result()
    except BrokenExecutor:
        raise
    except Exception as exception:
        parts.lost(place, exception)
        return
    if isinstance(result, Failed):
        raise result.exception
    parts.complete(place, number, result, time.monotonic())
