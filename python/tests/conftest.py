import functools
import os
import re
from pathlib import Path

import pytest

import overshot as ov
from overshot import _engine

# Tests that work on any device run on these. As for `cargo test`, `OVERSHOT_TEST_DEVICE` names others, such as `cuda`.
DEVICES = (os.environ.get("OVERSHOT_TEST_DEVICE") or "cpu emulated").split()


class OnlyDlpack:
    """An array that has no interface but DLPack's."""

    def __init__(self, own):
        self.own = own

    def __dlpack__(self, **options):
        return self.own.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.own.__dlpack_device__()


def kernel_of_tests(name):
    """The source of a kernel that the stand-in for a GPU knows."""
    text = (Path(__file__).resolve().parents[2] / "src/testing/custom.rs").read_text()
    source = re.search(rf'pub const {name}: &str = "(.*?)\n";', text, re.S)[1] + "\n"
    return source.replace('\\"', '"')


@pytest.fixture(params=DEVICES)
def evaluate(request):
    """`overshot.evaluate` on the cores, and on the emulated device, which has its own memory and small chunks."""
    chunk = None if request.param == "cpu" else "64KiB"
    return functools.partial(ov.evaluate, device=request.param, chunk=chunk)


@pytest.fixture
def jobs(monkeypatch):
    """The texts of the jobs that run."""
    texts = []
    evaluate = _engine.evaluate

    def counted(text, *arguments, **settings):
        texts.append(text)
        return evaluate(text, *arguments, **settings)

    monkeypatch.setattr(_engine, "evaluate", counted)
    return texts


@pytest.fixture(params=DEVICES)
def compute(request):
    """The value of a lazy array, computed as `evaluate` does above."""
    chunk = None if request.param == "cpu" else "64KiB"
    return lambda lazy: ov.compute(lazy, device=request.param, chunk=chunk)[0]
