"""Jobs on a cluster of Dask.

>>> from distributed import Client
>>> import overshot.dask
>>> client = Client("scheduler:8786")                           # doctest: +SKIP
>>> overshot.dask.evaluate(client, "sum(x)", x="/shared/x.npy")  # doctest: +SKIP
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from dask.array import Array
from distributed import Client

from overshot import _core
from overshot._dask_arrays import ArrayTasks, blocks_of
from overshot._dask_ranges import RangeTasks
from overshot._engine import Options, returned
from overshot._kernel import Kernel
from overshot._progress import Progress, shown
from overshot._results import Results
from overshot._settings import Size
from overshot._work import prepare

__all__ = ["evaluate"]

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
    precision: str = "full",
    **paths: Any,
) -> Any:
    """Evaluates an expression on the workers of a client, and returns what `overshot.evaluate` returns, to the bit. A
    kernel of `Engine.kernel` works as an expression does, as for `overshot.run_rows`.

    Each range of rows is a task, `overshot-range` on Dask's dashboard, and each worker runs one at a time, with all
    GPUs and cores that it sees: start one worker process for each host, with one thread, so that its next range may
    wait there. Workers may come and go. The range of a lost worker runs again on another one; near the end, free
    workers run copies of the ranges of slow ones, unless the job has outputs. No range is run more than twice, as long
    as no two workers are lost with the same one. A worker that Dask has paused gets no range. A warning says if the job
    waits because no worker runs.

    Names are paths that all workers and this process see, files of `overshot.open`, numbers, or dask arrays. Outputs
    are paths, which get their names when all rows are written; without `out`, they are dask arrays, whose blocks stay
    on the workers that computed them. The rows are divided into `ranges`, 32 for each worker if the job is large.
    `rows`, `progress`, `verify`, `precision` and the settings are those of `overshot.evaluate`; each worker keeps its
    engine for later calls. Variables of the caller are not looked up.

    With dask arrays, the ranges are the blocks of the largest one, with borders at multiples of 4096 elements, and
    Dask decides which worker runs which range. The call returns when all ranges are complete. If a worker is lost
    later, Dask computes its blocks of the outputs again, as long as files that are inputs do not change.

    Raises what `overshot.evaluate` raises, and `RuntimeError` if three workers are lost with the same rows.
    """
    if client.asynchronous:
        raise TypeError("the client is asynchronous: pass one with asynchronous=False, in a thread of its own")
    cluster: Any = client  # most of its methods have no types
    given = {**(names or {}), **paths}
    arrays = {name: value for name, value in given.items() if isinstance(value, Array)}
    given.update((name, blocks_of(name, array)) for name, array in arrays.items())
    settings = (device, device_memory, pinned_memory, chunk, workers)
    work = prepare(what, given, out, rows, Options(verify, precision), settings)
    new = work.new_outputs()
    tasks: RangeTasks | ArrayTasks
    if arrays or new:
        tasks = ArrayTasks(cluster, work, arrays, new, ranges)
    else:
        tasks = RangeTasks(cluster, work, work.ranges(ranges, len(cluster.nthreads())))
    show = shown(progress)
    try:
        while not tasks.is_complete:
            is_new = tasks.step()
            # These are on the caller's thread. On that of the client, what takes its time would delay other answers.
            if is_new and show is not None:
                show(tasks.rows_done, tasks.partial.total_rows if tasks.partial is not None else 0)
            if tasks.is_alone:
                warnings.warn(_ALONE, RuntimeWarning, stacklevel=2)
    finally:
        tasks.close()
        if isinstance(show, Progress):
            show.close()
    assert tasks.partial is not None, "a job has one range at least"
    results = tasks.partial.finish()
    if isinstance(tasks, ArrayTasks):
        results = Results({**tasks.arrays(), **results}, results.report)
    return returned(work.what, results)
