"""The examples run, and their answers are right: each of them checks its own."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
# Rows or pixels that take a few seconds.
SIZES = {
    "k_means": 120,
    "nearest_neighbours": 100_000,
    "numpy_files": 300_000,
    "principal_components": 100_000,
    "ridge_regression": 40_000,
}


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, str(SIZES[name])])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert not list(tmp_path.iterdir()), "the example leaves no files behind"
