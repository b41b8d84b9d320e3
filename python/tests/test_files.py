"""Several files as one input."""

import pickle

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
        np.testing.assert_array_equal(y, x * 2 + np.arange(10_000)[:, None])
    file = ov.open("part-*.npy")
    assert (file.shape, file.dtype) == (x.shape, np.float64)


def test_files_that_do_not_fit_together_are_refused_by_name(tmp_path):
    np.save(tmp_path / "a1.npy", np.zeros(3))
    np.save(tmp_path / "a2.npy", np.zeros(3, "f4"))
    with pytest.raises(ValueError, match=r"a1\.npy holds f64, but .*a2\.npy holds f32"):
        ov.open(tmp_path / "a*.npy")
    with pytest.raises(OSError, match="no file has a name of this pattern"):
        ov.open(tmp_path / "b*.npy")


def records():
    rows = np.zeros(20_000, [("side", "u1"), ("price", "<f8"), ("size", ">u2"), ("pos", "<f4", (2,))])
    rows["side"], rows["price"], rows["size"] = np.arange(20_000) % 2, np.arange(20_000) / 4, np.arange(20_000)
    return rows


def test_fields_of_a_file_of_records(evaluate, tmp_path):
    rows, path = records(), tmp_path / "t.npy"
    np.save(path, rows)
    expected = rows["price"] * rows["size"]
    np.testing.assert_array_equal(evaluate("t.price * t.size", t=path), expected)
    np.testing.assert_array_equal(evaluate("x * t.size", {"t": str(path)}, x=ov.open(path, field="price")), expected)
    assert evaluate("count(t.side == 1)", t=path) == 10_000
    copy = pickle.loads(pickle.dumps(ov.open(path, field="size", read="pread")))
    assert (copy.field, copy.dtype) == ("size", np.uint16)
    for field, problem in [("pos", "is an array in each record"), ("prize", "has no field 'prize', only side, price")]:
        with pytest.raises(OSError, match=problem):
            evaluate(f"sum(t.{field})", t=path)


def test_fields_of_a_structured_array(evaluate):
    rows = records().astype([("side", "u1"), ("price", "<f8"), ("size", "<u2"), ("pos", "<f4", (2,))])
    np.testing.assert_array_equal(evaluate("rows.price * rows.size"), rows["price"] * rows["size"])
    with pytest.raises(TypeError, match="rows: has no field 'prize', only side, price, size, pos"):
        evaluate("sum(rows.prize)")
    with pytest.raises(TypeError, match="np.pi: an expression has no modules; write pi"):
        ov.evaluate("sum(i * np.pi)", rows=3)
    with pytest.raises(TypeError, match="x: neither the path of a file of records nor a structured array"):
        evaluate("sum(x.price)", x=np.zeros(3))
    with pytest.raises(NameError, match=r"name 'nothing\.price' is not defined"):
        evaluate("sum(nothing.price)")


def test_arrays_of_archives(evaluate, tmp_path):
    path, x = tmp_path / "data.npz", np.arange(10_000.0).reshape(100, 100)
    np.savez(path, x, a=x, trades=records())
    for member in ["a", "arr_0"]:
        np.testing.assert_array_equal(evaluate("x * 2", x=ov.open(path, member=member)), x * 2)
    size = ov.open(path, member="trades", field="size")
    assert evaluate("max(x)", x=size) == 19_999 and pickle.loads(pickle.dumps(size)).member == "trades"
    with pytest.raises(OSError, match="has no array 'b', only a, trades, arr_0"):
        ov.open(path, member="b")
    with pytest.raises(OSError, match="is a .npz archive of the arrays a, trades, arr_0; name one of them"):
        ov.open(path)
    np.savez_compressed(path, a=x)
    with pytest.raises(OSError, match="its array 'a' is compressed; save it again with numpy.savez"):
        ov.open(path, member="a")
