"""Jobs that read dask arrays or return them, as graphs of Dask."""

from __future__ import annotations

import math
import operator
import queue
import time
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from dask.array import Array
from dask.delayed import Delayed, delayed
from dask.highlevelgraph import HighLevelGraph
from distributed import KilledWorker

from overshot import _core
from overshot._dask_ranges import AGAIN, Workers
from overshot._partial import Partial
from overshot._parts import FEWEST_ROWS, Lost, count_of
from overshot._work import Work, run_part


def blocks_of(name: str, array: Any) -> _core.Blocks:
    """Returns what the process that plans a job knows of a dask array: all but its values."""
    if array.ndim == 0:
        raise TypeError(f"{name}: a dask array without dimensions is a number that is not known yet: {name}.compute()")
    if any(math.isnan(length) for length in array.shape):
        raise ValueError(f"{name}: the lengths of its blocks are not known: call {name}.compute_chunk_sizes() before")
    if 0 in array.shape[1:]:
        raise ValueError(f"{name}: an array of the shape {array.shape} has nothing to compute with")
    if any(len(lengths) > 1 for lengths in array.chunks[1:]):
        whole = ", ".join(f"{axis}: -1" for axis in range(1, array.ndim))
        problem = f"its blocks divide more than the first axis: pass {name}.rechunk({{0: 'auto', {whole}}})"
        raise ValueError(f"{name}: {problem}")
    if not array.dtype.isnative:
        raise TypeError(f"{name}: its bytes are in the other order: {name}.astype({name}.dtype.newbyteorder('='))")
    try:
        return _core.Blocks(array.dtype.name, array.shape, array.name)
    except ValueError as error:
        raise TypeError(f"{name}: {error}") from error


class Piece(NamedTuple):
    """Elements of a dask array that a range reads: those of a block, from element `begin` to `end` of it."""

    first: int
    """The number of the first one in the array."""
    block: int
    begin: int
    end: int


def borders_of(array: Any) -> list[int]:
    """Returns the numbers of the elements where the blocks of a dask array begin, and the number of all elements."""
    inner = math.prod(array.shape[1:])
    return [0, *(int(end) * inner for end in np.cumsum(array.chunks[0]))]


def pieces(borders: Sequence[int], rows: tuple[int, int]) -> list[Piece]:
    """Returns the pieces of the blocks with these borders that have elements of a range."""
    found = []
    for block in range(bisect_right(borders, rows[0]) - 1, bisect_left(borders, rows[1])):
        begin = borders[block]
        first, last = max(begin, rows[0]), min(borders[block + 1], rows[1])
        if first < last:
            found.append(Piece(first, block, first - begin, last - begin))
    return found


def divide(rows: int, step: int, wanted: Iterable[int], least: int) -> list[tuple[int, int]]:
    """Divides rows near the wanted borders, at multiples of `step`, into ranges of `least` rows or more."""
    borders = [0]
    for border in wanted:
        border = (border + step // 2) // step * step
        if border >= borders[-1] + max(least, 1) and border < rows:
            borders.append(border)
    return list(zip(borders, [*borders[1:], rows]))


class ArrayTasks:
    """The tasks of a job that has dask arrays.

    A range is a task that depends on the pieces of the blocks which it reads. Two more take its partial, which comes
    to this process, and its rows of each output, which stay. So Dask keeps no block longer than it is needed, and runs
    a range again if the rows of an output are lost with a worker.
    """

    def __init__(
        self, client: Any, work: Work, arrays: Mapping[str, Any], new: Sequence[str], ranges: int | None
    ) -> None:
        self._client, self._workers = client, Workers(client)
        self._job = uuid.uuid4().hex
        self._ranges = _ranges(work, arrays, bool(new), ranges, max(len(client.nthreads()), 1))
        results = self._results(work, arrays, new)
        summaries = [delayed(_summary)(each, dask_key_name=f"overshot-partial-{key}") for key, each in results]
        take = delayed(operator.getitem)
        outputs = {
            name: [take(each, name, dask_key_name=f"overshot-output-{key}-{name}") for key, each in results]
            for name in new
        }
        futures = iter(client.compute([*summaries, *(rows for each in outputs.values() for rows in each)]))
        self._summaries = [next(futures) for _ in summaries]
        self._outputs = {name: [next(futures) for _ in rows] for name, rows in outputs.items()}
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number, future in enumerate(self._summaries):
            future.add_done_callback(lambda _, number=number: self._ended.put(number))
        self._left = len(self._ranges)
        self._made: dict[int, dict[str, tuple[int, Any]]] = {}
        self.partial: Partial | None = None
        self.rows_done = 0
        self.is_alone = False
        """Whether the job has waited for a worker for some time. It is true once."""

    def _results(self, work: Work, arrays: Mapping[str, Any], new: Sequence[str]) -> list[tuple[str, Any]]:
        """Returns a task for each range, with the end of its key."""
        blocks = _blocks(arrays, self._job)
        borders = {name: borders_of(array) for name, array in arrays.items()}
        total, tasks = self._ranges[-1][1], []
        for number, rows in enumerate(self._ranges):
            key = f"{self._job}-{number}"
            given: dict[str, list[tuple[int, int, Any]]] = {}
            for name in arrays:
                given[name] = []
                for piece in pieces(borders[name], rows):
                    block = blocks[name][piece.block]
                    elements = piece.end - piece.begin
                    if elements < borders[name][piece.block + 1] - borders[name][piece.block]:
                        # Where the block is, so that no other worker gets all of it.
                        own = f"overshot-piece-{key}-{name}-{piece.block}"
                        block = delayed(_piece)(block, piece.begin, piece.end, dask_key_name=own)
                    given[name].append((piece.first, elements, block))
            run = delayed(run_part, pure=False)
            tasks.append((key, run(work, rows, total, given, list(new), dask_key_name=f"overshot-range-{key}")))
        return tasks

    @property
    def is_complete(self) -> bool:
        """Whether every range is complete."""
        return self._left == 0

    def step(self) -> bool:
        """Waits a moment for a range to end. Returns whether one did."""
        self.is_alone = self._client.sync(self._workers.count, time.monotonic())
        try:
            ended = [self._ended.get(timeout=AGAIN)]
        except queue.Empty:
            return False
        while not self._ended.empty():
            ended.append(self._ended.get())
        for number in ended:
            self._check(number)
        # All at once: each request takes its time. If a worker was lost since, this waits for another one.
        for number, result in zip(ended, self._client.gather([self._summaries[number] for number in ended])):
            self._take(number, *result)
        return True

    def _check(self, number: int) -> None:
        """Raises the exception of a range, if it has one."""
        future = self._summaries[number]
        if future.status != "error":
            return
        error = future.exception()
        if isinstance(error, KilledWorker):
            first, end = self._ranges[number]
            text = f"several workers were lost while they ran rows {first} to {end}: look at their logs; if their "
            text += "memory was full, use smaller blocks, or limit it with pinned_memory= and device_memory="
            raise Lost(text) from error
        raise error

    def _take(self, number: int, partial: Partial, made: dict[str, tuple[int, Any]]) -> None:
        first, end = self._ranges[number]
        if self.partial is None:
            self.partial = partial
        else:
            self.partial.merge(partial)
        self._made[number] = made
        self._summaries[number].release()
        self._left -= 1
        self.rows_done += end - first

    def close(self) -> None:
        """Forgets the tasks, but not the outputs of a job that is complete."""
        outputs = [] if self.is_complete else [future for each in self._outputs.values() for future in each]
        for future in [*self._summaries, *outputs]:
            future.release()

    def arrays(self) -> dict[str, Any]:
        """Returns the outputs, whose blocks are on the workers."""
        return {name: self._array(name, futures) for name, futures in self._outputs.items()}

    def _array(self, name: str, futures: Sequence[Any]) -> Any:
        own = f"overshot-{name}-{self._job}"
        lengths = tuple(self._made[number][name][0] for number in range(len(futures)))
        meta = self._made[0][name][1]
        rest = meta.shape[1:]
        graph = {(own, number, *(0 for _ in rest)): future for number, future in enumerate(futures)}
        new: Any = Array
        return new(graph, own, (lengths, *((length,) for length in rest)), meta=meta)


def _ranges(
    work: Work, arrays: Mapping[str, Any], has_new: bool, count: int | None, workers: int
) -> list[tuple[int, int]]:
    if count is not None and count < 1:
        raise ValueError(f"ranges={count}: a job has one range at least")
    shapes = {array.shape for array in arrays.values()}
    are_wide = any(len(shape) > 1 for shape in shapes)
    rows, step, inner = (0, 1, 1) if are_wide and len(shapes) > 1 else work.size()
    if are_wide and {math.prod(shape) for shape in shapes} != {rows}:
        raise ValueError(
            "dask arrays are read element by element, so all of them have one shape, and neither index(), neighbours "
            "nor an axis goes with several dimensions: compute such arrays before, or pass files"
        )
    # A block of an array has whole rows of its first axis.
    step = math.lcm(step, inner) if has_new else step
    if count is None and arrays:
        largest = max(arrays.values(), key=lambda array: array.nbytes)
        return divide(rows, step, borders_of(largest), min(FEWEST_ROWS, rows // workers))
    count = count or count_of(rows, workers)
    return divide(rows, step, (rows * part // count for part in range(1, count)), 0)


def _blocks(arrays: Mapping[str, Any], job: str) -> dict[str, list[Any]]:
    """Returns the tasks of the blocks of each array."""
    if not arrays:
        return {}
    keys = {
        name: [(array.name, block, *(0 for _ in array.shape[1:])) for block in range(len(array.chunks[0]))]
        for name, array in arrays.items()
    }
    all_keys = [key for each in keys.values() for key in each]
    # All arrays at once: what several of them depend on is computed once.
    merged = HighLevelGraph.merge(*(array.__dask_graph__() for array in arrays.values()))
    optimized = next(iter(arrays.values())).__dask_optimize__(merged, all_keys)
    layer = f"overshot-blocks-{job}"
    graph: Any = HighLevelGraph.from_collections(layer, optimized, dependencies=())
    delayed_block: Any = Delayed
    return {name: [delayed_block(key, graph, layer=layer) for key in each] for name, each in keys.items()}


def _piece(block: Any, begin: int, end: int) -> Any:
    """Returns some elements of a block."""
    piece = block.reshape(-1)[begin:end]
    # A view keeps the whole block.
    return piece if 2 * piece.size > block.size else piece.copy()


def _summary(result: Mapping[str, Any]) -> tuple[Partial, dict[str, tuple[int, Any]]]:
    """Returns the partial of a range, and of each output the length of its part and an array of this kind."""
    return result[""], {name: (len(rows), rows[:0].copy()) for name, rows in result.items() if name}
