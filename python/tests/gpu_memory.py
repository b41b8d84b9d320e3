"""Arrays in the memory of a GPU, made with the driver alone, as other libraries describe theirs."""

import ctypes
import functools

import numpy as np


@functools.cache
def driver():
    """The driver, with the primary context of the first GPU current on this thread."""
    for name in ("libcuda.so.1", "libcuda.so"):
        try:
            library = ctypes.CDLL(name)
            break
        except OSError:
            continue
    context = ctypes.c_void_p()
    assert library.cuInit(0) == 0
    assert library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    return library, context


class Memory:
    """An array on the first GPU, which says how it lies there."""

    def __init__(self, values, **interface):
        values = np.ascontiguousarray(values)
        self.shape, self.dtype, self._bytes = values.shape, values.dtype, values.nbytes
        self._address = ctypes.c_uint64(0)
        library, context = driver()
        assert library.cuCtxSetCurrent(context) == 0
        assert library.cuMemAlloc_v2(ctypes.byref(self._address), ctypes.c_size_t(max(values.nbytes, 8) + 8)) == 0
        self._copy(library.cuMemcpyHtoDAsync_v2, self.address, values.ctypes.data)
        self._interface = interface

    def _copy(self, call, to, source):
        library, _ = driver()
        stream = ctypes.c_uint64()
        assert library.cuStreamCreate(ctypes.byref(stream), 1) == 0
        pointers = ctypes.c_uint64(to), ctypes.c_uint64(source)
        if self._bytes:
            assert call(*pointers, ctypes.c_size_t(self._bytes), stream) == 0
        assert library.cuStreamSynchronize(stream) == 0
        assert library.cuStreamDestroy_v2(stream) == 0

    @property
    def address(self):
        return self._address.value

    @property
    def values(self):
        values = np.empty(self.shape, self.dtype)
        driver()[0].cuCtxSetCurrent(driver()[1])
        self._copy(driver()[0].cuMemcpyDtoHAsync_v2, values.ctypes.data, self.address)
        return values

    def free(self):
        driver()[0].cuCtxSetCurrent(driver()[1])
        assert driver()[0].cuMemFree_v2(self._address) == 0


class InterfaceArray(Memory):
    """As CuPy's and Numba's arrays."""

    @property
    def __cuda_array_interface__(self):
        own = {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "stream": 1,
            "version": 3,
        }
        return own | self._interface


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_uint64),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DlpackArray(Memory):
    """As arrays with DLPack alone. It counts the capsules whose destructors did not run."""

    lent = 0
    _CODES = {"i": 0, "u": 1, "f": 2, "b": 6, "c": 5}

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, *, stream):
        self.streams = [*getattr(self, "streams", ()), stream]
        shape = (ctypes.c_int64 * len(self.shape))(*self.shape)
        strides = self._interface.get("strides")
        strides = (ctypes.c_int64 * len(self.shape))(*strides) if strides else None
        code, bits = self._CODES[self.dtype.kind], 8 * self.dtype.itemsize
        tensor = _Tensor(self.address - 8, (2, 0), len(self.shape), code, bits, 1, shape, strides, 8)
        DlpackArray.lent += 1

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def release(_):
            DlpackArray.lent -= 1

        self._keep = [shape, strides, tensor, release]
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(tensor), b"dltensor", ctypes.cast(release, ctypes.c_void_p))


