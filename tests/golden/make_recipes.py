"""Write what the code's own signal gives into the recipes that come with mvplda.

Run after a change that is meant to change frames or vectors: python tests/golden/make_recipes.py
Vectors are of the extractors that ``mvplda extractor get`` fetched; those of others stay as they are.
"""

from __future__ import annotations

from pathlib import Path

import mvplda.extractors
from mvplda.exceptions import FetchError
from mvplda.extractors import families
from mvplda.extractors.frontends import cached_file, make_frames
from mvplda.extractors.network import OnnxExtractor, frame_numbers
from mvplda.extractors.sound import golden_signal
from mvplda.extractors.weights import NAMES

FOLDER = Path(mvplda.extractors.__file__).parent / "recipes"

for name, recipe in families().items():
    frames, vector = recipe.golden.frames, recipe.golden.vector
    if name in NAMES:
        try:
            golden = OnnxExtractor(cached_file(name), recipe).golden()
        except FetchError as error:
            print(error)
            continue
        frames, vector = golden.frames, golden.vector
    elif recipe.features.kind != "samples":
        frames = frame_numbers(make_frames(golden_signal(recipe.rate), recipe))
    file = FOLDER / f"{name}.toml"
    text = file.read_text(encoding="utf-8").partition("\n[golden]")[0].rstrip()
    lines = [
        "",
        "[golden]",
        f"frames = {list(frames)}",
        *([f"vector = {list(vector)}"] if vector else []),
    ]
    file.write_text(text + "\n" + ("\n".join(lines) + "\n" if frames else ""), encoding="utf-8")
