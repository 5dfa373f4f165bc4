"""Write the vectors of the code's own signal into the recipes of extractors that ``mvplda extractor get`` fetched.

Run after a change that is meant to change vectors: python tests/golden/make_recipes.py
"""

from __future__ import annotations

from pathlib import Path

import mvplda.voice.extractors
from mvplda.exceptions import FetchError
from mvplda.voice.audio.decode import golden_signal
from mvplda.voice.extractors import families
from mvplda.voice.extractors.download import NAMES, cached_file
from mvplda.voice.extractors.onnx_network import OnnxNetwork

FOLDER = Path(mvplda.voice.extractors.__file__).parent / "recipes"


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
