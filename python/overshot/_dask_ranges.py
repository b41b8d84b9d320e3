"""Ranges of rows that this process hands out to the workers of a Dask cluster, and which workers there are."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from overshot._partial import Partial
from overshot._parts import Claim, Ranges
from overshot._work import Failed, Work, run

AGAIN = 0.5
"""Seconds after which the workers are counted again."""

PATIENCE = 5.0
"""Seconds without a worker after which a job says that it waits."""


class Workers:
    """The workers of a cluster."""

    def __init__(self, client: Any) -> None:
        self._scheduler = client.scheduler
        self._counted = float("-inf")
        self._alone_since: float | None = None
        self.known: set[str] = set()
        """The addresses of all workers."""
        self.running: dict[str, int] = {}
        """The threads of those that run tasks. Dask pauses others, because their memory is full."""

    async def count(self, now: float) -> bool:
        """Asks the scheduler, if it is time. Returns whether none has run for some time; it says so once."""
        if now - self._counted < AGAIN:
            return False
        self._counted = now
        self.known = set(await self._scheduler.ncores())
        self.running = dict(await self._scheduler.ncores_running())
        if self.running:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
        is_alone = self._alone_since is not None and now - self._alone_since >= PATIENCE
        if is_alone:
            self._alone_since = float("inf")
        return is_alone


class RangeTasks:
    """The tasks of a job whose inputs and outputs all workers see. Its coroutines run on the client's thread."""

    def __init__(self, client: Any, work: Work, parts: Ranges) -> None:
        self._client, self._work, self._parts = client, work, parts
        self._workers = Workers(client)
        self._tasks: dict[tuple[str, int], _Task] = {}
        """By worker and range."""
        self._ended: set[str] = set()
        """The workers whose tasks ended in the last step."""
        self._job, self._number = uuid.uuid4().hex, 0
        self.is_alone = False
        """Whether the job has waited for a worker for some time. It is true once."""

    @property
    def partial(self) -> Partial | None:
        """The partial of the complete ranges."""
        return self._parts.partial

    @property
    def rows_done(self) -> int:
        """The rows of the complete ranges."""
        return self._parts.rows_done

    @property
    def is_complete(self) -> bool:
        """Whether every range is complete."""
        return self._parts.is_complete

    def step(self) -> bool:
        """Hands out ranges, and waits a moment for one to end. Returns whether one did."""
        return bool(self._client.sync(self._step))

    async def _step(self) -> bool:
        now = asyncio.get_running_loop().time
        tasks, parts, workers = self._tasks, self._parts, self._workers
        self.is_alone = await workers.count(now())
        for worker in {worker for worker, _ in tasks} - workers.known:
            for number in [number for own, number in tasks if own == worker]:
                tasks.pop((worker, number)).drop()
            parts.lost(worker)
        for worker in parts.fastest(worker for worker in workers.running if worker not in parts):
            claim = parts.claim(worker, now())
            if claim is None:
                break
            self._begin(worker, claim)
        # Whoever has just ended one. A worker with more than one thread would run both at a time.
        for worker in self._ended:
            if workers.running.get(worker) == 1 and (claim := parts.claim_ahead(worker)) is not None:
                self._begin(worker, claim)
        if not tasks:
            await asyncio.sleep(AGAIN)
            return False
        waiting = [task.result for task in tasks.values()]
        await asyncio.wait(waiting, timeout=AGAIN, return_when=asyncio.FIRST_COMPLETED)
        ended = [key for key, task in tasks.items() if task.result.done()]
        for worker, number in ended:
            _take(tasks.pop((worker, number)), worker, number, parts, now())
        self._ended = {worker for worker, _ in ended}
        return bool(ended)

    def _begin(self, worker: str, claim: Claim) -> None:
        self._number += 1
        key = f"overshot-range-{self._job}-{self._number}"
        self._tasks[worker, claim.number] = _Task(self._client, self._work, claim.rows, worker, key)

    def close(self) -> None:
        """Forgets what still runs."""
        self._client.sync(self._close)

    async def _close(self) -> None:
        for task in self._tasks.values():
            task.drop()


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


def _take(task: _Task, worker: str, number: int, parts: Ranges, now: float) -> None:
    try:
        result = task.result.result()
    except (Exception, asyncio.CancelledError) as exception:
        parts.failed(worker, number, now, exception)
        return
    finally:
        task.drop()
    if isinstance(result, Failed):
        raise result.exception
    parts.complete(worker, number, result, now)
