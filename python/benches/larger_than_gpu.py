#!/usr/bin/env python3
"""Sums a file that is larger than the memory that a GPU may use, beside Dask with CuPy: seconds in turn, and medians.

    larger_than_gpu.py FOLDER [--size 40GB] [--memory 11GB] [--device cuda] [--runs 3] [--json FILE]

The file is made in FOLDER first, unless it is there. Dask and CuPy are left out if they are not installed. All sums are
compared. The pages of the file are in the cache of the system, as far as they fit, because every sum reads it.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np

import overshot as ov


def with_overshot(path, options):
    return ov.evaluate("sum(a)", a=path, device=options.device, device_memory=options.memory)


def with_dask(path, options):
    import cupy
    import dask.array

    cupy.get_default_memory_pool().set_limit(size=size(options.memory))
    a = np.load(path, mmap_mode="r")
    # Chunks of 256 MiB, and one at a time on the GPU: more of them do not copy faster.
    chunks = dask.array.from_array(a, chunks=32 << 20)
    return float(chunks.map_blocks(cupy.asarray).sum().compute(scheduler="synchronous"))


def size(text):
    return round(float(text.removesuffix("GB")) * 1e9)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", default="40GB")
    parser.add_argument("--memory", default="11GB")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = size(options.size) // 8
    path = options.folder / f"a-{rows}.npy"
    if not path.exists():
        ov.evaluate("sin(i)", rows=rows, out=path, device="cpu")
    calls = {"overshot": with_overshot}
    try:
        import cupy  # noqa: F401
        import dask.array  # noqa: F401

        calls["dask + cupy"] = with_dask
    except ImportError as error:
        print(f"Dask with CuPy is left out: {error}")
    seconds = {name: [] for name in calls}
    expected = with_overshot(path, options)
    for _ in range(options.runs):
        for name, call in calls.items():
            begin = time.perf_counter()
            result = call(path, options)
            seconds[name].append(time.perf_counter() - begin)
            assert np.isclose(result, expected, rtol=1e-9, atol=1e-3), (name, result, expected)
    for name, each in seconds.items():
        median = statistics.median(each)
        print(f"{name:12} {median:8.3f} s  {rows * 8 / median / 1e9:7.2f} GB/s")
    if options.json:
        Path(options.json).write_text(json.dumps({"bytes": rows * 8, "seconds": seconds}))


if __name__ == "__main__":
    main()
