"""The examples as notebooks: what sphinx-gallery makes of them runs cell by cell."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sphinx_gallery")
pytest.importorskip("matplotlib")

from sphinx_gallery.notebook import python_to_jupyter_cli  # type: ignore[import-untyped]

EXAMPLES = Path(__file__).parents[1] / "examples"
NOT_RUN = {
    "plot_06_faces": "needs the files of the faces",
    "plot_14_service": "starts a service; tests/serve runs it",
}
NAMES = sorted(path.stem for path in EXAMPLES.glob("plot_*.py"))


def cells(name: str, folder: Path) -> list[dict[str, Any]]:
    """Return the cells of the notebook of an example."""
    shutil.copyfile(EXAMPLES / f"{name}.py", folder / f"{name}.py")
    python_to_jupyter_cli([str(folder / f"{name}.py")])
    notebook = json.loads((folder / f"{name}.ipynb").read_text(encoding="utf-8"))
    return list(notebook["cells"])


@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_a_notebook_with_text_and_code(name: str, tmp_path: Path) -> None:
    kinds = [cell["cell_type"] for cell in cells(name, tmp_path)]
    assert kinds[0] == "markdown"
    assert kinds.count("code") >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(NAMES) - NOT_RUN.keys()))
def test_the_cells_of_a_notebook_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    variables: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells(name, tmp_path):
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), variables)
