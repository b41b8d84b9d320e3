"""The tutorial runs in a kernel of its own."""

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="the tutorial needs nbclient and ipykernel")
pytest.importorskip("ipykernel", reason="the tutorial needs nbclient and ipykernel")
nbformat = pytest.importorskip("nbformat")

TUTORIAL = Path(__file__).resolve().parents[1] / "tutorial.ipynb"


def test_the_tutorial_runs_and_shows_its_pictures(tmp_path):
    notebook = nbformat.read(TUTORIAL, as_version=4)
    nbformat.validate(notebook)
    # A cell that raises raises here, with its traceback.
    limits = {"startup_timeout": 600, "iopub_timeout": 60}
    nbclient.NotebookClient(notebook, resources={"metadata": {"path": tmp_path}}, **limits).execute()
    pictures = [cell for cell in notebook.cells if "picture" in cell.metadata.get("tags", ())]
    assert len(pictures) == 2
    for cell in pictures:
        assert any("<svg" in output.get("data", {}).get("text/html", "") for output in cell.outputs), cell.source
    errors = next(cell for cell in notebook.cells if cell.id == "errors-code")
    assert "did you mean `sqrt`?" in errors.outputs[0].text
    assert not list(tmp_path.iterdir()), "the tutorial leaves no files behind"


def test_the_tutorial_is_stored_without_outputs():
    notebook = nbformat.read(TUTORIAL, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code and not any(cell.outputs or cell.execution_count for cell in code)
    # Names instead of random identifiers, so that a change shows only what changed.
    assert all(cell.id.replace("-", "").isalpha() for cell in notebook.cells)
    assert nbformat.writes(notebook) + "\n" == TUTORIAL.read_text(encoding="utf-8")
