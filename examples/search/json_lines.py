"""Index as lines of JSON with a payload, for the import into other engines."""

from __future__ import annotations

import json
from typing import Any


def write(index: Any, profiles: Any, path: str) -> None:
    """Write one JSON object per row of the index: id, vector, and name of the profile."""
    with open(path, "w", encoding="utf-8") as file:
        for row, owner in enumerate(index.owners):
            payload = {"profile": str(profiles.ids[owner])}
            line = {
                "id": row,
                "vector": index.vectors[row].tolist(),
                "payload": payload,
            }
            file.write(json.dumps(line) + "\n")
