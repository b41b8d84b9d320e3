"""What a range of dask arrays costs, on workers of this machine: ranges of 4096 elements, so that little else counts.

    python python/benches/dask_arrays.py --workers 2
"""

import argparse
import time

import dask.array as da
import distributed

import overshot.dask


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="processes with one thread (2)")
    parser.add_argument("--ranges", type=int, default=1000, help="number of ranges (1000)")
    args = parser.parse_args()
    settings = {"n_workers": args.workers, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": ":0"}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
        x = da.zeros(args.ranges * 4096, chunks=4096).persist()
        distributed.wait(x)
        # The first one starts the engines of the workers.
        for text in ("max(x)", "sum(x)", "y = x + 1; sum(x)"):
            begin = time.perf_counter()
            overshot.dask.evaluate(client, text, x=x, ranges=args.ranges, device="cpu", workers=1)
            seconds = time.perf_counter() - begin
            print(f"{text}: {1000 * seconds / args.ranges:.2f} ms for each of {args.ranges} ranges")


if __name__ == "__main__":
    main()
