"""The files that NumPy writes: half precision, records, archives, Fortran order, and many files as one input.

python python/examples/numpy_files.py [ROWS]

The emulated device has 16 MiB of memory, so the example shows the same on every machine; with a GPU, try "auto".
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import overshot as ov

ROWS = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000_000

with tempfile.TemporaryDirectory(dir=".") as name, ov.Engine(device="emulated", device_memory="16MiB") as engine:
    folder = Path(name)
    random = np.random.default_rng(1)

    # Records of C's layout: a field is a column, which is read without the others.
    trades = np.zeros(ROWS, [("price", "f4"), ("size", "i4"), ("side", "u1")])
    trades["price"], trades["size"] = random.gamma(2, 50, ROWS), random.integers(1, 500, ROWS)
    np.save(folder / "trades.npy", trades)
    price, size = (ov.open(folder / "trades.npy", field=field) for field in ("price", "size"))
    turnover = engine.evaluate("sum(f64(price) * size)")
    assert np.isclose(turnover, np.sum(trades["price"].astype("f8") * trades["size"]), rtol=1e-12)

    # An archive that is not compressed, and half precision: arithmetic and results are those of float16.
    gain = random.normal(size=ROWS).astype("f2")
    np.savez(folder / "gain.npz", gain=gain, bias=np.float16(0.5))
    member = ov.open(folder / "gain.npz", member="gain")
    scaled = engine.evaluate("x * 2 + 1", x=member)
    assert scaled.dtype == np.float16 and np.array_equal(scaled, gain * np.float16(2) + np.float16(1))
    # bf16 has the range of f32, and 8 bits of precision.
    rounded = engine.evaluate("max(f32(abs(bf16(x) - x)))", x=gain.astype("f4"))
    assert 0 < rounded <= np.abs(gain).max() / 256

    # Columns in Fortran order: each is contiguous in the file, and the rows are put together while they are read.
    table = np.asfortranarray(random.normal(size=(ROWS // 8, 8)))
    np.save(folder / "table.npy", table)
    means = engine.evaluate("mean(t, axis=0)", t=ov.open(folder / "table.npy"))
    assert np.allclose(means, table.mean(axis=0), rtol=0, atol=1e-12)

    # Many files are one input, in natural order: part-10 follows part-9.
    parts = np.array_split(random.normal(size=ROWS), 12)
    for number, part in enumerate(parts):
        np.save(folder / f"part-{number}.npy", part)
    whole = np.concatenate(parts)
    text = "y = copysign(fmod(x, 0.25), -1); z = nextafter(x, 0); count(signbit(x)), sum(sign(x) * i)"
    found = engine.evaluate(text, x=ov.open(folder / "part-*.npy"), out={"y": folder / "y.npy", "z": folder / "z.npy"})
    assert np.array_equal(np.load(folder / "y.npy"), np.copysign(np.fmod(whole, 0.25), -1))
    assert np.array_equal(np.load(folder / "z.npy"), np.nextafter(whole, 0))
    assert found["count(signbit(x))"] == np.count_nonzero(np.signbit(whole))
    assert found["sum(sign(x) * i)"] == np.sum(np.sign(whole) * np.arange(ROWS))
    print(found.report)
