#!/usr/bin/env python3
"""What parts, journals, verification and Dask cost beside one run, and how soon a kernel that never ends is stopped.

    parts.py OVERSHOT [--device cuda] [--seconds 5] [--size 16GiB] [--runs 3] [--dir FOLDER] [--only ranges,two,…]

OVERSHOT is the command; the package for Python is that of PYTHONPATH. The device is `cuda`, `cpu` or `emulated`, on
which the figures mean little. Two jobs are measured: one that computes from the numbers of its rows, so many that a run
takes about --seconds, and one that reads a file of --size, which is made first and stays in the page cache; a quarter
of it for the job that also writes. Both ways of a measurement run in turn, and the medians are compared. Each line of
the output is JSON, and every result is compared with that of one run, to the bit (of the output that is written, its
sum and its largest value). A figure that misses its aim is no failure; another result is. All of it takes about seven
minutes on a GPU.

- ranges: 64 ranges in one engine, one after the other and two at a time, beside one run; and short ranges
- processes: 64 ranges in 64 processes one after the other, beside one run
- two: two processes with a GPU each, beside one process with both
- journal: with --resume, and with --fsync, beside neither
- verify: with 0.05 of the chunks computed again
- dask: two workers with a GPU each, beside one process with both
- endless: Ctrl-C while a kernel never ends
"""

import argparse
import functools
import json
import logging
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

COMPUTED = "s = sum(sin(i * 0.001) * cos(i)), d = std(sqrt(f64(i)))"
READ = "s = sum(sin(x) * x), d = std(x), m = max(x)"
WRITTEN = "y = sqrt(x * x + 1); s = sum(y), m = max(y)"
PARTS = 64
BLOCK = 4096 * PARTS
UNITS = {"MiB": 1 << 20, "GiB": 1 << 30}
ENDLESS = """
extern "C" __global__ void endless(long long rows, const float *x, float *y)
{
    while (clock64() >= 0) {}  // a compiler may leave out a loop without effects
    long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < rows) y[i] = x[i];
}
"""


def emit(part, **fields):
    print(json.dumps({"part": part, **fields}), flush=True)


def gpus():
    """Returns how many GPUs this process may use."""
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return len(visible.split(","))
    if standin := os.environ.get("OVERSHOT_STANDIN_DEVICES"):
        return int(standin)
    try:
        lines = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines()
        return sum(line.startswith("GPU") for line in lines)
    except FileNotFoundError:
        return 0


class Bench:
    """The devices and the jobs."""

    def __init__(self, options, folder):
        import overshot as ov

        self.command, self.runs, self.folder = os.path.abspath(options.overshot), options.runs, folder
        self.device, self.seconds, self.half = options.device, options.seconds, {}
        self.both, self.halves = options.device, None
        if options.device == "cuda" and gpus() > 1:
            numbers = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")[:2]
            # This process, and all that it starts, have two.
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(numbers)
            self.halves = [{"CUDA_VISIBLE_DEVICES": number} for number in numbers]
        elif options.device != "cuda":
            # Two processes with half of the threads each, or an emulated device each.
            self.halves = [{}, {}]
            self.half = {"workers": max(1, os.cpu_count() // 2)}
            self.both = "emulated:1*2" if options.device == "emulated" else options.device
        self.engine = ov.Engine(device=options.device)
        self.rows = self.rows_of(self.seconds)
        self.file, self.small = folder / "x.npy", folder / "z.npy"
        bytes_of_file = int(float(options.size[:-3]) * UNITS[options.size[-3:]])
        for path, rows in [(self.file, bytes_of_file // 8), (self.small, bytes_of_file // 32)]:
            ov.evaluate("f64(i % 1000003) * 0.001", rows=rows, out=path, device="cpu")

    def rows_of(self, seconds):
        """Returns the rows of the job that computes, if it is to take so long."""
        rows = 16 * BLOCK
        while True:
            self.engine.evaluate(COMPUTED, rows=rows)
            took = timed(lambda: self.engine.evaluate(COMPUTED, rows=rows))[0]
            if took > seconds / 4:
                return max(1, round(rows * seconds / took / BLOCK)) * BLOCK
            rows = round(rows * min(16, max(2, seconds / 2 / took)) / BLOCK) * BLOCK

    def jobs(self):
        """The jobs: name, text, and the arguments of a call."""
        return [("computed", COMPUTED, {"rows": self.rows}), ("read", READ, {"x": self.file})]

    def arguments(self, name):
        """Returns the arguments of the command for a job."""
        return [COMPUTED, "--rows", str(self.rows)] if name == "computed" else [READ, f"x={self.file}"]

    def run(self, *arguments, env=None, device=None, **settings):
        """Starts the command; returns the process."""
        words = [self.command, *arguments]
        if arguments[0] == "run":
            words += ["--device", device or self.device]
            words += [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        environment = os.environ | (env or {})
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(words, cwd=self.folder, env=environment, **pipes)

    def done(self, *arguments, **options):
        return finished(self.run(*arguments, **options))

    def in_turn(self, one, other):
        """Runs both ways in turn. Returns the median seconds of each; their results must be equal."""
        expected, took = exact(one()), ([], [])
        assert exact(other()) == expected, "another result"
        for number in range(self.runs):
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                seconds, result = timed((one, other)[which])
                assert exact(result) == expected, f"another result: {result}"
                took[which].append(seconds)
        return [statistics.median(seconds) for seconds in took]


def finished(process):
    """Waits for a command. Returns the results that it prints, by name; none of a part."""
    out, err = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(process.args)} ended with {process.returncode}: {err}")
    results = json.loads(out)["results"] if "--json" in process.args else []
    return {result["name"]: result["value"] for result in results}


def exact(results):
    """Returns numbers with all their bits."""
    return {name: float(value).hex() for name, value in results.items() if name != "y"}


def timed(call):
    begin = time.perf_counter()
    result = call()
    return time.perf_counter() - begin, result


def figure(part, job, one, other, aim=None, **fields):
    """One run beside another way: `ratio` is its time over that of one run."""
    ratio = other / one
    aims = {} if aim is None else {"aim": aim, "reached": ratio <= aim}
    emit(part, job=job, one_s=round(one, 4), other_s=round(other, 4), ratio=round(ratio, 4), **aims, **fields)


def merged(parts):
    first, *others = parts
    for other in others:
        first.merge(other)
    return first.finish()


def ranges(bench):
    for name, text, given in bench.jobs():
        total = {"total_rows" if key == "rows" else key: value for key, value in given.items()}

        def many(text=text, total=total):
            return merged([bench.engine.run_rows(text, part=(k, PARTS), **total) for k in range(PARTS)])

        def pairs(text=text, total=total):
            with ThreadPoolExecutor(2) as threads:
                parts = threads.map(lambda k: bench.engine.run_rows(text, part=(k, PARTS), **total), range(PARTS))
                return merged(list(parts))

        def whole(text=text, given=given):
            return bench.engine.evaluate(text, **given)

        one, other = bench.in_turn(whole, many)
        figure("64 ranges in one engine", name, one, other, aim=1.02, more_for_each_ms=round((other - one) / 0.064, 3))
        one, other = bench.in_turn(whole, pairs)
        figure("64 ranges in one engine, two at a time", name, one, other, aim=1.02)
    # What a range takes beyond its share of one run: short ones of the first job.
    whole = [timed(lambda: bench.engine.evaluate(COMPUTED, rows=bench.rows))[0] for _ in range(bench.runs)]
    for divisor in (PARTS, 1024, 16384, bench.rows):
        rows = max(4096, bench.rows // divisor // 4096 * 4096)
        took = [timed(lambda rows=rows: bench.engine.run_rows(COMPUTED, rows=range(rows), total_rows=bench.rows))[0]
                for _ in range(8 * bench.runs)]
        share = statistics.median(whole) * rows / bench.rows
        emit("one range", rows=rows, ms=round(statistics.median(took) * 1e3, 3), share_ms=round(share * 1e3, 3))


def processes(bench):
    arguments, files = bench.arguments("computed"), [f"p{k}" for k in range(PARTS)]

    def all_parts():
        for k, file in enumerate(files):
            bench.done("run", *arguments, "--part", f"{k}/{PARTS}", "--partial", file)
        return bench.done("merge", *files, "--json")

    one, expected = timed(lambda: bench.done("run", *arguments, "--json"))
    other, results = timed(all_parts)
    assert exact(results) == exact(expected), "another result"
    # Each process opens the device, and loads the kernel.
    figure("64 ranges in 64 processes", "computed", one, other, more_for_each_s=round((other - one) / PARTS, 4))


def two(bench):
    if bench.halves is None:
        return emit("two processes", skipped="there are no two GPUs")
    for name, _, _ in bench.jobs():
        arguments = bench.arguments(name)

        def halves(arguments=arguments):
            parts = [("--part", f"{k}/2", "--partial", f"p{k}") for k in range(2)]
            starts = zip(parts, bench.halves, strict=True)
            started = [bench.run("run", *arguments, *part, env=env, **bench.half) for part, env in starts]
            for process in started:
                finished(process)
            return bench.done("merge", "p0", "p1", "--json")

        one, other = bench.in_turn(lambda arguments=arguments: both(bench, arguments), halves)
        figure("two processes with a GPU each", name, one, other, aim=round(1 / 0.95, 4), speed=round(one / other, 4))


def both(bench, arguments):
    return bench.done("run", *arguments, "--json", device=bench.both)


def journal(bench):
    computed = ("run", *bench.arguments("computed"), "--json")
    one, other = bench.in_turn(lambda: bench.done(*computed), lambda: bench.done(*computed, "--resume=journal"))
    figure("a journal", "computed", one, other, aim=1.01)
    words = ("run", WRITTEN, f"x={bench.small}", "y=y.npy", "--force", "--json")
    plain = functools.partial(bench.done, *words)
    one, other = bench.in_turn(plain, lambda: bench.done(*words, "--resume"))
    figure("a journal", "written", one, other)
    one, other = bench.in_turn(lambda: bench.done(*words, "--fsync"), lambda: bench.done(*words, "--resume"))
    figure("a journal, beside --fsync", "written", one, other, aim=1.01)
    os.remove(bench.folder / "y.npy")


def verify(bench):
    for name, text, given in bench.jobs():
        run = functools.partial(bench.engine.evaluate, text, **given)
        one, other = bench.in_turn(run, lambda run=run: run(verify=0.05))
        figure("verification of 0.05", name, one, other)


def dask(bench):
    if bench.halves is None:
        return emit("dask", skipped="there are no two GPUs")
    try:
        import distributed

        import overshot.dask
    except ImportError as error:
        return emit("dask", skipped=str(error))
    import overshot as ov

    here = {"host": "127.0.0.1"}
    options = [here | {"nthreads": 1, "env": env, "silence_logs": logging.ERROR} for env in bench.halves]
    workers = {k: {"cls": distributed.Nanny, "options": options[k]} for k in range(2)}
    scheduler = {"cls": distributed.Scheduler, "options": here | {"dashboard_address": None}}
    cluster = distributed.SpecCluster(workers=workers, scheduler=scheduler, silence_logs=logging.ERROR)
    whole = ov.Engine(device=bench.both)
    with cluster, distributed.Client(cluster) as client:
        client.wait_for_workers(2)
        for name, text, given in bench.jobs():

            def spread(text=text, given=given):
                return overshot.dask.evaluate(client, text, device=bench.device, **bench.half, **given)

            one, other = bench.in_turn(lambda text=text, given=given: whole.evaluate(text, **given), spread)
            speed = round(one / other, 4)
            figure("two workers of Dask with a GPU each", name, one, other, aim=round(1 / 0.9, 4), speed=speed)


def endless(bench):
    if bench.device != "cuda":
        return emit("endless", skipped="it needs a GPU")
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        folder = Path(folder)
        (folder / "endless.cu").write_text(ENDLESS)
        (folder / "x.f32").write_bytes(bytes(4 << 20))
        words = [bench.command, "run", "endless.cu:endless", "x=x.f32:f32", "y=y.npy", "--device", "cuda"]
        process = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # Until the GPU is open, and the kernel is compiled and runs.
        time.sleep(8)
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGINT)
        took, (_, said) = timed(process.communicate)
        left = sorted(path.name for path in folder.iterdir())
        is_right = process.returncode == -signal.SIGINT and "a kernel never ends" in said
        assert is_right and left == ["endless.cu", "x.f32"], (process.returncode, said, left)
        emit("a kernel that never ends", stopped_s=round(took, 3), aim=2, reached=took <= 2, said=said.strip())
    after, _ = timed(lambda: bench.done("run", "sum(i)", "--rows", "1e6", "--json"))
    emit("the next process on this GPU", seconds=round(after, 3))


PARTS_OF_BENCH = {part.__name__: part for part in (ranges, processes, two, journal, verify, dask, endless)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overshot")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu", "emulated"])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--size", default="16GiB")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--dir", default=tempfile.gettempdir())
    parser.add_argument("--only", default=",".join(PARTS_OF_BENCH))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="overshot-parts.", dir=options.dir) as folder:
        bench = Bench(options, Path(folder))
        emit("jobs", device=options.device, rows=bench.rows, file=options.size, gpus=gpus(), cores=os.cpu_count())
        failed = False
        for name in options.only.split(","):
            try:
                PARTS_OF_BENCH[name](bench)
            except Exception as error:
                # The others may run.
                emit(name, failed=repr(error))
                failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
