"""Jobs over a Parquet file in Overshot, Polars (streaming) and DuckDB, with as many threads: GB/s of decoded values.

    python3 benches/peers/tables.py [--size BYTES] [--file PATH] [--devices cpu,cuda] [--runs N]

The file is written by Polars, with Snappy and a dictionary, in row groups of 1 Mi rows, if it does not exist. All run
in this process, in turn, and are warm: each figure is the median after a first run. All results are compared. Rates
count all rows of the columns of a job, also those that statistics rule out. `cpu_seconds` is what all threads of the
process took together, which other processes on the machine change less than the rates.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import overshot as ov
import polars as pl

import duckdb

A, B, DAY = pl.col("a"), pl.col("b"), pl.col("day")
# The rows of a day, in which the file is sorted.
DAY_ROWS = 1 << 18
# The job as an expression of Polars, as SQL and as Overshot's text.
JOBS = {
    "sum of products": (lambda table: table.select((A * B).sum()), "sum(a * b) from t", "sum(t.a * t.b)"),
    "mean of a filter": (
        lambda table: table.filter(B > 100).select(A.mean()),
        "avg(a) from t where b > 100",
        "mean(t.a[t.b > 100])",
    ),
    "mean of one day": (
        lambda table: table.filter(DAY == 7).select(A.mean()),
        "avg(a) from t where day = 7",
        "mean(t.a[t.day == 7])",
    ),
    "rows of one day": (
        lambda table: table.filter(DAY == 7).select(A),
        "a from t where day = 7",
        "t.a[t.day == 7]",
    ),
    "heavy": (
        lambda table: table.select(
            (A.sin() * B.sqrt() + (A.exp() + B).log() + A.cos() * B.log() + (-A * A).exp() * B.sin()).sum()
        ),
        "sum(sin(a) * sqrt(b) + ln(exp(a) + b) + cos(a) * ln(b) + exp(-a * a) * sin(b)) from t",
        "sum(sin(t.a) * sqrt(t.b) + log(exp(t.a) + t.b) + cos(t.a) * log(t.b) + exp(-t.a * t.a) * sin(t.b))",
    ),
}


def write(path, rows):
    rng = np.random.default_rng(1)
    days = (np.arange(rows) // DAY_ROWS).astype("i4")
    table = pl.DataFrame({"a": rng.random(rows), "b": np.round(rng.random(rows) * 200 + 0.01, 2), "day": days})
    table.write_parquet(path, compression="snappy", row_group_size=1 << 20)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4 << 30, help="bytes of values, if the file does not exist")
    parser.add_argument("--file", type=Path, default=Path("/tmp/overshot-peers.parquet"))
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    if not options.file.exists():
        write(options.file, options.size // 16)
    rows = pl.scan_parquet(options.file).select(pl.len()).collect()[0, 0]
    database = duckdb.connect()
    quoted = str(options.file).replace("'", "''")
    database.execute(f"create view t as select * from read_parquet('{quoted}')")
    engines = {name: ov.Engine(device=name) for name in options.devices.split(",")}
    for job, (polars, sql, text) in JOBS.items():
        table = pl.scan_parquet(options.file)
        calls = {
            "polars": lambda: polars(table).collect(engine="streaming").to_series().to_numpy(),
            "duckdb": lambda: next(iter(database.execute(f"select {sql}").fetchnumpy().values())),
        }
        for name, engine in engines.items():
            calls[f"overshot {name}"] = lambda engine=engine: np.atleast_1d(engine.evaluate(text, t=options.file))
        seconds, cpu_seconds, values = {name: [] for name in calls}, {name: [] for name in calls}, {}
        for run in range(options.runs + 1):
            for name, call in calls.items():
                begin, cpu_begin = time.perf_counter(), time.process_time()
                values[name] = call()
                if run > 0:
                    seconds[name].append(time.perf_counter() - begin)
                    cpu_seconds[name].append(time.process_time() - cpu_begin)
        for value in values.values():
            np.testing.assert_allclose(value, values["polars"], rtol=1e-9)
        size = rows * (12 if "day" in text else 16)
        rates = {name: round(size / statistics.median(own) / 1e9, 1) for name, own in seconds.items()}
        cpu = {name: round(statistics.median(own), 3) for name, own in cpu_seconds.items()}
        line = {"job": job, "gb_per_s": rates, "cpu_seconds": cpu, "threads": pl.thread_pool_size()}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
