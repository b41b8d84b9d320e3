"""KvikIO: a file read into GPU memory by 16 threads, the next two buffers while one is summed."""
import os

from common import NotRun, load, main

THREADS = 16
BUFFER = 256 << 20
HEADER = 128  # bytes of a .npy file before its rows, which are read with them: reads stay aligned to pages


def run(bench):
    os.environ["KVIKIO_NTHREADS"] = str(THREADS)  # read on import
    # The file is in the page cache, from which it comes faster than from the disk.
    os.environ["KVIKIO_AUTO_DIRECT_IO_READ"] = "OFF"
    kvikio, cp = load("kvikio"), load("cupy")
    if not cp.is_available():
        raise NotRun("no GPU")
    size = HEADER + 8 * bench.rows
    assert size == bench.path("a").stat().st_size, "sum file: a header of another length"
    buffers = [cp.empty(BUFFER // 8) for _ in range(3)]

    def total():
        with kvikio.CuFile(bench.path("a"), "r") as file:
            def read(n):
                begin = n * BUFFER
                if begin < size:
                    return file.pread(buffers[n % 3], min(BUFFER, size - begin), begin)

            reads = [read(n) for n in range(3)]
            result = 0.0
            for n in range(-(-size // BUFFER)):
                got = reads[n % 3].get()
                # float() waits for the sum: only then may the buffer be filled again.
                result += float(buffers[n % 3][HEADER // 8 * (n == 0) : got // 8].sum())
                reads[n % 3] = read(n + 3)
            return result

    buffers[0][:1000].sum()  # compiles it
    bench.line("sum file", total, note=f"{THREADS} threads, 3 x 256 MiB")


main("KvikIO", run)
