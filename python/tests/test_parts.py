"""Jobs in parts: some rows at a time, merged to the bits of one run; and who runs which rows."""

import pickle
import random
from collections import Counter

import numpy as np
import pytest
from conftest import DEVICES, kernel_of_tests

import overshot as ov
from overshot._parts import Lost, Ranges, count_of

KEEP = kernel_of_tests("KEEP")
TEXT = "y = sin(x) * k; sum(x), std(x), m = max(x)"


def of(ranges, total):
    """Returns the partials of ranges of a job, made here."""
    return [ov.run_rows("sum(i)", rows=rows, total_rows=total, device="cpu") for rows in ranges]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", range(5))
def test_random_parts_have_the_bits_of_one_run(device, seed, tmp_path):
    rng = random.Random(seed)
    x = np.random.default_rng(seed).standard_normal(rng.randrange(1, 400_000))
    np.save(tmp_path / "x.npy", x)
    whole = ov.evaluate(TEXT, x=tmp_path / "x.npy", k=2.5, device=device)
    borders = sorted({0, x.size, *(4096 * rng.randrange(x.size // 4096 + 1) for _ in range(rng.randrange(6)))})
    ranges = list(zip(borders[:-1], borders[1:]))
    rng.shuffle(ranges)
    all_rows = None
    for first, end in ranges:
        rows = rng.choice([(first, end), range(first, end), slice(first, end)])
        names = {"x": tmp_path / "x.npy", "k": 2.5}
        where = {"device": rng.choice([device, "cpu"]), "chunk": rng.choice([None, "64KiB"])}
        part = ov.run_rows(TEXT, names, rows=rows, out={"y": tmp_path / "y.npy"}, **where)
        assert part.rows == [range(first, end)] and part.total_rows == x.size
        part = pickle.loads(pickle.dumps(part))
        if all_rows is None:
            all_rows = part
        else:
            assert not all_rows.is_complete
            all_rows.merge(part)
    assert all_rows.is_complete and all_rows.rows == [range(x.size)]
    assert not (tmp_path / "y.npy").exists()
    results = all_rows.finish()
    assert all(results[name].tobytes() == whole[name].tobytes() for name in whole)
    assert isinstance(results["y"], np.memmap) and list(results) == list(whole)
    assert results.report.rows == x.size
    assert sorted(each.name for each in tmp_path.iterdir()) == ["x.npy", "y.npy"]


def test_parts_by_number():
    x = np.arange(10_000.0)
    with ov.Engine(device="cpu") as engine:
        parts = [engine.run_rows("mean(x)", part=(k, 5), x=x) for k in range(5)]
    assert [rows for part in parts for rows in part.rows] == [range(0, 4096), range(4096, 8192), range(8192, 10_000)]
    for part in parts[1:]:
        parts[0].merge(part)
    assert dict(parts[0].finish()) == {"mean(x)": 4999.5}
    raw = ov.Partial.from_bytes(parts[0].to_bytes())
    assert raw.is_complete and repr(raw) == "<overshot.Partial: rows 0 to 10000 of 10000>"


def test_an_array_is_written_in_parts():
    x, y = np.arange(10_000.0), np.zeros(10_000)
    part = ov.run_rows("x + 1", part=(1, 2), out=y)
    np.testing.assert_array_equal(y, np.where(x < 4096, 0, x + 1))
    part.merge(ov.run_rows("x + 1", part=(0, 2), out=y))
    np.testing.assert_array_equal(y, x + 1)
    assert dict(part.finish()) == {}


def test_a_kernel_runs_in_parts(tmp_path):
    x = np.random.default_rng(1).uniform(0, 100, 30_000)
    out = {"big": tmp_path / "big.npy", "where": tmp_path / "where.npy"}
    with ov.Engine(device="cpu") as engine:
        keep = pickle.loads(pickle.dumps(engine.kernel(KEEP, threads=32, rows_per_block=512)))
        with pytest.raises(ValueError, match="keep"):
            engine.run_rows(keep, x=x, part=(0, 3), out=out)  # the CPU has no function for it
    with pytest.raises(TypeError, match="no parameter 'z'"):
        ov.run_rows(keep, x=x, z=x, part=(0, 3), out=out)
    if "cuda" in DEVICES:
        first, *rest = (ov.run_rows(keep, x=x, part=(k, 3), out=out, device="cuda") for k in range(3))
        for part in rest:
            first.merge(part)
        results = first.finish()
        np.testing.assert_array_equal(results["where"], np.flatnonzero(x > 50))
        np.testing.assert_array_equal(results["big"], x[x > 50])


def test_an_expression_without_a_name_is_called_result(tmp_path):
    x = np.arange(10.0)
    results = ov.run_rows("x * 2", part=(0, 1), out=tmp_path / "y.f64").finish()
    np.testing.assert_array_equal(results["result"], x * 2)


def test_errors_say_what_to_do(tmp_path):
    x = np.arange(10_000.0)
    run = lambda text="sum(x)", **given: ov.run_rows(text, x=given.pop("x", x), device="cpu", **given)
    for given in ({}, {"part": (0, 1), "rows": range(4096)}):
        with pytest.raises(TypeError, match="say which rows to run"):
            run(**given)
    for rows in (range(0, 100, 2), slice(4096), slice(None), (8192, 4096), (0, 100), (0, 20_000), (-4096, 4096)):
        if rows == slice(4096):
            assert run(rows=rows).rows == [range(4096)]
            continue
        with pytest.raises(ValueError):
            run(rows=rows)
    with pytest.raises(TypeError, match="are not rows"):
        run(rows=4096)
    with pytest.raises(ValueError, match="part"):
        run(part=(2, 2))
    with pytest.raises(ValueError, match="y: parts of a job write the same output"):
        run("y = x + 1", part=(0, 1))
    with pytest.raises(ValueError, match="y: the output shares memory with an input"):
        run("y = x + 1", part=(0, 2), out={"y": x})
    first, last = run(part=(0, 2)), run(part=(1, 2))
    with pytest.raises(ValueError, match="4096"):
        first.finish()
    for other in (first, run(rows=range(4096))):
        with pytest.raises(ValueError, match="rows"):
            first.merge(other)
    with pytest.raises(ValueError, match="x: its values"):
        first.merge(run(part=(1, 2), x=x + 1))
    first.merge(last)
    assert first.finish()["sum(x)"] == x.sum()
    data = bytearray(first.to_bytes())
    data[len(data) // 2] ^= 1
    for damaged in (bytes(data), b"", b"OVSHPART", bytes(100)):
        with pytest.raises(ValueError):
            ov.Partial.from_bytes(damaged)
    # An output that was finished is not finished again, and nothing is replaced.
    whole = run("y = x + 1", part=(0, 1), out={"y": tmp_path / "y.npy"})
    whole.finish()
    with pytest.raises(OSError):
        whole.finish()
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x + 1)


def test_progress_counts_the_rows_of_the_part_and_ends_it():
    x, seen = np.zeros(1 << 20), []
    ov.run_rows("sum(x)", part=(1, 2), progress=lambda done, rows: seen.append((done, rows)))
    assert seen[-1] == (1 << 19, 1 << 19)

    def stop(done, rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ov.run_rows("sum(x)", part=(1, 2), progress=stop)


@pytest.mark.parametrize("seed", range(50))
def test_the_ranges_of_lost_workers_run_again(seed):
    """Workers of any speed end and are lost in any order; each range is merged once."""
    rng = random.Random(seed)
    total = 4096 * rng.randrange(1, 40) + rng.choice([0, 1])
    borders = sorted({0, total, *(4096 * rng.randrange(total // 4096 + 1) for _ in range(20))})
    ranges = list(zip(borders[:-1], borders[1:]))
    partials = of(ranges, total)
    copies = rng.random() < 0.7
    parts = Ranges(ranges, copies=copies)
    workers, now, lost = list(range(rng.randrange(1, 8))), 0.0, set()
    running = {worker: [] for worker in workers}
    looks_ahead, most_ahead = rng.random() < 0.7, 0
    while not parts.is_complete:
        now += rng.random()
        for worker in parts.fastest(worker for worker in workers if worker not in parts):
            claim = parts.claim(worker, now)
            if claim is None:
                break
            running[worker].append(claim)
        for worker in workers if looks_ahead else []:
            if (claim := parts.claim_ahead(worker)) is not None:
                running[worker].append(claim)
        # Nobody runs what is complete or what two others have.
        claimed = Counter(claim.number for claims in running.values() for claim in claims)
        assert all(count <= (2 if copies else 1) for count in claimed.values())
        most_ahead = max(most_ahead, *(len(claims) for claims in running.values()))
        worker = rng.choice([worker for worker in workers if running[worker]])
        # The driver may hear of the second one first.
        claim = running[worker].pop(0 if rng.random() < 0.9 else -1)
        what = rng.random()
        if what < 0.1 and claim.number not in lost:
            lost.add(claim.number)
            if what < 0.05 and running[worker]:
                parts.failed(worker, claim.number, now)
            else:
                running[worker].insert(0, claim)
                lost.update(claim.number for claim in running[worker])
                running[worker].clear()
                parts.lost(worker)
        else:
            parts.complete(worker, claim.number, pickle.loads(pickle.dumps(partials[claim.number])), now)
    assert parts.partial.is_complete and parts.rows_done == total
    assert parts.partial.finish()["sum(i)"] == total * (total - 1) // 2
    assert max(parts.starts) <= 2 and most_ahead <= (2 if looks_ahead and copies else 1)
    # A worker that is late, or lost, after the end changes nothing.
    for worker, claims in running.items():
        for claim in claims:
            assert not parts.complete(worker, claim.number, partials[claim.number], now)


def test_a_worker_claims_ahead_if_many_ranges_wait():
    ranges = [(4096 * k, 4096 * (k + 1)) for k in range(10)]
    partials = of(ranges, 10 * 4096)
    parts = Ranges(ranges)
    assert parts.claim_ahead("a") is None, "it runs nothing"
    assert [parts.claim(worker, 0.0).number for worker in "ab"] == [0, 1]
    assert parts.claim_ahead("a") is None, "nobody knows how fast it is"
    parts.complete("a", 0, partials[0], 1.0)
    parts.complete("b", 1, partials[1], 2.0)
    assert [parts.claim(worker, 2.0).number for worker in "ab"] == [2, 3]
    assert parts.claim_ahead("b").number == 4 and parts.claim_ahead("b") is None
    assert parts.claim_ahead("a").number == 5
    parts.complete("a", 2, partials[2], 3.0)
    assert "a" in parts and parts.claim_ahead("a").number == 6
    # What a worker is lost with is claimed before others.
    parts.lost("b")
    assert [parts.claim(worker, 3.0).number for worker in "bc"] == [3, 4]
    parts.complete("a", 5, partials[5], 4.0)
    assert parts.claim_ahead("a") is None, "three ranges wait, and three workers run one"
    parts.complete("b", 3, partials[3], 90.0)
    parts.complete("c", 4, partials[4], 4.0)
    assert parts.claim("c", 4.0).number == 7
    assert parts.claim("d", 4.0).number == 8
    # 3 was begun twice, and 4 by one worker only.
    assert parts.starts == [1, 1, 1, 2, 1, 1, 1, 1, 1, 0]
    parts = Ranges(ranges, copies=False)
    assert parts.claim("a", 0.0).number == 0
    parts.complete("a", 0, partials[0], 1.0)
    assert parts.claim("a", 1.0).number == 1
    assert parts.claim_ahead("a") is None, "nobody could run it instead"


def ahead(count):
    """Two workers at 1 s: `a` runs range 2 and has claimed 4 ahead, `b` runs range 3."""
    ranges = [(4096 * k, 4096 * (k + 1)) for k in range(count)]
    partials, parts = of(ranges, count * 4096), Ranges(ranges)
    for number, worker in enumerate("ab"):
        parts.claim(worker, 0.0)
        parts.complete(worker, number, partials[number], 1.0)
    assert [parts.claim(worker, 1.0).number for worker in "ab"] == [2, 3] and parts.claim_ahead("a").number == 4
    return parts, partials


def late():
    """The same when `a` hangs and `b` has run all others: it gets a copy of what `a` has not begun."""
    parts, partials = ahead(8)
    for number, now in zip((3, 5, 6, 7), (1.1, 1.2, 1.3, 1.4)):
        parts.complete("b", number, partials[number], now)
        claim = parts.claim("b", now)
    assert claim.number == 4, "what `a` has begun ends earlier"
    return parts, partials


def test_a_copy_of_what_a_worker_has_not_begun():
    parts, partials = late()
    assert parts.complete("b", 4, partials[4], 1.5)
    assert parts.claim("b", 9.0).number == 2 and parts.complete("b", 2, partials[2], 10.0)
    assert parts.is_complete and parts.partial.is_complete


def test_a_worker_is_lost_with_what_others_have():
    for ends in (True, False):
        parts, partials = late()
        if ends:
            parts.complete("b", 4, partials[4], 3.0)
        parts.lost("a")
        # Only what it ran: another worker has run, or runs, the other one.
        assert parts.claim("c", 3.0).number == 2 and not parts.has_waiting


def test_the_pace_of_two_ranges_that_end_at_once_is_not_known():
    parts, partials = ahead(10)
    parts.complete("a", 2, partials[2], 3.0)
    parts.complete("a", 4, partials[4], 3.0)
    # `a` has taken 2 s for one, not none for the other, so `b` is the faster one.
    parts.complete("b", 3, partials[3], 2.0)
    assert parts.fastest("ab") == ["b", "a"]


def test_a_free_worker_gets_a_copy_of_the_range_that_ends_last():
    ranges = [(4096 * k, 4096 * (k + 1)) for k in range(4)]
    for copies in (True, False):
        partials = of(ranges, 4 * 4096)
        parts = Ranges(ranges, copies=copies)
        assert [parts.claim(worker, 0.0).number for worker in "abc"] == [0, 1, 2]
        assert parts.complete("a", 0, partials[0], 1.0)
        assert parts.claim("a", 1.0).number == 3
        parts.complete("a", 3, partials[3], 2.0)
        # `b` and `c` are late: they have run for 2 s, and `a` needs 1 s.
        claim = parts.claim("a", 2.5)
        assert (claim is not None) == copies
        if copies:
            again = parts.claim("d", 2.5)
            assert {claim.number, again.number} == {1, 2} and parts.claim("e", 9.0) is None
            parts.lost("b")
            assert parts.claim("e", 9.0) is None, "its copy still runs"
            assert parts.complete("a" if claim.number == 1 else "d", 1, partials[1], 9.0)


def test_a_range_that_ends_workers_is_given_up():
    parts = Ranges([(0, 4096)])
    for worker in "ab":
        parts.claim(worker, 0.0)
        parts.lost(worker)
    parts.claim("c", 0.0)
    with pytest.raises(Lost, match="rows 0 to 4096"):
        parts.lost("c", OSError("no memory"))
    parts.lost("nobody")


def test_the_rows_decide_how_many_ranges_there_are():
    assert [count_of(rows, 4) for rows in (0, 10, 1 << 22, 1 << 24, 1 << 40)] == [4, 4, 4, 16, 128]
