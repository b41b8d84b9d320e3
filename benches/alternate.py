#!/usr/bin/env python3
"""Compares two builds on one machine: runs their throughput benches alternately and prints the ratio of every row.

    benches/pack.sh, in both checkouts; then, where the GPU is:
    benches/alternate.py OLD/target/gpu NEW/target/gpu --device cuda,cpu,auto --size 4GiB --rounds 3 --json ratios.json

A machine is seldom twice as fast as it was a minute ago, but often a few per cent faster. So only the ratios of one
call of this script count: each is the median of the new build's runs over the median of the old one's. It exits with 1
if a row falls below --least.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile


def measured(folder, number, arguments, cache):
    """The rows of one run of a build: (device, job) -> GB/s."""
    out = pathlib.Path(cache) / f"{number}.json"
    environment = os.environ | {"OVERSHOT_CACHE": str(cache)}
    command = [folder / "throughput", "--device", arguments.device, "--size", arguments.size, "--json", out]
    command += ["--only", arguments.only] if arguments.only else []
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return {(row["device"], row["job"]): row["gb_per_s"] for row in json.loads(out.read_text())["rows"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs=2, type=pathlib.Path, metavar="FOLDER", help="of benches/pack.sh: old, new")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="4GiB")
    parser.add_argument("--only")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--least", type=float, default=0.97)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    rows = [{}, {}]
    with tempfile.TemporaryDirectory() as cache:
        # Both plan by the same limits.
        limits = [arguments.builds[0] / "overshot", "bench", "--limits", "--dir", cache]
        subprocess.run(limits, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"OVERSHOT_CACHE": cache})
        for number in range(arguments.rounds):
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                for row, rate in measured(arguments.builds[which], number, arguments, cache).items():
                    rows[which].setdefault(row, []).append(rate)
    table = []
    for row in rows[0]:
        old, new = (statistics.median(build.get(row, [float("nan")])) for build in rows)
        table.append({"device": row[0], "job": row[1], "old": old, "new": new, "ratio": new / old})
    print("| device | job | old GB/s | new GB/s | new / old |\n| --- | --- | --- | --- | --- |")
    for row in table:
        print(f"| {row['device']} | {row['job']} | {row['old']:.1f} | {row['new']:.1f} | {row['ratio']:.3f} |")
    if arguments.json:
        commits = [(build / "commit").read_text().strip() for build in arguments.builds]
        arguments.json.write_text(json.dumps({"commits": commits, "size": arguments.size, "rows": table}, indent=1))
    # A row that is missing is no ratio, and fails, too.
    return 0 if all(row["ratio"] >= arguments.least for row in table) else 1


if __name__ == "__main__":
    sys.exit(main())
