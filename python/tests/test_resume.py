"""Runs with a journal: after an interruption, the same call continues and ends with the same bytes."""

import os

import numpy as np
import overshot as ov
import pytest


class Stop(Exception):
    pass


def stop(done, rows):
    if done > rows // 3:
        raise Stop


def test_a_run_that_is_interrupted_continues(tmp_path):
    text = "y = sqrt(x); sum(y), std(y)"
    path = tmp_path / "y.npy"
    with ov.Engine(device="cpu") as engine:
        # `stop` is called every 50 ms. If a run ends before a call ends it, a longer one follows.
        for rows in (20_000_003, 40_000_003, 80_000_003, 160_000_003):
            x = np.arange(rows) % 1009 * 0.5
            with pytest.raises(Stop):
                engine.evaluate(text, x=x, out={"y": path}, progress=stop, resume=True)
            if not path.exists():
                break
            path.unlink()
        assert not path.exists() and (tmp_path / ".y.npy.journal").exists()
        whole = engine.evaluate(text, x=x, out={"y": tmp_path / "one.npy"})
        with pytest.raises(OSError, match="another run: they differ in the expression"):
            engine.evaluate("y = sqrt(x); sum(y)", x=x, out={"y": path}, resume=True)
        again = engine.evaluate(text, x=x, out={"y": path}, resume=True)
    assert [again[name] for name in ("sum(y)", "std(y)")] == [whole[name] for name in ("sum(y)", "std(y)")]
    np.testing.assert_array_equal(again["y"], whole["y"])
    assert path.read_bytes() == (tmp_path / "one.npy").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["one.npy", "y.npy"]


def test_the_journal_of_a_run_without_outputs_has_a_path(tmp_path):
    x = np.ones(10)
    assert ov.evaluate("sum(x)", device="cpu", resume=tmp_path / "journal") == 10
    assert os.listdir(tmp_path) == []
    with pytest.raises(ValueError, match="resume=path"):
        ov.evaluate("sum(x)", device="cpu", resume=True)
    with pytest.raises(ValueError, match="write to a .npy, Arrow or raw file"):
        ov.evaluate("x + 1", out=np.empty(10), device="cpu", resume=tmp_path / "journal")
