"""Runs beside others: signals, threads, processes, progress, logging."""

import importlib.util
import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import overshot as ov
from overshot._progress import Progress

ENDLESS = 10**15


@pytest.fixture
def interruptible():
    # A shell that starts a program in the background makes it ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_a_run_and_leaves_no_file(tmp_path):
    calls = []

    def interrupt(done, rows):
        calls.append((done, rows))
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        ov.evaluate("max(sin(i))", rows=ENDLESS, device="cpu", progress=interrupt)
    assert 0 < len(calls) < 10
    del calls[:]
    # The first call of the function is at the end of a run, at the latest; the signal ends one of the first runs.
    out, path = tmp_path / "y.npy", tmp_path / "x.npy"
    np.save(path, np.zeros(1 << 24, "f4"))
    with pytest.raises(KeyboardInterrupt):
        for _ in range(3):
            ov.evaluate("sin(x) * exp(x)", x=path, out=ov.create(out, force=True), device="cpu", progress=interrupt)
    assert {each.name for each in tmp_path.iterdir()} <= {"x.npy", "y.npy"}
    assert ov.evaluate("sum(x)", x=np.ones(3)) == 3


@pytest.mark.parametrize("device", ["cpu", "emulated"])
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_a_run_of_small_arrays_that_are_broadcast(device):
    def interrupt():
        begins.wait()
        while not ended.is_set():
            if set(os.listdir("/proc/self/task")) - threads:
                return os.kill(os.getpid(), signal.SIGINT)

    x, y, out = np.ones((1 << 13, 1)), np.ones(1 << 10), np.full((1 << 13, 1 << 10), np.nan)
    text = "sin(" * 150 + "x * y" + ")" * 150
    ended, thread = threading.Event(), threading.Thread(target=interrupt)
    begins, threads = threading.Event(), set()
    thread.start()
    try:
        with ov.Engine(device=device, workers=2) as engine, pytest.raises(KeyboardInterrupt):
            # The run starts the second worker of the CPU, or the thread that runs the emulated device.
            threads |= set(os.listdir("/proc/self/task"))
            begins.set()
            engine.evaluate(text, x=x, y=y, out=out)
    finally:
        ended.set()
        begins.set()
        thread.join()
    assert np.isnan(out).any(), "the run went on to its end"


def test_an_exception_of_the_progress_function_ends_a_run():
    class Enough(Exception):
        pass

    def enough(done, rows):
        assert 0 <= done <= rows == ENDLESS
        if done:
            raise Enough

    with pytest.raises(Enough):
        ov.evaluate("max(sin(i))", rows=ENDLESS, device="cpu", progress=enough)


def test_other_threads_run_meanwhile():
    counter, seen, calls, ended = [0], [], [0], threading.Event()

    def count():
        while not ended.is_set():
            counter[0] += 1

    class Enough(Exception):
        pass

    def look(done, rows):
        calls[0] += 1
        seen.append(counter[0])
        if len(set(seen)) == 5 or calls[0] == 1000:
            raise Enough

    thread = threading.Thread(target=count)
    thread.start()
    try:
        with pytest.raises(Enough):
            ov.evaluate("max(sin(i))", rows=ENDLESS, device="cpu", progress=look)
    finally:
        ended.set()
        thread.join()
    # While the progress function runs, it has the lock of the interpreter: the counter moves only between its calls.
    # Between some of them it may get no core.
    assert len(set(seen)) == 5, seen


def test_threads_share_an_engine():
    x = np.arange(100_000.0)
    sums = []
    threads = [
        threading.Thread(target=lambda k=k: sums.append(ov.evaluate("sum(x * k)", x=x, k=k, device="cpu") / k))
        for k in range(1, 9)
    ]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sums == [x.sum()] * 8


def _in_child(queue, x):
    queue.put((ov.evaluate("sum(x)", x=x, device="cpu"), ov.evaluate("max(x * i)", x=x, device="emulated")))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_child_processes_have_engines_of_their_own(method):
    x = np.arange(1_000_000.0)
    expected = (ov.evaluate("sum(x)", device="cpu"), ov.evaluate("max(x * i)", device="emulated"))
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue, x))
    child.start()
    assert queue.get(timeout=300) == expected
    child.join()
    assert child.exitcode == 0


def test_a_time_limit_of_devices():
    with ov.Engine(device="emulated", device_timeout=30) as engine:
        again = pickle.loads(pickle.dumps(engine))
        for one in (engine, again):
            x = one.resident(np.ones(5000))
            report = one.evaluate("s = sum(x)", x=x).report
            assert any("time limit of 30 s for devices did not hold" in note for note in report.to_dict()["notes"])
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="device_timeout"):
            ov.Engine(device_timeout=wrong)


def test_notes_are_logged(caplog):
    with caplog.at_level(logging.INFO, logger="overshot"):
        ov.evaluate("sum(x)", x=np.ones((4, 4))[:, 0], device="cpu")
    assert "is gathered" in caplog.text
    assert caplog.records[0].name == "overshot"


def test_progress_lines_are_only_for_terminals(capsys):
    assert ov.evaluate("sum(x)", x=np.ones(8 << 20), device="cpu", progress=True) == 8 << 20
    assert capsys.readouterr() == ("", "")


def test_the_time_left_is_that_of_the_pass(monkeypatch):
    clock = iter([0.0, 100.0, 101.0, 111.0])
    monkeypatch.setattr("overshot._progress.time.monotonic", lambda: next(clock))
    line, shown = Progress(), []
    monkeypatch.setattr(line, "_show", shown.append)
    for done in (50, 0, 10):  # the second pass begins
        line(done, 100)
    assert shown == [" 50 % of 100 rows, 100 s left", " 10 % of 100 rows, 90 s left"]


def test_import_opens_no_gpu_and_starts_no_thread():
    program = """
import os, sys, numpy
before = set(sys.modules)
import overshot
threads = len(os.listdir("/proc/self/task"))
mapped = [line for line in open("/proc/self/maps") if "libcuda" in line or "libnvidia" in line]
new = {name.split(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
print(threads, mapped, sorted(new))
"""
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == "1 [] ['overshot']"


def test_nvrtc_is_loaded_from_its_wheel_when_a_gpu_may_be_used(tmp_path):
    program = """
import sys, numpy as np, overshot as ov
x = np.ones(1000)
maps = lambda: sum("libnvrtc.so.13" in line for line in open("/proc/self/maps"))
ov.evaluate("sum(x)")
assert maps() == 0, "a small run uses no GPU"
ov.evaluate("sum(x)", x=np.ones(8 << 20), device="cpu")
assert maps() == 0
ov.evaluate("sum(x)", x=np.ones(8 << 20))
print(maps() > 0, ov._libraries.nvrtc())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    wheel = importlib.util.find_spec("nvidia")
    if wheel is None:
        assert done.stdout.strip() == "False None"
    else:
        assert done.stdout.startswith("True ") and "nvidia/cu13/lib/libnvrtc.so.13" in done.stdout


def test_cublas_is_loaded_from_its_wheel_for_products(tmp_path, monkeypatch):
    libraries = tmp_path / "nvidia" / "cu13" / "lib"
    libraries.mkdir(parents=True)
    for name in ("libcublas.so.13", "libcublasLt.so.13", "libnvrtc.so.13"):
        (libraries / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    loaded = []
    monkeypatch.setattr("ctypes.CDLL", loaded.append)
    # Not those of an earlier test.
    monkeypatch.setattr(ov._libraries, "_load", ov._libraries._load.__wrapped__)
    x = [("x", np.ones((1 << 20, 4)))]
    for device, text, products in (
        ("cpu", "x.T @ x", False), ("auto", "sum(x)", False), ("auto", "x.T @ x", True), ("auto", None, True),
    ):
        loaded.clear()
        # No run, because the core looks for its libraries once in a process.
        with ov.Engine(device=device) as engine:
            engine._open(x, None, text and ov.Expression(text), multiplies=text is None)
        names = [os.path.basename(path) for path in loaded]
        wanted = ["libcublasLt.so.13", "libcublas.so.13"] if products else []
        assert names == (["libnvrtc.so.13"] if device != "cpu" else []) + wanted


def test_algorithms_ask_for_cublas(monkeypatch):
    asked = []
    monkeypatch.setattr(ov.Engine, "_open", lambda engine, *_, multiplies=False: asked.append(multiplies))
    with ov.Engine(device="cpu") as engine, pytest.raises(TypeError):
        ov.matrices.gram(np.ones((10, 2)), engine=engine)
    assert asked == [True]
