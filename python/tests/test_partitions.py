"""Tables in folders whose names have keys, as PyArrow writes them."""

import numpy as np
import pytest

import overshot as ov

pa = pytest.importorskip("pyarrow")
ds = pytest.importorskip("pyarrow.dataset")

ROWS = 20_000


def written(path, format, **keys):
    """Writes the keys and the numbers of the rows, in folders."""
    table = pa.table({**keys, "row": np.arange(ROWS)})
    schema = pa.schema([(name, table[name].type) for name in keys])
    ds.write_dataset(
        table,
        path,
        format=format,
        partitioning=ds.partitioning(schema, flavor="hive"),
        max_rows_per_file=1500,
        max_rows_per_group=400,
    )


@pytest.mark.parametrize("format", ["parquet", "feather"])
def test_keys_are_those_that_pyarrow_wrote(evaluate, tmp_path, format):
    rng = np.random.default_rng(8)
    year, share = rng.integers(-3, 12, ROWS), rng.choice([0.5, -1e-20, 3.0], ROWS)
    written(tmp_path / "t", format, year=year, share=share)
    t = tmp_path / "t"
    rows = np.asarray(evaluate("t.row", t=t))
    assert len(np.unique(rows)) == ROWS
    for name, values in [("year", year), ("share", share)]:
        file = ov.open(t, field=name)
        assert (file.shape, file.dtype) == ((ROWS,), values.dtype.type)
        np.testing.assert_array_equal(evaluate("x", x=file), values[rows])
    assert evaluate("sum(t.row[t.year == 7])", t=t) == np.arange(ROWS)[year == 7].sum()
    one = evaluate("sum(t.row * t.share)", t=f"{t}/year=7*")
    np.testing.assert_allclose(one, (np.arange(ROWS) * share)[year == 7].sum())
    parts = [ov.run_rows("count(t.year > 3)", part=(k, 2), t=t) for k in range(2)]
    parts[0].merge(parts[1])
    assert parts[0].finish()["count(t.year > 3)"] == (year > 3).sum()


def test_nulls_and_texts(evaluate, tmp_path):
    rng = np.random.default_rng(9)
    k = pa.array(rng.integers(0, 4, ROWS), mask=rng.random(ROWS) < 0.1)
    written(tmp_path / "t", "parquet", k=k, region=rng.choice(["eu", "us %/="], ROWS))
    t = tmp_path / "t"
    with pytest.raises(OSError, match=f"its column 'k' has {k.null_count:,} nulls"):
        ov.open(t, field="k")
    rows = np.asarray(evaluate("t.row", t=t))
    np.testing.assert_array_equal(evaluate("x", x=ov.open(t, field="k", nulls=-1)), k.fill_null(-1).to_numpy()[rows])
    with pytest.raises(OSError, match="its key 'region' has the value 'eu', which is no number"):
        ov.open(t, field="region")


def test_files_with_other_keys_are_refused(tmp_path):
    written(tmp_path / "t", "parquet", k=np.arange(ROWS) % 2)
    (tmp_path / "t" / "k=0" / "part-0.parquet").rename(tmp_path / "t" / "one.parquet")
    with pytest.raises(OSError, match="in folders with other keys"):
        ov.open(tmp_path / "t", field="row")
