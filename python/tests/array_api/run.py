"""Runs the test suite of the array API standard on `overshot.array_api`.

    python run.py CHECKOUT [arguments of pytest]

CHECKOUT is a clone of https://github.com/data-apis/array-api-tests with its submodule. The suite needs pytest,
pytest-json-report, hypothesis and ndindex. `unsupported.txt` lists the tests that cannot pass, with reasons: one that
fails and is not listed is an error, and so is a listed one that passes.
"""

import os
import re
import sys
from collections import Counter
from pathlib import Path

# The suite reads these when it is imported. It looks at elements one by one, and each of them is a job of its own.
os.environ["ARRAY_API_TESTS_MODULE"] = "overshot.array_api"
os.environ["ARRAY_API_TESTS_MAX_ARRAY_SIZE"] = "64"

import hypothesis
import pytest

UNSUPPORTED = Path(__file__).with_name("unsupported.txt")


def pattern(line):
    """Returns the pattern of the names of tests in a line of the list."""
    return re.compile(".*".join(map(re.escape, line.removeprefix("skip ").split("*"))))


class Listed:
    """Expects the listed tests to fail, and counts the results."""

    def __init__(self):
        lines = UNSUPPORTED.read_text(encoding="utf-8").splitlines()
        self.listed = {line: pattern(line) for line in lines if line and not line.startswith("#")}
        self.unknown = set(self.listed)
        self.counts = Counter()

    def pytest_sessionstart(self):
        # The same examples in each run, so that no result depends on luck. A failure is not made smaller, which takes
        # longer than all the rest, and has no deadline, because the first run of an expression compiles it.
        hypothesis.settings.register_profile(
            "listed",
            parent=hypothesis.settings(),
            derandomize=True,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
        )
        hypothesis.settings.load_profile("listed")

    def pytest_collection_modifyitems(self, items):
        for item in items:
            name = item.nodeid.split("array_api_tests/", 1)[1]
            for line in [line for line, listed in self.listed.items() if listed.fullmatch(name)]:
                self.unknown.discard(line)
                skips = line.startswith("skip ")
                item.add_marker(pytest.mark.xfail(reason="listed", strict=True, run=not skips))

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            is_listed = hasattr(report, "wasxfail") and report.outcome == "skipped"
            self.counts["listed" if is_listed else report.outcome] += 1


def main(checkout, *arguments):
    listed = Listed()
    path = Path(checkout).resolve()
    options = [f"--rootdir={path}", "-c", str(path / "pytest.ini")]
    options += "-p no:cacheprovider -q --tb=short --disable-warnings".split()
    code = pytest.main([*options, *(arguments or [str(path / "array_api_tests")])], plugins=[listed])
    count = listed.counts
    print(
        f"{count['passed']} passed, {count['failed']} failed, {count['listed']} not supported (unsupported.txt), "
        f"{count['skipped']} skipped by the suite"
    )
    if listed.unknown and not arguments:
        print("unsupported.txt lists tests that the suite does not have:", *sorted(listed.unknown), sep="\n")
        return 1
    return int(code)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
