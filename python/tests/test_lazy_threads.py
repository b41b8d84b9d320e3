"""Threads and processes that share lazy arrays."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import overshot as ov
from overshot import _engine, _lazy

A = np.random.default_rng(24).normal(size=(50, 3))


def graph(x):
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    kept = scaled[scaled.sum(axis=1) > 0]
    return scaled, kept * 2, (scaled[1:] - scaled[:-1]).sum(), (kept + 1).mean(), np.repeat(x.max(), 3)


@pytest.fixture
def switches():
    """Threads that take turns as often as the interpreter lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_share_lazy_arrays(switches):
    expected = [np.asarray(each) for each in graph(A)]

    def values(arrays, barrier, first):
        barrier.wait()
        order = [(first + k) % len(arrays) for k in range(len(arrays))]
        own = {k: np.asarray(arrays[k]) for k in order}
        again = [np.asarray(each * 1) for each in arrays]
        return [own[k] for k in range(len(arrays))], again, [each[:2] if each.ndim else each for each in arrays]

    with ThreadPoolExecutor(4) as threads:
        for _ in range(100):
            arrays, barrier = graph(ov.array(A)), threading.Barrier(4)
            for future in [threads.submit(values, arrays, barrier, first) for first in range(4)]:
                own, again, views = future.result()
                for k, value in enumerate(expected):
                    np.testing.assert_allclose(own[k], value, atol=1e-12)
                    np.testing.assert_allclose(again[k], value, atol=1e-12)
                    np.testing.assert_allclose(np.asarray(views[k]), value[:2] if value.ndim else value, atol=1e-12)


def test_another_thread_computes_the_same_meanwhile(monkeypatch):
    x = ov.array(A)
    y = (x - x.mean(axis=0)) * 2
    evaluate, others = _engine.evaluate, []

    def slow(*arguments, **settings):
        monkeypatch.setattr(_engine, "evaluate", evaluate)
        # The same array is computed, viewed and used by another thread before this job ends.
        with ThreadPoolExecutor(1) as thread:
            others.append(thread.submit(lambda: (np.asarray(y[1:] + 1), np.asarray(y))).result(timeout=60))
        return evaluate(*arguments, **settings)

    monkeypatch.setattr(_engine, "evaluate", slow)
    value = np.asarray(y)
    expected = (A - A.mean(axis=0)) * 2
    np.testing.assert_allclose(value, expected)
    np.testing.assert_allclose(others[0][0], expected[1:] + 1)
    assert others[0][1] is value, "what is computed first is kept"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_does_not_wait_for_threads_of_its_parent():
    held, done = threading.Event(), threading.Event()

    def hold():
        with _lazy.state_lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    child = os.fork()
    if not child:
        os._exit(0 if _lazy.state_lock.acquire(timeout=10) else 1)
    status = os.waitpid(child, 0)[1]
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
