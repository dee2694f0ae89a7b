"""The notebook runs, and is the code of the README."""

import pathlib
import re

import pytest
from conftest import need

HERE = pathlib.Path(__file__).resolve().parents[1]
NOTEBOOK = HERE / "examples" / "first.ipynb"


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = need("nbformat"), need("nbclient")
    for name in ("ipykernel", "matplotlib", "pandas", "sklearn", "confluent_kafka"):
        need(name)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    said = "".join(out.get("text", "") for cell in cells for out in cell.outputs)
    right = re.search(r"([\d.]+)% of 569 rows are labelled right", said)
    assert right and float(right[1]) > 95, said
    assert "{'ok': True, 'kind': 'retired', 'rows': 29, 'absent': True}" in said
    assert any("image/png" in out.get("data", {}) for cell in cells for out in cell.outputs)
    code = "\n".join(cell.source for cell in cells)
    assert code in (HERE / "README.md").read_text()
    assert len(code.splitlines()) <= 25
