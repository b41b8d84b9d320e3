"""Reads Apache's test files, and compares every flat column of numbers with what PyArrow reads.

    python run.py CHECKOUT...

CHECKOUT is a clone of https://github.com/apache/parquet-testing or https://github.com/apache/arrow-testing. A column
that PyArrow reads as numbers or booleans must be read with the same values, or be refused where it has nulls. Other
columns, and files that PyArrow does not read, must be refused. No file may end the process. `UNLIKE` lists the files
that differ, with reasons: one that differs and is not listed is an error, and so is a listed one that does not.
"""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import overshot as ov

# By the end of their paths.
UNLIKE = {
    "data/datapage_v1-corrupt-checksum.parquet": "PyArrow does not compare checksums",
    "data/rle-dict-uncompressed-corrupt-checksum.parquet": "PyArrow does not compare checksums",
    "data/dict-page-offset-zero.parquet": "the crate parquet does not accept its footer",
    "parquet/ARROW-17100.parquet": "its writer says of compressed pages that they are not, and PyArrow knows it",
}


def table_of(path):
    """What PyArrow reads; the error if it does not."""
    try:
        if path.suffix == ".parquet":
            # Not what the file says of the schema of its writer.
            return pq.ParquetFile(path).read()
        return pa.ipc.open_file(path).read_all()
    except Exception as error:  # noqa: BLE001 any of PyArrow's
        return error


def is_number(kind):
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def same(given, expected):
    if given.dtype != expected.dtype or given.shape != expected.shape:
        return False
    if given.dtype.kind == "f":
        # Also signs of zeros; of NaNs not the bits.
        same_signs = np.array_equal(np.signbit(given), np.signbit(expected)) or np.isnan(expected).any()
        return np.array_equal(given, expected, equal_nan=True) and same_signs
    return np.array_equal(given, expected)


def compare(path):
    """Returns what differs in a file, and the number of columns that agree."""
    table = table_of(path)
    wrong, right = [], 0
    if isinstance(table, Exception):
        try:
            ov.open(path)
        except (OSError, ValueError):
            return [], 0
        return [f"PyArrow does not read it ({table}), and Overshot opens it"], 0
    for name in dict.fromkeys(table.column_names):
        if table.column_names.count(name) > 1:
            continue
        column = table.column(name)
        if not is_number(column.type):
            try:
                ov.open(path, field=name)
            except (OSError, ValueError):
                continue
            wrong.append(f"{name}: opens, and is {column.type}")
            continue
        fill = {"b": True, "f": math.nan}.get(np.dtype(column.type.to_pandas_dtype()).kind, 0)
        filled = column.fill_null(fill) if column.null_count else column
        expected = np.concatenate([np.empty(0, column.type.to_pandas_dtype()), filled.to_numpy()])
        expected = expected.astype(column.type.to_pandas_dtype())
        try:
            file = ov.open(path, field=name, nulls=str(fill).lower() if isinstance(fill, bool) else fill)
            given = ov.evaluate("x", x=file) if len(expected) else np.empty(0, file.dtype)
        except (OSError, ValueError) as error:
            wrong.append(f"{name}: {error}")
            continue
        if same(given, expected):
            right += 1
        else:
            wrong.append(f"{name}: {given[:5]} instead of {expected[:5]}")
        if column.null_count:
            try:
                ov.evaluate("count(x == x)", x=ov.open(path, field=name))
                wrong.append(f"{name}: has nulls, which are not refused")
            except (OSError, ValueError):
                pass
    return wrong, right


def main(folders):
    if folders[:1] == ["--one"]:
        wrong, right = compare(Path(folders[1]))
        print(right, *(line.replace("\n", " ") for line in wrong), sep="\n")
        return 0
    endings = {".parquet", ".arrow_file", ".arrow", ".feather"}
    paths = sorted(path for folder in folders for path in Path(folder).rglob("*") if path.suffix in endings)
    columns, agree, failed = 0, 0, 0
    for path in paths:
        # A process for each file, so that one that ends it is found.
        done = subprocess.run([sys.executable, __file__, "--one", path], capture_output=True, text=True, timeout=120)
        count, *wrong = done.stdout.splitlines() or ["0"]
        if done.returncode != 0:
            wrong = [f"the process ended with {done.returncode}: {done.stderr[-300:]}"]
        columns += int(count)
        listed = next((reason for end, reason in UNLIKE.items() if str(path).endswith(end)), None)
        if wrong and listed:
            print(f"{path}: {listed}")
        elif wrong or listed:
            failed += 1
            print(f"{path}: {'; '.join(wrong) or 'agrees, and is listed'}")
        else:
            agree += 1
    print(f"{agree} of {len(paths)} files agree with PyArrow, in {columns} columns; {failed} fail")
    return 1 if failed or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
