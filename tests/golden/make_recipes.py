"""Write the vectors of the code's own signal into the recipes of extractors that ``mvplda extractor get`` fetched.

Run after a change that is meant to change vectors: python tests/golden/make_recipes.py
"""

from __future__ import annotations

from pathlib import Path

import mvplda.extractors
from mvplda.exceptions import FetchError
from mvplda.extractors import families
from mvplda.extractors.extractor import NAMES, cached_file
from mvplda.extractors.network import OnnxNetwork
from mvplda.extractors.sound import golden_signal

FOLDER = Path(mvplda.extractors.__file__).parent / "recipes"


def main() -> None:
    for name in NAMES:
        recipe = families()[name]
        try:
            network = OnnxNetwork(cached_file(name), recipe)
        except FetchError as error:
            print(error)
            continue
        vector = [round(float(v), 5) for v in network.embed(golden_signal(recipe.rate))]
        file = FOLDER / f"{name}.toml"
        text = file.read_text(encoding="utf-8").partition("\n[golden]")[0].rstrip()
        file.write_text(f"{text}\n\n[golden]\nvector = {vector}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
