"""Write the vectors of the test signal into the recipes of the extractors that ``mvplda extractor get`` downloaded.

Run after a change that is meant to change vectors: python tests/golden/make_recipes.py
"""

from __future__ import annotations

from pathlib import Path

import mvplda.voice.extractors
from mvplda.exceptions import FetchError
from mvplda.voice.audio.decode import golden_signal
from mvplda.voice.extractors.download import cached_file
from mvplda.voice.extractors.onnx_network import OnnxNetwork
from mvplda.voice.extractors.recipe import downloadable

FOLDER = Path(mvplda.voice.extractors.__file__).parent / "recipes"


def main() -> None:
    for name, recipe in downloadable().items():
        try:
            network = OnnxNetwork(cached_file(name), recipe)
        except FetchError as error:
            print(error)
            continue
        vector = [round(float(value), 5) for value in network.embed(golden_signal(recipe.rate))]
        file = FOLDER / f"{name}.toml"
        # the golden vector is the last table of a recipe
        text = file.read_text(encoding="utf-8").partition("\n[golden]")[0].rstrip()
        file.write_text(f"{text}\n\n[golden]\nvector = {vector}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
