"""Write a software bill of materials: CycloneDX 1.5 of the installed packages and of the weights of the extractors.

``python tools/sbom.py [--extractors FOLDER] [-o FILE]`` in the environment that is described; ``make sbom`` describes
that of the service. It needs no packages beside those that it lists.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

Component = dict[str, Any]


def package_components() -> list[Component]:
    """Return the installed Python packages as components of CycloneDX, each once, in the order of their names."""
    found = {}
    for distribution in distributions():
        name = distribution.metadata["Name"]
        # of several installations the first one is imported
        found.setdefault(normalised(name), package_component(name, distribution))
    return [found[name] for name in sorted(found)]


def normalised(name: str) -> str:
    """Return the name of a Python package in the spelling of package URLs: lower case, with hyphens."""
    return re.sub(r"[-_.]+", "-", name).lower()


def package_component(name: str, distribution: Distribution) -> Component:
    url = f"pkg:pypi/{normalised(name)}@{distribution.version}"
    component: Component = {
        "type": "library",
        "bom-ref": url,
        "name": name,
        "version": distribution.version,
        "purl": url,
    }
    metadata = distribution.metadata
    licence = metadata.get("License-Expression")
    if licence:
        component["licenses"] = [{"expression": licence}]
    elif metadata.get("License") and "\n" not in metadata["License"]:
        component["licenses"] = [{"license": {"name": metadata["License"]}}]
    else:
        names = [
            classifier.rpartition(" :: ")[2]
            for classifier in metadata.get_all("Classifier", [])
            if classifier.startswith("License ::")
        ]
        component["licenses"] = [{"license": {"name": name}} for name in names]
    return component


def weight_components(folder: Path) -> Iterator[Component]:
    """Yield the files of extractors in a folder as components of CycloneDX, with their hashes."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            yield {
                "type": "machine-learning-model",
                "bom-ref": f"sha256:{digest}",
                "name": str(path.relative_to(folder)),
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }


def bill(extractors: Path | None) -> dict[str, Any]:
    components = package_components()
    if extractors is not None:
        components += weight_components(extractors)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "name": "mvplda"},
            "properties": [{"name": "python", "value": platform.python_version()}],
        },
        "components": components,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--extractors", type=Path, help="folder of the extractors' weights")
    parser.add_argument("-o", "--output", type=Path, help="file; default: standard output")
    chosen = parser.parse_args()
    if chosen.extractors is not None and not chosen.extractors.is_dir():
        parser.error(f"there is no folder {chosen.extractors}")
    text = json.dumps(bill(chosen.extractors), indent=1) + "\n"
    if chosen.output is None:
        sys.stdout.write(text)
    else:
        chosen.output.parent.mkdir(parents=True, exist_ok=True)
        chosen.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
