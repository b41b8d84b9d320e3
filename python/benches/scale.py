#!/usr/bin/env python3
"""Simulates a job on many hosts in virtual time, with Overshot's own code that divides, hands out and merges ranges.

    scale.py [--hosts 10,100,1000] [--gpus N] [--ranges N] [--minutes N] [--seeds N] [--no-copies]

Each range is really run, as a small one of `sum(i), std(i)`, and its partial is merged; only its time is simulated:
GPUs differ by some per cent, one host of twenty is four times as slow, one of a hundred is lost at some moment, which
is noticed half a minute later. The ideal is the time in which the hosts, each at its speed and as long as it lives,
could do the work without any loss at the end. `merge` is real: the time of all merging, on one core.
"""

import argparse
import heapq
import random
import time

import overshot as ov
from overshot._parts import RANGES_PER_WORKER, Ranges

TILE = 4096
LATENCY = 0.01  # seconds from a result to the begin of the next range of the same host
HANDLING = 0.001  # seconds of the driver for each result; it handles one at a time
NOTICED = 30.0  # seconds until a lost host is noticed
STRAGGLERS, SLOWER = 0.05, 4.0
LOST = 0.01
TEXT = "sum(i), std(i)"


class Host:
    """A host, whose speed is that of its GPUs together, in ranges a second."""

    def __init__(self, rng, gpus, seconds_of_range, horizon, is_straggler, is_lost):
        speed = sum(rng.gauss(1.0, 0.05) for _ in range(gpus)) / gpus / seconds_of_range
        self.speed = speed / SLOWER if is_straggler else speed
        self.end = rng.random() * horizon if is_lost else float("inf")


def ideal(hosts, work):
    """Returns when the work can be done at the earliest: each host works until it is lost."""
    now, speed, left = 0.0, sum(host.speed for host in hosts), float(work)
    for host in sorted((host for host in hosts if host.end < float("inf")), key=lambda host: host.end):
        if (host.end - now) * speed >= left:
            break
        left -= (host.end - now) * speed
        now, speed = host.end, speed - host.speed
    return now + left / speed


def simulate(hosts=1000, gpus=8, ranges=RANGES_PER_WORKER, minutes=10.0, seed=0, copies=True):
    """Returns what happened, as a dictionary."""
    rng = random.Random(seed)
    count = hosts * ranges
    rows = count * TILE
    kinds = rng.sample(range(hosts), hosts)
    slow, lost = set(kinds[: round(hosts * STRAGGLERS)]), set(kinds[hosts - round(hosts * LOST) :])
    horizon = 60.0 * minutes
    all_hosts = [Host(rng, gpus, horizon / ranges, horizon, k in slow, k in lost) for k in range(hosts)]
    engine = ov.Engine(device="cpu")
    parts = Ranges(engine._ranges(TEXT, {}, None, rows, count), copies=copies)
    events = [(host.end + NOTICED, k, None) for k, host in enumerate(all_hosts) if host.end < float("inf")]
    heapq.heapify(events)
    free, gone, merging, driver, computed = set(range(hosts)), set(), 0.0, 0.0, 0

    def hand_out(now):
        for k in parts.fastest(free):
            claim = parts.claim(k, now)
            if claim is None:
                break
            free.discard(k)
            begin = now + LATENCY
            end = begin + rng.lognormvariate(0.0, 0.05) / all_hosts[k].speed
            if end < all_hosts[k].end:
                heapq.heappush(events, (end, k, claim))

    hand_out(0.0)
    now = 0.0
    while not parts.is_complete:
        at, k, claim = heapq.heappop(events)
        now = driver = max(at, driver) + HANDLING
        if claim is None:
            gone.add(k)
            free.discard(k)
            parts.lost(k)
        elif k not in gone:
            partial = engine.run_rows(TEXT, rows=claim.rows, total_rows=rows)
            begin = time.perf_counter()
            parts.complete(k, claim.number, partial, now)
            merging += time.perf_counter() - begin
            computed += 1
            free.add(k)
        hand_out(now)
    return {
        "hosts": hosts,
        "ranges": count,
        "seconds": now,
        "ideal": ideal(all_hosts, count),
        "most_starts": max(parts.starts),
        "starts": sum(parts.starts),
        "lost": len(gone),
        "merge_seconds": merging,
        "partial": parts.partial,
        "engine": engine,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="10,100,1000")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--ranges", default=str(RANGES_PER_WORKER), help="ranges for each host")
    parser.add_argument("--minutes", type=float, default=10.0, help="the time of a job on hosts without faults")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--no-copies", action="store_true", help="as for a job with outputs")
    args = parser.parse_args()
    print("| hosts | ranges for each | time / ideal, worst seed | runs of a range, most | run twice | merge |")
    print("| --- | --- | --- | --- | --- | --- |")
    for hosts in map(int, args.hosts.split(",")):
        for ranges in map(int, args.ranges.split(",")):
            runs = [
                simulate(hosts, args.gpus, ranges, args.minutes, seed, not args.no_copies) for seed in range(args.seeds)
            ]
            worst = max(run["seconds"] / run["ideal"] for run in runs)
            most = max(run["most_starts"] for run in runs)
            again = max(run["starts"] / run["ranges"] - 1 for run in runs)
            merge = max(run["merge_seconds"] for run in runs)
            print(f"| {hosts} | {ranges} | {worst:.3f} | {most} | {100 * again:.1f} % | {merge:.2f} s |", flush=True)


if __name__ == "__main__":
    main()
