import functools

import pytest

import overshot as ov


@pytest.fixture(params=["cpu", "emulated"])
def evaluate(request):
    """`overshot.evaluate` on the cores, and on the emulated device, which has its own memory and small chunks."""
    chunk = "64KiB" if request.param == "emulated" else None
    return functools.partial(ov.evaluate, device=request.param, chunk=chunk)
