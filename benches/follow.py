#!/usr/bin/env python3
"""How soon `auto` follows a change of the machine: another program begins in the middle of a job. It keeps half as many
threads busy as there are cores, which take half of them or share them with the job.

    benches/follow.py [--size 24GiB] [--folder /dev/shm] [--runs 3]     # the command is OVERSHOT_BIN, or `overshot`

The rate of the job from 100 ms after the change on, from its timeline, is compared with the rates of the same job on
each device while the other program runs all the time. The first 5 % and the last 3 % of a job do not count. The input
is a file of zeros in a folder in memory, which both inputs read. Prints JSON; exits with 1 if a result is wrong.
"""

import argparse
import collections
import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

JOB = "sum(sin(x) * exp(y) + sqrt(x * y) + cos(x))"
AFTER = 0.1


def spin(is_running):
    """Keeps one core busy while the other program runs."""
    while True:
        is_running.wait()
        for _ in range(100_000):
            pass


def finished(trace):
    """When each chunk was finished, in seconds from the first chunk on, and its rows."""
    chunks = collections.defaultdict(lambda: (0.0, 0))
    for event in json.loads(pathlib.Path(trace).read_text()):
        if event["ph"] == "X":
            key = event["pid"], event["args"]["row"]
            end = (event["ts"] + event["dur"]) / 1e6
            chunks[key] = max(chunks[key], (end, event["args"]["rows"]))
    return sorted(chunks.values())


def rate(chunks, begin, end):
    return sum(rows for at, rows in chunks if begin <= at < end) / (end - begin)


def steady(chunks):
    """Rows per second without the first 5 % and the last 3 % of the rows."""
    rows, done, times = sum(rows for _, rows in chunks), 0, []
    for at, count in chunks:
        done += count
        if 0.05 <= done / rows <= 0.97:
            times.append(at)
    return rate(chunks, times[0], times[-1])


class Bench:
    def __init__(self, folder, size):
        self.tool, self.folder = os.environ.get("OVERSHOT_BIN", "overshot"), pathlib.Path(folder)
        self.rows = size // 8
        with open(self.folder / "x.f64", "wb") as file:
            zeros = bytes(1 << 24)
            for at in range(0, size, len(zeros)):
                file.write(zeros[: size - at])
        self.is_running = multiprocessing.Event()
        count = max(1, len(os.sched_getaffinity(0)) // 2)
        self.others = [multiprocessing.Process(target=spin, args=[self.is_running], daemon=True) for _ in range(count)]
        for other in self.others:
            other.start()

    def run(self, device, change_after=None):
        """Runs the job. Returns its report, the finished chunks, and when the change was, in seconds from the first
        chunk on."""
        trace, file = self.folder / "trace.json", f"{self.folder}/x.f64:f64"
        command = [self.tool, "run", JOB, f"x={file}", f"y={file}", "--device", device, "--json", "--trace", trace]
        begin = time.perf_counter()
        job = subprocess.Popen(command, stdout=subprocess.PIPE)
        if change_after is not None:
            time.sleep(change_after)
            self.is_running.set()
        changed = time.perf_counter() - begin
        output = job.communicate()[0]
        if job.returncode != 0:
            sys.exit(f"a run on {device} failed")
        report = json.loads(output)
        # sin(0) * exp(0) + sqrt(0) + cos(0) is 1.
        if report["results"][0]["value"] != self.rows:
            sys.exit(f"a wrong result on {device}")
        chunks = finished(trace)
        trace.unlink()
        # The few milliseconds in which the process starts come on top of those after which the rate counts.
        return report, chunks, changed - sum(report["setup"].values())

    def follow(self):
        """Changes the machine in the middle of a job on `auto`. Returns the rates before and after."""
        self.is_running.clear()
        report, chunks, _ = self.run("auto")
        half = sum(report["setup"].values()) + report["seconds"] / 2
        before = steady(chunks)
        _, chunks, changed = self.run("auto", change_after=half)
        self.is_running.clear()
        end = chunks[-1][0]
        if changed + AFTER > 0.95 * end:
            sys.exit(f"the job ended {end - changed:.3f} s after the change: use a larger --size")
        return before, rate(chunks, changed + AFTER, 0.97 * end)

    def beside(self, device):
        """The rate of a job beside the other program."""
        self.is_running.set()
        _, chunks, _ = self.run(device)
        self.is_running.clear()
        return steady(chunks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="24GiB")
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--devices", default="cpu,cuda,auto", help="for the rates to compare with")
    arguments = parser.parse_args()
    size = int(arguments.size[:-3]) << {"MiB": 20, "GiB": 30}[arguments.size[-3:]]
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        bench = Bench(folder, size)
        before, after = zip(*(bench.follow() for _ in range(arguments.runs)))
        beside = {
            device: statistics.median(bench.beside(device) for _ in range(arguments.runs))
            for device in arguments.devices.split(",")
        }
    best = max(beside.values())
    ratios = sorted(rate / best for rate in after)
    figures = {"cores": len(os.sched_getaffinity(0)), "size": arguments.size, "rows_per_second": {
        "before": before, "after": after, "beside": beside}, "after / best beside": ratios}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
