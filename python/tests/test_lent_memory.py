"""The memory of inputs is lent to a run: nothing is copied, and other threads cannot take it away meanwhile."""

import array
import gc
import importlib.util
import json
import mmap
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from conftest import DEVICES, OnlyDlpack

import overshot as ov
from overshot._columns import column

DEVICES_AND_CORES = list(dict.fromkeys(["cpu", *DEVICES]))
needs_arrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="PyArrow is not installed")


class OnlyArray:
    """An object that NumPy has to convert."""

    def __init__(self, own):
        self.own = own

    def __array__(self, dtype=None, copy=None):
        return self.own + 0


def lent(kind, path, size):
    """An object of a kind with `size` ones, and its address. No memory is used for anything else."""
    if kind == "memmap":
        ones = np.lib.format.open_memmap(path, "w+", "f8", (size,))
        ones[:] = 1
        return ones, ones.ctypes.data
    if kind == "mapped buffer":
        with open(path, "w+b") as file:
            file.truncate(8 * size)
            mapped = mmap.mmap(file.fileno(), 8 * size)
        ones = np.frombuffer(mapped, "f8")
        ones[:] = 1
        return memoryview(mapped).cast("d"), ones.ctypes.data
    if kind == "buffer":
        ones = array.array("d", [1.0]) * size
        return ones, ones.buffer_info()[0]
    ones = np.ones(size)
    if kind == "arrow":
        import pyarrow

        # Without copying, as PyArrow does for arrays without nulls.
        ones = pyarrow.array(ones)
        return ones, ones.buffers()[1].address
    wrapped = {"array": ones, "memoryview": memoryview(ones), "dlpack": OnlyDlpack(ones), "converted": OnlyArray(ones)}
    return wrapped[kind], ones.ctypes.data


KINDS = ["array", "memmap", "memoryview", "buffer", "mapped buffer", "dlpack", pytest.param("arrow", marks=needs_arrow)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_gets_the_address_of_the_object(kind, tmp_path):
    x, address = lent(kind, tmp_path / "x.npy", 1000)
    given = column("x", x)
    assert np.asarray(given).ctypes.data == address
    assert ov.evaluate("sum(x)", device="cpu") == 1000


# Prints how much the peak of this process grows when it reads an object. In a process of its own, because a peak that
# was higher before would hide a copy. `getrusage` has the peak of the process that started this one.
GROWTH = """
import json, re, sys
import numpy as np
import overshot as ov
sys.path.insert(0, sys.argv[1])
from test_lent_memory import lent

folder, device, kinds = sys.argv[2], sys.argv[3], sys.argv[4:]
size = 8 << 20
status = lambda name: int(re.search(name + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1])
peak, resident = (lambda: status("VmHWM")), (lambda: status("VmRSS"))
growths, kept = {}, []
with ov.Engine(device, device_memory=None if device == "cpu" else "8MiB", pinned_memory="8MiB") as engine:
    engine.evaluate("sum(x), max(x * 2)", x=np.ones(1 << 19))
    for k, kind in enumerate(kinds):
        kept.append(lent(kind, f"{folder}/{k}.npy", size))
        slack, before = peak() - resident(), peak()
        assert engine.evaluate("sum(x * x)", x=kept[-1][0]) == size
        growths[kind] = slack, peak() - before
print(json.dumps(growths))
"""


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="AddressSanitizer keeps what is freed")
@pytest.mark.parametrize("device", DEVICES_AND_CORES)
def test_no_kind_of_input_is_copied(device, tmp_path):
    kinds = "array memmap memoryview dlpack".split()
    kinds += ["buffer", "mapped buffer"] + ["arrow"] * (importlib.util.find_spec("pyarrow") is not None)
    # The last one is copied, and shows that a copy would be seen.
    arguments = [str(Path(__file__).parent), str(tmp_path), device, *kinds, "converted"]
    done = subprocess.run([sys.executable, "-c", GROWTH, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    growths = json.loads(done.stdout)
    copied = growths.pop("converted")[1]
    assert copied > 48 << 10
    for kind, (slack, growth) in growths.items():
        # A copy of 64 MiB would make it grow by 40 MiB, at least. The emulated device has its memory on the host.
        assert slack < 24 << 10, f"{kind}: the peak was {slack} KiB higher before, which hides a copy"
        assert growth < 32 << 10, f"{kind}: {growth} KiB more for 64 MiB"


def during(action, make, text="sum(sin(x) * exp(-x) + cos(x * x))", **settings):
    """Runs a text, and an action on another thread while it runs. Returns the value and what the action returned.

    The arrays are doubled until the run takes so long that the function for the progress is called within it.
    """
    returned = []

    def progress(done, rows):
        if not returned and done < rows:
            thread = threading.Thread(target=lambda: returned.append(action(names)))
            thread.start()
            thread.join()

    for power in range(20, 28):
        names = {"x": make(1 << power)}
        value = ov.evaluate(text, dict(names), progress=progress, **settings)
        if returned:
            return value, returned[0], 1 << power
    raise AssertionError("no run took long enough")


def raised(error, action):
    with pytest.raises(error) as caught:
        action()
    return str(caught.value)


@pytest.mark.parametrize("device", DEVICES_AND_CORES)
def test_arrays_are_not_resized_during_a_run(device):
    def resized(names):
        return raised(ValueError, lambda: names["x"].resize(3))

    expected = np.sin(1.0) * np.exp(-1.0) + np.cos(1.0)
    value, message, rows = during(resized, np.ones, device=device)
    assert "cannot resize an array that" in message
    assert value == pytest.approx(rows * expected)
    # Nor is other memory whose owner would free it.
    value, message, rows = during(
        lambda names: raised(BufferError, lambda: names["x"].append(1.0)),
        lambda size: array.array("d", [1.0]) * size,
        device=device,
    )
    assert "exporting buffers" in message and value == pytest.approx(rows * expected)


def test_maps_are_not_closed_during_a_run(tmp_path):
    def mapped(size):
        return lent("mapped buffer", tmp_path / f"{size}.f64", size)[0]

    value, message, rows = during(lambda names: raised(BufferError, names["x"].obj.close), mapped, device="cpu")
    assert "cannot close exported pointers exist" in message
    assert value == pytest.approx(rows * (np.sin(1.0) * np.exp(-1.0) + np.cos(1.0)))


@pytest.mark.parametrize("device", DEVICES_AND_CORES)
@pytest.mark.parametrize("wrap", [np.asarray, memoryview, OnlyDlpack])
def test_arrays_that_are_dropped_live_until_the_run_ends(device, wrap):
    owners = []

    def made(size):
        owned = np.ones(size)
        owners.append(weakref.ref(owned))
        return wrap(owned)

    def dropped(names):
        names.clear()
        gc.collect()
        return owners[-1]() is not None

    value, was_alive, rows = during(dropped, made, device=device)
    assert was_alive and value == pytest.approx(rows * (np.sin(1.0) * np.exp(-1.0) + np.cos(1.0)))
    gc.collect()
    assert owners[-1]() is None, "and no longer"


@pytest.mark.parametrize("device", DEVICES_AND_CORES)
def test_elements_that_are_not_written_during_a_run_have_their_values(device):
    def written(names):
        x = names["x"]
        x[x.size // 2 :] = 2
        return x

    value, x, rows = during(written, np.ones, "y = exp(log(x * x) + sin(x) * 0) * x", device=device)
    half = rows // 2
    np.testing.assert_allclose(value["y"][:half], 1, rtol=1e-12)
    # An expression that reads an element twice may read both of its values.
    assert value["y"].shape == (rows,) and 0.99 < value["y"][half:].min() and value["y"][half:].max() < 8.01
    assert ov.evaluate("sum(x)", device=device) == half + 2 * half
