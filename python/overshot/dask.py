"""Jobs on a cluster of Dask.

>>> from distributed import Client
>>> import overshot.dask
>>> client = Client("scheduler:8786")                           # doctest: +SKIP
>>> overshot.dask.evaluate(client, "sum(x)", x="/shared/x.npy")  # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from distributed import Client

from overshot import _core
from overshot._engine import Size
from overshot._partial import Partial
from overshot._parts import Ranges
from overshot._progress import Progress, shown
from overshot._work import Failed, Work, prepare, run

__all__ = ["evaluate"]

_AGAIN = 0.5  # seconds after which the workers are counted again


def evaluate(
    client: Client,
    text: str | _core.Expression,
    names: Mapping[str, Any] | None = None,
    /,
    *,
    out: Any = None,
    rows: int | None = None,
    ranges: int | None = None,
    device: str = "auto",
    device_memory: Size | None = None,
    pinned_memory: Size | None = None,
    chunk: Size | None = None,
    workers: int | None = None,
    progress: bool | Callable[[int, int], object] = False,
    **paths: Any,
) -> Any:
    """Evaluates an expression on the workers of a client, and returns what `overshot.evaluate` returns, to the bit.

    Each range of rows is a task, `overshot-range` on Dask's dashboard, and each worker runs one at a time, with all
    GPUs and cores that it sees: start one worker process for each host. Workers may come and go. The range of a lost
    worker runs again on another one; near the end, free workers run copies of the ranges of slow ones, unless the job
    has outputs. No range is run more than twice, as long as no two workers are lost with the same one.

    Names are paths that all workers and this process see, files of `overshot.open`, or numbers; outputs are paths,
    which get their names when all rows are written. The rows are divided into `ranges`, 32 for each worker if the job
    is large. `rows`, `progress` and the settings are those of `overshot.evaluate`; each worker keeps its engine for
    later calls. Variables of the caller are not looked up.

    Raises what `overshot.evaluate` raises, and `RuntimeError` if three workers are lost with the same rows.
    """
    if client.asynchronous:
        raise TypeError("the client is asynchronous: pass one with asynchronous=False, in a thread of its own")
    work = prepare(text, names, paths, out, rows, (device, device_memory, pinned_memory, chunk, workers))
    cluster: Any = client  # most of its methods have no types
    parts = work.ranges(ranges, len(cluster.nthreads()))
    show = shown(progress)
    try:
        cluster.sync(_drive, cluster, work, parts, show)
    finally:
        if isinstance(show, Progress):
            show.close()
    return work.finish(parts)


class _Task:
    """A range that a worker runs. Dask may not give it to another worker: who runs what is decided in one place."""

    def __init__(self, client: Any, work: Work, rows: tuple[int, int], worker: str, key: str) -> None:
        self.future = client.submit(run, work, rows, key=key, workers=[worker], allow_other_workers=False, pure=False)
        self.result: asyncio.Task[Partial | Failed] = asyncio.ensure_future(self.future._result())

    def drop(self) -> None:
        """Forgets the task. If it runs, it runs to its end, and nobody sees its result."""
        self.result.add_done_callback(lambda result: result.cancelled() or result.exception())
        # This ends the waiting, too. A cancelled `result` could cancel the gathering of other results.
        self.future.release()


async def _drive(client: Any, work: Work, parts: Ranges, show: Callable[[int, int], object] | None) -> None:
    """Runs all ranges, on the event loop of the client."""
    time = asyncio.get_running_loop().time
    job, number = uuid.uuid4().hex, 0
    tasks: dict[str, _Task] = {}
    alive: set[str] = set()
    counted = float("-inf")
    try:
        while not parts.is_complete:
            if time() - counted >= _AGAIN:
                alive, counted = set(await client.scheduler.ncores()), time()
                for worker in tasks.keys() - alive:
                    tasks.pop(worker).drop()
                    parts.lost(worker)
            for worker in parts.fastest(worker for worker in alive if worker not in parts):
                claim = parts.claim(worker, time())
                if claim is None:
                    break
                number += 1
                key = f"overshot-range-{job}-{number}"
                tasks[worker] = _Task(client, work, claim.rows, worker, key)
            if not tasks:
                # No worker is left. A new one may come.
                await asyncio.sleep(_AGAIN)
                continue
            waiting = [task.result for task in tasks.values()]
            await asyncio.wait(waiting, timeout=_AGAIN, return_when=asyncio.FIRST_COMPLETED)
            for worker in [worker for worker, task in tasks.items() if task.result.done()]:
                task = tasks.pop(worker)
                _take(task, worker, parts, time())
                if show is not None:
                    show(parts.rows_done, parts.partial.total_rows if parts.partial is not None else 0)
    finally:
        for task in tasks.values():
            task.drop()


def _take(task: _Task, worker: str, parts: Ranges, now: float) -> None:
    try:
        result = task.result.result()
    except (Exception, asyncio.CancelledError) as exception:
        parts.lost(worker, exception)
        return
    finally:
        task.drop()
    if isinstance(result, Failed):
        raise result.exception
    parts.complete(worker, result, now)
