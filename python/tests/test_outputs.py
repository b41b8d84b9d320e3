"""Files, arrays and memory that runs write and read."""

import pickle

import numpy as np
import pytest

import overshot as ov


def test_files_are_inputs_and_outputs(evaluate, tmp_path):
    x = np.arange(50_000, dtype="f4").reshape(500, 100)
    path = tmp_path / "x.npy"
    np.save(path, x)
    x.tofile(tmp_path / "x.f32")
    for file in (
        ov.open(path),
        ov.open(path, read="pread"),
        ov.open(path, read="direct"),
        str(path),
        path,
        np.load(path, mmap_mode="r"),
    ):
        np.testing.assert_array_equal(evaluate("file * 2"), x * 2)
    raw = ov.open(tmp_path / "x.f32", "f4")
    assert (raw.dtype, raw.shape) == (np.float32, (50_000,))
    y = evaluate("raw + 1", out=tmp_path / "y.npy")
    assert isinstance(y, np.memmap)
    np.testing.assert_array_equal(y, x.ravel() + 1)
    r = evaluate("z = a > 5; m = max(a)", a=path, out={"z": ov.create(tmp_path / "z.bool")})
    np.testing.assert_array_equal(r["z"], x.ravel() > 5)
    assert r["m"] == 49_999
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x.ravel() + 1)
    for dtype in ("i1", "u2", "i4", "f4", "f8"):
        w = evaluate("raw / 500", out=ov.create(tmp_path / "w.raw", dtype, force=True))
        np.testing.assert_array_equal(w, (x.ravel() / np.float32(500)).astype(dtype))


def test_an_output_file_is_whole_or_absent(evaluate, tmp_path):
    x = np.arange(10.0)
    path = tmp_path / "y.npy"
    path.write_text("mine")
    with pytest.raises(OSError, match="exists"):
        evaluate("x * 2", out=path)
    assert path.read_text() == "mine"
    np.testing.assert_array_equal(evaluate("x * 2", out=ov.create(path, "f4", force=True)), 2 * x)
    assert np.load(path).dtype == np.float32
    with pytest.raises(FileNotFoundError) as caught:
        evaluate("sum(x)", x=tmp_path / "none.npy")
    assert caught.value.filename == str(tmp_path / "none.npy") or "none.npy" in str(caught.value)

    class Stop(Exception):
        pass

    def stop(done, rows):
        raise Stop

    # The last call comes when all rows are finished, so the exception ends every run.
    with pytest.raises(Stop):
        evaluate("x * 2", out=tmp_path / "z.npy", progress=stop, x=np.zeros(8 << 20))
    left = sorted(each.name for each in tmp_path.iterdir())
    assert left in (["y.npy"], ["y.npy", "z.npy"])
    if "z.npy" in left:
        np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), np.zeros(8 << 20))


def test_arrays_are_written_in_place(evaluate):
    x = np.arange(1000.0)
    y = np.zeros(1000)
    assert evaluate("x + 1", out=y) is y
    np.testing.assert_array_equal(y, x + 1)
    r = evaluate("y = x + 1; z = x > 5", out={"y": y})
    assert r["y"] is y and r["z"].dtype == bool and r["z"].flags.owndata
    # An output that shares memory with an input.
    expected = 2 * x
    assert evaluate("x * 2", out=x) is x
    np.testing.assert_array_equal(x, expected)
    x = np.arange(4.0)
    assert evaluate("x * 2", x=memoryview(x), out=x[::-1]) is not None
    np.testing.assert_array_equal(x, [6.0, 4.0, 2.0, 0.0])
    room = bytearray(4)
    assert evaluate("x * 2", x=np.arange(4, dtype="u1"), out=room) is room and room == bytes([0, 2, 4, 6])
    a = np.arange(10.0)
    evaluate("p = b + 1; q = b + 2", b=a[:5].copy(), out={"p": a[:5], "q": a[2:7]})
    np.testing.assert_array_equal(a[2:7], np.arange(2.0, 7.0))


def test_arrays_that_cannot_be_written_are_refused(evaluate):
    x = np.ones(4)
    locked = np.ones(4)
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="result: the array is read-only"):
        evaluate("x + 1", out=locked)
    overlapping = np.lib.stride_tricks.as_strided(np.zeros(5), (2, 2), (8, 8))
    with pytest.raises(ValueError, match="elements of the array overlap"):
        evaluate("x + 1", out=overlapping, x=np.ones((2, 2)))
    with pytest.raises(ValueError, match="has 4 rows but output result"):
        evaluate("x + 1", out=np.zeros(3))
    with pytest.raises(ValueError, match="f32"):
        evaluate("x + 1", out=np.zeros(4, "f4"))
    core, both = ov._core.Engine("cpu"), np.zeros(4)
    for given, taken in [(both, both[1:3]), (both[:0], None), (both[2:], both[:2]), (both[::-1], both)]:
        run = lambda: core.run(ov.Expression("given + 1"), [("given", given)], [("result", taken)])
        if taken is not None and np.may_share_memory(given, taken):
            with pytest.raises(ValueError, match="the output result shares memory with given"):
                run()
        else:
            run()
    with pytest.raises(ValueError, match="shape"):
        evaluate("x + 1", out=np.zeros((2, 2)))
    for text, name in (("x + 1", "result"), ("sum(x)", r"sum\(x\)")):
        with pytest.raises(ValueError, match=f"{name}: an array without dimensions is no output; leave it out"):
            evaluate(text, out=np.zeros(()))


def test_outputs_that_share_memory_are_checked_as_others_before_the_run(evaluate, tmp_path):
    x, table = np.arange(6), np.arange(12.0).reshape(3, 4)
    locked = x.view()
    locked.flags.writeable = False
    overlapping = np.lib.stride_tricks.as_strided(table, (3, 4), (8, 8))
    for text, given, out, problem in (
        ("x / 4", x, x, "holds i64, but the result is f64"),
        ("x + 1", table[0], table, "has 4 rows but output p"),
        ("x + 1", table[0], table[:1], "has the shape .1, 4. but the result has .4."),
        ("x + 1", x, x[:5], "has 6 rows but output p"),
        ("x + 1", x, locked, "p: the array is read-only"),
        ("x + 1", table, overlapping, "p: elements of the array overlap; pass a copy"),
    ):
        before = out.copy()
        with pytest.raises(ValueError, match=problem):
            evaluate(f"p = {text}; q = x * 2", x=given, out={"p": out, "q": tmp_path / "q.npy"})
        np.testing.assert_array_equal(out, before)
        assert not list(tmp_path.iterdir())
    # Where rows are filtered, the rest of the array keeps its values.
    x = np.arange(6.0)
    kept = evaluate("x[x > 3]", x=x, out=x[::-1])
    np.testing.assert_array_equal(kept, [4, 5])
    np.testing.assert_array_equal(x, [0, 1, 2, 3, 5, 4])


def test_elements_that_a_kernel_does_not_write_keep_their_values():
    x = np.arange(6.0)
    code = 'extern "C" __global__ void f(long long rows, const double *x, double *y) {}'
    outputs = ov.Engine(device="cpu").kernel(code)._bound((x,), {}, x)[2]
    np.testing.assert_array_equal(dict(outputs)["y"], x)


def test_a_file_in_another_place_is_not_an_array_in_memory(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.ones(1000))
    column = ov.plan("sum(x)", x=ov.open(path), device="cpu").to_dict()["columns"][0]
    assert column["place"] == str(path)


def test_files_with_fsync(evaluate, tmp_path):
    x = np.arange(5000.0)
    paths = [tmp_path / name for name in ["plain.npy", "durable.npy"]]
    for path, fsync in zip(paths, [False, True]):
        evaluate("x * 2", out=ov.create(path, fsync=fsync))
    assert paths[0].read_bytes() == paths[1].read_bytes()
    new = pickle.loads(pickle.dumps(ov.create("y.npy", "f4", fsync=True)))
    assert new.__getnewargs__()[1:] == ("float32", False, True, None, None, None, None)


def test_results_are_outputs(tmp_path):
    rng = np.random.default_rng(7)
    x, k = rng.normal(size=(400, 3)), rng.integers(0, 5, 400)
    m = np.empty(3)
    assert ov.evaluate("mean(x, axis=0)", out=m) is m
    np.testing.assert_allclose(m, x.mean(axis=0))
    with ov.Engine(device="emulated") as engine:
        counts = np.empty(10, "i8")[::2]
        r = engine.evaluate("n = bincount(k, 5); max(k)", {"k": k}, out={"n": counts})
        assert r["n"] is counts and r["max(k)"] == k.max()
        np.testing.assert_array_equal(counts, np.bincount(k, minlength=5))
    text = "m = mean(x, axis=0); s = std(x, axis=0, keepdims=True); y = (x - m) / s"
    r = ov.evaluate(text, out={"m": tmp_path / "m.npy", "y": tmp_path / "y.npy"})
    assert isinstance(r["m"], np.memmap) and r["s"].shape == (1, 3) and set(r) == {"m", "s", "y"}
    np.testing.assert_array_equal(np.load(tmp_path / "m.npy"), m)
    np.testing.assert_allclose(r["y"], (x - m) / x.std(axis=0, keepdims=True))
    with pytest.raises(ValueError, match="'m' is one number of all rows"):
        ov.evaluate("m = mean(x)", out={"m": np.empty(1)})
    with pytest.raises(ValueError, match="4 elements but the result has 3"):
        ov.evaluate("mean(x, axis=0)", out=np.empty(4))
    with pytest.raises(TypeError, match="there is no output 'z'"):
        ov.evaluate("m = mean(x, axis=0)", out={"z": m})


def test_an_array_without_dimensions(evaluate, tmp_path):
    np.save(tmp_path / "x.npy", np.float64(3))
    y = evaluate("x + 1", x=tmp_path / "x.npy")
    assert (y.shape, y) == ((), 4)
