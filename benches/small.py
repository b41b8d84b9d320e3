#!/usr/bin/env python3
"""What a GPU costs small jobs: the time of the process, and that until the first copy begins.

    benches/small.py [--device cpu,auto,cuda] [--runs 15]    # the command is OVERSHOT_BIN, or `overshot`

Runs `c = a * b` on three files of together 64 MB, in turn on every device, and prints the medians: of the whole
process; and on `cuda`, in runs of their own with a timeline, of the time from the search for devices to the first copy,
beside what CUDA's own initialisation takes in a process that does nothing else. That time contains what follows the
last chunk, too, so it is an upper bound. Prints lines of JSON. Every output is checked.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

BYTES = 64_000_000
# The primary context of the first GPU and a byte of its memory, by the driver alone.
INITIALISE = """
import ctypes, time
begin = time.perf_counter()
cuda = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
for status in (
    cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0),
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), cuda.cuCtxSetCurrent(context),
    cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1)),
):
    assert status == 0, status
print(time.perf_counter() - begin)
"""


def job(tool, folder, device, options=()):
    """Runs the job. Returns the seconds of the process, and its report."""
    files = [f"{name}={folder / name}.npy" for name in "abc"]
    begin = time.perf_counter()
    command = [tool, "run", "c = a * b", *files, "--device", device, "--force", "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    seconds = time.perf_counter() - begin
    a, b, c = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "abc")
    if not np.array_equal(c, a * b):
        sys.exit(f"a wrong result on {device}")
    return seconds, json.loads(done.stdout)


def first_copy(tool, folder):
    """Returns the seconds until the first copy to the GPU begins, or some more."""
    trace = folder / "trace.json"
    _, report = job(tool, folder, "cuda", ["--trace", trace])
    copies = [event["ts"] for event in json.loads(trace.read_text()) if event["name"] == "copy in"]
    around = report["total_seconds"] - report["seconds"]
    return report["setup"]["find_seconds"] + around + min(copies) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu,auto,cuda")
    parser.add_argument("--runs", type=int, default=15)
    arguments = parser.parse_args()
    tool = os.environ.get("OVERSHOT_BIN", "overshot")
    devices = arguments.device.split(",")
    times = {device: [] for device in devices}
    copies, bare = [], []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in "ab":
            np.save(folder / f"{name}.npy", np.random.default_rng(1).random(BYTES // 24))
        for run in range(arguments.runs + 1):
            for device in devices:
                seconds, _ = job(tool, folder, device)
                # The first run of each reads the program from the disk.
                if run > 0:
                    times[device].append(1e3 * seconds)
            if "cuda" in devices and run > 0:
                copies.append(1e3 * first_copy(tool, folder))
                done = subprocess.run([sys.executable, "-c", INITIALISE], stdout=subprocess.PIPE, check=True)
                bare.append(1e3 * float(done.stdout))
    for device in devices:
        of_cpu = statistics.median(times[device]) - statistics.median(times[devices[0]])
        process = {"process_ms": statistics.median(times[device]), f"more_than_{devices[0]}_ms": of_cpu}
        print(json.dumps({"device": device, "bytes": BYTES, "runs": arguments.runs} | process))
    if copies:
        first, own = statistics.median(copies), statistics.median(bare)
        print(json.dumps({"first_copy_ms": first, "initialisation_of_cuda_ms": own, "more_ms": first - own}))


if __name__ == "__main__":
    main()
