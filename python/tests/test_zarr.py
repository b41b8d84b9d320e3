"""Arrays of Zarr stores, as zarr-python and tensorstore write them."""

import pickle
import random

import numpy as np
import pytest

import overshot as ov

zarr = pytest.importorskip("zarr")
ts = pytest.importorskip("tensorstore")
import numcodecs  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

NUMBERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
BLOSC = ["lz4", "lz4hc", "blosclz", "zstd", "zlib"]


def lengths(rng):
    """A shape, and chunks of any fit."""
    rank = int(rng.choice([0, 1, 1, 2, 2, 3, 4]))
    most = [0, 3000, 60, 16, 8][rank]
    shape = tuple(int(rng.integers(1, most)) for _ in range(rank))
    chunks = tuple(int(rng.integers(max(1, length // 5), length + 3)) for length in shape)
    return shape, chunks


def values_of(rng, shape, dtype):
    if dtype == "bool":
        return rng.random(shape) < 0.3
    values = np.frombuffer(rng.bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize), dtype).reshape(shape)
    return np.where(values == values, values, np.array(1, dtype)).astype(dtype)


def write_v3(rng, path, shape, chunks, dtype):
    size = np.dtype(dtype).itemsize
    shuffle = str(rng.choice(["noshuffle", "shuffle", "bitshuffle"]))
    codecs = [
        [],
        [zarr.codecs.ZstdCodec(level=1, checksum=bool(rng.integers(2)))],
        [zarr.codecs.GzipCodec(level=1)],
        [zarr.codecs.BloscCodec(cname=str(rng.choice(BLOSC)), shuffle=shuffle)],
        [zarr.codecs.Crc32cCodec()],
        [zarr.codecs.ZstdCodec(level=1), zarr.codecs.Crc32cCodec()],
    ]
    filters = []
    if shape and rng.random() < 0.4:
        filters = [zarr.codecs.TransposeCodec(order=tuple(int(axis) for axis in rng.permutation(len(shape))))]
    shards = None
    if shape and rng.random() < 0.4:
        shards = tuple(length * int(rng.integers(1, 4)) for length in chunks)
    return zarr.create_array(
        path,
        shape=shape,
        chunks=chunks,
        shards=shards,
        dtype=dtype,
        compressors=codecs[rng.integers(len(codecs))],
        filters=filters,
        serializer=zarr.codecs.BytesCodec(endian=str(rng.choice(["little", "big"])) if size > 1 else None),
        fill_value=1,
        chunk_key_encoding={"name": str(rng.choice(["default", "v2"])), "separator": str(rng.choice([".", "/"]))},
    )


def write_v2(rng, path, shape, chunks, dtype):
    size = np.dtype(dtype).itemsize
    compressors = [
        None,
        numcodecs.Blosc(str(rng.choice(BLOSC)), shuffle=int(rng.integers(3))),
        numcodecs.Zstd(1),
        numcodecs.GZip(1),
        numcodecs.Zlib(1),
        numcodecs.BZ2(1),
    ]
    compressor = compressors[rng.integers(len(compressors))]
    filters = [[], [numcodecs.Shuffle(size)], [numcodecs.Fletcher32()]]
    if np.prod(chunks) * size % 2:
        # numcodecs and zarrs have different checksums for an odd number of bytes.
        filters[2] = []
    return zarr.create_array(
        path,
        shape=shape,
        chunks=chunks,
        dtype=np.dtype(dtype).newbyteorder(str(rng.choice(["<", ">"]))),
        compressors=compressor,
        filters=filters[rng.integers(3)] if compressor is not None and shape else None,
        order=str(rng.choice(["C", "F"])),
        fill_value=1,
        chunk_key_encoding={"name": "v2", "separator": str(rng.choice([".", "/"]))},
        zarr_format=2,
    )


def write_tensorstore(rng, path, shape, chunks, dtype):
    """Returns an array to write to."""
    store = {"driver": "file", "path": str(path)}
    if rng.random() < 0.4:
        compressors = [
            None,
            {"id": "blosc", "cname": str(rng.choice(BLOSC)), "clevel": 1, "shuffle": int(rng.integers(3))},
            {"id": "zlib", "level": 1},
            {"id": "bz2", "level": 1},
            {"id": "zstd", "level": 1},
        ]
        order = "|" if np.dtype(dtype).itemsize == 1 else str(rng.choice(["<", ">"]))
        metadata = {
            "shape": shape,
            "chunks": chunks,
            "dtype": np.dtype(dtype).newbyteorder(order).str,
            "order": str(rng.choice(["C", "F"])) if len(shape) > 1 else "C",
            "compressor": compressors[rng.integers(len(compressors))],
            "dimension_separator": str(rng.choice([".", "/"])),
            "fill_value": True if dtype == "bool" else 1,
        }
        return ts.open({"driver": "zarr", "kvstore": store, "metadata": metadata}, create=True).result()
    endian = {"name": "bytes", "configuration": {"endian": str(rng.choice(["little", "big"]))}}
    endian = endian if np.dtype(dtype).itemsize > 1 else {"name": "bytes"}
    packed = [
        [],
        [{"name": "gzip", "configuration": {"level": 1}}],
        [{"name": "zstd", "configuration": {"level": 1}}],
        [{"name": "crc32c"}],
        [{"name": "blosc", "configuration": {"cname": str(rng.choice(BLOSC)), "clevel": 1, "shuffle": "shuffle"}}],
    ]
    codecs = [endian, *packed[rng.integers(len(packed))]]
    if len(shape) > 1 and rng.random() < 0.4:
        order = [int(axis) for axis in rng.permutation(len(shape))]
        codecs = [{"name": "transpose", "configuration": {"order": order}}, *codecs]
    grid = chunks
    if rng.random() < 0.5:
        grid = [length * int(rng.integers(1, 4)) for length in chunks]
        index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
        place = str(rng.choice(["start", "end"]))
        inner = {"chunk_shape": chunks, "codecs": codecs, "index_codecs": index, "index_location": place}
        codecs = [{"name": "sharding_indexed", "configuration": inner}]
    metadata = {
        "shape": shape,
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": grid}},
        "codecs": codecs,
        "fill_value": True if dtype == "bool" else 1,
    }
    return ts.open({"driver": "zarr3", "kvstore": store, "metadata": metadata}, create=True).result()


def test_random_arrays_have_the_values_that_were_written(tmp_path):
    rng = np.random.default_rng(16)
    with ov.Engine(device="cpu", chunk="32KiB") as engine:
        for number in range(500):
            shape, chunks = lengths(rng)
            dtype = str(rng.choice(["bool", *NUMBERS]))
            values = values_of(rng, shape, dtype)
            path = tmp_path / f"{number}"
            writer = [write_v3, write_v2, write_tensorstore][rng.integers(3)]
            if not shape and writer is write_tensorstore:
                writer = write_v3
            array = writer(rng, path, shape, chunks, dtype)
            expected = np.ones(shape, dtype)
            # Chunks that nobody writes have the fill value.
            rows = slice(int(rng.integers(shape[0])), None) if shape and rng.random() < 0.3 else ...
            expected[rows] = values[rows]
            if writer is write_tensorstore:
                array[rows].write(values[rows]).result()
            else:
                array[rows] = values[rows]
            file = ov.open(path)
            assert (file.shape, file.dtype) == (shape, values.dtype), path
            given = engine.evaluate("x", x=file)
            assert given.dtype == values.dtype
            about = str(array.metadata if hasattr(array, "metadata") else array.spec())
            np.testing.assert_array_equal(given.reshape(shape), expected, err_msg=about)


def test_arrays_of_a_group_are_named_with_a_dot(evaluate, tmp_path):
    rng = np.random.default_rng(2)
    t, p = rng.random((365, 30, 40)), rng.random((365, 30, 40)).astype("f4")
    path = tmp_path / "s.zarr"
    group = zarr.open_group(path, mode="w")
    for name, values in {"t": t, "p": p}.items():
        group.create_array(name, shape=t.shape, chunks=(31, 15, 40), dtype=values.dtype)[:] = values
    np.testing.assert_array_equal(evaluate("s.t * s.p", s=path), t * p)
    file = ov.open(path, field="p")
    np.testing.assert_array_equal(evaluate("x", x=file), p)
    np.testing.assert_array_equal(evaluate("x", x=path / "t"), t)
    np.testing.assert_allclose(evaluate("mean(x, axis=0)", x=path / "t"), t.mean(axis=0), rtol=1e-12)
    text = "shift(x, 1, edge) + x"
    np.testing.assert_array_equal(evaluate(text, x=path / "p"), evaluate(text, x=p))
    copy = pickle.loads(pickle.dumps(file))
    assert (copy.field, copy.dtype, copy.shape) == ("p", np.float32, (365, 30, 40))
    with pytest.raises(OSError, match=r"s.zarr: is a Zarr group with the arrays p, t; name one of them"):
        ov.open(path)
    parts = [ov.run_rows("std(x)", part=(k, 2), x=path / "t") for k in range(2)]
    parts[0].merge(parts[1])
    assert parts[0].finish()["std(x)"] == ov.evaluate("std(x)", x=t)


def test_what_is_no_number_is_refused(tmp_path):
    for number, dtype in enumerate(["complex64", "datetime64[s]", "U3", "S4"]):
        zarr.create_array(tmp_path / str(number), shape=(3,), chunks=(2,), dtype=dtype, zarr_format=2)
        with pytest.raises(OSError, match="which are no numbers that a job can read|cannot be read"):
            ov.open(tmp_path / str(number))
    zarr.create_array(
        tmp_path / "lz4", shape=(3,), chunks=(2,), dtype="i4", zarr_format=2, compressors=numcodecs.LZ4()
    )
    with pytest.raises(OSError, match="cannot be read: .*lz4"):
        ov.open(tmp_path / "lz4")


def test_damaged_chunks_are_errors(tmp_path):
    rng, values = random.Random(5), np.random.default_rng(4).random((40, 30))
    for codec in [zarr.codecs.ZstdCodec(), zarr.codecs.BloscCodec(), zarr.codecs.GzipCodec()]:
        for shards in [None, (20, 30)]:
            path = tmp_path / f"{type(codec).__name__} {shards}"
            array = zarr.create_array(
                path, shape=values.shape, chunks=(10, 30), shards=shards, dtype="f8", compressors=[codec]
            )
            array[:] = values
            chunk = path / "c/0/0"
            whole = chunk.read_bytes()
            for _ in range(100):
                damaged = bytearray(whole)
                for _ in range(rng.randrange(1, 4)):
                    damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
                if rng.random() < 0.3:
                    del damaged[rng.randrange(len(damaged)) :]
                chunk.write_bytes(damaged)
                try:
                    ov.evaluate("sum(x)", x=path)
                except OSError as error:
                    assert path.name in str(error)
