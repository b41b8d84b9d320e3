"""Rows times matrices in device memory with CuPy, and with NumPy on all cores: GB/s of rows, for benches/matrices.rs.

python3 benches/peers/matrices.py --size 1GiB

Prints a line of JSON for each, and for copies of 32 MiB from pinned memory. CuPy multiplies panels of 1024, 4096 and
65 536 rows that stay in device memory, in single or double precision (without TF32), alone and with what k-means
computes of each row. NumPy multiplies a table of this size.
"""

import argparse
import json
import os
import statistics
import time

# No TF32, whatever the environment says.
os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
os.environ["CUPY_TF32"] = "0"

import numpy as np

WIDTH = 1024
CENTRES = {"f4": 2048, "f8": 256}
PANELS = 1024, 4096, 65_536


def rate(runs, bytes_, run, wait):
    """The median rate of some runs after one that does not count."""
    seconds = []
    for _ in range(runs + 1):
        begin = time.perf_counter()
        run()
        wait()
        seconds.append(time.perf_counter() - begin)
    return bytes_ / statistics.median(seconds[1:]) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="1GiB")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    size = int(float(arguments.size.removesuffix("GiB")) * 2**30)
    try:
        import cupy
    except ImportError:
        cupy = None
    if cupy is not None:
        into = cupy.empty(32 << 20, "u1")
        pinned = cupy.cuda.alloc_pinned_memory(into.nbytes)
        stream = cupy.cuda.Stream(non_blocking=True)
        copies = lambda: [into.data.copy_from_host_async(pinned.ptr, into.nbytes, stream) for _ in range(32)]
        link = rate(arguments.runs, 32 * into.nbytes, copies, stream.synchronize)
        print(json.dumps({"task": "copies in", "peer": "CuPy, from pinned memory", "gb_per_s": link}), flush=True)
    for dtype, centres in CENTRES.items():
        random = np.random.default_rng(1)
        panel = random.random((65_536, WIDTH)).astype(dtype)
        c = random.random((centres, WIDTH)).astype(dtype)
        w = random.random((WIDTH, 16)).astype(dtype)
        h = (c * c).sum(axis=1)

        def show(task, peer, value, dtype=dtype):
            print(json.dumps({"task": task, "dtype": dtype, "peer": peer, "gb_per_s": value}), flush=True)

        if cupy is not None:
            x, matrix, norms, few = (cupy.asarray(array) for array in (panel, c.T.copy(), h, w))
            wait = cupy.cuda.Device().synchronize
            for rows in PANELS:
                # As many as make 65 536 rows: they follow each other, as in a long run.
                parts = [x[row : row + rows] for row in range(0, len(x), rows)]
                products = cupy.empty((rows, centres), dtype)

                def multiply(parts=parts, products=products, matrix=matrix):
                    for part in parts:
                        cupy.matmul(part, matrix, out=products)

                def nearest(parts=parts, products=products, matrix=matrix, norms=norms):
                    for part in parts:
                        cupy.matmul(part, matrix, out=products)
                        (norms - 2 * products).argmin(axis=1)

                def scores(parts=parts, few=few):
                    for part in parts:
                        cupy.matmul(part, few)

                def on_device(task, run, bytes_=panel.nbytes, rows=rows, wait=wait):
                    ten = lambda: [run() for _ in range(10)]
                    peer = f"CuPy in device memory, {rows} rows at a time"
                    show(task, peer, rate(arguments.runs, 10 * bytes_, ten, wait))

                on_device("nearest, product alone", multiply)
                on_device("nearest", nearest)
                on_device("scores", scores)

        table = np.empty((size // panel.itemsize // WIDTH, WIDTH), dtype)
        for row in range(0, len(table), len(panel)):
            table[row : row + len(panel)] = panel[: len(table) - row]

        def nearest_in_parts(table=table, c=c, h=h):
            # In parts, which is faster than all rows at a time.
            for row in range(0, len(table), 8192):
                e = table[row : row + 8192] @ c.T
                e *= -2
                e += h
                labels = e.argmin(axis=1)
                np.bincount(labels, minlength=len(c))
                e[np.arange(len(e)), labels].sum()

        show("scores", "NumPy", rate(arguments.runs, table.nbytes, lambda table=table, w=w: table @ w, lambda: None))
        show("nearest", "NumPy", rate(1, table.nbytes, nearest_in_parts, lambda: None))


if __name__ == "__main__":
    main()
