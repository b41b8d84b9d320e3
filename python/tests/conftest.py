import functools
import os

import pytest

import overshot as ov

# Another device, such as `cuda`, if the machine has one.
DEVICES = ["cpu", "emulated", *os.environ.get("OVERSHOT_TEST_DEVICE", "").split()]


@pytest.fixture(params=DEVICES)
def evaluate(request):
    """`overshot.evaluate` on the cores, and on the emulated device, which has its own memory and small chunks."""
    chunk = None if request.param == "cpu" else "64KiB"
    return functools.partial(ov.evaluate, device=request.param, chunk=chunk)
