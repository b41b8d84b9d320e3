"""What people write by hand today, on the same machine and data sizes as benches/throughput.rs.

python3 benches/peers.py --size 4GiB --json peers.json

Bytes in + out per second, median of several runs, results checked. Needs NumPy; NumExpr and CuPy for their lines.
"""
import argparse, json, statistics, time
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--size", default="1GiB")
parser.add_argument("--runs", type=int, default=3)
parser.add_argument("--json")
options = parser.parse_args()
units = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
rows = int(options.size[:-3]) * units[options.size[-3:]] // 8
lines = {}


def line(name, columns, job, check):
    times = []
    for _ in range(options.runs):
        begin = time.perf_counter()
        result = job()
        times.append(time.perf_counter() - begin)
        assert check(result), name
    rate = columns * 8 * rows / statistics.median(times) / 1e9
    lines[name] = rate
    print(f"{name:52} {rate:7.1f} GB/s", flush=True)


rng = np.random.default_rng(1)
a, b = rng.random(rows), rng.random(rows)
c = np.empty(rows)
some = rng.integers(0, rows, 10_000)
right_mul = lambda _: np.array_equal(c[some], a[some] * b[some])
total = a.sum()
close = lambda s: abs(float(s) / total - 1) < 1e-9

line("NumPy, 1 thread: c = a * b", 3, lambda: np.multiply(a, b, out=c), right_mul)
line("NumPy, 1 thread: sum(a)", 1, lambda: a.sum(), close)

try:
    import numexpr
except ImportError:
    print("no NumExpr: its lines are not run")
else:
    threads = numexpr.set_num_threads(numexpr.detect_number_of_cores()) and numexpr.detect_number_of_cores()
    c[:] = 0
    line(f"NumExpr, {threads} threads: c = a * b", 3, lambda: numexpr.evaluate("a * b", out=c), right_mul)
    heavy = "sin(a) * exp(b) + sqrt(a * b)"
    right_heavy = lambda _: np.allclose(c[some], np.sin(a[some]) * np.exp(b[some]) + np.sqrt(a[some] * b[some]), 1e-12)
    line(f"NumExpr, {threads} threads: c = {heavy}", 3, lambda: numexpr.evaluate(heavy, out=c), right_heavy)

try:
    import cupy as cp
except ImportError:
    print("no CuPy: GPU lines not run")
else:
    chunk = 8 << 20  # rows: 64 MiB of f64

    def chunks():
        return range(0, rows, chunk)

    def cupy_mul():
        for k in chunks():
            c[k : k + chunk] = cp.asnumpy(cp.asarray(a[k : k + chunk]) * cp.asarray(b[k : k + chunk]))

    def cupy_sum():
        return sum(float(cp.asarray(a[k : k + chunk]).sum()) for k in chunks())

    c[:] = 0
    line("CuPy, chunk by chunk, pageable: c = a * b", 3, cupy_mul, right_mul)
    line("CuPy, chunk by chunk, pageable: sum(a)", 1, cupy_sum, close)

    def pinned(array):
        memory = cp.cuda.alloc_pinned_memory(array.nbytes)
        view = np.frombuffer(memory, array.dtype, array.size)
        view[:] = array
        return view

    begin = time.perf_counter()
    pa, pb, pc = pinned(a), pinned(b), pinned(c)
    print(f"CuPy, pinning and copying three arrays took {time.perf_counter() - begin:.1f} s")
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
    small = 4 << 20
    buffers = [[cp.empty(small) for _ in range(3)] for _ in streams]

    def cupy_pinned():
        for n, k in enumerate(range(0, rows, small)):
            with streams[n % 2] as stream:
                x, y, z = (buffer[: min(small, rows - k)] for buffer in buffers[n % 2])
                x.set(pa[k : k + small], stream=stream)
                y.set(pb[k : k + small], stream=stream)
                cp.multiply(x, y, out=z)
                z.get(stream=stream, out=pc[k : k + small], blocking=False)
        for stream in streams:
            stream.synchronize()

    pc[:] = 0
    line("CuPy, everything pinned, 2 streams: c = a * b", 3, cupy_pinned, lambda _: np.array_equal(pc[some], a[some] * b[some]))

if options.json:
    json.dump(lines, open(options.json, "w"), indent=1)
