"""Principal components of a file that is larger than the memory of the device.

python python/examples/principal_components.py [ROWS]

The emulated device simulates a GPU with 128 MiB in host memory, so that this shows the same on every machine. With a
GPU, write device="cuda", and leave out device_memory.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import overshot as ov

ROWS, COLUMNS = int(sys.argv[1]) if len(sys.argv) > 1 else 700_000, 64
SETTINGS = {"device": "emulated", "device_memory": "128MiB"}

with tempfile.TemporaryDirectory(dir=".") as folder:
    # Three directions at right angles, along which rows vary by 5, 4 and 3, and noise.
    random = np.random.default_rng(1)
    directions = np.linalg.qr(random.normal(size=(COLUMNS, 3)))[0].T
    path = Path(folder) / "x.npy"
    x = np.lib.format.open_memmap(path, "w+", "f4", (ROWS, COLUMNS))
    for first in range(0, ROWS, 100_000):
        block = x[first : first + 100_000]
        block[:] = 10 + random.normal(size=(len(block), 3)) * [5, 4, 3] @ directions
        block += 0.1 * random.normal(size=block.shape)
    x.flush()
    print(f"a file of {path.stat().st_size / 2**20:.0f} MiB for a device of {SETTINGS['device_memory']}")

    # A pass for the means and a few that multiply the covariance by some directions, but never compute it.
    found = ov.matrices.pca(path, 3, method="randomized", **SETTINGS)
    print("deviations:", np.sqrt(found.variance).round(2))
    np.testing.assert_allclose(np.sqrt(found.variance), [5, 4, 3], rtol=0.02)
    np.testing.assert_allclose(np.abs(found.components @ directions.T), np.eye(3), atol=0.05)

    # The covariance of all columns has the same components. It is what the method "auto" takes up to 4096 columns.
    exact = ov.matrices.pca(path, 3, device="cpu")
    np.testing.assert_allclose(exact.components, found.components, atol=1e-6)

    # The coordinates of all rows, as a file.
    y = ov.matrices.project(path, found, out=Path(folder) / "y.npy", **SETTINGS)
    np.testing.assert_allclose(y[:1000], (x[:1000] - found.mean) @ found.components.T, atol=1e-6)
    print("coordinates:", y.shape, y.dtype)
