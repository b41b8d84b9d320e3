"""Several files as one input."""

import numpy as np
import pytest

import overshot as ov


def test_files_are_one_input_in_natural_order(evaluate, tmp_path, monkeypatch):
    x = np.arange(30_000.0).reshape(10_000, 3)
    for part, rows in [("9", x[:7001]), ("10", x[7001:7001]), ("11", x[7001:])]:
        np.save(tmp_path / f"part-{part}.npy", rows)
    monkeypatch.chdir(tmp_path)
    for files in ["part-*.npy", tmp_path / "part-*.npy", tmp_path, ov.open("part-*.npy", read="pread")]:
        y = evaluate("x * 2 + i", x=files)
        assert y.shape == x.shape
        np.testing.assert_array_equal(y.ravel(), x.ravel() * 2 + np.arange(30_000))
    file = ov.open("part-*.npy")
    assert (file.shape, file.dtype) == (x.shape, np.float64)


def test_files_that_do_not_fit_together_are_refused_by_name(tmp_path):
    np.save(tmp_path / "a1.npy", np.zeros(3))
    np.save(tmp_path / "a2.npy", np.zeros(3, "f4"))
    with pytest.raises(ValueError, match=r"a1\.npy holds f64, but .*a2\.npy holds f32"):
        ov.open(tmp_path / "a*.npy")
    with pytest.raises(OSError, match="no file has a name of this pattern"):
        ov.open(tmp_path / "b*.npy")
