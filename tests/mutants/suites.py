"""The suites that mutants run against, and how one is run."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Suite:
    """A test binary with arguments and settings. `threads` limits the tests that run at once."""

    name: str
    binary: str
    arguments: tuple = ()
    settings: dict = field(default_factory=dict, hash=False)
    threads: int | None = None


LIBRARY = "pipeline:: memory:: ops:: engine:: data:: device::emulated report:: plan:: custom:: job:: trace".split()
LIBRARY += ["thread_pool::"]
STANDIN = {"LD_LIBRARY_PATH": "{folder}/examples", "OVERSHOT_TEST_DEVICE": "cuda", "OVERSHOT_CACHE": ""}
ONE = STANDIN | {"OVERSHOT_STANDIN_SEED": "1"}
TWO = STANDIN | {"OVERSHOT_STANDIN_SEED": "2", "OVERSHOT_STANDIN_DEVICES": "2"}
BOTH = STANDIN | {
    "OVERSHOT_TEST_DEVICE": "cpu+cuda",
    "OVERSHOT_STANDIN_SEED": "3",
    "OVERSHOT_STANDIN_DEVICES": "2",
}
DIFFERENT = STANDIN | {
    "OVERSHOT_STANDIN_SEED": "4",
    "OVERSHOT_STANDIN_DEVICES": "4",
    "OVERSHOT_STANDIN_MEMORY": "268435456,33554432,67108864,50000000",
}

# The fastest first. The suites of .ci/run that no mutant can fail are not here: expressions, limits, documents.
SUITES = [
    Suite("library", "lib", tuple(LIBRARY)),
    Suite("kernels", "devices", ("kernels,",)),
    Suite("schedules", "schedules"),
    Suite("sharded", "devices", ("sharded,",)),
    Suite("jobs", "devices", ("jobs,",)),
    Suite("memory", "memory"),
    Suite("faults", "faults"),
    Suite("losses", "losses"),
    Suite("contention", "devices", ("contention,",)),
    Suite("passes", "devices", ("passes,",)),
    Suite("cuda", "lib", ("device::cuda", "limits::")),
    Suite("command", "cli"),
    Suite("one stand-in", "devices", ("--skip", "numpy,"), ONE, 2),
    Suite("two stand-ins", "devices", ("--skip", "numpy,"), TWO, 2),
    Suite("CPU and stand-ins", "devices", ("--skip", "numpy,"), BOTH, 2),
    Suite("four stand-ins", "devices", ("--skip", "numpy,"), DIFFERENT, 1),
]
BINARIES = sorted({suite.binary for suite in SUITES})

FAILED = re.compile(r"^test (.+?)\s+\.\.\. FAILED|^the case '(.+)' hangs", re.MULTILINE)


def run(suite, folder, limit, threads, mutant=None, reached=None):
    """Runs a suite until its first failure. Returns how it failed, or None, and the seconds that it took."""
    scratch = tempfile.mkdtemp(prefix="mutants-")
    # Some tests become another user, who has to get there.
    os.chmod(scratch, 0o755)
    settings = {name: value.format(folder=folder) for name, value in suite.settings.items()}
    environment = os.environ | settings | {
        "OVERSHOT_BIN": str(folder / "overshot"),
        "MUTANTS_ROOT": str(folder),
        "RUST_BACKTRACE": "0",
        "TMPDIR": scratch,
    }
    if mutant is not None:
        environment["MUTANT"] = str(mutant)
    if reached is not None:
        environment["MUTANTS_REACHED"] = str(reached)
    command = [str(folder / "deps" / suite.binary), *suite.arguments]
    command += ["--test-threads", str(min(threads, suite.threads or threads))]
    begin = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    timer = threading.Timer(limit, kill, [process])
    timer.start()
    output, failure = "", None
    try:
        for line in process.stdout:
            output += line.decode(errors="replace")
            found = FAILED.search(output, max(0, len(output) - 1000))
            # The output of a failure follows all tests, and is of use only in the baseline.
            if found and mutant is not None:
                failure = found[1] or f"{found[2]} (hangs)"
                break
    finally:
        late = not timer.is_alive()
        timer.cancel()
        kill(process)
        code = process.wait()
        process.stdout.close()
        shutil.rmtree(scratch, ignore_errors=True)
    seconds = time.monotonic() - begin
    if failure is None and late:
        failure = f"no end after {limit:.0f} s"
    elif failure is None and code != 0:
        lines = output.strip().splitlines() or [""]
        failure = f"exit {code}: {lines[-1][:200]}" if mutant is not None else f"exit {code}:\n{output[-8000:]}"
    return failure, seconds


def kill(process):
    """Ends a process and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
