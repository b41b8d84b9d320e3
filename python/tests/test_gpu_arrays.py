"""Arrays of other libraries on a GPU, resident datasets, and kernels of one's own."""

import functools
import gc
import os
import pickle

import numpy as np
import pytest
from conftest import DEVICES, kernel_of_tests
from gpu_memory import DlpackArray, InterfaceArray

import overshot as ov

needs_gpu = pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU or its stand-in")
evaluate = functools.partial(ov.evaluate, device="cuda", chunk="64KiB")


def link_bytes(report):
    return report.to_dict()["bytes_to_device"], report.to_dict()["bytes_from_device"]


@needs_gpu
@pytest.mark.parametrize("kind", [InterfaceArray, DlpackArray])
@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "f4", "f8"])
def test_arrays_of_a_gpu_are_used_in_place(kind, dtype):
    host = (np.arange(40_000) % 100).astype(dtype).reshape(200, 200)
    a, b = kind(host), kind(host[::-1])
    c = kind(np.zeros_like(host))
    r = evaluate("c = a | b; sum(a)" if dtype == "?" else "c = a + b; sum(a)", out={"c": c})
    expected = host | host[::-1] if dtype == "?" else host + host[::-1]
    np.testing.assert_array_equal(c.values, expected)
    assert r["c"] is c and r["sum(a)"] == host.sum()
    to_device, from_device = link_bytes(r.report)
    # The partial results of the sum come back.
    assert to_device == 0 and from_device < host.nbytes / 4
    gc.collect()
    del r
    [array.free() for array in (a, b, c)]


@needs_gpu
def test_algorithms_on_arrays_of_a_gpu():
    host = np.random.default_rng(1).normal(size=(9000, 4))
    x, t = InterfaceArray(host), DlpackArray(host @ [1.0, 2.0, 3.0, 4.0])
    labels, distances = InterfaceArray(np.zeros(9000, "i8")), InterfaceArray(np.zeros(9000))
    run = functools.partial(ov.matrices.assign, device="cuda")
    found = run(x, host[:3], out={"labels": labels, "distances": distances})
    assert found.labels is labels
    right = run(host, host[:3])
    np.testing.assert_array_equal(labels.values, right.labels)
    np.testing.assert_array_equal(distances.values, right.distances)
    np.testing.assert_allclose(ov.matrices.linear(x, t, device="cuda").weights, [1, 2, 3, 4])
    near = ov.matrices.nearest(x, host[:3], 2, device="cuda")
    assert (near.indices[:, 0] == [0, 1, 2]).all() and (near.distances[:, 0] == 0).all()
    gc.collect()
    [array.free() for array in (x, t, labels, distances)]


def libraries(*names):
    """The modules of libraries that need a real GPU."""
    if any(name.startswith("OVERSHOT_STANDIN") for name in os.environ):
        pytest.skip("needs a real GPU")
    return [pytest.importorskip(name) for name in names]


@needs_gpu
@pytest.mark.parametrize("name", ["cupy", "torch", "numba.cuda"])
def test_arrays_of_libraries_are_used_in_place(name):
    (library,) = libraries(name)
    host = np.linspace(-1, 1, 1_000_003, dtype="f4")
    to_gpu, to_host = {
        "cupy": lambda: (library.asarray, library.asnumpy),
        "torch": lambda: (lambda a: library.from_numpy(a).cuda(), lambda t: t.cpu().numpy()),
        "numba.cuda": lambda: (library.to_device, lambda d: d.copy_to_host()),
    }[name]()
    a, y = to_gpu(host.copy()), to_gpu(np.zeros_like(host))
    for scale in (2.0, 3.0):
        r = evaluate("y = a * scale + 1; max(a)", out={"y": y})
        np.testing.assert_array_equal(to_host(y), host * np.float32(scale) + 1)
        assert r["y"] is y and r["max(a)"] == 1 and link_bytes(r.report)[0] == 0
    # Work of the library that may not be done yet.
    if name != "numba.cuda":
        for _ in range(20):
            b = a
            for _ in range(50):
                b = b + 1
            assert evaluate("min(b)") == 49


@needs_gpu
def test_a_function_of_numba_is_a_kernel():
    cuda, numba = libraries("numba.cuda", "numba")

    def saxpy(rows, a, x, y):
        i = cuda.blockIdx.x * 256 + cuda.threadIdx.x
        if i < rows:
            y[i] = a * x[i]

    pointer = numba.types.CPointer(numba.float32)
    ptx, _ = cuda.compile_ptx(saxpy, (numba.int64, numba.float32, pointer, pointer), cc=(8, 0))
    x = np.arange(100_000, dtype="f4")
    with ov.Engine(device="cuda", chunk="64KiB") as engine:
        kernel = engine.kernel(ptx, parameters="long long rows, float a, const float *x, float *y")
        np.testing.assert_array_equal(kernel(x, a=2.5), x * np.float32(2.5))


@needs_gpu
def test_a_kernel_is_compiled_and_run():
    libraries()
    x = np.arange(100_000, dtype="f4")
    with ov.Engine(device="cuda", chunk="64KiB") as engine:
        saxpy = engine.kernel(
            'extern "C" __global__ void saxpy(long long rows, float a, const float *x, float *y)'
            "{ long long i = blockIdx.x * 256ll + threadIdx.x; if (i < rows) y[i] = a * x[i]; }"
        )
        y = np.empty_like(x)
        assert saxpy(x, out=y, a=2.5) is y
        np.testing.assert_array_equal(y, x * np.float32(2.5))
        np.testing.assert_array_equal(saxpy(engine.resident(x), a=-1), -x)


@needs_gpu
def test_arrays_of_a_gpu_and_of_the_host_mix():
    host = np.linspace(-1, 1, 100_001)
    x = InterfaceArray(host)
    np.testing.assert_array_equal(evaluate("x * 2 + host"), host * 3)
    y = InterfaceArray(np.zeros_like(host))
    assert evaluate("host - x", out=y) is y and not y.values.any()
    r = evaluate("y = x; max(x)", device="cpu+cuda", out={"y": y})
    assert r["max(x)"] == 1 and (y.values == host).all() and link_bytes(r.report)[0] == 0
    lazy = ov.array(x)
    assert lazy.dtype == "f8" and lazy.shape == host.shape
    assert ov.compute((lazy * lazy).sum(), device="cuda")[0] == pytest.approx((host * host).sum())
    assert "cuda:0" in str(ov.plan("sum(x)", device="cuda"))
    empty = InterfaceArray(np.zeros((0, 3)))
    assert evaluate("sum(empty)") == 0


class OldInterface(DlpackArray):
    """As PyTorch's tensors: an interface without a stream, and DLPack."""

    @property
    def __cuda_array_interface__(self):
        shape, data = self.shape, (self.address, False)
        return {"shape": shape, "typestr": self.dtype.str, "data": data, "strides": None, "version": 2}


@needs_gpu
def test_work_on_an_array_is_waited_for():
    x = OldInterface(np.ones(10))
    before = DlpackArray.lent
    assert evaluate("sum(x)") == 10
    assert x.streams == [1], "DLPack was asked to order the work of the library before the default stream"
    # Without DLPack, all work on the default stream is waited for.
    y = InterfaceArray(np.ones(10), version=2)
    assert evaluate("sum(y)") == 10 and DlpackArray.lent == before


@needs_gpu
def test_jit_takes_arrays_of_a_gpu_and_residents():
    host = np.linspace(0, 1, 1001)
    with ov.Engine(device="cuda") as engine:
        for x in (InterfaceArray(host), DlpackArray(host), engine.resident(host)):
            double = ov.jit(lambda x: x + x, device="cuda")
            np.testing.assert_array_equal(double(x), host * 2)
            np.testing.assert_array_equal(np.asarray(ov.array(x)), host)


@needs_gpu
@pytest.mark.parametrize("halo", [{"x": (20, 30), "w": (0, 1)}, {"x": 30, "w": 1}, 30])
def test_kernels_read_rows_around_those_of_a_launch(halo):
    rows = 30_011
    random = np.random.default_rng(3)
    x, w = random.integers(-99, 99, (rows, 2)).astype("f4"), random.integers(-99, 99, rows, dtype="i4")
    v = random.integers(-9, 9, rows).astype("f8")
    sums = np.cumsum(np.concatenate([[0.0], x[:, 0] - x[:, 1]]))
    near = sums[np.minimum(np.arange(rows) + 31, rows)] - sums[np.maximum(np.arange(rows) - 20, 0)]
    with ov.Engine(device="cuda", chunk="64KiB") as engine:
        around = pickle.loads(pickle.dumps(engine.kernel(kernel_of_tests("AROUND"), halo=halo)))
        np.testing.assert_array_equal(around(x, w, v), near + np.append(w[1:], -1) * v)


@pytest.mark.parametrize(
    ("halo", "problem"),
    [({"y": 1}, "'y' has a halo, but is no input"), (65_537, "larger than 65536"), ((1, -1), "less than no rows")],
)
def test_halos_that_are_none_are_refused(halo, problem):
    x = np.ones((10, 2), "f4")
    with ov.Engine(device="emulated") as engine, pytest.raises(ValueError, match=problem):
        engine.kernel(kernel_of_tests("AROUND"), halo=halo)(x, x[:, 0].astype("i4"), x[:, 0].astype("f8"))


@needs_gpu
def test_small_jobs_that_need_a_gpu_load_nvrtc(monkeypatch):
    loads = []
    monkeypatch.setattr("overshot._libraries.nvrtc", lambda: loads.append(1))
    x = np.ones(10)
    with ov.Engine() as engine:
        engine.evaluate("sum(x)")
        assert not loads
        engine.evaluate("x + 1", out=InterfaceArray(x))
        assert loads
    with ov.Engine() as engine:
        engine.kernel(KEEP, threads=32, rows_per_block=512)(x)
        assert len(loads) == 2


@needs_gpu
def test_dlpack_capsules_live_as_long_as_the_run():
    x = DlpackArray(np.ones(10))
    before = DlpackArray.lent
    assert evaluate("sum(x)") == 10
    gc.collect()
    assert DlpackArray.lent == before


@needs_gpu
def test_arrays_that_cannot_be_used_in_place_are_refused():
    x = InterfaceArray(np.zeros((4, 6), "f4"))
    cases = [
        ({"strides": (8, 48)}, TypeError, "x: .*adjacent"),
        ({"strides": (24, -4)}, TypeError, "x: .*adjacent"),
        ({"typestr": ">f4"}, TypeError, "x: .*big-endian"),
        ({"typestr": "<c8"}, TypeError, "x: .*'<c8'"),
        ({"mask": x}, TypeError, "x: .*mask"),
        ({"stream": 0}, TypeError, "x: .*stream 0"),
        ({"data": (x.address + 4, False), "shape": (4,)}, ValueError, "x: .*multiple of 8"),
        ({"shape": (10**9,)}, ValueError, "x: .*one allocation"),
        ({"data": (4096, False)}, ValueError, "x: .*in no GPU"),
        ({"data": (np.zeros(9).ctypes.data, False)}, ValueError, "x: .*in no GPU"),
    ]
    for interface, kind, message in cases:
        x._interface = interface
        with pytest.raises(kind, match=message):
            evaluate("sum(x)")
    x._interface = {"strides": (24, 4), "stream": 2}
    assert evaluate("sum(x)") == 0
    with pytest.raises(ValueError, match="x: .*in no GPU of the engine, whose devices are cpu"):
        ov.evaluate("sum(x)", device="cpu")
    y = InterfaceArray(np.zeros((4, 6), "f4"), data=(x.address, True))
    with pytest.raises(ValueError, match="y: .*read-only"):
        evaluate("y = x + 1", out={"y": y})
    y._interface = {"data": (x.address, False)}
    with pytest.raises(ValueError, match="y shares memory with x"):
        evaluate("y = x + 1", out={"y": y})
    other = InterfaceArray(np.zeros((6, 4), "f4"))
    with pytest.raises(ValueError, match="shape"):
        evaluate("y = x + 1", out={"y": other})
    for shape in ((2**62,), (2**32, 2**32), (2**63, 2)):
        with pytest.raises(ValueError, match="x: .*one allocation"):
            x._interface = {"shape": shape}
            evaluate("sum(x)")
    x._interface = {"shape": (2**63, 2, 0)}
    assert evaluate("sum(x)") == 0
    x._interface = {"shape": ()}
    with pytest.raises(TypeError, match=r"x: is an array without dimensions on a GPU; pass its value, as x.item\(\)"):
        evaluate("host * x", host=np.ones(3))
    backwards = DlpackArray(np.zeros(3))
    backwards.shape = (-3,)
    with pytest.raises(TypeError, match="backwards: .*negative"):
        evaluate("sum(backwards)")
    strided = DlpackArray(np.zeros((4, 6)), strides=(1, 4))
    with pytest.raises(TypeError, match="strided: .*adjacent"):
        evaluate("sum(strided)")


@pytest.mark.parametrize("device", DEVICES)
def test_resident_datasets_move_once(device, tmp_path):
    values = np.arange(100_000, dtype="f4")
    np.save(tmp_path / "x.npy", values)
    with ov.Engine(device=device) as engine:
        for data in (values, values[::-2], ov.open(tmp_path / "x.npy"), str(tmp_path / "x.npy")):
            x = engine.resident(data)
            array = values if isinstance(data, (str, ov.File)) else data
            assert x.shape == array.shape and x.dtype == np.float32
            moved = []
            for _ in range(3):
                r = engine.evaluate("t = x * 2; m = max(t); sum(x)")
                assert r["m"] == 2 * array.max() and r["sum(x)"] == pytest.approx(array.sum(dtype="f8"))
                moved.append(link_bytes(r.report)[0])
            on_device = sum(rows for _, rows in x.rows_on_devices)
            assert on_device == (0 if device == "cpu" else len(array))
            if on_device:
                assert moved == [array.nbytes, 0, 0]
        # The memory lives as long as the dataset.
        x = engine.resident(np.full(1000, 3.0))
        gc.collect()
        assert engine.evaluate("mean(x)") == 3
        with pytest.raises(TypeError, match="an array of the host or a file"):
            engine.resident(x)
        # It reads the array, so no run may write to it.
        x = engine.resident(values)
        with pytest.raises(ValueError, match="shares memory with x"):
            engine.evaluate("x + 1", out=values)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_drops_what_it_inherited():
    engine = ov.Engine(device="cpu")
    x = engine.resident(np.ones(1000))
    assert engine.evaluate("sum(x)") == 1000
    child = os.fork()
    if child == 0:
        engine.close()
        del engine, x
        gc.collect()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


KEEP = kernel_of_tests("KEEP")


@needs_gpu
def test_a_kernel_is_a_function_of_arrays(tmp_path):
    x = np.random.default_rng(1).uniform(0, 100, 30_000)
    with ov.Engine(device="cuda", chunk="64KiB") as engine:
        keep = engine.kernel(KEEP, threads=32, rows_per_block=512)
        expected = np.flatnonzero(x > 50)
        for out in (None, {"big": tmp_path / "big.npy"}):
            r = keep(x, out=out)
            np.testing.assert_array_equal(r["where"], expected)
            np.testing.assert_array_equal(r["big"], x[expected])
        whole = np.zeros(len(x))
        r = keep(x=x, out={"big": whole}, progress=lambda done, rows: None)
        assert r["big"] is whole and (whole[: len(expected)] == x[expected]).all()
        on_gpu = InterfaceArray(x)
        np.testing.assert_array_equal(keep(on_gpu)["where"], expected)


def test_a_kernel_says_what_is_wrong_with_it():
    with ov.Engine(device="cpu") as engine:
        two = 'extern "C" __global__ void a(float *y) {}\nextern "C" __global__ void b(float *y) {}'
        with pytest.raises(ValueError, match="kernels a, b: name the one to run"):
            engine.kernel(two)
        assert repr(engine.kernel(two, "b")) == "<overshot.Kernel 'b'>"
        source = '// __global__ void old(\nextern "C" __global__ __launch_bounds__(256) void new_one(float *y) {}'
        assert repr(engine.kernel(source)) == "<overshot.Kernel 'new_one'>"
        saxpy = engine.kernel(
            'extern "C" __global__ void __launch_bounds__(256) saxpy(long long rows, float a, const float *x, float *y)'
            "{ long long i = blockIdx.x * 256ll + threadIdx.x; if (i < rows) y[i] = a * x[i]; }"
        )
        x = np.ones(10, "f4")
        with pytest.raises(ValueError, match="saxpy"):
            saxpy(x, a=2.0)  # the CPU has no function for it
        with pytest.raises(TypeError, match="inputs x; 2 are given"):
            saxpy(x, x, a=2.0)
        with pytest.raises(TypeError, match="a: "):
            saxpy(x, a="2")
        with pytest.raises(TypeError, match="no parameter 'b'"):
            saxpy(x, a=2.0, b=3)
        with pytest.raises(TypeError, match="no output 'z'; the outputs are 'y'"):
            saxpy(x, a=2.0, out={"z": x})
        ptx = ".version 8.0\n.target sm_90\n.visible .entry f(.param .u64 x) { ret; }"
        with pytest.raises(ValueError, match="parameters of the kernel are missing"):
            engine.kernel(ptx)
        assert repr(engine.kernel(ptx.encode(), parameters="float *x")) == "<overshot.Kernel 'f'>"
        with pytest.raises(TypeError, match="str or bytes"):
            engine.kernel(3, "f")
        with pytest.raises(ValueError, match="closed"):
            engine.close()
            saxpy(x, a=2.0)
