"""Values, names and objects of `evaluate`, against NumPy."""

import array
import doctest
import enum
import pickle

import numpy as np
import pytest
from conftest import OnlyDlpack

import overshot as ov

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]
rng = np.random.default_rng(7)


def numbers(dtype, shape):
    if dtype == "?":
        return rng.random(shape) < 0.5
    if dtype[0] == "f":
        return rng.normal(size=shape).astype(dtype)
    return rng.integers(1, 100, shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0,), (1,), (5,), (40_001,), (3, 0, 2), (31, 7, 5)])
def test_values_dtypes_and_shapes_are_those_of_numpy(evaluate, dtype, shape):
    a, b = numbers(dtype, shape), numbers(dtype, shape)
    for text, expected in [
        ("a * b + b", a * b + b),
        ("a / (b + 1)", a / (b + 1)),
        ("where(a < b, a, b)", np.where(a < b, a, b)),
        ("(a >= b) | (a == 3)", (a >= b) | (a == 3)),
    ]:
        result = evaluate(text)
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape), text
        np.testing.assert_array_equal(result, expected, text)


@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions_are_those_of_numpy(evaluate, dtype):
    a = numbers(dtype, 40_001)
    r = evaluate(
        "sum(a), mean(a), min(a), max(a), std(a), count(a > 1), any(a > 1), all(a > 1), argmin(a), argmax(a), prod(a)"
    )
    assert list(r)[:2] == ["sum(a)", "mean(a)"] and len(r) == 11
    for name in ("sum", "prod", "min", "max", "argmin", "argmax"):
        expected = getattr(np, name)(a)
        np.testing.assert_allclose(r[f"{name}(a)"], expected, rtol=1e-5 if dtype == "f4" else 1e-12)
        assert np.asarray(r[f"{name}(a)"]).dtype == np.asarray(expected).dtype, name
    np.testing.assert_allclose(r["mean(a)"], a.mean(dtype="f8"), rtol=1e-6)
    np.testing.assert_allclose(r["std(a)"], a.std(dtype="f8"), rtol=1e-6)
    assert (r["count(a > 1)"], r["any(a > 1)"], r["all(a > 1)"]) == ((a > 1).sum(), (a > 1).any(), (a > 1).all())
    assert evaluate("min(e)", e=np.empty(0)) is None


def test_one_expression_returns_its_value_and_statements_return_a_mapping(evaluate):
    x = np.arange(6.0)
    assert isinstance(evaluate("x + 1"), np.ndarray)
    assert evaluate(" sum(  x )\n") == 15 and isinstance(evaluate("sum(x)"), np.float64)
    np.testing.assert_array_equal(evaluate("result * 2", result=x), 2 * x)
    r = evaluate("y = x + 1")
    assert list(r) == ["y"] and r.report.rows == 6
    r = evaluate("y = x + 1; z = y * y; m = max(z), sum(z)")
    # `y` and `z` are read, so they are not kept.
    assert dict(r) == {"m": 36.0, "sum(z)": 91.0}
    r = evaluate("y = x + 1; z = y * y", out={"y": None})
    assert list(r) == ["y", "z"]
    np.testing.assert_array_equal(r["y"] ** 2, r["z"])
    with pytest.raises(KeyError, match="there is no result 'q'; the results are 'y', 'z'"):
        r["q"]
    np.testing.assert_array_equal(evaluate("i * 0.5", rows=4), np.arange(4) * 0.5)
    with pytest.raises(ValueError, match="this value is not used; give it a name"):
        evaluate("t = x * x; sqrt(t) + t")
    r = evaluate("t = x * x; y = sqrt(t) + t", out={"t": None})
    np.testing.assert_array_equal(r["t"], x * x)
    np.testing.assert_array_equal(r["y"], x + x * x)


def test_separators_around_a_text_say_nothing(evaluate):
    x = np.arange(6.0)
    for text in ("\nx + 1", "\n    x + 1\n", "x + 1;", ";x + 1", "\r\n\tx + 1,\n;"):
        np.testing.assert_array_equal(evaluate(text), x + 1)
    for text in ("\nsum(x)", "sum(x);", "sum(x),", ";\n sum(x) ;\n"):
        assert evaluate(text) == 15 and isinstance(evaluate(text), np.float64)
    assert dict(evaluate("\n    sum(x)\n    m = max(x);\n")) == {"sum(x)": 15, "m": 5}
    with pytest.raises(ValueError, match="there is nothing to compute"):
        evaluate("\n;")


GLOBAL = np.full(3, 10.0)


def test_names_are_given_or_variables_of_the_caller(evaluate):
    x = np.ones(3)
    assert evaluate("sum(x + GLOBAL)") == 33
    assert evaluate("sum(x + GLOBAL)", x=2 * x) == 36
    assert evaluate("sum(x + GLOBAL)", {"x": 3 * x, "GLOBAL": x}) == 12
    assert (lambda: evaluate("sum(y)", y=x))() == 3
    with pytest.raises(NameError, match="name 'unknown' is not defined") as caught:
        evaluate("x + unknown")
    assert caught.value.name == "unknown"
    with pytest.raises(TypeError, match="the expression has no name 'z'; it reads 'x'"):
        evaluate("sum(x)", z=x)
    # A variable takes the place of a constant.
    assert evaluate("sum(x * e)") == 3 * np.e
    e = np.full(3, 5.0)
    assert evaluate("sum(x * e)") == 15


def test_numbers_are_the_same_for_all_rows(evaluate):
    x = np.arange(4, dtype="i4")
    numbers = (2, 2.5, True, np.int8(3), np.float32(0.5), np.uint64(7), np.array(1.5), np.bool_(True), np.float64(2))
    for number in numbers:
        for dtype in ("i1", "i4", "u8", "f4", "f8"):
            column = x.astype(dtype)
            result = evaluate("column * number")
            expected = column * number
            np.testing.assert_array_equal(result, expected)
            assert result.dtype == expected.dtype, (dtype, number)
    # As in NumPy, a number of Python that does not fit is an error.
    with pytest.raises(ValueError, match="9223372036854775808 does not fit in i32"):
        evaluate("x * big", big=2**63)
    assert evaluate("sum(i64(x) * big)", big=2**40) == 6 * 2**40
    with pytest.raises(TypeError, match="big: .*too"):
        evaluate("x * big", big=2**200)
    f = np.linspace(-4, 4, 33, dtype="f4")
    for power in (2, 2.0, 0.5, -1.0, 3.5):
        with np.errstate(all="ignore"):
            expected = f**power
        np.testing.assert_array_max_ulp(evaluate("f ** power"), expected, 1)
    np.testing.assert_array_equal(evaluate("f ** 2.0 + half * (1 - half)", half=0.5), f * f + np.float32(0.25))
    assert evaluate("sum(x * number)", number=enum.IntEnum("Side", "left right").right) == 12


def test_random_numbers_are_those_of_numpys_philox(evaluate):
    rows = 70_001
    r = evaluate("x = rand(7); y = rand(seed); z = randn(7)", seed=np.uint64(2**64 - 1), rows=rows)
    for name, key in ("x", 7), ("y", 2**64 - 1):
        np.testing.assert_array_equal(r[name], np.random.Generator(np.random.Philox(key=key)).random(rows))
    u = np.random.Generator(np.random.Philox(key=7, counter=2**61)).random(2 * rows)
    expected = np.sqrt(-2 * np.log(1 - u[::2])) * np.cos(2 * np.pi * u[1::2])
    np.testing.assert_allclose(r["z"], expected, rtol=1e-14, atol=1e-15)
    with pytest.raises(ValueError, match="a seed is an integer, not f64"):
        evaluate("rand(0.5)", rows=3)


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[::2],
        lambda a: a[::-1],
        lambda a: a[:, 3],
        lambda a: a[5:2:-1, ::3],
        lambda a: a.T,
        lambda a: np.asfortranarray(a),
        lambda a: np.broadcast_to(a[0], (50, 9)),
        lambda a: a.view("V8").view([("x", "f4"), ("y", "f4")])["y"],
        lambda a: np.frombuffer(b"." + a.tobytes(), "f8", offset=1),
    ],
)
def test_any_strides_are_read_and_written(evaluate, view):
    a = view(rng.normal(size=(60, 9)))
    np.testing.assert_array_equal(evaluate("a * 2"), a * 2)
    out = view(np.zeros((60, 9)))
    if out.flags.writeable:
        assert evaluate("a + 1", out=out) is out
        np.testing.assert_array_equal(out, a + 1)


def test_strided_arrays_are_in_the_notes_and_others_are_not(evaluate):
    a = np.ones((4, 6))
    notes = evaluate("s = sum(a)", a=a[:, ::2]).report.notes
    assert any("is gathered" in note for note in notes), notes
    notes = evaluate("s = sum(a)", a=a.reshape(2, 1, 12)).report.notes
    assert not any("is gathered" in note for note in notes), notes


def test_other_objects_with_memory_are_arrays(evaluate):
    expected = np.arange(1.0, 4.0)
    arrow = pytest.importorskip("pyarrow")
    for x in (
        array.array("d", expected),
        memoryview(expected),
        memoryview(array.array("d", expected)),
        list(expected),
        OnlyDlpack(expected),
        expected.view(np.matrix),
        arrow.array(expected),
    ):
        result = np.asarray(evaluate("x * 2"))
        np.testing.assert_array_equal(result.ravel(), 2 * expected)
    assert evaluate("sum(x)", x=b"\1\2") == 3


def test_nulls_are_refused_by_name_and_never_become_nan(evaluate):
    arrow = pytest.importorskip("pyarrow")
    # A float could not hold the last one.
    whole, some = [1, 2, 2**62 + 1], [1, None, 2**62 + 1]
    makers = [
        arrow.array,
        lambda values: arrow.chunked_array([values, values]),
        lambda values: arrow.table({"a": whole, "b": values}),
        lambda values: arrow.record_batch({"a": whole, "b": values}),
    ]
    try:
        import polars

        makers += [polars.Series, lambda values: polars.DataFrame({"a": whole, "b": values})]
    except ImportError:
        pass
    try:
        import pandas

        makers += [
            lambda values: pandas.Series(values, dtype="Int64"),
            lambda values: pandas.array(values, dtype="int64[pyarrow]"),
            lambda values: pandas.DataFrame({"a": pandas.Series(values, dtype="int64[pyarrow]")}),
        ]
        for dtype in ("f8", pandas.SparseDtype("f8")):
            assert np.isnan(evaluate("sum(x)", x=pandas.Series([1.0, np.nan], dtype=dtype)))
        assert np.isnan(evaluate("sum(x)", x=pandas.DataFrame({"a": [1.0, np.nan]})))
        assert evaluate("sum(x)", x=pandas.DataFrame({"null_count": [1.0, 2.0]})) == 3
    except ImportError:
        pass
    for make in makers:
        assert evaluate("max(x)", x=make(whole)) == 2**62 + 1
        with pytest.raises(ValueError, match="x: the .* has [12] nulls; fill them first"):
            evaluate("sum(x)", x=make(some))
        with pytest.raises(ValueError, match="array: the .* nulls; fill them first"):
            ov.array_api.asarray(make(some))


def test_lazy_objects_are_no_arrays(evaluate):
    class Lazy:
        def null_count(self):
            return Lazy()

    with pytest.raises(TypeError, match="x: Lazy is not an array of numbers"):
        evaluate("sum(x)", x=Lazy())


def test_arrow_arrays_of_no_numbers_are_refused_by_name(evaluate):
    arrow = pytest.importorskip("pyarrow")
    bools = arrow.array([True, False])
    with pytest.raises(TypeError, match=r"x: pass x.to_numpy\(zero_copy_only=False\), because the bools of Arrow"):
        evaluate("sum(x)", x=bools)
    assert evaluate("count(x)", x=bools.to_numpy(zero_copy_only=False)) == 1
    for values, kind in ((["a"], "string"), ([[1, 2], [3]], "list<"), (arrow.array([1], arrow.date32()), "date32")):
        with pytest.raises(TypeError, match=f"x: an Arrow array of {kind}.* is not an array of numbers"):
            evaluate("sum(x)", x=arrow.array(values))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ma.masked_array([1.0, 2.0], [True, False]), "x: the mask"),
        (np.array([1.0], ">f8"), "x: .*big-endian"),
        (1j, "x: 'complex128' is not a dtype"),
        (2**127, "x: "),
        (np.array([1j]), "x: its elements have the format 'Zd'"),
        (np.array(["a"]), "x: its elements have the format"),
        (np.array([None]), "x: .*format 'O'"),
        (object(), "x: object is not an array of numbers"),
        (None, "x: NoneType is not an array of numbers"),
        (np.zeros(2, [("a", "f4"), ("b", "i4")]), "x: its elements have the format"),
    ],
)
def test_objects_that_are_no_numbers_are_refused_by_name(evaluate, x, message):
    with pytest.raises(TypeError, match=message):
        evaluate("sum(x)", x=x)


def test_errors_are_of_the_exceptions_of_python(evaluate):
    x = np.ones(3)
    with pytest.raises(ValueError, match=r"column 3 of 'x\+'"):
        evaluate("x+")
    with pytest.raises(ValueError, match="has 3 rows but input y"):
        evaluate("x + y", y=np.ones(4))
    with pytest.raises(ValueError, match="accepts integers and bools"):
        evaluate("x & x")
    with pytest.raises(ValueError):
        ov.evaluate("sum(x)", device="nothing")
    with pytest.raises(MemoryError, match="device memory is limited to"):
        ov.evaluate("sum(x)", device="emulated", device_memory=100)
    with pytest.raises(ValueError, match="'2 cows' is not a size"):
        ov.evaluate("sum(x)", device_memory="2 cows")
    with pytest.raises(TypeError, match="there is no output 'q'; the outputs are 'y'"):
        evaluate("y = x", out={"q": x})


def test_settings_that_are_no_numbers_are_refused_by_name(tmp_path):
    x = np.ones(3)
    for setting in ("workers", "chunk", "device_memory", "pinned_memory"):
        for value, problem in ((-1, "is out of range"), (4e3, "is not a whole number")):
            with pytest.raises(ValueError, match=f"{setting}={value} {problem}"):
                ov.evaluate("sum(x)", device="cpu", **{setting: value})
    with pytest.raises(ValueError, match="chunk='2 cows' is not a size"):
        ov.Engine(chunk="2 cows")
    assert ov.evaluate("sum(x)", device="cpu", chunk=np.int64(4096)) == 3
    for function in (ov.evaluate, ov.plan):
        with pytest.raises(ValueError, match="rows=-1 is out of range; pass a number from 0"):
            function("y = i", rows=-1)
    for part, problem in (((-1, 2), "part=-1 is out of range"), (1, "part=1 is not a pair"), ((0, 1.5), "part=1.5 is")):
        with pytest.raises(ValueError, match=problem):
            ov.run_rows("sum(x)", part=part)
    with pytest.raises(ValueError, match="total_rows=-3 is out of range"):
        ov.run_rows("sum(i)", part=(0, 1), total_rows=-3)
    with pytest.raises(ValueError, match="shape=-1 is out of range"):
        ov.open(tmp_path / "x.raw", "f4", shape=(-1,))
    with pytest.raises(ValueError, match="chunks=-1 is out of range"):
        ov.create(tmp_path / "x.zarr", chunks=-1)


def test_engines_keep_their_settings_and_close():
    x = np.ones(5)
    with ov.Engine(device="emulated", device_memory="1MiB") as engine:
        assert engine.evaluate("sum(x)") == 5
        assert engine.plan("sum(x)").to_dict()["devices"][0]["device_limit"] == 2**20
        assert "emulated" in str(engine.plan("sum(x)", x=x))
    with pytest.raises(ValueError, match="the engine is closed"):
        engine.evaluate("sum(x)")


def test_plans_and_pickles():
    x = np.ones(1000)
    plan = ov.plan("y = x * 2, sum(x)", device="cpu")
    assert plan.to_dict()["rows"] == 1000 and [c["name"] for c in plan.to_dict()["columns"]] == ["x", "y"]
    expression = pickle.loads(pickle.dumps(ov.Expression("x * 2")))
    np.testing.assert_array_equal(ov.evaluate(expression), 2 * x)
    assert pickle.loads(pickle.dumps(ov.Engine(device="cpu"))).evaluate("sum(x)") == 1000
    new = pickle.loads(pickle.dumps(ov.create("y.npy", "f4", force=True)))
    assert (str(new.path), repr(new)) == ("y.npy", '<overshot.NewFile "y.npy">')


def test_results_reports_and_plans_have_pictures():
    x = np.ones(1000)
    r = ov.evaluate("y = x < 2; sum(x)", timeline=True, device="cpu")
    picture, whole = r.report._repr_html_(), r._repr_html_()
    assert picture.startswith("<div") and "<svg" in picture and "1,000 rows" in picture
    assert "y = x &lt; 2" in picture and whole.endswith(picture) and "sum(x) = np.float64(1000.0)" in whole
    assert "<svg" in ov.plan("sum(x)", device="emulated")._repr_html_()


def test_the_examples_in_docstrings_are_right():
    for module in (ov, ov._engine, ov._lazy, ov._jit):
        failed, tried = doctest.testmod(module, extraglobs={"np": np, "ov": ov})
        assert failed == 0 and tried > 1, module
