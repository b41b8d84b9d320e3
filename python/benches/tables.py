"""Times tables, whose rows have several elements, filters, neighbours, counts and ranks, beside simpler jobs, NumPy and
Bottleneck, if that is installed.

    python tables.py [--size 4GiB] [--json FILE]

Rates are bytes read and written per second, in medians of five runs after the first. Results of all devices must have
the same bits, and those of filters the same elements as NumPy's.
"""

import argparse
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import overshot as ov

WIDTHS = 4, 256, 4096, 100_000
PAIR_WIDTH = 200_000
STANDARDISE = "y = (x - mean(x, axis=0)) / std(x, axis=0)"


def table(rows, width, seed):
    """Random numbers, whose memory many threads touch first."""
    x = np.empty((rows, width), "f4")
    parts = np.array_split(np.arange(rows), 64)

    def fill(number):
        part = slice(parts[number][0], parts[number][-1] + 1) if len(parts[number]) else slice(0)
        x[part] = np.random.default_rng([seed, number]).random(x[part].shape, "f4")

    with ThreadPoolExecutor() as threads:
        list(threads.map(fill, range(64)))
    return x


def median(run, runs=5):
    times = []
    for _ in range(runs + 1):
        begin = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:]), result


class Rows:
    """The table of rates."""

    def __init__(self):
        self.all = []

    def add(self, job, shape, device, seconds, size):
        rate = size / seconds / 1e9
        self.all.append({"job": job, "shape": shape, "device": device, "seconds": seconds, "gb_per_s": rate})
        print(f"{job:32} {shape:16} {device:6} {seconds * 1e3:8.1f} ms {rate:7.1f} GB/s", flush=True)


def measure(rows, engines, size):
    for width in WIDTHS:
        x = table(size // 4 // width, width, 1)
        shape, flat, y = "x".join(map(str, x.shape)), x.reshape(-1), np.zeros_like(x)
        jobs = {
            "sum(x) of elements": ("sum(x)", {"x": flat}, None, 1),
            "mean(x, axis=0)": ("mean(x, axis=0)", {"x": x}, None, 1),
            "x - 0.5 of elements": ("y = x - 0.5", {"x": flat}, y.reshape(-1), 2),
            "x - mu": ("y = x - mu", {"x": x, "mu": x[:1000].mean(axis=0)}, y, 2),
            "sum(x, axis=-1)": ("y = sum(x, axis=-1)", {"x": x}, np.zeros(len(x), "f4"), 1),
            "standardise": (STANDARDISE, {"x": x}, y, 3),
        }
        for job, (text, given, out, times) in jobs.items():
            first = None
            for device, engine in engines.items():
                options = {} if out is None else {"out": {"y": out}}
                seconds, result = median(lambda: engine.evaluate(text, given, **options))  # noqa: B023
                rows.add(job, shape, device, seconds, times * x.nbytes)
                value = np.asarray(result["y"][-1] if out is not None else result).tobytes()
                assert first in (None, value), f"{job}: {device} has other bits"
                first = value
        rows.add("x.mean(axis=0)", shape, "NumPy", median(lambda: x.mean(axis=0), 1)[0], x.nbytes)  # noqa: B023
        del x, y, flat, jobs, given, out
    u, v = (table(size // 4 // PAIR_WIDTH, PAIR_WIDTH, seed) for seed in (2, 3))
    for device, engine in engines.items():
        flat = {"u": u.reshape(-1), "v": v.reshape(-1)}
        seconds, _ = median(lambda: engine.evaluate("sum(u), sum(v)", flat))  # noqa: B023
        rows.add("sums of a pair of elements", "x".join(map(str, u.shape)), device, seconds, 2 * u.nbytes)
        text = "mean(u * u, axis=0), mean(v * v, axis=0), mean(u * v, axis=0)"
        seconds, _ = median(lambda: engine.evaluate(text, {"u": u, "v": v}))  # noqa: B023
        rows.add("three means of a pair", "x".join(map(str, u.shape)), device, seconds, 2 * u.nbytes)
    x = u.reshape(-1)
    y = np.zeros_like(x)
    for device, engine in engines.items():
        for share in (0.1, 0.5, 0.9):
            given = {"x": x, "k": 1 - share}
            seconds, result = median(lambda: engine.evaluate("y = x[x > k]", given, out={"y": y}))  # noqa: B023
            rows.add(f"x[x > k], {share} kept", str(x.size), device, seconds, x.nbytes + result["y"].nbytes)
            begin = x[: 1 << 20]
            expected = begin[begin > 1 - share]
            np.testing.assert_array_equal(result["y"][: expected.size], expected)
        seconds, _ = median(lambda: engine.evaluate("y = where(x > 0.5, x, 0)", {"x": x}, out={"y": y}))  # noqa: B023
        rows.add("where(x > 0.5, x, 0)", str(x.size), device, seconds, 2 * x.nbytes)
    neighbours(rows, engines, x, y)
    moving(rows, engines, x, y)
    ranks(rows, engines, x)
    counts(rows, engines, x, y)


def ranks(rows, engines, x):
    """Order statistics beside a sum: the rate of each pass. Those of a part are compared with NumPy's."""
    begin = x[: 1 << 20]
    for device, engine in engines.items():
        for text in ("sum(x)", "median(x)", "quantile(x, 0.999)", "topk(x, 1000)"):
            seconds, result = median(lambda: engine.evaluate(f"r = {text}; count(x)", {"x": x}), 3)  # noqa: B023
            passes = result.report.to_dict()["passes"] or [None]
            rows.add(f"{text}, {len(passes)} passes", str(x.size), device, seconds, x.nbytes * len(passes))
        found = engine.evaluate("m = median(x); q = quantile(x, 0.999); t = topk(x, 1000)", {"x": begin})
        assert found["m"] == np.median(begin) and found["q"] == np.quantile(begin, 0.999), device
        np.testing.assert_array_equal(found["t"], np.sort(begin)[::-1][:1000])


def neighbours(rows, engines, x, y):
    """A stencil of three points beside the same job without neighbours. Few rows are copied twice."""
    texts = {
        "(x0 + x1 + x2) / 3, neighbours": "y = (shift(x, 1, edge) + x + shift(x, -1, edge)) / 3",
        "(x + 2 * x + 3 * x) / 3": "y = (x + 2 * x + 3 * x) / 3",
    }
    for device, engine in engines.items():
        for job, text in texts.items():
            seconds, result = median(lambda: engine.evaluate(text, {"x": x}, out={"y": y}))  # noqa: B023
            rows.add(job, str(x.size), device, seconds, 2 * x.nbytes)
            moved = result.report.to_dict()["bytes_to_device"]
            assert moved <= 1.01 * x.nbytes or x.size < 1 << 28, f"{job}: {moved} bytes of {x.nbytes} to {device}"
            if "neighbours" in job:
                begin = x[: 1 << 20]
                expected = (begin[:-2] + begin[1:-1] + begin[2:]) / np.float32(3)
                np.testing.assert_array_equal(y[1 : begin.size - 1], expected)


def moving(rows, engines, x, y):
    """Moving windows beside Bottleneck, which uses one thread, if it is installed, on an eighth of the rows."""
    try:
        import bottleneck
    except ImportError:
        bottleneck = None
    few = x[: x.size // 8]
    for name, width in (("mean", 8), ("mean", 64), ("mean", 256), ("max", 8), ("max", 64)):
        job = f"moving_{name}(x, {width})"
        whole = np.lib.stride_tricks.sliding_window_view(np.float64(x[: 1 << 20]), width)
        expected = getattr(np, name)(whole, axis=-1)
        for device, engine in engines.items():
            text = f"y = moving_{name}(x, {width}, nan)"
            seconds, _ = median(lambda: engine.evaluate(text, {"x": x}, out={"y": y}), 3)  # noqa: B023
            rows.add(job, str(x.size), device, seconds, 2 * x.nbytes)
            np.testing.assert_allclose(y[width - 1 : 1 << 20], expected, rtol=1e-6)
        if bottleneck:
            run = getattr(bottleneck, f"move_{name}")
            seconds, _ = median(lambda: run(few, width), 1)  # noqa: B023
            rows.add(job, str(few.size), "Bottleneck", seconds, 2 * few.nbytes)
    if bottleneck:
        table = few[: few.size // 4096 * 4096].reshape(-1, 4096)
        peers = {
            "median(x)": lambda: bottleneck.median(few),
            "mean(x, axis=0)": lambda: bottleneck.nanmean(table, axis=0),
        }
        for job, run in peers.items():
            rows.add(job, str(few.size), "Bottleneck", median(run, 1)[0], few.nbytes)


def counts(rows, engines, x, k):
    """Counts in bins beside a sum, of keys that are uniform and of keys of which half are one."""
    n = 65_536
    k = k.view("u4")
    for skew in ("uniform", "half in one bin"):
        for part in range(0, x.size, 1 << 24):
            own = x[part : part + (1 << 24)]
            keys = (own * np.float32(n)).astype("u4")
            k[part : part + (1 << 24)] = keys if skew == "uniform" else np.where(keys % 2 == 0, keys, 7)
        few, begin = k[: 1 << 22], x[: 1 << 22]
        for device, engine in engines.items():
            jobs = {
                "sum(k)": ("sum(k)", {"k": k}),
                f"bincount(k, {n}), {skew}": (f"bincount(k, {n})", {"k": k}),
                f"bincount(k % 16, 16), {skew}": ("bincount(k % 16, 16)", {"k": k}),
                f"histogram(x, {n}, 0, 1)": (f"histogram(x, {n}, 0, 1)", {"x": x}),
                f"bincount(k % 1024, 1024, x), {skew}": ("bincount(k % 1024, 1024, x)", {"k": k, "x": x}),
            }
            for job, (text, given) in jobs.items():
                seconds, _ = median(lambda: engine.evaluate(text, given), 3)  # noqa: B023
                rows.add(job, str(x.size), device, seconds, sum(one.nbytes for one in given.values()))
            counted = engine.evaluate(f"bincount(k, {n})", {"k": few})
            np.testing.assert_array_equal(counted, np.bincount(few, minlength=n))
            expected = np.histogram(begin, n, (0, 1))[0]
            np.testing.assert_array_equal(engine.evaluate(f"histogram(x, {n}, 0, 1)", {"x": begin}), expected)
        begin = time.perf_counter()
        np.bincount(few, minlength=n)
        seconds = time.perf_counter() - begin
        rows.add(f"np.bincount, {skew}", str(few.size), "NumPy", seconds, few.nbytes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu,cuda,auto")
    parser.add_argument("--size", default="4GiB", help="of a table, in MiB or GiB")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    units = {"MiB": 1 << 20, "GiB": 1 << 30}
    size = int(arguments.size[:-3]) * units[arguments.size[-3:]]
    limits = {"device_memory": "1GiB", "pinned_memory": "256MiB"}
    names = arguments.device.split(",")
    engines = {name: ov.Engine(device=name, **({} if name == "cpu" else limits)) for name in names}
    rows = Rows()
    measure(rows, engines, size)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"size": size, "rows": rows.all}, file, indent=1)


if __name__ == "__main__":
    main()
