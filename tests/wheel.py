"""Try a wheel where nothing is installed but what it asks for: ``python tests/wheel.py dist``.

A fresh environment gets the wheel and its core dependencies; then a model is fitted, saved, loaded and asked, the
command line runs, extras that are missing are named, some of our tests run against the installed package, and the
source archive holds what a wheel is made of.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

SESSION = """
import importlib.util, sys
from mvplda import MissingExtraError, MultiviewPLDA, load, load_extractor, make_two_views
assert not any(importlib.util.find_spec(name) for name in ("torch", "matplotlib", "pyarrow", "soundfile", "fastapi"))
X, labels, unseen = make_two_views(20, 4, 5, 12, (3, 2), held_out=4, random_state=0)
model = MultiviewPLDA({"speaker": 3, "phrase": 2}).fit(X, labels)
model.save("model.safetensors")
scores = load("model.safetensors").llr(model.enrol(unseen.enrol, unseen.ids), unseen.test)
assert scores.shape == (16, 32)
try:
    from mvplda.io import read_vectors
    read_vectors("vectors.parquet")
except (MissingExtraError, FileNotFoundError) as error:
    print(error)
print("a model is fitted, saved, loaded and asked")
"""
TESTS = ("inference/test_noise.py", "cli/test_own_vectors.py", "models/test_scorers.py")
"""Tests that need the core alone."""
SOURCE = Path(__file__).resolve().parents[1] / "src"
NEEDED = tuple(
    path.relative_to(SOURCE).as_posix()
    for path in sorted(SOURCE.glob("mvplda/**/*"))
    if path.is_file() and path.suffix != ".pyc"
)
"""Every file of the package, data files too."""


def contents(folder: Path) -> list[str]:
    """What is missing in the wheel and in the source archive."""
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    inside = zipfile.ZipFile(wheel).namelist()
    missing = [f"the wheel has no {name}" for name in NEEDED if name not in inside]
    missing += [
        f"the wheel has {name}"
        for name in inside
        if name.startswith(("tests/", "tools/", "docs/", "benchmarks/"))
    ]
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = ("pyproject.toml", "LICENSE", "README.md", *(f"src/{name}" for name in NEEDED))
    return missing + [f"the source archive has no {name}" for name in wanted if name not in names]


def main(folder: Path) -> int:
    missing = contents(folder)
    if missing:
        print("\n".join(missing))
        return 1
    (wheel,) = folder.glob("*.whl")
    with tempfile.TemporaryDirectory() as place:
        venv.create(place, with_pip=True)
        programs = Path(place) / ("Scripts" if sys.platform == "win32" else "bin")
        subprocess.run(
            [programs / "python", "-m", "pip", "install", "--quiet", wheel.resolve()], check=True
        )
        subprocess.run([programs / "python", "-c", SESSION], cwd=place, check=True)
        subprocess.run([programs / "mvplda", "info", "model.safetensors"], cwd=place, check=True)
        subprocess.run([programs / "python", "-m", "pip", "check"], check=True)
        subprocess.run(
            [programs / "python", "-m", "pip", "install", "--quiet", "pytest", "hypothesis"],
            check=True,
        )
        files = [Path(__file__).resolve().parent / name for name in TESTS]
        quick = ["-q", "-m", "not slow", "-p", "no:cacheprovider"]
        subprocess.run([programs / "python", "-m", "pytest", *quick, *files], cwd=place, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
