#!/usr/bin/env python3
"""Measures how long Ctrl-C takes: from the signal to `KeyboardInterrupt`, in milliseconds: median and longest.

    interrupt.py [--device cpu,emulated] [--runs 50] [--json FILE]

The signal is sent at a random moment. A job that ends before is run again. No output may be left in the folder.
"""

import argparse
import json
import os
import random
import signal
import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import overshot as ov

TABLE = np.ones((1 << 22, 8))


def endless(device, _):
    ov.evaluate("max(sin(i))", rows=10**15, device=device)


def memory(device, _, out=np.empty(TABLE.shape)):
    ov.evaluate("sin(x) * exp(x)", x=TABLE, out=out, device=device)


def file(device, folder):
    ov.evaluate("sin(x) * exp(x)", x=TABLE, out=ov.create(folder / "y.npy", force=True), device=device)
    (folder / "y.npy").unlink()


def broadcast(device, _, out=np.empty((1 << 15, 1 << 11))):
    ov.evaluate("sin(x * y)", x=np.ones((len(out), 1)), y=np.ones(out.shape[1]), out=out, device=device)


def passes(device, _):
    # The memory of an emulated device is too small for the operands of a product.
    ov.matrices.kmeans(TABLE, 8, device=device, device_memory="256MiB")


JOBS = {
    "rows without end": endless,
    "256 MiB into an array": memory,
    "256 MiB into a file": file,
    "small arrays, broadcast": broadcast,
    "k-means": passes,
}


def interrupted(job, device, folder, wait):
    """Returns the seconds from a signal, which is sent after `wait` seconds, to the end of the job."""
    sent = []

    def interrupt():
        time.sleep(wait)
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        while True:
            job(device, folder)
    except KeyboardInterrupt:
        end = time.perf_counter()
    thread.join()
    left = [path.name for path in folder.iterdir() if path.name != "y.npy" or job is not file]
    assert not left, left
    (folder / "y.npy").unlink(missing_ok=True)
    return end - sent[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu,emulated")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--json")
    options = parser.parse_args()
    # A shell that starts a program in the background makes it ignore the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    moments = random.Random(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for device in options.device.split(","):
            for name, job in JOBS.items():
                waits = [moments.uniform(0.1, 0.4) for _ in range(options.runs)]
                ms = [1000 * interrupted(job, device, Path(folder), wait) for wait in waits]
                row = {"device": device, "job": name, "median_ms": statistics.median(ms), "longest_ms": max(ms)}
                rows.append(row)
                print(f"{device:8}  {name:24} {row['median_ms']:6.1f} ms, at most {row['longest_ms']:6.1f}")
    if options.json:
        Path(options.json).write_text(json.dumps({"cores": os.cpu_count(), "runs": options.runs, "rows": rows}))


if __name__ == "__main__":
    main()
