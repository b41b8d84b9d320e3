"""Peak memory of jobs whose files have large pieces, beside what the plan says: row groups of 1 GiB, Zarr chunks of
256 MiB.

    python3 benches/formats_memory.py [--overshot target/release/overshot] [--dir FOLDER] [--pieces N]
        [--only NAME] [--device cpu]

The command writes the files, each of N pieces of 1 GiB, reads them, and removes them. Of each run the peak of its
resident memory is taken, less that of a run without files, and compared with the memory that `overshot plan --json`
adds up to. It is an error if one takes more. Standard Python is enough. Needs the disk for one file at a time, and
memory for writing: a few pieces for each core.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

GROUP = 1 << 30
CHUNK = 256 << 20
# The names of files, and the options with which they are written.
FORMATS = {
    "Parquet, row groups of 1 GiB, zstd": ("t.parquet", [f"--chunks={GROUP // 16}"]),
    "Parquet, row groups of 1 GiB, not compressed": ("t.parquet", [f"--chunks={GROUP // 16}", "--codec=none"]),
    "Zarr, chunks of 256 MiB, zstd": ("t.zarr", [f"--chunks={CHUNK // 8}"]),
    "Zarr, chunks of 256 MiB, lz4": ("t.zarr", [f"--chunks={CHUNK // 8}", "--codec=lz4"]),
    "Zarr, chunks of 1 MiB in shards of 256 MiB, zstd": ("t.zarr", ["--chunks=131072", f"--shards={CHUNK // 8}"]),
}


def peak(command):
    """Runs a command. Returns the peak of its resident memory in bytes."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    # `subprocess` would wait for it once more.
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)}: ended with {process.returncode}")
    return usage.ru_maxrss * 1024


def planned(overshot, arguments):
    """Returns the bytes of memory of the process that a job has in its plan."""
    done = subprocess.run([overshot, "plan", "--json", *arguments], stdout=subprocess.PIPE, check=True)
    plan = json.loads(done.stdout)
    each = ("device_bytes", "pinned_bytes", "other_bytes")
    devices = sum(device[name] for device in plan["devices"] for name in each)
    return plan["decode_bytes"] + plan["encode_bytes"] + devices


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--overshot", default="target/release/overshot")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--pieces", type=int, default=3, help="GiB of values of each file")
    parser.add_argument("--only", default="", help="only formats whose names begin so")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="overshot-memory-", dir=options.dir))
    rows = options.pieces * GROUP // 16
    common = ["--device", options.device]
    itself = peak([options.overshot, "run", "--quiet", *common, "sum(i)", "--rows=1000"])
    print(json.dumps({"job": "without files", "peak_bytes": itself}), flush=True)
    worse = 0
    try:
        for name, (file, how) in FORMATS.items():
            if not name.startswith(options.only):
                continue
            path = folder / file
            write = ["a = rand(1); b = f64(i % 1000)", f"--rows={rows}", f"a={path}", f"b={path}", *how]
            for what, job in [("write", write), ("read", ["sum(t.a * t.b)", f"t={path}"])]:
                plan = planned(options.overshot, [*common, *job])
                own = peak([options.overshot, "run", "--quiet", *common, *job]) - itself
                worse += own > plan
                line = {"job": f"{what}: {name}", "peak_bytes": own, "plan_bytes": plan, "of_plan": own / plan}
                print(json.dumps(line), flush=True)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    finally:
        shutil.rmtree(folder)
    sys.exit(f"{worse} jobs took more memory than their plan says" if worse else 0)


if __name__ == "__main__":
    main()
