"""Jobs that read dask arrays and return them, on a cluster, workers of which are killed."""

import os
import random
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import DEVICES, kernel_of_tests

import overshot as ov
from overshot._parts import Lost

distributed = pytest.importorskip("distributed")
cloudpickle = pytest.importorskip("cloudpickle")
da = pytest.importorskip("dask.array")

from dask_cluster import client, cluster, starts  # noqa: E402, F401

import overshot.dask  # noqa: E402
from overshot._dask_arrays import divide, pieces  # noqa: E402

# The workers have no such module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 500_000
TEXT = "y = sin(x) * 2; sum(x), std(x)"


def check(results, whole):
    assert list(results) == list(whole)
    for name in whole:
        if whole[name] is None:  # the smallest of no rows
            assert results[name] is None
            continue
        assert results[name].dtype == whole[name].dtype and results[name].shape == whole[name].shape
        assert np.asarray(results[name]).tobytes() == whole[name].tobytes(), name


def chunks(rng, rows):
    """Random lengths of blocks, some of which are empty."""
    borders = sorted(rng.randrange(rows + 1) for _ in range(rng.randrange(12)))
    return tuple(end - first for first, end in zip([0, *borders], [*borders, rows]))


@pytest.fixture
def small_ranges(monkeypatch):
    """Ranges are as small as the blocks, although these have few rows."""
    monkeypatch.setattr(overshot._dask_arrays, "FEWEST_ROWS", 1)


@pytest.mark.parametrize("seed", range(8))
def test_results_have_the_bits_of_one_run(client, small_ranges, seed):
    rng, random_array = random.Random(seed), np.random.default_rng(seed)
    shape = rng.choice([(100_003,), (20_000, 7), (9_000, 4, 3), (5,), (0,)])
    x, z = random_array.standard_normal(shape), random_array.integers(0, 9, shape).astype("u1")
    blocks = lambda: (chunks(rng, shape[0]), *shape[1:])
    names = {"x": da.from_array(x, blocks()), "z": da.from_array(z ^ 1, blocks()) ^ 1, "k": 0.5}
    file = random_array.standard_normal(shape)
    np.save("file.npy", file)
    text = "a = x * z + f; b = x > k; std(x), m = max(z), sum(f * x)"
    # `b` has no path, and nobody reads it.
    out = rng.choice([None, {"a": "a.npy", "b": "b.npy"}])
    settings = {"device": rng.choice(DEVICES), "chunk": "64KiB", "ranges": rng.choice([None, None, 1, 5])}
    results = overshot.dask.evaluate(client, text, names, f="file.npy", out=out, **settings)
    check(results, ov.evaluate(text, x=x, z=z, k=0.5, f=file, device="cpu"))
    assert all(isinstance(results[name], np.memmap if out else da.Array) for name in "ab")
    assert results.report.rows == x.size
    if not out and len(results["a"].chunks[0]) > 1:
        assert all(length % (4096 // np.gcd(4096, x[0].size)) == 0 for length in results["a"].chunks[0][:-1])


def test_an_expression_returns_its_array_or_number(client):
    x = da.arange(100_000, chunks=30_000, dtype="f4")
    y = overshot.dask.evaluate(client, "x + i", x=x, device="cpu")
    assert y.dtype == ov.evaluate("x + i", x=np.zeros(1, "f4")).dtype
    np.testing.assert_array_equal(y, 2.0 * np.arange(100_000))
    total = overshot.dask.evaluate(client, "sum(x)", x=y, device="cpu")
    assert total == 99_999 * 100_000
    seen = []
    y = overshot.dask.evaluate(client, "i * 2", rows=100_000, ranges=6, progress=lambda *rows: seen.append(rows))
    np.testing.assert_array_equal((y + 1)[5:10], [11, 13, 15, 17, 19])
    assert len(y.chunks[0]) == 6 and seen[-1] == (100_000, 100_000) and seen == sorted(set(seen))


def computed(block, folder, block_info=None):
    """Writes which block is computed."""
    with open(folder / "computed", "a") as file:
        file.write(f"{block_info[0]['chunk-location'][0]}\n")
    return block


def test_blocks_are_computed_once_and_released(client, small_ranges):
    folder = Path.cwd()
    x = da.arange(100_000.0, chunks=9_999).map_blocks(computed, folder=folder, dtype="f8")
    results = overshot.dask.evaluate(client, "y = x + z; sum(x), mean(z)", x=x, z=(x + 1).rechunk(20_011), device="cpu")
    assert sorted(Path("computed").read_text().split(), key=int) == [str(number) for number in range(11)]
    assert set(starts().values()) == {1}
    assert results["sum(x)"] == 99_999 * 50_000
    np.testing.assert_array_equal(results["y"], 2 * np.arange(100_000.0) + 1)
    assert len(Path("computed").read_text().split()) == 11, "the blocks are on the workers"
    kept = lambda dask_scheduler: sum("overshot" in str(key) for key in dask_scheduler.tasks)
    prefixes = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_prefixes))
    assert "overshot-range" in prefixes, "what the dashboard shows"
    del results
    while client.run_on_scheduler(kept):
        pass


@pytest.mark.parametrize("seed", range(20))
def test_the_ranges_and_blocks_of_a_killed_worker_are_computed_again(client, small_ranges, seed):
    rng = random.Random(seed)
    values = np.random.default_rng(seed).standard_normal(ROWS)
    # Blocks that the workers compute, and some of which are lost with a worker.
    x = da.from_array(values, chunks=ROWS // 40).map_blocks(np.negative)
    whole = ov.evaluate(TEXT, x=-values, device="cpu")
    moment = rng.choice(["before", "after", "later"])
    if moment != "later":
        Path("kill").write_text(f"* {rng.randrange(40)} {moment}")
    results = overshot.dask.evaluate(client, TEXT, x=x, device="cpu")
    if moment != "later":
        assert Path("killed").exists(), "a worker was killed during the job"
    else:
        has = {worker for workers in client.who_has(results["y"]).values() for worker in workers}
        os.kill(client.run(os.getpid)[rng.choice(sorted(has))], signal.SIGKILL)
    check(results, whole)
    assert 30 <= len(starts()) <= 41 and max(starts().values()) <= 2


def test_a_kernel_reads_dask_arrays(client, small_ranges):
    values = np.random.default_rng(1).uniform(0, 100, 100_000)
    x = da.from_array(values, chunks=30_000)
    keep = ov.Engine(device="cpu").kernel(kernel_of_tests("KEEP"), threads=32, rows_per_block=512)
    run = lambda device, **given: overshot.dask.evaluate(client, keep, x=x, device=device, **given)
    out = {"big": "big.npy", "where": "where.npy"}
    with pytest.raises(ValueError, match="keep"):
        run("cpu", out=out)  # the CPU has no function for it
    if "cuda" in DEVICES:
        results = run("cuda", out=out)
        np.testing.assert_array_equal(results["where"], np.flatnonzero(values > 50))
        np.testing.assert_array_equal(results["big"], values[values > 50])
        assert len(starts()) >= 4
        with pytest.raises(ValueError, match="'big' is no file: a job that selects rows"):
            run("cuda")


def test_what_cannot_be_read_is_refused(client):
    x = da.zeros((10, 4), chunks=(5, 2))
    run = lambda x, text="sum(x)", **given: overshot.dask.evaluate(client, text, x=x, device="cpu", **given)
    for array, error, problem in [
        (x, ValueError, r"x: its blocks divide more than the first axis: pass x.rechunk\({0: 'auto', 1: -1}\)"),
        (x[:, 0][x[:, 0] == 0], ValueError, r"x: the lengths of its blocks are not known.*compute_chunk_sizes"),
        (x.sum(), TypeError, r"x: .*x.compute\(\)"),
        (x[:, :0], ValueError, r"x: an array of the shape \(10, 0\)"),
        (x[:, 0].astype(">f8"), TypeError, "x: its bytes are in the other order"),
        (x[:, 0].astype("c16"), TypeError, "x: .*complex128"),
        (x[:, 0].map_blocks(lambda block: block.astype("f4"), dtype="f8"), TypeError, "x: .* are of f32, but .* f64"),
        (x[:, 0].map_blocks(lambda block: block[1:], dtype="f8"), ValueError, "x: 4 elements of .* says 5"),
        (x[:, 0].map_blocks(lambda block: 1 // 0, dtype="f8", meta=np.zeros(0)), ZeroDivisionError, "division"),
    ]:
        with pytest.raises(error, match=problem):
            run(array)
    x = x[:, 0]
    assert run(x.rechunk(3)) == 0
    with pytest.raises(TypeError, match="b would stay on the workers, and other outputs are files"):
        run(x, "a = x; b = x + 1", out={"a": "a.npy"})
    with pytest.raises(NameError, match="'z' is not defined"):
        run(x, "x + z")
    with pytest.raises(ValueError, match="x .* has 10 rows but input z"):
        run(x, "sum(x + z)", z=da.zeros(11))
    with pytest.raises(ValueError, match="ranges=0"):
        run(x, ranges=0)
    assert not list(Path.cwd().glob("*.parts"))


def test_a_range_that_ends_its_workers_is_given_up(client):
    failures = lambda dask_scheduler, allowed: setattr(dask_scheduler, "allowed_failures", allowed)
    client.run_on_scheduler(failures, allowed=0)
    Path("kill").write_text("* 0 before")
    with pytest.raises(Lost, match="rows 0 to 10"):
        overshot.dask.evaluate(client, "sum(x)", x=da.zeros(10), device="cpu")
    client.run_on_scheduler(failures, allowed=3)


def test_borders_and_pieces_are_those_of_a_naive_search():
    rng = random.Random(1)
    for _ in range(300):
        rows, step, least = rng.randrange(60), rng.randrange(1, 9), rng.randrange(12)
        ends = sorted(rng.randrange(rows + 1) for _ in range(rng.randrange(6)))
        borders = [0, *ends, rows]
        ranges = divide(rows, step, borders, least)
        assert [row for first, end in ranges for row in range(first, end)] == list(range(rows))
        assert all(first % step == 0 for first, _ in ranges)
        assert all(end - first >= max(least, 1) for first, end in ranges[:-1])
        # Each border is near one of the blocks, half a step at most.
        assert all(min(abs(first - border) for border in borders) <= step / 2 for first, _ in ranges)
        block_of = [block for block, (first, end) in enumerate(zip(borders, borders[1:])) for _ in range(first, end)]
        for first, end in ranges:
            found = [
                (piece.block, row)
                for piece in pieces(borders, (first, end))
                for row in range(borders[piece.block] + piece.begin, borders[piece.block] + piece.end)
            ]
            assert found == [(block_of[row], row) for row in range(first, end)]
            assert [piece.first for piece in pieces(borders, (first, end))] == [
                borders[piece.block] + piece.begin for piece in pieces(borders, (first, end))
            ]
