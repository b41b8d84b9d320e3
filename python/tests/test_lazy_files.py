"""Lazy arrays of every kind of file, against NumPy."""

import numpy as np
import pytest

import overshot as ov

VIEWS = {
    "itself": lambda x: x,
    "an expression": lambda x: x + 0,
    "elements": lambda x: x[1::2],
    "a row": lambda x: x[3] * 2,
    "taken": lambda x: np.take(x, [4, 0, 1]),
    "sums of a view": lambda x: x[::2].sum(),
    "differences": lambda x: np.diff(x),
    "transposed": lambda x: x.T,
    "kept": lambda x: x[x > 3],
    "along an axis": lambda x: x.reshape(4, 3).max(axis=1),
}
A = np.arange(12.0)


def of_npy(folder):
    np.save(folder / "a.npy", A)
    return ov.open(folder / "a.npy")


def of_another_byte_order(folder):
    np.save(folder / "a.npy", A.astype(">f8"))
    return ov.open(folder / "a.npy")


def of_raw(folder):
    A.tofile(folder / "a.raw")
    return ov.open(folder / "a.raw", "f8")


def of_archive(folder):
    np.savez(folder / "a.npz", b=A * 2, a=A)
    return ov.open(folder / "a.npz", member="a")


def of_records(folder):
    records = np.zeros(12, [("k", "i2"), ("p", "f8")])
    records["p"] = A
    np.save(folder / "r.npy", records)
    return ov.open(folder / "r.npy", field="p")


def of_pattern(folder):
    for number in range(3):
        np.save(folder / f"p-{number}.npy", A[number * 4 : number * 4 + 4])
    return ov.open(folder / "p-*.npy")


def of_folder(folder):
    of_pattern(folder)
    return ov.open(folder)


def of_arrow(folder):
    ov.evaluate("x * 1", x=A, out=folder / "o.arrow")
    return ov.open(folder / "o.arrow")


def of_parquet(folder):
    ov.evaluate("x * 1", x=A, out=folder / "o.parquet")
    return ov.open(folder / "o.parquet")


def of_zarr(folder):
    ov.evaluate("x * 1", x=A, out=folder / "o.zarr")
    return ov.open(folder / "o.zarr")


FILES = [of_npy, of_another_byte_order, of_raw, of_archive, of_records, of_pattern, of_folder]
FILES += [of_arrow, of_parquet, of_zarr]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.__name__)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_files_have_the_values_of_numpy(tmp_path, file, view):
    lazy, expected = view(ov.array(file(tmp_path))), view(A)
    value = np.asarray(lazy)
    assert lazy.shape == value.shape == expected.shape and lazy.dtype == value.dtype == expected.dtype
    np.testing.assert_array_equal(value, expected)


def test_a_table_is_no_raw_file(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    values = np.zeros(4096)
    pq.write_table(pa.table({"a": values}), tmp_path / "o.parquet")
    # Bytes before the footer, which nothing refers to, make it as large as a raw file of its values.
    data = (tmp_path / "o.parquet").read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    data = data[:footer] + b"?" * (values.nbytes - len(data)) + data[footer:]
    (tmp_path / "o.parquet").write_bytes(data)
    x = ov.array(ov.open(tmp_path / "o.parquet"))
    assert len(data) == values.nbytes
    np.testing.assert_array_equal(np.asarray(x[5:]), values[5:])


def test_files_of_several_dimensions(tmp_path):
    a = A.reshape(4, 3)
    np.save(tmp_path / "f.npy", np.asfortranarray(a))
    np.savez(tmp_path / "a.npz", a=a)
    a.tofile(tmp_path / "a.raw")
    for file in (
        ov.open(tmp_path / "f.npy"),
        ov.open(tmp_path / "a.npz", member="a"),
        ov.open(tmp_path / "a.raw", "f8", shape=[4, 3]),
    ):
        x = ov.array(file)
        for view in (lambda x: x, lambda x: x.T, lambda x: x[1:, ::2], lambda x: x.mean(axis=1), lambda x: x.T @ x):
            np.testing.assert_allclose(np.asarray(view(x)), view(a))


def test_files_without_elements(tmp_path):
    np.save(tmp_path / "e.npy", np.empty((0, 3), "f4"))
    (tmp_path / "e.raw").touch()
    assert np.asarray(ov.array(tmp_path / "e.npy")[:, 1:]).shape == (0, 2)
    assert np.asarray(ov.array(ov.open(tmp_path / "e.raw", "f8"))[1:]).shape == (0,)


def test_plain_files_are_mapped(tmp_path, jobs):
    for file in (of_npy, of_raw):
        assert isinstance(np.asarray(ov.array(file(tmp_path))[1:]).base, np.memmap)
    assert not jobs
