"""Columns of Arrow files, as PyArrow writes them and reads them."""

import pickle
import random

import numpy as np
import pytest

import overshot as ov

pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")

NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]


def others(rng, rows):
    """Columns that cannot be read, or have many buffers, and come before and behind those that are read."""
    texts = [None if k % 5 == 0 else f"text {k} that is longer than a view" for k in range(rows)]
    kinds = {
        "text": pa.array(texts),
        "view": pa.array(texts, pa.string_view()),
        "none": pa.nulls(rows),
        "list": pa.array([[k, k + 1] for k in range(rows)]),
        "point": pa.array([{"x": k, "y": "a"} for k in range(rows)]),
        "key": pa.array([f"key {k % 3}" for k in range(rows)]).dictionary_encode(),
        "time": pa.array(np.arange(rows).astype("datetime64[s]")),
        "map": pa.array([[("a", k)] for k in range(rows)], pa.map_(pa.string(), pa.int32())),
    }
    names = rng.permutation(list(kinds))[: rng.integers(0, len(kinds))]
    return {str(name): kinds[str(name)] for name in names}


def written(rng, path, rows):
    """Writes a table in a random way; returns its numbers and their nulls."""
    columns, masks, arrays = {}, {}, others(rng, rows)
    for k in range(rng.integers(1, 4)):
        dtype = str(rng.choice(["bool", *NUMBERS]))
        if dtype == "bool":
            column = rng.random(rows) < 0.3
        else:
            column = np.frombuffer(rng.bytes(rows * np.dtype(dtype).itemsize), dtype)
            column = np.where(column == column, column, np.array(1, dtype))
        mask = rng.random(rows) < 0.1 if rng.random() < 0.4 else None
        columns[f"c{k}"], masks[f"c{k}"], arrays[f"c{k}"] = column, mask, pa.array(column, mask=mask)
    names = [str(name) for name in rng.permutation(list(arrays))]
    table = pa.table({name: arrays[name] for name in names})
    batch_rows = int(rng.integers(1, rows + 2))
    if rng.random() < 0.5:
        feather.write_feather(
            table, path, compression=str(rng.choice(["uncompressed", "lz4", "zstd"])), chunksize=batch_rows
        )
    else:
        codec = [None, "lz4", "zstd"][rng.integers(0, 3)]
        version = pa.ipc.MetadataVersion.V4 if codec is None and rng.random() < 0.3 else pa.ipc.MetadataVersion.V5
        options = pa.ipc.IpcWriteOptions(compression=codec, metadata_version=version)
        with pa.ipc.new_file(path, table.schema, options=options) as file:
            file.write_table(table, batch_rows)
    return columns, masks


def test_random_files_have_the_values_of_pyarrow(tmp_path):
    rng = np.random.default_rng(16)
    path = tmp_path / "t.arrow"
    with ov.Engine(device="cpu", chunk="32KiB") as engine:
        for _ in range(200):
            rows = int(rng.integers(1, 5_000))
            columns, masks = written(rng, path, rows)
            for name, column in columns.items():
                mask = masks[name]
                if mask is not None and mask.any():
                    with pytest.raises(OSError, match=f"its column '{name}' has .*nulls"):
                        ov.open(path, field=name)
                    column = np.where(mask, np.array(1, column.dtype), column)
                fill = "true" if column.dtype == bool else 1
                for read in ["map", "pread"]:
                    given = engine.evaluate("x", x=ov.open(path, field=name, nulls=fill, read=read))
                    assert given.dtype == column.dtype
                    np.testing.assert_array_equal(given, column)


def test_columns_are_named_with_a_dot(evaluate, tmp_path):
    rng = np.random.default_rng(2)
    price, size = rng.random(100_000), rng.integers(1, 1000, 100_000)
    table = pa.table({"side": [str(k % 2) for k in range(100_000)], "price": price, "size": size})
    path = tmp_path / "t.feather"
    for codec in ["uncompressed", "zstd"]:
        feather.write_feather(table, path, compression=codec, chunksize=7000)
        np.testing.assert_array_equal(evaluate("t.price * t.size", t=path), price * size)
        p, s = ov.open(path, field="price"), ov.open(path, field="size", read="pread")
        np.testing.assert_array_equal(evaluate("p[s > 500]", p=p, s=s), price[size > 500])
        copy = pickle.loads(pickle.dumps(ov.open(path, field="size")))
        assert (copy.field, copy.dtype, copy.shape) == ("size", np.int64, (100_000,))
        with pytest.raises(OSError, match="its column 'side' is of the type string"):
            evaluate("sum(t.side)", t=path)
        parts = [ov.run_rows("std(t.price)", part=(k, 2), t=path) for k in range(2)]
        parts[0].merge(parts[1])
        assert parts[0].finish()["std(t.price)"] == ov.evaluate("std(x)", x=price)


def test_streams_are_refused(tmp_path):
    table = pa.table({"x": [1.0]})
    with pa.ipc.new_stream(tmp_path / "t.arrow", table.schema) as stream:
        stream.write_table(table)
    with pytest.raises(OSError, match=r"t.arrow: is a stream of Arrow's, not a file"):
        ov.open(tmp_path / "t.arrow", field="x")


def test_damaged_files_are_errors(tmp_path):
    path = tmp_path / "t.arrow"
    feather.write_feather(pa.table({"x": np.random.default_rng(4).random(20_000)}), path, "zstd", chunksize=3000)
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
            assert "t.arrow" in str(error)


def test_outputs_are_files_that_pyarrow_reads(evaluate, tmp_path):
    for dtype in NUMBERS:
        for rows in [0, 1, 63, 64, 50_001]:
            x = np.arange(rows).astype(dtype)
            path = tmp_path / f"{dtype}-{rows}.arrow"
            y = evaluate("y = x", x=x, out={"y": path})["y"]
            assert y.dtype == x.dtype and not y.flags.writeable or rows == 0
            np.testing.assert_array_equal(y, x)
            for table in [pa.ipc.open_file(path).read_all(), feather.read_table(path)]:
                table.validate(full=True)
                assert table.schema.names == ["y"] and table["y"].type == pa.from_numpy_dtype(dtype)
                np.testing.assert_array_equal(table["y"].to_numpy(), x)
            np.testing.assert_array_equal(evaluate("t.y", t=path), x)
    with pa.memory_map(str(path)) as file:
        assert pa.ipc.open_file(file).read_all()["y"].chunk(0).buffers()[1].address % 64 == 0


def test_outputs_of_fewer_rows_and_of_parts(evaluate, tmp_path):
    x = np.random.default_rng(7).random(100_000)
    kept = x[x > 0.75]
    y = evaluate("x[x > 0.75]", out=ov.create(tmp_path / "y.FEATHER", "f4"))
    np.testing.assert_array_equal(y, kept.astype("f4"))
    np.testing.assert_array_equal(feather.read_table(tmp_path / "y.FEATHER")["result"].to_numpy(), y)
    np.testing.assert_array_equal(evaluate("x[x > 2]", out=tmp_path / "none.ipc"), [])
    assert pa.ipc.open_file(tmp_path / "none.ipc").read_all().num_rows == 0
    np.save(tmp_path / "x.npy", x)
    out = {"z": tmp_path / "z.arrow"}
    parts = [ov.run_rows("z = x[x > 0.75]", part=(k, 3), x=tmp_path / "x.npy", out=out) for k in (2, 0, 1)]
    for part in parts[1:]:
        parts[0].merge(part)
    np.testing.assert_array_equal(parts[0].finish()["z"], kept)
    np.testing.assert_array_equal(pa.ipc.open_file(tmp_path / "z.arrow").read_all()["z"].to_numpy(), kept)


def test_outputs_are_columns_of_one_file(evaluate, tmp_path):
    x = np.random.default_rng(8).random(100_003)
    path = tmp_path / "t.arrow"
    for text in [
        "a = u8(x * 200); b = x * 2; c = f32(x)",
        "a = u8(x[x > 0.7] * 200); b = x[x > 0.7] * 2; c = f32(x[x > 0.7])",
    ]:
        path.unlink(missing_ok=True)
        r = evaluate(text, out={name: path for name in "abc"})
        kept = x[x > 0.7] if "[" in text else x
        expected = {"a": (kept * 200).astype("u1"), "b": kept * 2, "c": kept.astype("f4")}
        table = pa.ipc.open_file(path).read_all()
        table.validate(full=True)
        assert table.schema.names == ["a", "b", "c"]
        for name, values in expected.items():
            np.testing.assert_array_equal(table[name].to_numpy(), values)
            np.testing.assert_array_equal(r[name], values)
    with pytest.raises(ValueError, match="'a' and 'b' are columns of one file"):
        ov.run_rows("a = x; b = x + 1", part=(0, 2), out=dict.fromkeys("ab", tmp_path / "u.arrow"), x=x)
    assert not (tmp_path / "u.arrow").exists()


def test_outputs_that_are_no_column_are_refused(evaluate, tmp_path):
    x = np.zeros((3, 4))
    with pytest.raises(OSError, match=r"cannot hold the shape \(3, 4\), because a column has one dimension"):
        evaluate("x + 1", out=tmp_path / "y.arrow")
    with pytest.raises(OSError, match=r"cannot hold bool.*u8"):
        evaluate("k > 1", k=np.arange(3), out=tmp_path / "y.arrow")
    assert list(tmp_path.iterdir()) == []
