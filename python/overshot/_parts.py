"""Which rows of a job wait, run and are complete, and who runs them.

No threads, no clock and no connection: a driver (`overshot.dask`, `overshot.executor`, the simulation of
docs/scale.md) tells what happened and when, and asks what to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from statistics import median
from typing import NamedTuple, TypeVar

from overshot._partial import Partial

LOSSES = 3
"""A range that so many workers were lost with may be what ends them, so it is not run once more."""

RANGES_PER_WORKER = 32
"""With fewer, the last ranges take a noticeable part of the time; docs/scale.md has the figures."""

AHEAD = 2
"""A worker gets a second range while as many ranges wait for each worker that runs one: all will get theirs."""

SLOW = 1.5
"""A worker that takes so many times as long as the usual one gets no second range."""

FEWEST_ROWS = 1 << 20
"""Ranges of fewer rows cost more to hand out than to run; the rows are divided further only for idle workers."""


Worker = TypeVar("Worker", bound=Hashable)


def count_of(rows: int, workers: int) -> int:
    """Returns how many ranges a job is divided into, if the caller does not say."""
    return min(RANGES_PER_WORKER * workers, max(workers, rows // FEWEST_ROWS))


class Lost(RuntimeError):
    """Rows were not run, because several workers were lost while they ran them."""


class Claim(NamedTuple):
    """A range that a worker is to run."""

    number: int
    rows: tuple[int, int]


class Ranges:
    """The ranges of rows of a job, and the partial of those that are complete.

    A worker, which may be anything that identifies one, runs one range at a time: it claims one, and completes it or is
    lost with it. It may claim the next one ahead, which it begins when it has completed the first: then it does not
    wait for the driver. A lost range is claimed before all others. When no range waits, a free worker gets a copy of
    the one that is expected to end last, if it would end it earlier; `copies=False` forbids this. No range has more
    than one copy, and only the first result of a range is merged.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]], *, copies: bool = True) -> None:
        self.partial: Partial | None = None
        self.rows_done = 0
        self.starts = [0] * len(ranges)
        """How often each range was claimed, without those that a lost worker had not begun."""
        self._ranges = list(ranges)
        self._waiting = deque(range(len(ranges)))
        self._rows_waiting = sum(end - first for first, end in ranges)
        self._done = [False] * len(ranges)
        self._left = len(ranges)
        self._losses = [0] * len(ranges)
        self._copies = copies
        # The range of each worker that runs one, and since when; the one that it has claimed ahead; the workers of each
        # range.
        self._running: dict[Hashable, tuple[int, float]] = {}
        self._ahead: dict[Hashable, int] = {}
        self._workers: dict[int, list[Hashable]] = {}
        # Seconds for a row, of each worker that has completed a range.
        self._pace: dict[Hashable, float] = {}

    @property
    def is_complete(self) -> bool:
        """Whether every range is complete."""
        return self._left == 0

    @property
    def has_waiting(self) -> bool:
        """Whether there is a range that nobody runs."""
        return bool(self._waiting)

    def __contains__(self, worker: Hashable) -> bool:
        """Returns whether a worker runs a range."""
        return worker in self._running

    def fastest(self, workers: Iterable[Worker]) -> list[Worker]:
        """Returns workers in the order in which they should be asked: if one gets nothing, no later one does."""
        return sorted(workers, key=lambda worker: self._pace.get(worker, 0.0))

    def claim(self, worker: Hashable, now: float) -> Claim | None:
        """Returns the range that a free worker is to run; `None` if it should ask again after the next event."""
        index = self._next(worker) if self._waiting else self._slowest(worker, now) if self._copies else None
        if index is None:
            return None
        self._running[worker] = (index, now)
        return self._claimed(worker, index)

    def claim_ahead(self, worker: Hashable) -> Claim | None:
        """Returns the range that a worker is to run when it has completed its first one; `None` if it has one, or if it
        should not: it is slow, or other workers may soon have none.
        """
        pace = self._pace.get(worker)
        if not self._copies or worker not in self._running or worker in self._ahead or pace is None:
            # Without copies, what waits behind a range that is late could not be run by others.
            return None
        if len(self._waiting) < AHEAD * len(self._running) or pace > SLOW * median(self._pace.values()):
            return None
        index = self._waiting.popleft()
        self._rows_waiting -= self._size(index)
        self._ahead[worker] = index
        return self._claimed(worker, index)

    def complete(self, worker: Hashable, number: int, partial: Partial, now: float) -> bool:
        """Takes the result of a worker's range. Returns whether it is the first one of this range."""
        index, since = self._end(worker, number, now)
        rows = self._size(index)
        # If the driver hears of both ranges of a worker at once, how long one took is not known.
        if rows and now > since:
            self._pace[worker] = (now - since) / rows
        if self._done[index]:
            return False
        # Before anything is recorded: a result that does not merge is an error of the caller's.
        if self.partial is None:
            self.partial = partial
        else:
            self.partial.merge(partial)
        self._done[index] = True
        self._left -= 1
        self.rows_done += rows
        return True

    def lost(self, worker: Hashable, cause: BaseException | None = None) -> None:
        """Records that a worker will complete none of its ranges, if it has any.

        Raises `Lost` if too many workers were lost with the range that it ran.
        """
        ahead = self._ahead.pop(worker, None)
        if ahead is not None:
            self.starts[ahead] -= 1
            self._forget(worker, ahead)
            self._wait_again(ahead)
        if worker in self._running:
            self.failed(worker, self._running[worker][0], 0.0, cause)  # no other range begins now
        self._pace.pop(worker, None)

    def failed(self, worker: Hashable, number: int, now: float, cause: BaseException | None = None) -> None:
        """Records that a worker will not complete one of its ranges, and goes on with the other one, if it has one.

        Raises `Lost` if too many workers were lost with this range.
        """
        self._pace.pop(worker, None)
        index, _ = self._end(worker, number, now)
        self._losses[index] += 1
        if self._is_settled(index):
            return
        if self._losses[index] >= LOSSES:
            first, end = self._ranges[index]
            text = f"{LOSSES} workers were lost while they ran rows {first} to {end}: look at their logs; "
            raise Lost(text + "if their memory was full, limit it with pinned_memory= and device_memory=") from cause
        self._wait_again(index)

    def _claimed(self, worker: Hashable, index: int) -> Claim:
        self.starts[index] += 1
        self._workers.setdefault(index, []).append(worker)
        return Claim(index, self._ranges[index])

    def _is_settled(self, index: int) -> bool:
        """Returns whether a range is complete, or a worker has it."""
        return self._done[index] or index in self._workers

    def _wait_again(self, index: int) -> None:
        if not self._is_settled(index):
            self._waiting.appendleft(index)
            self._rows_waiting += self._size(index)

    def _size(self, index: int) -> int:
        first, end = self._ranges[index]
        return end - first

    def _end(self, worker: Hashable, number: int, now: float) -> tuple[int, float]:
        """Ends a range of a worker. Returns its number, and since when it ran; if that is not known, `now`."""
        index, since = self._running[worker]
        ahead = self._ahead.pop(worker, None)
        if number == ahead:
            # The driver hears of the second one first.
            index, since = number, now
        else:
            del self._running[worker]
            if ahead is not None:
                self._running[worker] = (ahead, now)
        self._forget(worker, index)
        return index, since

    def _forget(self, worker: Hashable, index: int) -> None:
        others = self._workers[index]
        others.remove(worker)
        if not others:
            del self._workers[index]

    def _next(self, worker: Hashable) -> int | None:
        """Takes the next range that waits, unless others would end it before this worker would."""
        index = self._waiting[0]
        rows = self._size(index)
        pace = self._pace.get(worker)
        # Near the end, a slow worker takes none: all others would wait for it. One of the usual pace always takes one.
        if pace is not None and self._running and len(self._waiting) < len(self._pace):
            usual = median(self._pace.values())
            together = sum(1 / max(pace, 1e-12) for pace in self._pace.values())
            if pace * rows > usual * rows + self._rows_waiting / together:
                return None
        self._waiting.popleft()
        self._rows_waiting -= rows
        return index

    def _slowest(self, worker: Hashable, now: float) -> int | None:
        """Returns the range that is expected to end last, if this worker would end a copy of it earlier."""
        if not self._pace:
            return None
        usual = median(self._pace.values())
        own = self._pace.get(worker, usual)
        latest: tuple[float, int] | None = None
        for other, (first, since) in self._running.items():
            pace = self._pace.get(other, usual)
            # What is late by some time is expected to take as long again.
            expected = since + self._size(first) * pace
            end = max(expected, now + (now - expected))
            ends = [(end, first)]
            if other in self._ahead:
                second = self._ahead[other]
                ends.append((end + self._size(second) * pace, second))
            for end, index in ends:
                if self.starts[index] > 1 or self._done[index]:
                    continue
                if end > now + own * self._size(index) and (latest is None or end > latest[0]):
                    latest = (end, index)
        return None if latest is None else latest[1]
