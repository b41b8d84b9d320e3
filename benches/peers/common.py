"""Shared code of the peers: the columns, timing, checks, and lines of JSON."""
import importlib
import json
import math
import os
import pathlib
import statistics
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import numpy as np

CORES = len(os.sched_getaffinity(0))
BLOCK = 1 << 20  # rows that a thread takes at a time
CHUNK = 4 << 20  # rows that a GPU gets at a time: 32 MiB, enough for the full speed of the link
STEP = 1009  # every such row is checked, from the last one on: no chunk and no end of one can be missing

# By the first word of a job: the columns it moves, and the result of a row (None: the sum of a).
JOBS = {
    "mul": (3, lambda a, b: a * b),
    "add1": (2, lambda a, b: a + 1),
    "middle": (3, lambda a, b: (a * b + 1) / (a + b) - np.sqrt(a)),
    "heavy": (3, lambda a, b: np.sin(a) * np.exp(b) + np.sqrt(a * b)),
    "sum": (1, None),
    "file": (2, lambda a, b: a + 1),
}


class NotRun(Exception):
    """Says why a peer cannot run here."""


def load(name):
    """Imports the library of a peer. A missing library skips the peer; any other error is not taken for that."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise NotRun(f"no module named {error.name}") from error
    except Exception as error:
        raise NotRun(f"importing {name}: {' '.join(str(error).split())[:200]}") from error


def parallel(function, rows, step=BLOCK):
    with ThreadPoolExecutor(CORES) as pool:
        return list(pool.map(function, range(0, rows, step)))


def create(path, rows):
    """Returns a new .npy file of f64, open for unbuffered writing, and the offset of its rows."""
    file = open(path, "wb", buffering=0)
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (rows,)})
    return file, file.tell()


def write(file, values, offset):
    if os.pwrite(file.fileno(), values, offset) != values.nbytes:
        raise OSError(f"{file.name}: not all could be written; is the disk full?")


def make(folder, rows):
    """Writes columns a and b, from 0.5 to 1.5 as in throughput.rs, to files, unless these exist."""
    about = folder / "columns.json"
    if about.exists() and json.loads(about.read_text())["rows"] == rows:
        return
    about.unlink(missing_ok=True)
    (a, start), (b, _) = (create(folder / f"{name}.npy", rows) for name in "ab")

    def block(k):
        sums = []
        for seed, file in enumerate((a, b)):
            values = np.random.default_rng([seed, k]).random(min(BLOCK, rows - k))
            values += 0.5
            write(file, values, start + 8 * k)
            sums.append(float(values.sum()))
        return sums[0]

    with a, b:
        total = math.fsum(parallel(block, rows))
    about.write_text(json.dumps({"rows": rows, "sum": total}))


class Bench:
    def __init__(self, name, folder, rows, runs, lines):
        self.name, self.folder, self.lines = name, pathlib.Path(folder), lines
        self.rows, self.runs = int(rows), int(runs)
        self.total = json.loads((self.folder / "columns.json").read_text())["sum"]
        self.checked = [np.array(self.mapped(column)[::-STEP]) for column in "ab"]

    def path(self, column):
        return self.folder / f"{column}.npy"

    def mapped(self, column):
        # As a plain array: a slice of np.memmap costs several times as much.
        return np.asarray(np.load(self.path(column), mmap_mode="r"))

    def column(self, name, out=None):
        """Returns a or b in memory, or c, which is NaN but touched, like an array in use; in `out` if it is given."""
        out = np.empty(self.rows) if out is None else out
        source = None if name == "c" else self.mapped(name)
        block = lambda k: np.nan if source is None else source[k : k + BLOCK]
        parallel(lambda k: np.copyto(out[k : k + BLOCK], block(k)), self.rows)
        return out

    def line(self, job, run, out=None, peer=None, note="", before=lambda: None):
        """Times run(), which returns the sum or the array that it filled (`out`, if it is always the same one), but not
        what is to be done before each run."""
        columns, expected = JOBS[job.split()[0]]
        peer = peer or self.name
        seconds = []
        for _ in range(self.runs):
            if out is not None:
                out[::-STEP] = np.nan
            before()
            begin = time.perf_counter()
            result = run()
            seconds.append(time.perf_counter() - begin)
            if expected is None:
                right = abs(float(result) / self.total - 1) < 1e-10  # a single row of 4 GiB is more than this
            else:
                right = np.allclose(result[::-STEP], expected(*self.checked), rtol=1e-13, atol=0)
            if not right:
                raise AssertionError(f"{job}: a wrong result")
            del result  # a mapped file would otherwise be given back within the next run
        rates = [columns * 8 * self.rows / s / 1e9 for s in seconds]
        rate = statistics.median(rates)
        write_line(self.lines, {"peer": peer, "job": job, "gb_per_s": rate, "runs": rates, "note": note})
        runs = f"(runs {min(rates):.1f} to {max(rates):.1f})"
        print(f"{job:15} {peer:20} {rate:7.1f} GB/s  {runs}  {note}".rstrip(), flush=True)


def write_line(path, line):
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")


def main(name, run):
    """The main function of a peer's process, which __main__.py starts: FOLDER ROWS RUNS LINES."""
    *arguments, lines = sys.argv[1:]
    try:
        run(Bench(name, *arguments, lines))
    except NotRun as error:
        write_line(lines, {"not_run": str(error)})
        print(f"{name}: not run: {error}", flush=True)
    except Exception as error:
        write_line(lines, {"not_run": f"failed: {type(error).__name__}: {error}"})
        traceback.print_exc()
        sys.exit(1)
