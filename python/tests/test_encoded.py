"""Parquet files and Zarr stores that are written, as PyArrow, zarr-python and tensorstore read them."""

import hashlib
import math
import pickle
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import overshot as ov

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
zarr = pytest.importorskip("zarr")
ts = pytest.importorskip("tensorstore")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

DTYPES = ["bool", *"int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()]
CODECS = ["none", "lz4", "zstd", "zstd:7", "gzip", "gzip:1"]


def values_of(rng, shape, dtype):
    if dtype == "bool":
        return rng.random(shape) < 0.3
    # Many zeros, so that some chunks have nothing else.
    values = np.frombuffer(rng.bytes(math.prod(shape) * np.dtype(dtype).itemsize), dtype).reshape(shape)
    values = np.where(values == values, values, np.array(1, dtype)).astype(dtype)
    return values * (rng.random(shape) < 0.5) if rng.random() < 0.5 else values


@pytest.mark.parametrize("seed", range(60))
def test_columns_of_parquet_files(tmp_path, seed):
    rng = np.random.default_rng(seed)
    rows = int(rng.choice([0, 1, 300, 5000]))
    columns = {f"c{k}": values_of(rng, (rows,), str(rng.choice(DTYPES))) for k in range(rng.integers(1, 4))}
    options = {"codec": [*CODECS, "snappy"][rng.integers(7)], "chunks": int(rng.integers(1, 2000))}
    path = tmp_path / "t.parquet"
    text = "; ".join(f"{name} = x{name}" for name in columns)
    given = {f"x{name}": values for name, values in columns.items()}
    found = ov.evaluate(text, **given, out={name: ov.create(path, **options) for name in columns})
    table = pq.read_table(path)
    assert table.column_names == list(columns)
    for name, values in columns.items():
        assert str(table.schema.field(name).type).replace("halffloat", "float16") in (
            str(values.dtype),
            {"float32": "float", "float64": "double", "bool": "bool"}.get(str(values.dtype)),
        )
        np.testing.assert_array_equal(table[name].to_numpy(), values)
        np.testing.assert_array_equal(ov.evaluate("y = t", t=found[name])["y"], values)
    described = pq.ParquetFile(path).metadata
    assert described.num_row_groups == -(-rows // options["chunks"])
    for k, values in enumerate(columns.values()):
        for group in range(described.num_row_groups):
            statistics = described.row_group(group).column(k).statistics
            own = values[group * options["chunks"] :][: options["chunks"]]
            assert statistics.null_count == 0
            if values.dtype.kind in "iu":
                assert (statistics.min, statistics.max) == (own.min(), own.max())


@pytest.mark.parametrize("seed", range(100))
def test_arrays_of_zarr_stores(tmp_path, seed):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    shape = tuple(int(rng.integers(0 if rng.random() < 0.1 else 1, [3000, 60, 16][rank - 1])) for _ in range(rank))
    values = values_of(rng, shape, str(rng.choice(DTYPES)))
    options = {"codec": str(rng.choice(CODECS))}
    if rng.random() < 0.7:
        options["chunks"] = tuple(int(rng.integers(max(1, length // 5), length + 3)) for length in shape)
        if rng.random() < 0.6:
            options["shards"] = tuple(chunk * int(rng.integers(1, 4)) for chunk in options["chunks"])
    if rng.random() < 0.3:
        options["dimensions"] = ["time", "lat", "lon"][:rank]
    path = tmp_path / "t.zarr"
    found = ov.evaluate("y = x", x=values, out={"y": ov.create(path, **options)})["y"]
    array = zarr.open_array(path, mode="r")
    assert (array.shape, array.dtype, array.metadata.zarr_format) == (shape, values.dtype, 3)
    assert (array.shards is None) == ("shards" not in options)
    assert array.metadata.dimension_names == tuple(options.get("dimensions", [f"dim_{axis}" for axis in range(rank)]))
    np.testing.assert_array_equal(array[...], values)
    other = ts.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}).result()
    np.testing.assert_array_equal(other.read().result(), values)
    assert isinstance(found, ov.File) and found.shape == shape
    np.testing.assert_array_equal(ov.evaluate("y = x", x=found)["y"], values)


def test_several_arrays_are_a_group(tmp_path):
    x = np.arange(6000.0).reshape(20, 300)
    path = tmp_path / "g.zarr"
    outs = {"a": path, "b": path}
    found = ov.evaluate("a = x * 2; b = sum(x, axis=1)", x=x, out=outs)
    group = zarr.open_group(path, mode="r")
    assert sorted(group.array_keys()) == ["a", "b"]
    np.testing.assert_array_equal(group["a"][...], x * 2)
    np.testing.assert_array_equal(group["b"][...], x.sum(axis=1))
    assert (found["a"].field, found["b"].shape) == ("a", (20,))
    with pytest.raises(OSError, match="exists already"):
        ov.evaluate("a = x", x=x, out={"a": path})
    ov.evaluate("a = x[x > 5]", x=x, out={"a": ov.create(path, force=True, chunks=1000)})
    np.testing.assert_array_equal(zarr.open_array(path, mode="r")[...], x[x > 5])


def test_xarray_opens_a_group(tmp_path):
    xarray = pytest.importorskip("xarray")
    x = np.arange(60.0).reshape(5, 12) % 7
    ov.evaluate("a = x + 1; b = x * 0", x=x, out={name: tmp_path / "g.zarr" for name in "ab"})
    named = {name: ov.create(tmp_path / "n.zarr", dimensions=["time", "place"]) for name in "ab"}
    ov.evaluate("a = x + 1; b = x * 0", x=x, out=named)
    with xarray.open_zarr(tmp_path / "n.zarr", consolidated=False) as made:
        np.testing.assert_array_equal(made["a"].sum("time"), (x + 1).sum(axis=0))
    with xarray.open_zarr(tmp_path / "g.zarr", consolidated=False) as made:
        assert made["a"].dims == ("dim_0", "dim_1")
        np.testing.assert_array_equal(made["a"], x + 1)
        # Zeros are no missing values.
        np.testing.assert_array_equal(made["b"], x * 0)


def test_bytes_do_not_depend_on_the_run(tmp_path):
    x = np.random.default_rng(1).random(300_000)
    digests = set()
    for number, settings in enumerate([{"chunk": "64KiB"}, {"chunk": "1MiB"}, {"workers": 1}, {}]):
        with ov.Engine(**settings) as engine:
            path = tmp_path / f"{number}.parquet"
            engine.evaluate("y = x * 2", x=x, out={"y": ov.create(path, chunks=10_000)})
            digests.add(hashlib.sha256(path.read_bytes()).digest())
    assert len(digests) == 1


def test_options(tmp_path):
    made = ov.create(
        tmp_path / "y.zarr", "f4", force=True, codec="gzip:9", chunks=(3, 4), shards=[6, 4], dimensions=("x", "y")
    )
    again = pickle.loads(pickle.dumps(made))
    assert again.__getnewargs__() == made.__getnewargs__() and again.is_encoded
    assert made.__getnewargs__()[4:] == ("gzip:9", [3, 4], [6, 4], ["x", "y"])
    assert not ov.create(tmp_path / "y.npy").is_encoded
    with pytest.raises(ValueError, match="no codec 'zip'"):
        ov.create(tmp_path / "y.zarr", codec="zip")
    with pytest.raises(ValueError, match="chunks"):
        ov.create(tmp_path / "y.zarr", chunks=2.5)
    for path, options, words in [
        ("y.npy", {"codec": "lz4"}, "cannot be compressed with lz4"),
        ("y.parquet", {"chunks": (2, 3)}, "cannot have row groups of"),
        ("y.zarr", {"chunks": (2, 3)}, "to which chunks of the shape"),
        ("y.zarr", {"chunks": 2, "shards": 3}, "cannot have shards of the shape"),
    ]:
        with pytest.raises(OSError, match=words):
            ov.evaluate("y = x", x=np.ones(5), out={"y": ov.create(tmp_path / path, **options)})
    with pytest.raises(ValueError, match="'y'"):
        ov.evaluate("y = x", x=np.ones(5), out={"y": tmp_path / "y.parquet"}, resume=True)
    assert not list(tmp_path.iterdir())


def test_many_runs_write_at_once(tmp_path):
    """Each into a file of its own; those that lose leave nothing."""
    x = np.arange(50_000.0)
    engine = ov.Engine()

    def run(number):
        name = random.Random(number).choice(["a", "b"]) + (".zarr" if number % 2 else ".parquet")
        try:
            engine.evaluate("y = x + 1", x=x, out={"y": tmp_path / name})
            return name
        except OSError as error:
            assert "exists already" in str(error) or "appeared while the job ran" in str(error)
            return None

    with ThreadPoolExecutor(4) as pool:
        won = [name for name in pool.map(run, range(24)) if name]
    assert sorted(won) == sorted(path.name for path in tmp_path.iterdir())
    for name in won:
        assert ov.evaluate("max(y)", y=tmp_path / name) == 50_000.0
