"""Jobs on a cluster of Dask, workers of which are killed."""

import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import overshot as ov

distributed = pytest.importorskip("distributed")
cloudpickle = pytest.importorskip("cloudpickle")
dask = pytest.importorskip("dask")

import overshot.dask  # noqa: E402

WORKERS = 4
TEXT = "y = sin(x) * 2; sum(x), std(x)"


class Observed(distributed.WorkerPlugin):
    """Writes which rows a worker starts to run, and kills the worker when a file says so.

    The file `kill` has the name of a worker and the number of starts, of all workers, before it ends. So the moment
    depends on no clock.
    """

    name = "observed"

    def __init__(self, folder):
        self.folder = folder

    def setup(self, worker):
        from overshot._engine import Engine

        run, folder, name = Engine._run_rows, self.folder, str(worker.name)

        def observed(self, text, names, arrays, out, rows, *others):
            with open(folder / "starts", "a+") as starts:
                starts.write(f"{rows[0]} {rows[1]}\n")
                starts.flush()
                starts.seek(0)
                count = len(starts.readlines())

            def kill(when):
                try:
                    who, after, moment = (folder / "kill").read_text().split()
                except (FileNotFoundError, ValueError):
                    return
                if (who, moment) == (name, when) and count > int(after):
                    (folder / "kill").rename(folder / "killed")
                    os.kill(os.getpid(), signal.SIGKILL)

            kill("before")
            partial = run(self, text, names, arrays, out, rows, *others)
            kill("after")
            return partial

        Engine._run_rows = observed


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    np.save(folder / "x.npy", np.random.default_rng(1).standard_normal(500_000))
    # The workers have no such module.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    settings = {"n_workers": WORKERS, "threads_per_worker": 1, "processes": True, "host": "127.0.0.1"}
    # A cluster gives up a worker that is absent for a moment some time after it was killed: here, that of a later kill.
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        distributed.LocalCluster(**settings, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.register_plugin(Observed(folder))
        yield client, folder


@pytest.fixture
def client(cluster, monkeypatch):
    client, folder = cluster
    monkeypatch.chdir(folder)
    for name in set(os.listdir()) - {"x.npy"}:
        Path(name).unlink()
    client.wait_for_workers(WORKERS, timeout=60)
    return client


def check(results):
    whole = ov.evaluate(TEXT, x="x.npy", device="cpu")
    assert list(results) == list(whole)
    assert all(results[name].tobytes() == whole[name].tobytes() for name in whole)
    assert results.report.rows == 500_000


def starts():
    return Counter(Path("starts").read_text().splitlines())


def test_results_and_outputs_have_the_bits_of_one_run(client):
    seen = []
    show = lambda done, rows: seen.append((done, rows))
    check(overshot.dask.evaluate(client, TEXT, x="x.npy", out={"y": "y.npy"}, ranges=16, device="cpu", progress=show))
    assert seen[-1] == (500_000, 500_000) and len(seen) == 16
    assert len(starts()) == 16 and set(starts().values()) == {1}
    assert overshot.dask.evaluate(client, "mean(i)", rows=1 << 20, device="cpu") == ((1 << 20) - 1) / 2
    tasks = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_prefixes))
    assert "overshot-range" in tasks, "what the dashboard shows"


@pytest.mark.parametrize("seed", range(20))
def test_the_ranges_of_a_killed_worker_run_again(client, seed):
    rng = random.Random(seed)
    names = sorted(map(str, client.run(lambda dask_worker: dask_worker.name).values()))
    who, after = rng.choice(names), rng.randrange(16)
    Path("kill").write_text(f"{who} {after} {rng.choice(['before', 'after'])}")
    if rng.random() < 0.7:
        check(overshot.dask.evaluate(client, TEXT, x="x.npy", out={"y": "y.npy"}, ranges=40, device="cpu"))
    else:
        text = "std(x)"
        std = overshot.dask.evaluate(client, text, x="x.npy", ranges=40, device="cpu")
        assert std.tobytes() == ov.evaluate(text, x="x.npy", device="cpu").tobytes()
    assert Path("killed").exists(), "the worker was killed during the job"
    assert len(starts()) == 40 and max(starts().values()) <= 2
    assert not [name for name in os.listdir() if name.endswith(".parts")]


def test_errors_are_raised_as_those_of_evaluate(client):
    run = lambda text="sum(x)", **given: overshot.dask.evaluate(client, text, **{"x": "x.npy", **given})
    with pytest.raises(TypeError, match="x: a ndarray is in the memory of this process"):
        run(x=np.zeros(3))
    array = pytest.importorskip("dask.array")
    with pytest.raises(TypeError, match="x: the rows of a dask array"):
        run(x=array.zeros(10))
    Path("y.npy").write_text("mine")
    with pytest.raises(OSError, match="exists"):
        run("x + 1", out="y.npy")
    assert Path("y.npy").read_text() == "mine"
    # The cluster is as good as before.
    assert run("max(x)", device="cpu") == np.load("x.npy").max()
