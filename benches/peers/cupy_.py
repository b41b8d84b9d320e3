"""CuPy: chunk by chunk from pageable memory, and from pinned memory with two streams that overlap."""
import time

import numpy as np

from common import CHUNK, NotRun, load, main


def run(bench):
    cp = load("cupy")
    if not cp.is_available():
        raise NotRun("no GPU")
    heavy = cp.ElementwiseKernel("float64 a, float64 b", "float64 c", "c = sin(a) * exp(b) + sqrt(a * b)", "heavy")
    mul, add1 = lambda a, b, c: cp.multiply(a, b, out=c), lambda a, c: cp.add(a, 1, out=c)
    kernels = {"mul": mul, "add1": add1, "heavy": heavy}
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
    buffers = [[cp.empty(CHUNK) for _ in range(3)] for _ in streams]
    sums = cp.empty(bench.rows // CHUNK + 1)

    # Device memory is allocated once, and nothing is copied twice on the host.
    def chunk_by_chunk(kernel, *arrays):
        *inputs, c = arrays
        for k in range(0, len(c), CHUNK):
            *x, z = (buffer[: len(c) - k] for buffer in buffers[0][: len(arrays)])
            for buffer, array in zip(x, inputs):
                buffer.set(array[k : k + CHUNK])
            kernel(*x, z)
            z.get(out=c[k : k + CHUNK])
        return c

    def sum_chunk_by_chunk(a):
        for n, k in enumerate(range(0, len(a), CHUNK)):
            x = buffers[0][0][: len(a) - k]
            x.set(a[k : k + CHUNK])
            cp.sum(x, out=sums[n])
        return float(sums[: n + 1].sum())

    def two_streams(kernel, *arrays):
        *inputs, c = arrays
        for n, k in enumerate(range(0, len(c), CHUNK)):
            with streams[n % 2] as stream:
                *x, z = (buffer[: len(c) - k] for buffer in buffers[n % 2][: len(arrays)])
                for buffer, array in zip(x, inputs):
                    buffer.set(array[k : k + CHUNK], stream=stream)
                kernel(*x, z)
                z.get(stream=stream, out=c[k : k + CHUNK], blocking=False)
        for stream in streams:
            stream.synchronize()
        return c

    def sum_two_streams(a):
        for n, k in enumerate(range(0, len(a), CHUNK)):
            with streams[n % 2] as stream:
                x = buffers[n % 2][0][: len(a) - k]
                x.set(a[k : k + CHUNK], stream=stream)
                cp.sum(x, out=sums[n])
        for stream in streams:
            stream.synchronize()
        return float(sums[: n + 1].sum())

    def ordinary():
        a, b, c = map(bench.column, "abc")
        chunk_by_chunk(kernels["mul"], a[:1000], b[:1000], c[:1000])  # compiles, as do the short calls below
        sum_chunk_by_chunk(a[:1000])
        bench.line("mul ordinary", lambda: chunk_by_chunk(kernels["mul"], a, b, c), c, note="chunk by chunk")
        bench.line("sum ordinary", lambda: sum_chunk_by_chunk(a), note="chunk by chunk")
        bench.line("sum file", lambda: sum_chunk_by_chunk(bench.mapped("a")), note="memory map, chunk by chunk")

    def pinned():
        begin = time.perf_counter()
        a, b, c = (np.frombuffer(cp.cuda.alloc_pinned_memory(8 * bench.rows), np.float64, bench.rows) for _ in "abc")
        note = f"2 streams, pinning all before took {time.perf_counter() - begin:.1f} s"
        for name, array in zip("abc", (a, b, c)):
            bench.column(name, array)
        for job, kernel in kernels.items():
            arrays = (a, c) if job == "add1" else (a, b, c)
            two_streams(kernel, *(array[:1000] for array in arrays))
            bench.line(f"{job} pinned", lambda: two_streams(kernel, *arrays), c, note=note)
        sum_two_streams(a[:1000])
        bench.line("sum pinned", lambda: sum_two_streams(a), note=note)

    ordinary()
    pinned()


main("CuPy", run)
