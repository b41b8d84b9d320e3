"""Measures hand-written programs ("peers") on the same machine and data sizes as benches/throughput.rs.

python3 benches/peers --size 4GiB --json peers.json [--dir FOLDER] [--only cupy,numexpr] [--runs 3]

Prints bytes in + out per second (GB = 1e9), for sizes of one f64 column, as the median of several runs. Every result is
checked. Each peer runs in a separate process, so its pinned memory and contexts end with it, and a crash does not stop
the others. Peers that are not installed are skipped. The columns are files in FOLDER, which are kept and used again;
without --dir they are in a temporary folder. benches/compare.py compares the figures with Overshot.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PEERS = {"numpy": "numpy_.py", "numexpr": "numexpr_.py", "cupy": "cupy_.py", "pytorch": "pytorch.py",
         "numba": "numba_.py", "kvikio": "kvikio_.py"}  # fmt: skip


def size(text):
    for unit, factor in {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}.items():
        if text.endswith(unit) and text[:-3].isdigit() and int(text[:-3]):
            return int(text[:-3]) * factor
    raise argparse.ArgumentTypeError(f"{text!r} is no size: write for example 512MiB or 4GiB")


def count(text):
    if text.isdigit() and int(text):
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of runs")


def some(text):
    unknown = set(text.split(",")) - set(PEERS)
    if unknown:
        raise argparse.ArgumentTypeError(f"no peer {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    return text.split(",")


def machine():
    """Returns what the figures depend on."""
    found = {"date": datetime.date.today().isoformat(), "cores": len(os.sched_getaffinity(0))}
    found["python"] = sys.version.split()[0]
    with contextlib.suppress(OSError):
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
        found["cpu"] = next(names, "unknown")
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()
        found["gpu"], found["driver"] = answer[0].split(", ")
    return found


def run(peer, options, folder, out):
    """Runs one peer and adds its results to `out`. Returns False if it failed."""
    lines = folder / "lines.jsonl"
    lines.unlink(missing_ok=True)
    script = pathlib.Path(__file__).with_name(PEERS[peer])
    command = [sys.executable, script, folder, str(options.size // 8), str(options.runs), lines]
    failed = None
    try:
        code = subprocess.run(command, timeout=options.limit).returncode
        if code:
            failed = f"failed: ended by signal {-code}" if code < 0 else "failed"
    except subprocess.TimeoutExpired:
        failed = f"failed: stopped after {options.limit:g} s"
    # Results that it wrote before it failed still count.
    for line in map(json.loads, lines.read_text().splitlines() if lines.exists() else []):
        if "not_run" in line:
            out["not_run"][peer] = line["not_run"]
        else:
            out["lines"].append(line)
    if failed:
        print(f"{peer}: {out['not_run'].setdefault(peer, failed)}", flush=True)
    return not failed


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="peers", description=__doc__, formatter_class=raw)
    parser.add_argument("--size", type=size, default=size("4GiB"), help="of one column (4GiB)")
    parser.add_argument("--runs", type=count, default=3)
    parser.add_argument("--dir", type=pathlib.Path, help="where the columns are, and stay")
    parser.add_argument("--only", type=some, default=list(PEERS), metavar="PEER,...", help=", ".join(PEERS))
    parser.add_argument("--limit", type=float, default=120, help="seconds for each peer (120)")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    out = {"machine": machine(), "size": options.size, "lines": [], "not_run": {}}
    right = True
    try:
        import common
    except ImportError as missing:
        # Everything here needs NumPy, also to create the columns.
        out["not_run"] = dict.fromkeys(options.only, f"no module named {missing.name}")
        print(f"not run: no module named {missing.name}")
    else:
        try:
            with contextlib.ExitStack() as stack:
                folder = options.dir
                if not folder:
                    temporary = tempfile.TemporaryDirectory(prefix="overshot-peers-")
                    folder = pathlib.Path(stack.enter_context(temporary))
                folder.mkdir(parents=True, exist_ok=True)
                common.make(folder, options.size // 8)
                for peer in options.only:
                    right &= run(peer, options, folder, out)
        except OSError as error:
            sys.exit(f"peers: {error}")
    if options.json:
        options.json.write_text(json.dumps(out, indent=1) + "\n")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
