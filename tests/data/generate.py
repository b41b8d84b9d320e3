"""Writes the .npy files of this folder: python3 generate.py (NumPy 2.4). src/data/tests/npy.rs expects their values."""

import pathlib

import numpy as np
from numpy.lib import format as npy

HERE = pathlib.Path(__file__).parent

NAMES = {"bool": "b1", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8",
         "u8": "u1", "u16": "u2", "u32": "u4", "u64": "u8", "f16": "f2", "f32": "f4", "f64": "f8"}


def values(code):
    """Five values that show a wrong size, sign or byte order."""
    dtype = np.dtype(code)
    if dtype.kind == "b":
        return np.array([True, False, False, True, True])
    if dtype.kind == "f":
        return np.array([-np.inf, np.finfo(dtype).max, -0.0, 1.5, np.finfo(dtype).tiny], dtype)
    limits = np.iinfo(dtype)
    return np.array([limits.min, limits.max, 0, 1, 2], dtype)


def save(name, array, version=None):
    with open(HERE / f"{name}.npy", "wb") as file:
        npy.write_array(file, array, version)


def by_hand(name, header, data):
    header = header.encode()
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    (HERE / f"{name}.npy").write_bytes(start + data)


for name, code in NAMES.items():
    save(f"le_{name}", values(code).astype("<" + code))
    save(f"be_{name}", values(code).astype(">" + code))

save("v2", values("f8"), (2, 0))
save("v3", values("f8"), (3, 0))
save("rank0", np.array(7.5))
save("rank2", np.arange(6, dtype="i2").reshape(2, 3))
save("rank3", np.arange(24, dtype="f4").reshape(2, 3, 4))
save("rank3_be", np.arange(24, dtype=">f4").reshape(2, 3, 4))
save("empty", np.zeros(0))
save("empty_rank2", np.zeros((0, 3), "u1"))

save("fortran", np.asfortranarray(np.arange(6.0).reshape(2, 3)))
save("fortran_rank3", np.asfortranarray(np.arange(24, dtype=">f4").reshape(2, 3, 4)), (2, 0))
grid = np.zeros((2, 3), [("id", "<u2"), ("größe", ">f8")], order="F")
grid["id"], grid["größe"] = np.arange(6).reshape(2, 3), np.arange(6).reshape(2, 3) / 2
save("fortran_records", grid, (3, 0))
save("object", np.array([None, 1], object))
save("structured", np.zeros(2, [("x", "<f8"), ("y", "<i4")]))
save("structured_v3", np.zeros(1, [("größe", "<f8")]), (3, 0))
records = np.zeros(3, np.dtype([
    ("id", "<u2"), ("price", ">f8"), ("flag", "?"), ("name", "S3"), ("pos", "<f4", (2,)),
    ("inner", [("a", "<i4"), ("b", "<f8")]), ("z", "<c8"), (("a title", "größe"), "<i4"), ("last", "u1"),
], align=True))
records["id"], records["price"], records["flag"] = [1, 2, 65535], [0.5, -1.0, np.inf], [True, False, True]
records["größe"], records["last"], records["name"] = [-1, 0, 7], [3, 2, 1], b"abc"
save("records", records)
save("records_of_objects", np.zeros(2, [("x", "<f8"), ("o", "O")]))
save("long_double", np.zeros(2, "g"))
save("complex", np.zeros(2, "c8"))
save("datetime", np.zeros(2, "M8[ns]"))
save("timedelta", np.zeros(2, "m8[s]"))
save("text", np.array(["a", "bc"]))
save("bytes", np.array([b"a", b"bc"]))
save("bfloat16", np.zeros(2, "V2"))
save("void", np.zeros(2, "V3"))

# As old NumPy wrote them: Python 2's long integers, and rows that start anywhere.
by_hand("python2", "{'descr': '<i4', 'fortran_order': False, 'shape': (3L,), }\n", np.arange(3, dtype="<i4").tobytes())
by_hand("misaligned", "{'descr': '<f8', 'fortran_order': False, 'shape': (5,), } \n", values("f8").tobytes())
