"""Columns of Parquet files, as PyArrow writes them and reads them."""

import pickle
import random

import numpy as np
import pytest

import overshot as ov
from overshot import matrices

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")

CODECS = ["none", "snappy", "gzip", "brotli", "lz4", "zstd"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]


def values(rng, dtype, rows):
    """Random values of a dtype, all bits of floats but for NaN, with many equal ones at times."""
    if dtype == "bool":
        return rng.random(rows) < 0.3
    bits = np.frombuffer(rng.bytes(rows * np.dtype(dtype).itemsize), dtype)
    if rng.random() < 0.5:
        bits = np.resize(bits[: max(1, rows // 100)], rows)
    return np.where(np.isnan(bits), np.array(1.5, dtype), bits) if dtype in FLOATS else bits


def written(rng, path, rows):
    """Writes a table of a few columns in a random way; returns its values and the values in the place of nulls."""
    names = [f"c{k}" for k in range(rng.integers(1, 4))]
    dtypes = {name: str(rng.choice(["bool", *INTEGERS, *FLOATS])) for name in names}
    columns = {name: values(rng, dtype, rows) for name, dtype in dtypes.items()}
    masks = {name: rng.random(rows) < 0.1 if rng.random() < 0.3 else None for name in names}
    arrays = {name: pa.array(column, mask=masks[name]) for name, column in columns.items()}
    encodings = {}
    has_dictionary = bool(rng.random() < 0.4)
    for name, dtype in dtypes.items():
        choices = ["PLAIN"]
        choices += ["RLE"] if dtype == "bool" else ["BYTE_STREAM_SPLIT"]
        choices += ["DELTA_BINARY_PACKED"] if dtype in INTEGERS else []
        encodings[name] = str(rng.choice(choices))
    options = {"use_dictionary": True} if has_dictionary else {"use_dictionary": False, "column_encoding": encodings}
    pq.write_table(
        pa.table(arrays),
        path,
        row_group_size=int(rng.integers(1, rows + 2)),
        data_page_size=int(rng.choice([100, 4000, 1 << 20])),
        compression=str(rng.choice(CODECS)),
        data_page_version=str(rng.choice(["1.0", "2.0"])),
        write_statistics=bool(rng.random() < 0.8),
        **options,
    )
    return columns, masks


def test_random_files_have_the_values_of_pyarrow(tmp_path):
    rng = np.random.default_rng(16)
    path = tmp_path / "t.parquet"
    with ov.Engine(device="cpu", chunk="32KiB") as engine:
        for _ in range(200):
            rows = int(rng.integers(1, 30_000))
            columns, masks = written(rng, path, rows)
            for name, column in columns.items():
                mask = masks[name]
                if mask is not None and mask.any():
                    with pytest.raises(OSError, match=f"its column '{name}' has .*nulls"):
                        engine.evaluate("x + 0", x=ov.open(path, field=name))
                    column = np.where(mask, np.array(1, column.dtype), column)
                fill = "true" if column.dtype == bool else 1
                given = engine.evaluate("x", x=ov.open(path, field=name, nulls=fill))
                assert given.dtype == column.dtype
                np.testing.assert_array_equal(given, column)


@pytest.fixture
def trades(tmp_path):
    rng = np.random.default_rng(2)
    rows = 100_000
    price, size = rng.random(rows), rng.integers(1, 1000, rows)
    table = pa.table({"price": price, "size": size, "side": [str(k % 2) for k in range(rows)]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=7000)
    return tmp_path / "t.parquet", price, size


def test_booleans_take_the_place_of_nulls(evaluate, tmp_path):
    path = tmp_path / "b.parquet"
    pq.write_table(pa.table({"b": [True, None, False]}), path)
    for value in [True, np.True_, 1, "true", False, np.False_, 0]:
        found = evaluate("b", b=ov.open(path, nulls=value))
        assert found.tolist() == [True, value not in (False, 0), False]


def test_columns_are_named_with_a_dot(evaluate, trades):
    path, price, size = trades
    np.testing.assert_array_equal(evaluate("t.price * t.size", t=path), price * size)
    p, s = ov.open(path, field="price"), ov.open(path, field="size", read="pread")
    np.testing.assert_array_equal(evaluate("p[s > 500]", p=p, s=s), price[size > 500])
    copy = pickle.loads(pickle.dumps(ov.open(path, field="size", nulls=-1)))
    assert (copy.field, copy.nulls, copy.dtype, copy.shape) == ("size", "-1", np.int64, (100_000,))
    for text, problem in [
        ("sum(t.side)", "its column 'side' is of the type string"),
        ("sum(t.prize)", "has no column 'prize', only price, size, side"),
        ("sum(t)", "is a table of the columns price, size; name one of them"),
    ]:
        with pytest.raises(OSError, match=problem):
            evaluate(text, t=path)


def test_parts_and_plans(trades):
    path, price, size = trades
    parts = [ov.run_rows("std(t.price)", part=(k, 2), t=path) for k in range(2)]
    parts[0].merge(parts[1])
    assert parts[0].finish()["std(t.price)"] == ov.evaluate("std(x)", x=price)
    assert ov.plan("sum(t.price * t.size)", t=path).to_dict()["rows"] == 100_000


def test_types_that_are_no_numbers_are_refused(tmp_path):
    import datetime
    import decimal

    path = tmp_path / "t.parquet"
    rows = {
        "text": pa.array(["a"]),
        "day": pa.array([datetime.date(2020, 1, 1)]),
        "time": pa.array([datetime.datetime(2020, 1, 1)]),
        "money": pa.array([decimal.Decimal("1.50")]),
        "list": pa.array([[1.0]]),
        "point": pa.array([{"x": 1.0}]),
    }
    pq.write_table(pa.table(rows), path)
    for name in ["text", "day", "time", "money", "list.list.element", "point.x"]:
        with pytest.raises(OSError, match=f"its column '{name}' is "):
            ov.open(path, field=name)
    for name in ["text", "day", "money"]:
        with pytest.raises(OSError, match=f"its column '{name}' is "):
            ov.open(path, field=name, timestamps=True)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Rome"])
def test_timestamps_are_integers_on_request(evaluate, tmp_path, unit, zone):
    rng = np.random.default_rng(6)
    times = rng.integers(-(2**40), 2**40, 30_000)
    column = pa.array(times, pa.timestamp(unit, zone), mask=rng.random(30_000) < 0.1)
    table = pa.table({"time": column})
    files = [tmp_path / "t.parquet", tmp_path / "old.parquet", tmp_path / "t.arrow"]
    pq.write_table(table, files[0], row_group_size=4000)
    pq.write_table(table, files[1], version="1.0", coerce_timestamps="ms", allow_truncated_timestamps=True)
    feather.write_feather(table, str(files[2]), compression="lz4")
    for path in files:
        with pytest.raises(OSError, match=r"'time' is of the type timestamp.*ov.open\(..., timestamps=True\)"):
            ov.open(path, field="time", nulls=0)
        with pytest.raises(OSError, match="its column 'time' has .*nulls"):
            evaluate("x + 0", x=ov.open(path, field="time", timestamps=True))
        read = pq.read_table(path) if path.suffix == ".parquet" else feather.read_table(path)
        expected = read["time"].cast("int64").fill_null(-1).to_numpy()
        file = ov.open(path, field="time", nulls=-1, timestamps=True)
        copy = pickle.loads(pickle.dumps(file))
        assert (copy.timestamps, copy.dtype, copy.shape) == (True, np.int64, (30_000,))
        np.testing.assert_array_equal(evaluate("x", x=copy), expected)

    # Two numbers for each time, and days.
    pq.write_table(table, files[0], use_deprecated_int96_timestamps=True)
    with pytest.raises(OSError, match="its column 'time' is of the type int96"):
        ov.open(files[0], field="time", timestamps=True)


def test_several_files_are_one_input(evaluate, tmp_path):
    parts = np.split(np.random.default_rng(3).random(50_000), [10, 20_000])
    for number, part in enumerate(parts):
        pq.write_table(pa.table({"x": part, "k": np.arange(len(part))}), tmp_path / f"part-{number}.parquet")
    np.testing.assert_array_equal(evaluate("t.x * 2", t=tmp_path / "part-*.parquet"), np.concatenate(parts) * 2)


CONDITIONS = ["k > {}", "k <= {}", "(k >= {}) & (k < {} + 3)", "~(k != {})", "k * 2 - 1 < {}", "-k > {}"]
CONDITIONS += ["f > {}", "f != {}"]


@pytest.mark.parametrize("seed", range(8))
def test_columns_side_by_side_are_a_table(evaluate, tmp_path, seed):
    rng = np.random.default_rng(seed)
    rows, width = int(rng.integers(1, 9000)), int(rng.integers(1, 12))
    dtypes = [str(rng.choice([*INTEGERS, *FLOATS])) for _ in range(width)]
    if seed % 2:
        dtypes = dtypes[:1] * width
    names = [f"c{k}" for k in range(width)]
    columns = {name: values(rng, dtype, rows) for name, dtype in zip(names, dtypes)}
    names = [str(name) for name in rng.permutation(names)]
    for path, write in [("t.parquet", pq.write_table), ("t.arrow", feather.write_feather)]:
        size = int(rng.integers(1, rows + 2))
        limit = {"row_group_size": size} if path == "t.parquet" else {"chunksize": size}
        write(pa.table(columns), tmp_path / path, compression=["zstd", "lz4"][seed % 2], **limit)
        table = ov.open(tmp_path / path, field=names)
        dtype = dtypes[0] if seed % 2 else "float64"
        expected = np.stack([columns[name].astype(dtype) for name in names], axis=1)
        assert table.shape == expected.shape and table.dtype == expected.dtype and table.field == names
        assert evaluate("y = x", x=table)["y"].tobytes() == expected.tobytes()
        again = pickle.loads(pickle.dumps(table))
        kept = ov.evaluate("y = x[k > 0]", x=again, k=np.ones(rows, np.int8))["y"]
        assert kept.tobytes() == expected.tobytes()
        every = ov.open(tmp_path / path, field=["*"])
        greatest = [columns[name].astype(dtype).max() for name in columns]
        np.testing.assert_array_equal(evaluate("max(x, axis=0)", x=every), np.array(greatest, dtype))
        with pytest.raises(OSError, match="has no column 'other'"):
            ov.open(tmp_path / path, field=[*names, "other"])
        with pytest.raises(OSError, match="no columns to put side by side"):
            ov.open(tmp_path / path, field=[])
    with pytest.raises(TypeError, match="field"):
        ov.open(tmp_path / path, field=[1])


def test_a_model_of_columns(tmp_path):
    rng = np.random.default_rng(3)
    a, b, c = rng.standard_normal(5000), rng.integers(0, 9, 5000), rng.standard_normal(5000).astype("f4")
    for year in (2023, 2024):
        (tmp_path / f"s/year={year}").mkdir(parents=True)
        table = pa.table({"a": a, "b": b, "c": c, "t": 3 * a - b + 0.5 * c + 0.01 * (year - 2000)})
        pq.write_table(table, tmp_path / f"s/year={year}/t.parquet", row_group_size=700)
    x = ov.open(tmp_path / "s", field=["a", "b", "c", "year"])
    assert x.shape == (10_000, 4)
    model = matrices.linear(x, ov.open(tmp_path / "s", field="t"))
    np.testing.assert_allclose(model.weights, [3, -1, 0.5, 0.01], rtol=1e-9)
    # Lazy arrays read the file as any other array.
    means = np.asarray(ov.array(x).mean(axis=0))
    np.testing.assert_allclose(means, [a.mean(), b.mean(), c.mean(), 2023.5])


def test_rows_that_a_filter_cannot_keep(tmp_path):
    """Results are those of NumPy, whatever the statistics of pages and row groups are."""
    rng = np.random.default_rng(17)
    path, left_out = tmp_path / "t.parquet", 0
    with ov.Engine(device="cpu", chunk="32KiB") as engine:
        for _ in range(150):
            rows = int(rng.integers(1, 20_000))
            k = np.sort(rng.integers(-20, 20, rows)) if rng.random() < 0.7 else rng.integers(-20, 20, rows)
            k = k.astype(rng.choice(["int8", "int16", "int32", "int64"]))
            f = np.where(rng.random(rows) < 0.001, np.nan, np.round(k * 0.5, 1)).astype(rng.choice(FLOATS))
            x = rng.integers(0, 1000, rows).astype("f8")
            mask = rng.random(rows) < 0.01 if rng.random() < 0.5 else None
            pq.write_table(
                pa.table({"k": pa.array(k, mask=mask), "f": f, "x": x}),
                path,
                row_group_size=int(rng.integers(100, rows + 200)),
                data_page_size=int(rng.choice([1000, 8000])),
                write_statistics=bool(rng.random() < 0.9),
                write_page_index=bool(rng.random() < 0.7),
                use_dictionary=bool(rng.random() < 0.5),
            )
            if mask is not None:
                k = np.where(mask, np.array(3, k.dtype), k)
            condition = str(rng.choice(CONDITIONS)).replace("{}", str(rng.integers(-12, 12)))
            kept = eval(condition, {}, {"k": k.astype("i8"), "f": f.astype("f8")})
            t = {name: ov.open(path, field=name, nulls=3) for name in "kfx" if name in condition + "x"}
            text = f"c = {condition}; a = sum(x[c]), n = count(c), w = sum(where(c, x, 1)), y = x[c]"
            r = engine.evaluate(text, **t)
            np.testing.assert_array_equal(r["y"], x[kept], err_msg=condition)
            assert (r["a"], r["n"], r["w"]) == (x[kept].sum(), kept.sum(), np.where(kept, x, 1).sum()), condition
            left_out += "were not read" in str(r.report.notes)
    assert left_out > 60


def test_damaged_files_are_errors(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": np.random.default_rng(4).random(20_000)}), path, row_group_size=3000)
    whole = path.read_bytes()
    rng = random.Random(5)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged) - 700, len(damaged))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.3:
            del damaged[rng.randrange(len(damaged)) :]
        path.write_bytes(damaged)
        try:
            ov.evaluate("sum(t.x)", t=path)
        except OSError as error:
            assert "t.parquet" in str(error)
