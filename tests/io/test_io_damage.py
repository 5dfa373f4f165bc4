"""Files damaged at random: every reader ends in our errors, and the process lives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys, warnings
from pathlib import Path
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from mvplda.exceptions import MvpldaError
from mvplda.io.vectors import VectorSet, read_vectors, write_vectors
from mvplda.distributed.shards import gather

warnings.simplefilter("ignore")
path, count = Path(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(2)
X = rng.normal(size=(40, 5)).astype(np.float32)
ids = [f"u{i}-\\u00e9" for i in range(40)]
if path.stem == "lists":
    speakers = pa.array([f"s{i % 5}" for i in range(40)]).dictionary_encode()
    table = pa.table({"id": ids, "vector": pa.array(X.tolist(), pa.list_(pa.float32())), "speaker": speakers})
    pq.write_table(table, path, row_group_size=13)
else:
    write_vectors(path, VectorSet(np.array(ids), X))
path.with_name("utt2spk").write_text("".join(f"{name} s{k % 5}\\n" for k, name in enumerate(ids)))
whole = path.read_bytes()
values = [0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1, 2**40]
refused = 0
for case in range(count):
    data = bytearray(whole)
    place = int(rng.integers(len(data)))
    how = rng.integers(4)
    if how == 0:
        data[place] = rng.integers(256)
    elif how == 1:
        data = data[:place]
    elif how == 2:
        data[place : place + int(rng.integers(1, 40))] = rng.bytes(int(rng.integers(0, 40)))
    else:
        data[place : place + 8] = values[rng.integers(len(values))].to_bytes(8, "little")
    path.write_bytes(data)
    for read in (
        lambda: read_vectors(path),
        lambda: gather(path, {"speaker": path.with_name("utt2spk")}),
        lambda: gather(path, views=["speaker"]),
    ):
        try:
            read()
        except (MvpldaError, FileNotFoundError):
            refused += 1
        except Exception as error:
            print(f"case {case}: {type(error).__name__}: {error}")
print(f"refused {refused}")
"""


@pytest.mark.parametrize(
    "name",
    [
        "lists.parquet",
        "x.parquet",
        "x.npz",
        "x.ark",
        "x.scp",
    ],
)
def test_damage_ends_in_our_errors(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / name), "60"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    *odd, last = done.stdout.splitlines()
    assert odd == []
    assert int(last.removeprefix("refused ")) > 60
