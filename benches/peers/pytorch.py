"""PyTorch: chunk by chunk from pageable memory, and from pinned memory with two streams that overlap."""
import time
import warnings

from common import CHUNK, NotRun, load, main


def run(bench):
    torch = load("torch")
    if not torch.cuda.is_available():
        raise NotRun("no GPU")
    # A mapped file cannot be written to, and nothing here writes to it.
    warnings.filterwarnings("ignore", message=".*not writable")
    kernels = {
        "mul": lambda a, b, c: torch.mul(a, b, out=c),
        "add1": lambda a, c: torch.add(a, 1, out=c),
        # In place where possible: a and b are buffers, which are filled again for the next chunk.
        "heavy": lambda a, b, c: torch.mul(a, b, out=c).sqrt_().addcmul_(a.sin_(), b.exp_()),
    }
    streams = [torch.cuda.Stream() for _ in range(2)]
    buffers = [[torch.empty(CHUNK, dtype=torch.float64, device="cuda") for _ in range(3)] for _ in streams]
    sums = torch.empty(bench.rows // CHUNK + 1, dtype=torch.float64, device="cuda")

    def chunk_by_chunk(kernel, *arrays):
        *inputs, c = arrays
        for k in range(0, len(c), CHUNK):
            *x, z = (buffer[: len(c) - k] for buffer in buffers[0][: len(arrays)])
            for buffer, array in zip(x, inputs):
                buffer.copy_(array[k : k + CHUNK])
            kernel(*x, z)
            c[k : k + CHUNK].copy_(z)
        return c

    def sum_chunk_by_chunk(a):
        for n, k in enumerate(range(0, len(a), CHUNK)):
            x = buffers[0][0][: len(a) - k]
            x.copy_(a[k : k + CHUNK])
            torch.sum(x, 0, out=sums[n])
        return sums[: n + 1].sum().item()

    def two_streams(kernel, *arrays):
        *inputs, c = arrays
        for n, k in enumerate(range(0, len(c), CHUNK)):
            with torch.cuda.stream(streams[n % 2]):
                *x, z = (buffer[: len(c) - k] for buffer in buffers[n % 2][: len(arrays)])
                for buffer, array in zip(x, inputs):
                    buffer.copy_(array[k : k + CHUNK], non_blocking=True)
                kernel(*x, z)
                c[k : k + CHUNK].copy_(z, non_blocking=True)
        torch.cuda.synchronize()
        return c

    def sum_two_streams(a):
        for n, k in enumerate(range(0, len(a), CHUNK)):
            with torch.cuda.stream(streams[n % 2]):
                x = buffers[n % 2][0][: len(a) - k]
                x.copy_(a[k : k + CHUNK], non_blocking=True)
                torch.sum(x, 0, out=sums[n])
        torch.cuda.synchronize()
        return sums[: n + 1].sum().item()

    def ordinary():
        a, b, c = (torch.from_numpy(bench.column(name)) for name in "abc")
        chunk_by_chunk(kernels["mul"], a[:1000], b[:1000], c[:1000])  # loads kernels, as do the short calls below
        sum_chunk_by_chunk(a[:1000])
        mul = lambda: chunk_by_chunk(kernels["mul"], a, b, c).numpy()
        bench.line("mul ordinary", mul, c.numpy(), note="chunk by chunk")
        bench.line("sum ordinary", lambda: sum_chunk_by_chunk(a), note="chunk by chunk")
        mapped = lambda: torch.from_numpy(bench.mapped("a"))
        bench.line("sum file", lambda: sum_chunk_by_chunk(mapped()), note="memory map, chunk by chunk")

    def pinned():
        begin = time.perf_counter()
        a, b, c = (torch.empty(bench.rows, dtype=torch.float64, pin_memory=True) for _ in "abc")
        note = f"2 streams, pinning all before took {time.perf_counter() - begin:.1f} s"
        for name, array in zip("abc", (a, b, c)):
            bench.column(name, array.numpy())
        for job, kernel in kernels.items():
            arrays = (a, c) if job == "add1" else (a, b, c)
            two_streams(kernel, *(array[:1000] for array in arrays))
            bench.line(f"{job} pinned", lambda: two_streams(kernel, *arrays).numpy(), c.numpy(), note=note)
        sum_two_streams(a[:1000])
        bench.line("sum pinned", lambda: sum_two_streams(a), note=note)

    ordinary()
    pinned()


main("PyTorch", run)
