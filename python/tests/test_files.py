"""Files as inputs: several as one, fields of records, arrays of archives, and Fortran order."""

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


def test_arrays_in_fortran_order(evaluate, tmp_path):
    rng, path = np.random.default_rng(1), tmp_path / "x.npy"
    for dtype in ["u1", "<i2", ">f4", "<f8"]:
        for rank in [2, 3, 4]:
            shape = tuple(int(length) for length in rng.integers(1, [300, 20, 8, 5][:rank]))
            np.save(path, np.asfortranarray(rng.integers(0, 100, shape).astype(dtype)))
            x = np.load(path)
            for read in ["map", "pread", "direct"]:
                file = ov.open(path, read=read)
                assert (file.shape, file.dtype) == (shape, x.dtype.newbyteorder("=").type)
                np.testing.assert_array_equal(evaluate("x * 3", x=file), x * 3)
            w = x[:1].astype(x.dtype.newbyteorder("="))
            np.testing.assert_array_equal(evaluate("x - w", x=path, w=w), x - w)
            assert evaluate("max(x)", x=path) == x.max()


def test_fortran_order_is_in_the_notes_where_it_makes_a_difference(evaluate, tmp_path):
    path = tmp_path / "x.npy"
    for shape, is_noted in [((30, 20), True), ((600, 1), False), ((1, 600), False)]:
        np.save(path, np.asfortranarray(np.ones(shape)))
        notes = evaluate("s = sum(x)", x=path).report.notes
        assert any("x.npy is in Fortran order" in note for note in notes) == is_noted, notes


def test_fortran_order_of_fields_archives_and_several_files(evaluate, tmp_path):
    rows = np.asfortranarray(records()[:600].reshape(200, 3))
    np.save(tmp_path / "t.npy", rows)
    np.savez(tmp_path / "data.npz", x=rows["price"].copy(order="F"), t=rows)
    price, size = rows["price"], rows["size"]
    np.testing.assert_array_equal(evaluate("t.price * t.size", t=tmp_path / "t.npy"), price * size)
    np.testing.assert_array_equal(evaluate("-x", x=ov.open(tmp_path / "data.npz", member="x")), -price)
    field = ov.open(tmp_path / "data.npz", member="t", field="size")
    np.testing.assert_array_equal(evaluate("f64(x)", x=field), size)
    for part, own in [("1", price[:77]), ("2", price[77:78]), ("10", price[78:])]:
        np.save(tmp_path / f"x-{part}.npy", own.copy(order="C" if part == "2" else "F"))
    np.testing.assert_array_equal(evaluate("x + 1", x=tmp_path / "x-*.npy"), price + 1)


def test_dtypes_of_another_byte_order_are_refused(tmp_path):
    path = tmp_path / "x.raw"
    np.arange(3, dtype=">i4").tofile(path)
    for take in (ov.open, ov.create):
        with pytest.raises(TypeError, match="dtype: the bytes of '>i4' are in an order .* pass 'int32'"):
            take(path, ">i4")
        take(path, np.dtype("i4"))


def test_fields_of_records_side_by_side(evaluate, tmp_path):
    records = np.zeros(5000, [("a", "i4"), ("b", "f8"), ("c", "?")])
    records["a"], records["b"], records["c"] = np.arange(5000), np.arange(5000) / 3, np.arange(5000) % 2
    np.save(tmp_path / "r.npy", records)
    x = ov.open(tmp_path / "r.npy", field=["c", "a", "b"])
    expected = np.stack([records[name].astype("f8") for name in "cab"], axis=1)
    assert evaluate("y = x", x=x)["y"].tobytes() == expected.tobytes()
