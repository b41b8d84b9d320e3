"""Writes the files of the fuzz target `file` that Overshot reads and does not write: compressed Arrow files and nulls,
encodings of Parquet, Zarr version 2, shards, archives, and folders with keys. It needs PyArrow, zarr and NumPy.

    python fuzz/files/generate.py
"""

import shutil
import zipfile
from pathlib import Path

import numcodecs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr

FOLDER = Path(__file__).parent
ROWS = 300
rng = np.random.default_rng(16)
numbers = np.arange(ROWS)
with_nulls = pa.array(np.round(rng.random(ROWS), 2), mask=numbers % 7 == 3)


def arrow(name, table, compression, batch_rows):
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(FOLDER / name, table.schema, options=options) as file:
        file.write_table(table, max_chunksize=batch_rows)


def archive(name, **arrays):
    # As numpy.savez, but for the time of the entries, which is always the same.
    with zipfile.ZipFile(FOLDER / name, "w", zipfile.ZIP_STORED) as file:
        for member, values in arrays.items():
            with file.open(zipfile.ZipInfo(f"{member}.npy"), "w", force_zip64=True) as out:
                np.lib.format.write_array(out, values)


def main():
    for path in FOLDER.iterdir():
        if path != Path(__file__):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    flags = rng.random(ROWS) < 0.5
    times = pa.array(1_700_000_000_000_000 + numbers, pa.timestamp("us"))
    arrow("lz4.arrow", pa.table({"x": with_nulls, "flag": flags, "time": times}), "lz4", 130)
    arrow("zstd.arrow", pa.table({"k": pa.array(numbers, pa.int32()), "h": numbers.astype("f2")}), "zstd", 200)
    arrow("nulls.arrow", pa.table({"x": with_nulls, "n": pa.array(numbers, pa.uint16())}), None, 200)
    pq.write_table(
        pa.table({"x": with_nulls, "n": pa.array(numbers * 1000), "f": numbers.astype("f4"), "flag": flags}),
        FOLDER / "encodings.parquet",
        compression="zstd",
        use_dictionary=False,
        column_encoding={"n": "DELTA_BINARY_PACKED", "f": "BYTE_STREAM_SPLIT"},
        data_page_version="2.0",
        data_page_size=400,
        row_group_size=170,
        write_page_index=True,
        write_page_checksum=True,
    )
    values = numbers.reshape(30, 10)
    zarr.create_array(
        FOLDER / "v2.zarr",
        shape=values.shape,
        chunks=(20, 5),
        dtype=">i2",
        compressors=numcodecs.Blosc("lz4", shuffle=1),
        order="F",
        fill_value=1,
        zarr_format=2,
    )[:] = values
    zarr.create_array(
        FOLDER / "shards.zarr",
        shape=values.shape,
        chunks=(5, 5),
        shards=(20, 10),
        dtype="f4",
        compressors=[zarr.codecs.ZstdCodec(level=1), zarr.codecs.Crc32cCodec()],
        fill_value=0,
    )[:] = values
    records = np.zeros(50, [("price", "f8"), ("size", "<i4")])
    records["size"] = numbers[:50]
    archive("arrays.npz", a=numbers.astype("f8"), b=np.asfortranarray(values), records=records)
    for year, month in [("2023", "1"), ("2024", "2"), ("2024", "__HIVE_DEFAULT_PARTITION__")]:
        folder = FOLDER / "keys" / f"year={year}" / f"month={month}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"x": numbers[:20] / 4}), folder / "a.parquet", compression="snappy")


if __name__ == "__main__":
    main()
