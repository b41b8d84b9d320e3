"""A job on many hosts, simulated in virtual time with the code that divides, hands out and merges ranges."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benches"))

import scale  # noqa: E402


def check(run, hosts):
    rows = run["ranges"] * scale.TILE
    partial = run["partial"]
    assert partial.is_complete and partial.total_rows == rows
    results = partial.finish()
    assert results["sum(i)"] == rows * (rows - 1) // 2
    # The same bits as those of one run, which would take too long for more rows.
    if hosts <= 10:
        assert dict(results) == dict(run["engine"].evaluate(scale.TEXT, rows=rows))
    assert len(partial.to_bytes()) < 4096, "the hosts make a partial no larger"
    # Some ranges take less than their time, so few hosts may be ahead of the ideal by some per mille.
    assert 0.99 * run["ideal"] < run["seconds"] <= 1.1 * run["ideal"]
    assert run["most_starts"] <= 2


@pytest.mark.parametrize("hosts", [10, 1000])
def test_completion_is_near_the_ideal_with_stragglers_and_lost_hosts(hosts):
    run = scale.simulate(hosts=hosts, gpus=8, seed=4)
    assert run["lost"] == round(hosts * scale.LOST)
    check(run, hosts)


@pytest.mark.parametrize("copies", [True, False])
def test_any_seed(copies):
    for seed in range(10):
        check(scale.simulate(hosts=100, gpus=8, seed=seed, copies=copies), 100)


def test_stragglers_cost_time_without_this_code():
    """The bound is one that can be missed: as many ranges as hosts, and no copies."""
    run = scale.simulate(hosts=100, ranges=1, copies=False)
    assert run["seconds"] > 2 * run["ideal"]
