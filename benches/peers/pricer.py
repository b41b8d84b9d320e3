"""The option pricer, written by hand with Numba: two streams, a kernel for the normal numbers and one for the step,
buffers from a freelist whose entries carry events, each step copied to pinned memory after its kernel.

python3 benches/peers/pricer.py [--runs 5]

Prints the median seconds of 500 000 paths of 200 steps as a line of JSON: with all paths written to pinned memory, and
with only the last prices. The price is checked.
"""
import argparse
import collections
import json
import math
import os
import statistics
import time

import numpy as np

for old, new in [("row_stack", "vstack"), ("trapz", "trapezoid"), ("in1d", "isin")]:
    if not hasattr(np, old):
        setattr(np, old, getattr(np, new))
os.environ["NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS"] = "0"
from numba import cuda
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_normal_float64

PATHS, STEPS, STREAMS = 500_000, 200, 2
SPOT, STRIKE, VOLATILITY, RATE, YEARS = 20.83, 21.50, 0.021, 0.20, 5 / 12
DT = YEARS / STEPS
DRIFT, SPREAD = (RATE - 0.5 * VOLATILITY**2) * DT, VOLATILITY * math.sqrt(DT)


@cuda.jit
def normals(states, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = xoroshiro128p_normal_float64(states, i)


@cuda.jit
def step(last, out, drift, spread, numbers):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = last[i] * math.exp(drift + spread * numbers[i])


def pricer(paths, keep_all):
    """Writes the prices of all steps to `paths`, one row per step, or only of the last step to its last row."""
    part = PATHS // STREAMS
    grid = (part + 255) // 256
    parts = []
    for k, (stream, states, numbers, free) in enumerate(pipelines):
        first = free.popleft()
        first[0].copy_to_device(start, stream=stream)
        parts.append((slice(k * part, (k + 1) * part), stream, states, numbers, free, first))
    for j in range(STEPS):
        for k, (rows, stream, states, numbers, free, last) in enumerate(parts):
            buffer, event = free.popleft()
            if not event.query():
                event.wait(stream)
            normals[grid, 256, stream](states, numbers)
            step[grid, 256, stream](last[0], buffer, DRIFT, SPREAD, numbers)
            if keep_all or j == STEPS - 1:
                buffer.copy_to_host(paths[j, rows], stream=stream)
            last[1].record(stream)
            free.append(last)
            parts[k] = (rows, stream, states, numbers, free, (buffer, event))
    for rows, stream, states, numbers, free, last in parts:
        stream.synchronize()
        free.append(last)


def timed(paths, keep_all, runs):
    seconds = []
    for run in range(runs + 1):
        paths[STEPS - 1] = np.nan
        begin = time.perf_counter()
        pricer(paths, keep_all)
        seconds.append(time.perf_counter() - begin)
    payoffs = np.maximum(paths[STEPS - 1] - STRIKE, 0)
    price, error = math.exp(-RATE * YEARS) * payoffs.mean(), math.exp(-RATE * YEARS) * payoffs.std() / math.sqrt(PATHS)
    deviation = VOLATILITY * math.sqrt(YEARS)
    d1 = (math.log(SPOT / STRIKE) + RATE * YEARS) / deviation + deviation / 2
    cdf = lambda x: 0.5 * math.erfc(-x / math.sqrt(2))
    exact = SPOT * cdf(d1) - STRIKE * math.exp(-RATE * YEARS) * cdf(d1 - deviation)
    assert abs(price - exact) < 4 * error, (price, exact, error)
    return statistics.median(seconds[1:])  # the first one compiles


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--runs", type=int, default=5)
runs = parser.parse_args().runs
start = np.full(PATHS // STREAMS, SPOT)
pipelines = [
    (
        cuda.stream(),
        create_xoroshiro128p_states(PATHS // STREAMS, seed=k + 1),
        cuda.device_array(PATHS // STREAMS),
        collections.deque((cuda.device_array(PATHS // STREAMS), cuda.event(timing=False)) for _ in range(4)),
    )
    for k in range(STREAMS)
]
paths = cuda.pinned_array((STEPS, PATHS))
all_paths, last = timed(paths, True, runs), timed(paths, False, runs)
print(json.dumps({"peer": "Numba", "paths_seconds": all_paths, "price_seconds": last}))
