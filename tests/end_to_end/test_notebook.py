"""examples/vlrft.ipynb, as a person runs it: all cells in order, in a folder of its own."""

import re

import nbformat
import pytest
from nbclient import NotebookClient
from support.swift_run import REPOSITORY

NOTEBOOK = REPOSITORY / "examples" / "vlrft.ipynb"


def test_the_notebook_is_stored_without_outputs():
    """They would name the machine that made them, and age unseen."""
    cells = [c for c in nbformat.read(NOTEBOOK, as_version=4).cells if c.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells)


@pytest.mark.end_to_end
@pytest.mark.nightly
def test_the_notebook_runs(forked_runs, tmp_path):
    """Its run is shortened: test_the_demo_learns shows that it learns."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (train,) = [cell for cell in notebook.cells if cell.id == "train"]
    train.source = train.source.replace("--steps 40", "--steps 8")
    here = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=1800, resources=here).execute()
    said = {cell.id: _text(cell) for cell in notebook.cells if cell.cell_type == "code"}
    assert re.match(r"swift-vlrft \d", said["install"])  # and nothing is installed
    assert "the box (300, 40, 400, 140) reaches beyond the image" in said["data-check"]
    assert "runs/notebook/data: 4 rows" in said["data-check"]
    assert said["data-show"].count("data:image/") >= 4 and "red square" in said["data-show"]
    assert said["reward"].startswith("[1.0, 0.66") and "1 extra box" in said["reward"]
    assert "Did you mean vlrft_grounding_giou?" in said["check"] and "2 problems" in said["check"]
    assert "no problems" in said["check-again"]
    assert "fits: train.sh needs" in said["plan"] and "1x16 out of memory" in said["plan-python"]
    assert re.search(r"vlrft_classification \S+ -> \S+, .* 8 steps", said["train"])
    assert "vlrft_classification" in said["score"] and "accuracy" in said["report"]
    assert (tmp_path / "runs/notebook/demo/report.html").is_file()


def _text(cell) -> str:
    """Everything that a cell put out, with the types of its pictures."""
    parts = [output.get("text", "") for output in cell.outputs]
    for output in cell.outputs:
        parts += [f"{kind} {data}" for kind, data in output.get("data", {}).items()]
    return "".join(parts)
