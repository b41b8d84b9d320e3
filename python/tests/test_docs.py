"""The blocks of Python in the documents run, those of one document one after the other, in a folder of their own."""

import contextlib
import io
import os
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import DEVICES

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ["README.md", "docs/python.md", "python/README.md"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_blocks_of_python_run(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.arange(1000, dtype="f4").tofile("a.f32")
    for name in "ab":
        np.save(name, np.arange(1000.0))
    # The stand-in for a GPU knows no kernels but those of the tests.
    has_gpu = "cuda" in DEVICES and not any(name.startswith("OVERSHOT_STANDIN") for name in os.environ)
    fence = "```python(?: gpu)?" if has_gpu else "```python"
    blocks = re.findall(rf"^{fence}\n(.*?)^```$", (ROOT / document).read_text(), re.M | re.S)
    assert blocks
    for block in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block, document, "exec"), {})
        # Lines such as `print(x)  # 4.0` say what is printed.
        expected = re.findall(r"^print\(.*\)  +# (.*)$", block, re.M)
        assert all(line in printed.getvalue().splitlines() for line in expected), printed.getvalue()
