"""Jobs on a cluster of Dask.

>>> from distributed import Client
>>> import overshot.dask
>>> client = Client("scheduler:8786")                           # doctest: +SKIP
>>> overshot.dask.evaluate(client, "sum(x)", x="/shared/x.npy")  # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
import uuid
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from distributed import Client

from overshot import _core
from overshot._engine import Size
from overshot._kernel import Kernel
from overshot._partial import Partial
from overshot._parts import Ranges
from overshot._progress import Progress, shown
from overshot._work import Failed, Work, prepare, run

__all__ = ["evaluate"]

_AGAIN = 0.5  # seconds after which the workers are counted again
_PATIENCE = 5.0  # seconds without a worker after which a warning says so
_ALONE = "no worker of the cluster runs, and the job waits for one: start workers, or look at the logs of paused ones"


def evaluate(
    client: Client,
    what: str | _core.Expression | Kernel,
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
    verify: float = 0.0,
    **paths: Any,
) -> Any:
    """Evaluates an expression on the workers of a client, and returns what `overshot.evaluate` returns, to the bit. A
    kernel of `Engine.kernel` works as an expression does, as for `overshot.run_rows`.

    Each range of rows is a task, `overshot-range` on Dask's dashboard, and each worker runs one at a time, with all
    GPUs and cores that it sees: start one worker process for each host. Workers may come and go. The range of a lost
    worker runs again on another one; near the end, free workers run copies of the ranges of slow ones, unless the job
    has outputs. No range is run more than twice, as long as no two workers are lost with the same one. A worker that
    Dask has paused gets no range. A warning says if the job waits because no worker runs.

    Names are paths that all workers and this process see, files of `overshot.open`, or numbers; outputs are paths,
    which get their names when all rows are written. The rows are divided into `ranges`, 32 for each worker if the job
    is large. `rows`, `progress`, `verify` and the settings are those of `overshot.evaluate`; each worker keeps its
    engine for later calls. Variables of the caller are not looked up.

    Raises what `overshot.evaluate` raises, and `RuntimeError` if three workers are lost with the same rows.
    """
    if client.asynchronous:
        raise TypeError("the client is asynchronous: pass one with asynchronous=False, in a thread of its own")
    work = prepare(what, names, paths, out, rows, verify, (device, device_memory, pinned_memory, chunk, workers))
    cluster: Any = client  # most of its methods have no types
    parts = work.ranges(ranges, len(cluster.nthreads()))
    driver = _Driver(cluster, work, parts)
    show = shown(progress)
    try:
        while not parts.is_complete:
            is_new = cluster.sync(driver.step)
            # These are on the caller's thread. On that of the client, what takes its time would delay other answers.
            if is_new and show is not None:
                show(parts.rows_done, parts.partial.total_rows if parts.partial is not None else 0)
            if driver.is_alone:
                warnings.warn(_ALONE, RuntimeWarning, stacklevel=2)
    finally:
        cluster.sync(driver.close)
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


class _Driver:
    """Hands out the ranges of a job. Its coroutines run on the event loop of the client."""

    def __init__(self, client: Any, work: Work, parts: Ranges) -> None:
        self._client, self._work, self._parts = client, work, parts
        self._tasks: dict[str, _Task] = {}
        self._job, self._number = uuid.uuid4().hex, 0
        self._running: set[str] = set()
        self._counted = float("-inf")
        self._alone_since: float | None = None
        self.is_alone = False
        """Whether no worker has run for some time. It is true in one step only."""

    async def step(self) -> bool:
        """Hands out ranges, and waits a moment for one to end. Returns whether one did."""
        now = asyncio.get_running_loop().time
        tasks, parts, self.is_alone = self._tasks, self._parts, False
        if now() - self._counted >= _AGAIN:
            await self._count(now())
        for worker in parts.fastest(worker for worker in self._running if worker not in parts):
            claim = parts.claim(worker, now())
            if claim is None:
                break
            self._number += 1
            key = f"overshot-range-{self._job}-{self._number}"
            tasks[worker] = _Task(self._client, self._work, claim.rows, worker, key)
        if not tasks:
            await asyncio.sleep(_AGAIN)
            return False
        waiting = [task.result for task in tasks.values()]
        await asyncio.wait(waiting, timeout=_AGAIN, return_when=asyncio.FIRST_COMPLETED)
        ended = [worker for worker, task in tasks.items() if task.result.done()]
        for worker in ended:
            _take(tasks.pop(worker), worker, parts, now())
        return bool(ended)

    async def _count(self, now: float) -> None:
        """Finds out which workers there are. Those that Dask has paused, because their memory is full, do not run."""
        scheduler = self._client.scheduler
        alive, self._running = set(await scheduler.ncores()), set(await scheduler.ncores_running())
        self._counted = now
        for worker in self._tasks.keys() - alive:
            self._tasks.pop(worker).drop()
            self._parts.lost(worker)
        if self._running or self._tasks:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
        self.is_alone = self._alone_since is not None and now - self._alone_since >= _PATIENCE
        if self.is_alone:
            self._alone_since = float("inf")

    async def close(self) -> None:
        """Forgets what still runs."""
        for task in self._tasks.values():
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
