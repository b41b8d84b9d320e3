"""Exact nearest neighbours among vectors that are larger than the memory of the device.

python python/examples/nearest_neighbours.py [ROWS]

The emulated device simulates a GPU with 96 MiB in host memory, so that this shows the same on every machine. With a
GPU, write device="cuda", and leave out device_memory.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import overshot as ov

ROWS, COLUMNS, QUERIES, COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000, 64, 50, 10
SETTINGS = {"device": "emulated", "device_memory": "96MiB"}

with tempfile.TemporaryDirectory(dir=".") as folder:
    random = np.random.default_rng(1)
    path = Path(folder) / "base.npy"
    base = np.lib.format.open_memmap(path, "w+", "f4", (ROWS, COLUMNS))
    for first in range(0, ROWS, 100_000):
        block = base[first : first + 100_000]
        block[:] = random.normal(size=block.shape)
    base.flush()
    # Some of the rows, a little moved, and one that is twice in the base.
    rows = np.arange(QUERIES) * (ROWS // QUERIES)
    queries = base[rows] + 0.01 * random.normal(size=(QUERIES, COLUMNS))
    base[ROWS - 1] = base[rows[7]]

    print(f"a file of {path.stat().st_size / 2**20:.0f} MiB for a device of {SETTINGS['device_memory']}")
    found = ov.matrices.nearest(path, queries, COUNT, **SETTINGS)
    print("the nearest rows of query 7:", found.indices[7, :3], found.distances[7, :3].round(3))

    # Each query finds its own row first. Of two equal rows, the first one comes first.
    np.testing.assert_array_equal(found.indices[:, 0], rows)
    assert found.indices[7, 1] == ROWS - 1 and found.distances[7, 0] == found.distances[7, 1]

    # The same as all distances of a query, sorted.
    for query in (0, 7, 20):
        squares = ((base.astype("f8") - queries[query]) ** 2).sum(axis=1)
        np.testing.assert_array_equal(found.indices[query], np.argsort(squares, kind="stable")[:COUNT])
    print("checked")
