#!/usr/bin/env python3
"""Direct reads, past the page cache: Overshot's beside bare ones of the same file, in turn.

    benches/cold.py [--size 1GiB] [--folder .] [--runs 5] [--device cpu]    # the command is OVERSHOT_BIN, or `overshot`

The bare reads are those of threads that read one request after the other, each thread its own part of the file. Their
sizes and numbers are varied; a disk with a deep queue wants many. Prints a line of JSON for each, the median of the
runs in GB/s, and at last Overshot's rate as a part of the best one. Exits with 1 if a sum is wrong.
"""

import argparse
import json
import mmap
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

REQUESTS = [128 << 10, 512 << 10, 2 << 20, 8 << 20]
THREADS = [1, 4, 16, 64]


def bare(path, size, request, threads):
    """Returns the GB/s of bare direct reads of the whole file."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    part = size // threads
    problems = []

    def read(number):
        try:
            buffer = mmap.mmap(-1, request)
            for at in range(number * part, (number + 1) * part, request):
                if os.preadv(file, [buffer], at) != request:
                    problems.append(f"a short read at {at}")
        except OSError as error:
            problems.append(str(error))

    readers = [threading.Thread(target=read, args=[number]) for number in range(threads)]
    begin = time.perf_counter()
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    seconds = time.perf_counter() - begin
    os.close(file)
    if problems:
        sys.exit(f"bare reads failed: {problems[0]}")
    return size / seconds / 1e9


def overshot(tool, path, size, device):
    """Returns the GB/s of a sum with direct reads, from the first chunk to the last."""
    command = [tool, "run", "sum(x)", f"x={path}:f64", "--read-mode", "direct", "--device", device, "--json"]
    report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    if report["results"][0]["value"] != size // 8 or report["bytes_read_directly"] < size:
        sys.exit(f"a wrong sum, or reads through the page cache: {report['notes']}")
    return size / report["seconds"] / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="1GiB")
    parser.add_argument("--folder", default=".")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    tool = os.environ.get("OVERSHOT_BIN", "overshot")
    size = int(arguments.size[:-3]) << {"MiB": 20, "GiB": 30}[arguments.size[-3:]]
    kinds = [(request, threads) for request in REQUESTS for threads in THREADS if size % (request * threads) == 0]
    rates = {kind: [] for kind in [*kinds, "overshot"]}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = pathlib.Path(folder) / "x.f64"
        with open(path, "wb") as file:
            # A disk may not store zeros.
            ones = np.ones(1 << 21).tobytes()
            for at in range(0, size, len(ones)):
                file.write(ones[: size - at])
            file.flush()
            os.fsync(file.fileno())
        for _ in range(arguments.runs):
            for kind in kinds:
                rates[kind].append(bare(path, size, *kind))
                # Beside each number of threads once.
                if kind[0] == REQUESTS[1]:
                    rates["overshot"].append(overshot(tool, path, size, arguments.device))
    medians = {kind: statistics.median(of_kind) for kind, of_kind in rates.items()}
    for request, threads in kinds:
        line = {"bare": {"request_kib": request >> 10, "threads": threads}}
        print(json.dumps(line | {"gb_per_s": round(medians[request, threads], 3)}))
    own, best = medians["overshot"], max(medians[kind] for kind in kinds)
    line = {"overshot": arguments.device, "gb_per_s": round(own, 3), "of_the_best": round(own / best, 3)}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
