#!/usr/bin/env python3
"""Measures what `import overshot` adds to `import numpy`: milliseconds, in processes in turn, and medians.

    import_time.py [--runs 30] [--json FILE]

`import` is the time of the statement behind `import numpy`; `process` is by how much longer a whole process takes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

STATEMENT = "import time, numpy; begin = time.perf_counter(); import overshot; print(time.perf_counter() - begin)"
PROGRAMS = {"numpy": "import numpy", "both": "import numpy, overshot", "statement": STATEMENT}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--json")
    options = parser.parse_args()
    # What pip installs is compiled, too.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    seconds = {name: [] for name in PROGRAMS}
    for run in range(options.runs + 1):
        for name, program in PROGRAMS.items():
            begin = time.perf_counter()
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
            taken = float(done.stdout) if name == "statement" else time.perf_counter() - begin
            # The first processes read the files into the page cache, and compile the modules.
            if run > 0:
                seconds[name].append(taken)
    ms = {name: 1000 * statistics.median(each) for name, each in seconds.items()}
    print(f"import overshot: {ms['statement']:.1f} ms behind import numpy")
    print(f"process: {ms['both']:.1f} ms with both, {ms['numpy']:.1f} ms with numpy: {ms['both'] - ms['numpy']:.1f} ms")
    if options.json:
        Path(options.json).write_text(json.dumps({"cores": os.cpu_count(), "runs": options.runs, "ms": ms}))


if __name__ == "__main__":
    main()
