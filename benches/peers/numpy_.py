"""NumPy: on one thread, the usual way, and on all threads, because its operations release the GIL."""
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from common import BLOCK, CORES, create, main, write


def run(bench):
    one, all_ = "NumPy (1 thread)", f"NumPy ({CORES} threads)"
    a, b, c = map(bench.column, "abc")
    bench.line("mul ordinary", lambda: np.multiply(a, b, out=c), c, one)
    bench.line("sum ordinary", lambda: a.sum(), peer=one)
    del b, c

    blocks = range(0, bench.rows, BLOCK)
    pool = ThreadPoolExecutor(CORES)

    def total(x):
        return math.fsum(pool.map(lambda k: x[k : k + BLOCK].sum(), blocks))

    bench.line("sum ordinary", lambda: total(a), peer=all_)
    bench.line("sum file", lambda: total(bench.mapped("a")), peer=all_, note="memory map")

    def remove():
        bench.path("c").unlink(missing_ok=True)

    def file_to_file():
        x = bench.mapped("a")
        file, start = create(bench.path("c"), bench.rows)
        with file:
            # list, so that an exception of a thread is raised here.
            list(pool.map(lambda k: write(file, x[k : k + BLOCK] + 1, start + 8 * k), blocks))
        return bench.mapped("c")

    bench.line("file to file", file_to_file, peer=all_, note="memory map, pwrite to a new file", before=remove)
    remove()


main("NumPy", run)
