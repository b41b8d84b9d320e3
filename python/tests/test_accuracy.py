"""Elementary functions against NumPy's validation sets, which come with NumPy: correctly rounded results."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest

SETS = {path.stem.split("-")[-1]: path for path in Path(np.__file__).parent.glob("_core/tests/data/umath-*.csv")}


def words(rows, column, dtype):
    """The numbers of a column, of which the sets have the bits."""
    bits = [int(row[column], 16) for row in rows]
    return np.array(bits, f"u{dtype.itemsize}").view(dtype)


def place(values):
    """The number of each float in the order of all floats: -0 and 0 are the same one."""
    bits = values.view(f"i{values.itemsize}").astype(object)
    return np.where(np.signbit(values), -(bits + (1 << 8 * values.itemsize - 1)), bits)


def test_there_is_a_set_for_every_function():
    if not SETS and "CI" not in os.environ:
        pytest.skip("this NumPy was installed without its tests")
    assert len(SETS) >= 20


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", sorted(SETS))
def test_results_are_as_near_as_numpy_demands(evaluate, name, dtype, record_property):
    dtype = np.dtype(dtype)
    with open(SETS[name]) as file:
        rows = [row for row in csv.DictReader(file) if row["dtype"] == f"np.{dtype.name}"]
    x, expected = words(rows, "input", dtype), words(rows, "output", dtype)
    result = evaluate(f"{name}(x)")
    assert len(x) > 100 and result.dtype == dtype
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    is_number = ~np.isnan(expected)
    distance = np.where(is_number, abs(place(result) - place(expected)), 0)
    record_property("ulp", int(distance.max()))
    tolerance = np.array([int(row["ulperrortol"]) for row in rows])
    wrong = np.flatnonzero(distance > tolerance)
    assert not len(wrong), [(x[row].hex(), result[row], expected[row], distance[row]) for row in wrong[:5]]
