"""Miniatures of the files that the documents name: vectors, labels, lists, shards and a network."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from cli_files import write_map

from mvplda import SufficientStatistics, make_two_views
from mvplda.io.vectors import VectorSet, write_vectors


def write_shards(folder: Path) -> None:
    """part-*.parquet, new.parquet, ann.parquet and ann.safetensors; ann is in the parts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    X, labels, _ = make_two_views(12, 4, 5, 24, (4, 3), held_out=4, random_state=0)
    X = X.astype(np.float32)
    speakers = np.array(["ann", *(f"s{k}" for k in range(1, 12))])[labels["speaker"]]
    phrases = np.array([f"p{k}" for k in range(4)])[labels["phrase"]]
    is_ann = speakers == "ann"
    shards = {
        "part-0000": np.arange(len(X)) % 2 == 0,
        "part-0001": np.arange(len(X)) % 2 == 1,
        "new": speakers == "s1",
        "ann": is_ann,
    }
    for name, rows in shards.items():
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(X[rows].reshape(-1)), X.shape[1])
        columns = {"vector": vectors, "speaker": speakers[rows], "phrase": phrases[rows]}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet", use_dictionary=False)
    of_ann = {"speaker": speakers[is_ann], "phrase": phrases[is_ann]}
    SufficientStatistics.from_arrays(X[is_ann], of_ann).save(folder / "ann.safetensors")


def write_embeddings(file: Path) -> None:
    """An .npz of embeddings of 160 columns and their speakers."""
    X, labels = make_two_views(40, 4, 5, 160, (30, 3), random_state=0)
    np.savez(file, X=X, speaker=labels["speaker"])


def write_kaldi_folder(folder: Path) -> None:
    """xvector.scp with utt2spk and utt2phrase, here and in data/train; enrolments, tests and trials of others."""
    X, labels, unseen = make_two_views(30, 4, 5, 24, (4, 3), held_out=8, random_state=0)
    train = folder / "data" / "train"
    train.mkdir(parents=True)
    ids = np.array([f"u{row:04d}" for row in range(len(X))])
    for place in (folder, train):
        write_vectors(place / "xvector.scp", VectorSet(ids, X))
    write_vectors(folder / "xvectors.scp", VectorSet(ids, X))
    speakers = {"train": [f"s{k}" for k in labels["speaker"]]}
    phrases = {"train": [f"p{k}" for k in labels["phrase"]]}
    names = {"train": ids}
    for side in ("enrol", "test"):
        vectors = getattr(unseen, side)
        of = getattr(unseen, f"{side}_labels")
        names[side] = np.array([f"{side}{row:04d}" for row in range(len(vectors))])
        speakers[side] = [f"other{k}" for k in of["speaker"]]
        phrases[side] = [f"p{k}" for k in of["phrase"]]
        write_vectors(folder / f"{side}.scp", VectorSet(names[side], vectors))
    for name, columns in {"utt2spk": speakers, "utt2phrase": phrases}.items():
        write_map(train / name, ids, columns["train"])
        everything = np.concatenate(list(names.values()))
        write_map(folder / name, everything, np.concatenate(list(columns.values())))

    models: dict[tuple[str, str], list[str]] = {}
    for name, *cell in zip(names["enrol"], speakers["enrol"], phrases["enrol"], strict=True):
        models.setdefault((cell[0], cell[1]), []).append(str(name))
    enrolments = {"-".join(cell): members for cell, members in models.items()}
    write_map(folder / "spk2utt", enrolments, map(" ".join, enrolments.values()))
    write_map(folder / "model2spk", enrolments, (speaker for speaker, _ in models))
    write_map(folder / "model2phrase", enrolments, (phrase for _, phrase in models))
    lines = []
    for model, (speaker, phrase) in zip(enrolments, models, strict=True):
        for test, *cell in zip(names["test"], speakers["test"], phrases["test"], strict=True):
            kind = ("T" if cell[0] == speaker else "I") + ("C" if cell[1] == phrase else "W")
            lines.append(f"{model} {test} {kind}\n")
    (folder / "trials").write_text("".join(lines))


def write_statistics(path: Path) -> None:
    """Statistics of 180 vectors of dimension 160, of 12 speakers and 3 phrases."""
    X = np.random.default_rng(0).normal(size=(180, 160))
    rows = np.arange(180)
    labels = {"speaker": np.char.add("s", (rows % 12).astype(str)), "phrase": rows // 60}
    SufficientStatistics.from_arrays(X, labels, second_moment="full").save(path)


def write_meetings(folder: Path, sounds: list[Path]) -> None:
    """meetings/, a diariser's turns of them in diarised.rttm, and the names that a page would save."""
    meetings = folder / "meetings"
    meetings.mkdir()
    lines = []
    for number, sound in enumerate(sounds):
        (meetings / f"m{number}{sound.suffix}").symlink_to(sound)
        lines.append(f"SPEAKER m{number} 1 0.2 1.5 <NA> <NA> s{number} <NA> <NA>\n")
    (folder / "diarised.rttm").write_text("".join(lines))
    turn = {"recording": "m0", "start": 0.2, "end": 1.7}
    (folder / "names.json").write_text(json.dumps({"Ann": [turn]}))


def link_phrases(corpus: Path, folder: Path, phrases: tuple[str, ...] = ("p01", "p02")) -> None:
    """The recordings of some phrases of a corpus <speaker>/<phrase>/<take>."""
    for phrase in phrases:
        for takes in sorted(corpus.glob(f"*/{phrase}")):
            link = folder / takes.parent.name / phrase
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(takes)


def write_network(path: Path) -> None:
    """A network of WeSpeaker's shape with vectors of 256 dimensions, and its recipe."""
    from extractor_problems import network

    network(path, dimension=256)
