"""Jobs on a cluster of Dask, workers of which are killed."""

import asyncio
import os
import random
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from conftest import DEVICES, kernel_of_tests

import overshot as ov

distributed = pytest.importorskip("distributed")
cloudpickle = pytest.importorskip("cloudpickle")

from dask_cluster import WORKERS, client, cluster, starts  # noqa: E402, F401

import overshot.dask  # noqa: E402
from overshot._parts import Ranges  # noqa: E402
import overshot.executor  # noqa: E402

# The workers have no such module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

KEEP = kernel_of_tests("KEEP")
TEXT = "y = sin(x) * 2; sum(x), std(x)"


def check(results):
    whole = ov.evaluate(TEXT, x="x.npy", device="cpu")
    assert list(results) == list(whole)
    assert all(results[name].tobytes() == whole[name].tobytes() for name in whole)
    assert results.report.rows == 500_000


def test_results_and_outputs_have_the_bits_of_one_run(client):
    seen = []

    def show(done, rows):
        assert threading.current_thread() is threading.main_thread() and client.nthreads()
        seen.append((done, rows))

    check(overshot.dask.evaluate(client, TEXT, x="x.npy", out={"y": "y.npy"}, ranges=16, device="cpu", progress=show))
    assert seen[-1] == (500_000, 500_000) and seen == sorted(set(seen))
    assert len(starts()) == 16 and set(starts().values()) == {1}
    assert overshot.dask.evaluate(client, "mean(i)", rows=1 << 20, device="cpu") == ((1 << 20) - 1) / 2
    tasks = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_prefixes))
    assert "overshot-range" in tasks, "what the dashboard shows"


@pytest.mark.parametrize("seed", range(20))
def test_the_ranges_of_a_killed_worker_run_again(client, seed):
    rng = random.Random(seed)
    # Whoever comes next: a worker of a certain name may be late, and start no range after so many.
    Path("kill").write_text(f"* {rng.randrange(16)} {rng.choice(['before', 'after'])}")
    if rng.random() < 0.7:
        check(overshot.dask.evaluate(client, TEXT, x="x.npy", out={"y": "y.npy"}, ranges=40, device="cpu"))
    else:
        text = "std(x)"
        std = overshot.dask.evaluate(client, text, x="x.npy", ranges=40, device="cpu")
        assert std.tobytes() == ov.evaluate(text, x="x.npy", device="cpu").tobytes()
    assert Path("killed").exists(), "the worker was killed during the job"
    assert len(starts()) == 40 and max(starts().values()) <= 2
    assert not [name for name in os.listdir() if name.endswith(".parts")]


def test_workers_have_their_next_range(client, monkeypatch):
    ahead, claim_ahead = [], Ranges.claim_ahead

    def record(parts, worker):
        claim = claim_ahead(parts, worker)
        if claim is not None:
            ahead.append(claim)
        return claim

    monkeypatch.setattr(Ranges, "claim_ahead", record)
    std = overshot.dask.evaluate(client, "std(x)", x="x.npy", ranges=60, device="cpu")
    assert std.tobytes() == ov.evaluate("std(x)", x="x.npy", device="cpu").tobytes()
    # All but the first two of each worker, and the last ones, unless a worker is slow.
    assert 0 < len(ahead) <= 60 - 2 * WORKERS
    assert len(starts()) == 60 and max(starts().values()) <= 2
    # Others could not take them over if they were written.
    ahead.clear()
    check(overshot.dask.evaluate(client, TEXT, x="x.npy", out={"y": "y.npy"}, ranges=60, device="cpu"))
    assert not ahead


class Scripted:
    """A client, and its scheduler, whose workers end their tasks when the test says so. Each step takes a second of
    virtual time.
    """

    def __init__(self, workers):
        self.scheduler, self.paused, self.tasks = self, set(), {}
        self._workers, self._loop, self._now = workers, asyncio.new_event_loop(), 0.0
        self._loop.time = lambda: self._now

    async def ncores(self):
        return dict.fromkeys(self._workers, 1)

    async def ncores_running(self):
        return {worker: 1 for worker in self._workers if worker not in self.paused}

    def sync(self, step):
        self._now += 1.0
        return self._loop.run_until_complete(step())

    def submit(self, run, work, rows, *, key, workers, allow_other_workers, pure):
        task = Task(self._loop.create_future())
        self.tasks.setdefault(workers[0], []).append((rows, task))
        return task

    def end(self, worker):
        """Ends the first task of a worker that was not released."""
        rows, task = next((rows, task) for rows, task in self.tasks[worker] if not task.result.done())
        assert not task.is_released
        task.result.set_result(ov.run_rows("sum(i)", rows=rows, total_rows=10 * 4096, device="cpu"))

    def left(self, worker):
        return [rows for rows, task in self.tasks.get(worker, []) if not task.result.done() and not task.is_released]


class Task:
    def __init__(self, result):
        self.result, self.is_released = result, False

    async def _result(self):
        return await self.result

    def release(self):
        self.is_released = True


def test_others_run_the_next_range_of_a_paused_worker(monkeypatch):
    monkeypatch.setattr(overshot._dask_ranges, "AGAIN", 0.0)
    ranges = [(4096 * k, 4096 * (k + 1)) for k in range(10)]
    client = Scripted("ab")
    tasks = overshot._dask_ranges.RangeTasks(client, None, Ranges(ranges))
    while not client.left("b"):
        tasks.step()
    for worker in "ab":
        client.end(worker)
    while len(client.left("a")) < 2 or len(client.left("b")) < 2:
        tasks.step()
    second = client.left("a")[1]
    client.paused.add("a")
    # The paused worker ends what it runs, and does not begin the next one.
    client.end("a")
    while not tasks.is_complete:
        if client.left("b"):
            client.end("b")
        tasks.step()
    assert client.left("a") == [second] and second in [rows for rows, _ in client.tasks["b"]]
    tasks.close()
    assert client.left("a") == []
    assert tasks.partial.finish()["sum(i)"] == 10 * 4096 * (10 * 4096 - 1) // 2


def test_a_paused_worker_gets_no_range(client, monkeypatch):
    handed_out, new_task = [], overshot._dask_ranges._Task

    def record(client, work, rows, worker, key):
        handed_out.append(worker)
        return new_task(client, work, rows, worker, key)

    monkeypatch.setattr(overshot._dask_ranges, "_Task", record)
    paused = next(iter(client.nthreads()))
    state = lambda dask_scheduler: {address: each.status.name for address, each in dask_scheduler.workers.items()}
    old = client.run(pause, 1e-9, workers=[paused])[paused]
    while client.run_on_scheduler(state)[paused] != "paused":
        pass
    overshot.dask.evaluate(client, "sum(x)", x="x.npy", ranges=16, device="cpu")
    assert len(handed_out) >= 16 and paused not in handed_out
    client.run(pause, old, workers=[paused])
    while client.run_on_scheduler(state)[paused] != "running":
        pass


def pause(fraction, dask_worker):
    """Sets how full the memory of a worker may be. Dask's own check then pauses it, or ends the pause."""
    manager = dask_worker.memory_manager
    old, manager.memory_pause_fraction = manager.memory_pause_fraction, fraction
    return old


def test_a_job_without_workers_says_that_it_waits(client, monkeypatch):
    monkeypatch.setattr(overshot._dask_ranges, "PATIENCE", 0.0)
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as empty,
        distributed.Client(empty) as alone,
        warnings.catch_warnings(),
    ):
        seen = []

        def show(message, category, *_):
            seen.append((category, str(message)))
            empty.scale(1)

        monkeypatch.setattr(warnings, "showwarning", show)
        warnings.simplefilter("always")
        assert overshot.dask.evaluate(alone, "sum(i)", rows=10, device="cpu") == 45
    assert [category for category, text in seen if "the job waits" in text] == [RuntimeWarning]


def test_a_fraction_of_the_chunks_is_verified(client):
    run = lambda text, **given: overshot.dask.evaluate(client, text, x="x.npy", device="cpu", ranges=8, **given)
    results = run("sum(x), max(x)", verify=1.0)
    assert sum(each["rows"] for each in results.report.to_dict()["verification"]["devices"]) == 500_000
    with pytest.raises(ValueError, match="cannot be verified"):
        run("sum(x)", verify=2.0)


def test_a_kernel_is_sent_to_the_workers(client):
    keep = ov.Engine(device="cpu").kernel(KEEP, threads=32, rows_per_block=512)
    out = {"big": "big.npy", "where": "where.npy"}
    with pytest.raises(ValueError, match="keep"):
        overshot.dask.evaluate(client, keep, x="x.npy", out=out, device="cpu")  # the CPU has no function for it
    if "cuda" in DEVICES:
        np.save("big_x.npy", np.load("x.npy") * 50)
        results = overshot.dask.evaluate(client, keep, x="big_x.npy", out=out, device="cuda", ranges=9)
        expected = np.flatnonzero(np.load("big_x.npy") > 50)
        np.testing.assert_array_equal(results["where"], expected)
        np.testing.assert_array_equal(results["big"], np.load("big_x.npy")[expected])
        assert len(starts()) >= 9


def test_its_executor_is_one_of_concurrent_futures(client):
    with client.get_executor() as pool:
        given = {"ranges": 16, "device": "cpu"}
        with pytest.raises(TypeError, match="pass parallel="):
            overshot.executor.evaluate(pool, TEXT, x="x.npy", out={"y": "y.npy"}, **given)
        check(overshot.executor.evaluate(pool, TEXT, x="x.npy", out={"y": "y.npy"}, parallel=WORKERS, **given))
    assert len(starts()) == 16


def test_errors_are_raised_as_those_of_evaluate(client):
    run = lambda text="sum(x)", **given: overshot.dask.evaluate(client, text, **{"x": "x.npy", **given})
    with pytest.raises(TypeError, match="x: a ndarray is in the memory of this process"):
        run(x=np.zeros(3))
    Path("y.npy").write_text("mine")
    with pytest.raises(OSError, match="exists"):
        run("x + 1", out="y.npy")
    assert Path("y.npy").read_text() == "mine"
    # The cluster is as good as before.
    assert run("max(x)", device="cpu") == np.load("x.npy").max()
