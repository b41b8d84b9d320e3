"""Numba: a hand-written pipeline. Device buffers come from a freelist, and return with an event."""
import collections
import os
import time

import numpy as np

from common import CHUNK, NotRun, load, main

# Numba uses names that newer versions of NumPy removed.
for old, new in [("row_stack", "vstack"), ("trapz", "trapezoid"), ("in1d", "isin")]:
    if not hasattr(np, old):
        setattr(np, old, getattr(np, new))


def run(bench):
    os.environ["NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS"] = "0"  # read on import; the short calls are meant to be short
    cuda = load("numba.cuda")
    if not cuda.is_available():
        raise NotRun("no GPU")

    @cuda.jit
    def multiply(a, b, c):
        i = cuda.grid(1)
        if i < c.size:
            c[i] = a[i] * b[i]

    streams = [cuda.stream() for _ in range(2)]
    # Three for the chunk of each stream, and three more: the next chunk need not wait for the last one's copies.
    free = collections.deque((cuda.device_array(CHUNK), cuda.event(timing=False)) for _ in range(9))

    def take(stream):
        for place, (buffer, event) in enumerate(free):
            if event.query():
                del free[place]
                return buffer, event
        # No buffer is ready: the stream waits for the oldest one, the host does not.
        buffer, event = free.popleft()
        event.wait(stream)
        return buffer, event

    def give(taken, stream):
        taken[1].record(stream)
        free.append(taken)

    def mul(a, b, c):
        for n, k in enumerate(range(0, len(c), CHUNK)):
            stream = streams[n % 2]
            rows = min(CHUNK, len(c) - k)
            taken = [take(stream) for _ in range(3)]
            x, y, z = (buffer[:rows] for buffer, _ in taken)
            x.copy_to_device(a[k : k + rows], stream=stream)
            y.copy_to_device(b[k : k + rows], stream=stream)
            multiply[(rows + 255) // 256, 256, stream](x, y, z)
            z.copy_to_host(c[k : k + rows], stream=stream)
            for one in taken:
                give(one, stream)
        for stream in streams:
            stream.synchronize()
        return c

    def ordinary():
        a, b, c = map(bench.column, "abc")
        mul(a[:1000], b[:1000], c[:1000])  # compiles it
        bench.line("mul ordinary", lambda: mul(a, b, c), c, note="2 streams")

    def pinned():
        begin = time.perf_counter()
        a, b, c = (cuda.pinned_array(bench.rows) for _ in "abc")
        note = f"2 streams, pinning all before took {time.perf_counter() - begin:.1f} s"
        for name, array in zip("abc", (a, b, c)):
            bench.column(name, array)
        bench.line("mul pinned", lambda: mul(a, b, c), c, note=note)

    ordinary()
    pinned()


main("Numba", run)
