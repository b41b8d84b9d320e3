"""Jobs on executors of `concurrent.futures`."""

import multiprocessing
import os
import signal
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pytest
from conftest import DEVICES, kernel_of_tests

import overshot as ov
from overshot import executor
from overshot._parts import Lost
from overshot._work import Failed

KEEP = kernel_of_tests("KEEP")
TEXT = "y = sin(x) * k; sum(x), std(x)"


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(1).standard_normal(300_000))
    return tmp_path


def check(results):
    whole = ov.evaluate(TEXT, x="x.npy", k=2, device="cpu")
    assert list(results) == list(whole)
    assert all(results[name].tobytes() == whole[name].tobytes() for name in whole)
    assert results.report.rows == 300_000
    assert not [name for name in os.listdir() if name.startswith(".")]


POOLS = [
    lambda: ThreadPoolExecutor(3),
    lambda: ProcessPoolExecutor(2, multiprocessing.get_context("spawn")),
    lambda: ProcessPoolExecutor(2, multiprocessing.get_context("forkserver")),
]


@pytest.mark.parametrize("pool", POOLS, ids=["threads", "spawn", "forkserver"])
def test_results_and_outputs_have_the_bits_of_one_run(pool, data):
    seen = []
    with pool() as pool:
        show = lambda done, rows: seen.append((done, rows))
        names = {"x": "x.npy", "k": 2}
        check(executor.evaluate(pool, TEXT, names, out={"y": "y.npy"}, ranges=20, device="cpu", progress=show))
        assert [rows for _, rows in seen] == [300_000] * 20 and sorted(seen) == seen and seen[-1][0] == 300_000
        file = ov.open("x.npy")
        mean = executor.evaluate(pool, "mean(x)", x=file, device="cpu")
        assert isinstance(mean, np.float64) and mean == ov.evaluate("mean(x)", x=file, device="cpu")
        doubled = executor.evaluate(pool, "x * 2", x=Path("x.npy"), out=ov.create("z.f32", "f4"), device="cpu")
        np.testing.assert_array_equal(doubled, (np.load("x.npy") * 2).astype("f4"))
        assert executor.evaluate(pool, "sum(i)", rows=100_000, ranges=3, device="cpu") == 100_000 * 99_999 // 2
        # Variables of the worker's own functions are none of the expression's.
        assert executor.evaluate(pool, "max(x * 0 + pi)", x="x.npy", device="cpu") == np.pi


@pytest.mark.parametrize("pool", POOLS, ids=["threads", "spawn", "forkserver"])
def test_a_kernel_runs_on_an_executor(pool, data):
    with ov.Engine(device="cpu") as engine, pool() as pool:
        keep = engine.kernel(KEEP, threads=32, rows_per_block=512)
        out = {"big": "big.npy", "where": "where.npy"}
        run = lambda **given: executor.evaluate(pool, keep, x="x.npy", out=out, ranges=5, **given)
        with pytest.raises(ValueError, match="keep"):
            run(device="cpu")  # the CPU has no function for it
        with pytest.raises(TypeError, match="no parameter 'z'"):
            run(device="cpu", z="x.npy")
        if "cuda" in DEVICES:
            np.save("x.npy", np.load("x.npy") * 50)
            results = run(device="cuda")
            expected = np.flatnonzero(np.load("x.npy") > 50)
            np.testing.assert_array_equal(results["where"], expected)
            np.testing.assert_array_equal(results["big"], np.load("x.npy")[expected])


def test_an_error_waits_for_ranges_that_run(data, monkeypatch):
    futures = []

    class Running(Executor):
        def submit(self, *task):
            future = Future()
            future.set_running_or_notify_cancel()
            if not futures:
                future.set_result(Failed(ValueError("the first one")))
            futures.append(future)
            return future

    def waits(waited, *until):
        # All but the last call wait for the first range that ends.
        for future in waited if not until else ():
            future.set_result(None)
        return wait(waited, *until)

    monkeypatch.setattr(executor, "wait", waits)
    with pytest.raises(ValueError, match="the first one"):
        executor.evaluate(Running(), "sum(x)", x="x.npy", ranges=4, parallel=2, device="cpu")
    assert len(futures) == 2 and all(future.done() for future in futures)


def test_verification(data):
    with ThreadPoolExecutor(2) as pool:
        results = executor.evaluate(pool, "sum(x), max(x)", x="x.npy", device="cpu", verify=1.0)
    assert sum(each["rows"] for each in results.report.to_dict()["verification"]["devices"]) == 300_000


def test_no_rows(data):
    np.save("none.npy", np.zeros(0))
    with ThreadPoolExecutor(2) as pool:
        r = executor.evaluate(pool, "y = x; s = sum(x), min(x)", x="none.npy", out={"y": "y.npy"}, device="cpu")
    assert (len(r["y"]), r["s"], r["min(x)"]) == (0, 0, None)


def test_what_cannot_be_sent_is_refused(data):
    with ThreadPoolExecutor(1) as pool:
        run = lambda text="sum(x)", **given: executor.evaluate(pool, text, device="cpu", **{"x": "x.npy", **given})
        for value in (np.zeros(3), [1.0, 2.0], bytearray(8)):
            with pytest.raises(TypeError, match="x: a .* is in the memory of this process"):
                run(x=value)
        with pytest.raises(TypeError, match="x: a Array of Dask is in the memory of its workers"):
            run(x=pytest.importorskip("dask.array").zeros(10))
        with pytest.raises(TypeError, match="out: workers write files"):
            run("x + 1", out=np.zeros(3))
        with pytest.raises(ValueError, match="result: parts of a job write the same output"):
            run("x + 1")
        with pytest.raises(NameError, match="'y' is not defined: pass y="):
            run("sum(x + y)")
        with pytest.raises(TypeError, match="has no name 'z'"):
            run(z=1)
        with pytest.raises(FileNotFoundError):
            run(x="none.npy")
        for given in ({"ranges": 0}, {"parallel": 0}):
            with pytest.raises(ValueError, match="one range"):
                run(**given)
    with pytest.raises(TypeError, match="pass parallel="):
        executor.evaluate(Executor(), "sum(x)", x="x.npy", device="cpu")


def test_an_error_of_a_worker_is_raised(data):
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        Path("y.npy").write_text("mine")
        with pytest.raises(OSError, match="exists"):
            executor.evaluate(pool, "x + 1", x="x.npy", out="y.npy", device="cpu")
        assert Path("y.npy").read_text() == "mine"


def test_a_pool_that_lost_a_process_is_an_error_and_a_new_one_completes_the_job(data):
    pool = ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))
    run = lambda pool, **given: executor.evaluate(
        pool, TEXT, x="x.npy", k=2, out={"y": "y.npy"}, ranges=20, device="cpu", **given
    )

    killed = []

    def kill(done, rows):
        # Once: the pool waits for the dead process as soon as it notices, and then the number may be that of another.
        if not killed:
            killed.append(next(iter(pool._processes)))
            os.kill(killed[0], signal.SIGKILL)

    with pool, pytest.raises(BrokenExecutor):
        run(pool, progress=kill)
    assert not Path("y.npy").exists()
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        check(run(pool))


class Unreliable(Executor):
    """Runs every task at once, but loses some: as an adapter of a cluster, which ends them with an exception."""

    def __init__(self, lost):
        self.lost = lost
        self.runs = []

    def submit(self, function, /, work, rows):
        future = Future()
        self.runs.append(rows)
        if len(self.runs) in self.lost:
            future.set_exception(OSError("the connection is lost"))
        else:
            future.set_result(function(work, rows))
        return future


def test_lost_ranges_run_again(data):
    pool = Unreliable({1, 5, 6})
    check(executor.evaluate(pool, TEXT, x="x.npy", k=2, out={"y": "y.npy"}, ranges=8, parallel=3, device="cpu"))
    assert len(pool.runs) == 8 + 3 and max(map(pool.runs.count, pool.runs)) == 2
    pool = Unreliable(range(1, 100))
    with pytest.raises(Lost, match="3 workers were lost") as caught:
        executor.evaluate(pool, "sum(x)", x="x.npy", parallel=3, device="cpu")
    assert isinstance(caught.value.__cause__, OSError)
