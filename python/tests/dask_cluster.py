"""A cluster of Dask, workers of which are killed: fixtures of several files of tests."""

import os
import signal
import sys
from collections import Counter
from pathlib import Path

import cloudpickle
import dask
import distributed
import numpy as np
import pytest

WORKERS = 4

# The workers have no such module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Observed(distributed.WorkerPlugin):
    """Writes which rows a worker starts to run, and kills the worker when a file says so.

    The file `kill` has the name of a worker, or `*` for any, and the number of starts, of all workers, before it ends.
    So the moment depends on no clock.
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
                    if who not in (name, "*") or moment != when or count <= int(after):
                        return
                    (folder / "kill").rename(folder / "killed")
                except (FileNotFoundError, ValueError):
                    # There is none, or another worker has just taken it.
                    return
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
    settings = {"n_workers": WORKERS, "threads_per_worker": 1, "processes": True, "host": "127.0.0.1"}
    options = {
        # A cluster gives up a worker that is absent for a moment some time after it was killed: here, that of a later
        # kill.
        "distributed.deploy.lost-worker-timeout": "1 hour",
        # Who asks a worker for a block just when it is killed tries for this time, and then asks another one.
        "distributed.comm.timeouts.connect": "10s",
    }
    with (
        dask.config.set(options),
        distributed.LocalCluster(**settings, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.register_plugin(Observed(folder))
        yield client, folder


@pytest.fixture
def client(cluster, monkeypatch):
    client, folder = cluster
    monkeypatch.chdir(folder)
    # A job that failed leaves ranges that workers still run, and which write to the folder.
    while client.run_on_scheduler(unfinished) or any(client.run(executing).values()):
        pass
    for name in set(os.listdir()) - {"x.npy"}:
        Path(name).unlink()
    client.wait_for_workers(WORKERS, timeout=300)
    return client


def unfinished(dask_scheduler):
    return [key for key, task in dask_scheduler.tasks.items() if task.state not in ("memory", "erred")]


def executing(dask_worker):
    return len(dask_worker.state.executing)


def starts():
    """Returns how often each range was started."""
    return Counter(Path("starts").read_text().splitlines())
