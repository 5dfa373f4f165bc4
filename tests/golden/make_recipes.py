"""Write what the code's own signal gives into the recipes that come with mvplda.

Run after a change that is meant to change frames or vectors: python tests/golden/make_recipes.py
Vectors are of the extractors that ``mvplda extractor get`` fetched; those of others stay as they are.
"""

from __future__ import annotations

from pathlib import Path

import mvplda.extractors
from mvplda.exceptions import FetchError
from mvplda.extractors import Recipe, families
from mvplda.extractors.frontends import cached_file, make_frames
from mvplda.extractors.network import OnnxNetwork, frame_numbers
from mvplda.extractors.recipe import Golden
from mvplda.extractors.sound import golden_signal
from mvplda.extractors.weights import NAMES

FOLDER = Path(mvplda.extractors.__file__).parent / "recipes"


def golden_of(recipe: Recipe) -> Golden:
    """What the code gives now; the recipe's own numbers where the weights are not here."""
    if recipe.name in NAMES:
        try:
            return OnnxNetwork(cached_file(recipe.name), recipe).golden()
        except FetchError as error:
            print(error)
            return recipe.golden
    if recipe.features.kind == "samples":
        return recipe.golden
    return Golden(frame_numbers(make_frames(golden_signal(recipe.rate), recipe)))


def main() -> None:
    for name, recipe in families().items():
        golden = golden_of(recipe)
        if not golden.frames:
            continue
        lines = ["[golden]", f"frames = {list(golden.frames)}"]
        if golden.vector:
            lines.append(f"vector = {list(golden.vector)}")
        file = FOLDER / f"{name}.toml"
        text = file.read_text(encoding="utf-8").partition("\n[golden]")[0].rstrip()
        file.write_text(text + "\n\n" + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
