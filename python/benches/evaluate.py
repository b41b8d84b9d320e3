#!/usr/bin/env python3
"""Measures `overshot.evaluate` beside NumExpr with as many threads: seconds of a call, in turn, and medians.

    evaluate.py [--device cpu,cuda,auto] [--size 1KiB,1MiB,16MiB,256MiB] [--runs N] [--workers N] [--json FILE]

A size is that of one f64 column. Every result is checked. NumExpr is left out if it is not installed. The last part
counts how fast another Python thread runs during a job.
"""

import argparse
import json
import os
import statistics
import threading
import time

import numpy as np

import overshot as ov

JOBS = {
    "mul": "a * b",
    "add1": "a + 1",
    "heavy": "sin(a) * exp(b) + sqrt(a * b)",
    "sum": "sum(a * b)",
}
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def size(text):
    return int(text[:-3]) * UNITS[text[-3:]]


def expected(text, a, b):
    names = {"a": a, "b": b, "sin": np.sin, "exp": np.exp, "sqrt": np.sqrt, "sum": np.sum}
    return eval(text, {}, names)


def measure(rows, runs, devices, numexpr):
    rng = np.random.default_rng(1)
    a, b, out = rng.random(rows), rng.random(rows), np.empty(rows)
    names = {"a": a, "b": b}
    for job, text in JOBS.items():
        given = None if job == "sum" else out
        read = {name: names[name] for name in ov.Expression(text).inputs}
        calls = {device: lambda device=device: ov.evaluate(text, read, out=given, device=device) for device in devices}
        if numexpr:
            calls["numexpr"] = lambda: numexpr.evaluate(text, read, out=given)
        part = slice(0, min(rows, 1 << 20))
        for name, call in calls.items():
            out[:] = np.nan
            result = call()
            if given is None:
                assert np.isclose(result, expected(text, a, b), rtol=1e-12), (name, job)
            else:
                np.testing.assert_allclose(out[part], expected(text, a[part], b[part]), rtol=1e-14)
                np.testing.assert_allclose(out[-1], expected(text, a[-1:], b[-1:])[0], rtol=1e-14)
        seconds = {name: [] for name in calls}
        for _ in range(runs):
            for name, call in calls.items():
                begin = time.perf_counter()
                call()
                seconds[name].append(time.perf_counter() - begin)
        columns = {"mul": 3, "add1": 2, "heavy": 3, "sum": 2}[job]
        for name, all_seconds in seconds.items():
            median = statistics.median(all_seconds)
            yield {
                "job": job,
                "bytes": rows * 8,
                "with": name,
                "us": 1e6 * median,
                "gb_per_s": columns * 8 * rows / median / 1e9,
                "of_numexpr": statistics.median(seconds["numexpr"]) / median if numexpr else None,
            }


def other_thread(device, workers, rows):
    """Returns the speed of a thread that counts, during jobs, as a fraction of its speed without them."""
    a, b = np.ones(rows), np.ones(rows)
    out = np.empty(rows)
    counter, ended = [0], threading.Event()

    def count():
        while not ended.is_set():
            counter[0] += 1

    def speed(work):
        before, begin = counter[0], time.perf_counter()
        work(begin + 1.0)
        return (counter[0] - before) / (time.perf_counter() - begin)

    def jobs(until):
        while time.perf_counter() < until:
            ov.evaluate(JOBS["heavy"], a=a, b=b, out=out, device=device, workers=workers)

    def sleep(until):
        time.sleep(until - time.perf_counter())

    thread = threading.Thread(target=count)
    thread.start()
    try:
        ratios = []
        for _ in range(3):
            alone = speed(sleep)
            ratios.append(speed(jobs) / alone)
    finally:
        ended.set()
        thread.join()
    return statistics.median(ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", default="1KiB,1MiB,16MiB,256MiB")
    parser.add_argument("--runs", type=int, default=0, help="as many as take about a second, by default")
    parser.add_argument("--workers", type=int, help="of the jobs beside the other thread")
    parser.add_argument("--json")
    options = parser.parse_args()
    devices = options.device.split(",")
    try:
        import numexpr

        numexpr.set_num_threads(min(len(os.sched_getaffinity(0)), numexpr.MAX_THREADS))
    except ImportError:
        numexpr = None
    rows = []
    for text in options.size.split(","):
        runs = options.runs or max(5, min(2000, 2**30 // size(text)))
        for row in measure(size(text) // 8, runs, devices, numexpr):
            rows.append(row)
            ratio = f"{row['of_numexpr']:6.2f} of NumExpr" if numexpr else ""
            print(f"{text:8} {row['job']:6} {row['with']:8} {row['us']:12.1f} us {row['gb_per_s']:8.2f} GB/s {ratio}")
    largest = size(options.size.split(",")[-1]) // 8
    for device in devices:
        ratio = other_thread(device, options.workers, largest)
        rows.append({"job": "other thread", "with": device, "ratio": ratio})
        print(f"another thread keeps {ratio:.2f} of its speed ({device})")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"cores": os.cpu_count(), "rows": rows}, file, indent=1)


main()
