"""x.T @ x in device memory with CuPy, chunk by chunk with CuPy and PyTorch, and with NumPy: GB/s of rows, for
benches/products.rs.

python3 benches/peers/products.py --widths 256,1024,4096 --size 4GiB

Prints a line of JSON for each. The size is that of the table that does not fit; what is in device memory are 65 536
rows of it, again and again.
"""

import argparse
import json
import statistics
import time

import numpy as np


def rate(runs, bytes_, run, wait):
    """The median rate of some runs after one that does not count."""
    seconds = []
    for _ in range(runs + 1):
        begin = time.perf_counter()
        run()
        wait()
        seconds.append(time.perf_counter() - begin)
    return bytes_ / statistics.median(seconds[1:]) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--widths", default="256,1024,4096")
    parser.add_argument("--size", default="4GiB")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    size = int(float(arguments.size.removesuffix("GiB")) * 2**30)
    try:
        import cupy
    except ImportError:
        cupy = None
    try:
        import torch
    except ImportError:
        torch = None
    for width in map(int, arguments.widths.split(",")):
        for dtype in "f8", "f4":
            panel = np.random.default_rng(1).random((65_536, width)).astype(dtype)
            rows = size // panel.itemsize // width
            table = np.empty((rows, width), dtype)
            for row in range(0, rows, len(panel)):
                table[row : row + len(panel)] = panel[: rows - row]

            def show(peer, value, dtype=dtype, width=width):
                print(json.dumps({"dtype": dtype, "width": width, "peer": peer, "gb_per_s": value}), flush=True)

            part = panel[: 65_536 if width < 4096 else 16_384]
            show("NumPy", rate(arguments.runs, part.nbytes, lambda part=part: part.T @ part, lambda: None))
            if cupy is not None:
                x = cupy.asarray(panel)
                wait = cupy.cuda.Device().synchronize

                def ten(x=x):
                    for _ in range(10):
                        x.T @ x

                show("CuPy in device memory", rate(arguments.runs, 10 * panel.nbytes, ten, wait))

                rows_at_once = max(4096, min(65_536, 2**25 // (panel.itemsize * width)))
                pinned = cupy.cuda.alloc_pinned_memory(rows_at_once * width * panel.itemsize)
                own, into = x[:rows_at_once], cupy.empty((rows_at_once, width), dtype)
                streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]

                def both(own=own, into=into, pinned=pinned, streams=streams):
                    for _ in range(20):
                        with streams[0]:
                            own.T @ own
                        into.data.copy_from_host_async(pinned.ptr, into.nbytes, streams[1])

                show("CuPy, a product beside a copy in", rate(arguments.runs, 20 * own.nbytes, both, wait))

                def chunks(table=table, width=width, dtype=dtype):
                    total = cupy.zeros((width, width), dtype)
                    for row in range(0, len(table), 65_536):
                        chunk = cupy.asarray(table[row : row + 65_536])
                        total += chunk.T @ chunk
                    return total.get()

                show("CuPy chunk by chunk", rate(1, table.nbytes, chunks, wait))
            if torch is not None and torch.cuda.is_available():

                def torch_chunks(table=table, width=width):
                    total = None
                    for row in range(0, len(table), 65_536):
                        chunk = torch.from_numpy(table[row : row + 65_536]).to("cuda")
                        product = chunk.T @ chunk
                        total = product if total is None else total + product
                    return total.cpu()

                show("PyTorch chunk by chunk", rate(1, table.nbytes, torch_chunks, torch.cuda.synchronize))


if __name__ == "__main__":
    main()
