"""Vectors of a corpus: from files, from extractors, or from a network that is trained on the corpus.

A run that is killed leaves only complete files. The next run uses them if they belong to the same recordings and
settings, which `VectorsRecord` shows by hashes.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from .._typing import Names
from ..atomic_files import write_atomically
from ..backend import cores
from ..exceptions import DataError
from ..io.vectors import VectorSet, read_vectors, write_vectors
from ..voice.audio.decode import FileSegment
from ..voice.extractors import load_extractor
from .corpora import Corpus
from .experiment_settings import Configuration
from .frames import extract_features, utterance_stamps
from .provenance import digest_of

__all__ = ["CorpusVectors", "extract_corpus", "network_vectors", "read_corpus_vectors"]

Echo = Callable[[str], object]
"""Function that shows a line of text, such as ``print``."""

VECTORS, RECORD, EXTRACTOR = "vectors.npz", "vectors.json", "extractor.onnx"
"""Names of files in the output folder: vectors, their `VectorsRecord`, and the network that extracted them."""
CHECKPOINT, UNFINISHED, FRAMES = "network.checkpoint", "vectors.unfinished", "frames"
"""Names of the files and of the folder of frames, within the output folder, from which an interrupted run resumes."""
FINGERPRINT = re.compile(r"-[0-9a-f]{12}\b")
"""Pattern of the end of an extractor's name, which identifies its weights."""
NETWORK_SECTIONS = ("features", "network", "training")
"""Sections of the configuration that change the vectors of a trained network."""


@dataclass(frozen=True)
class CorpusVectors:
    """Vectors of a corpus and their origin.

    vectors : ids and vectors of the usable utterances
    blocks : {extractor: number of columns}; empty for the vectors of a network that the experiment trained
    skipped : (id, reason) per utterance without a vector
    is_trained : whether the experiment trained the network that extracted the vectors
    """

    vectors: VectorSet
    blocks: dict[str, int] = field(default_factory=dict)
    skipped: tuple[tuple[str, str], ...] = ()
    is_trained: bool = False

    @property
    def origin(self) -> str:
        """Origin of the vectors for titles, such as "campplus+words"; fingerprints of extractors are left out."""
        if self.is_trained:
            return "j-vectors of a network trained on its speakers and phrases"
        return FINGERPRINT.sub("", self.vectors.extractor or "external vectors")


@dataclass(frozen=True)
class VectorsRecord:
    """Record of the files of one run, stored beside the vectors of a trained network.

    It shows a later run whether the files are complete and belong to its recordings and settings.

    key : digest of the recordings, labels and settings
    files : {file name: SHA-256}
    skipped : (id, reason) per utterance without a vector
    """

    key: str
    files: dict[str, str]
    skipped: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, folder: Path, key: str, skipped: tuple[tuple[str, str], ...]) -> VectorsRecord:
        """Make the record of the vectors and the extractor that are in a folder; parameters as the attributes."""
        names = (VECTORS, EXTRACTOR, Path(EXTRACTOR).with_suffix(".toml").name)
        present = [name for name in names if (folder / name).is_file()]
        return cls(key, {name: digest_of(folder / name) for name in present}, skipped)

    def write(self, folder: Path) -> None:
        """Write the record to the file `RECORD` in a folder."""
        write_atomically(folder / RECORD, json.dumps(asdict(self), indent=1).encode())


def network_vectors(
    corpus: Corpus, configuration: Configuration, output: Path, echo: Echo, verbose: bool
) -> CorpusVectors:
    """Train a network on the training speakers, export it as an extractor, and write the vectors of all utterances.

    If an earlier run has written the same vectors to the output folder, they are returned instead.

    Parameters
    ----------
    corpus : utterances, labels and protocol
    configuration : settings of features, network and training
    output : folder for the vectors and the extractor
    echo : called with each line of output
    verbose : show progress on standard error too
    """
    from .network_training import train_network, training_recipe, write_extractor

    files = _files_of(corpus)
    key = _network_key(corpus, files, configuration)
    earlier = _earlier_vectors(output, key)
    if earlier is not None:
        echo(
            f"using the vectors of an earlier run with the same recordings and settings: {output / VECTORS}"
        )
        return earlier

    recipe = training_recipe(configuration.features)
    echo(f"computing the features of {len(corpus)} utterances")
    frames = output / FRAMES
    extracted = extract_features(corpus.ids, files, recipe, folder=frames, verbose=verbose)
    train_rows = np.flatnonzero(np.isin(extracted.rows, corpus.protocol.train))
    labels = corpus.labels_at(extracted.rows[train_rows], corpus.views)
    speakers = len(np.unique(labels[corpus.views[0]]))

    echo(f"training on {len(train_rows)} utterances of {speakers} speakers")
    echo("if training is interrupted, run the same command again to resume it")
    checkpoint = output / CHECKPOINT
    trained = train_network(
        extracted.features.take(train_rows),
        labels,
        configuration.network,
        configuration.training,
        checkpoint=checkpoint,
        echo=echo,
        verbose=verbose,
    )
    extractor = write_extractor(trained, recipe, output / EXTRACTOR)
    X = trained.extract(extracted.features)
    embedded = VectorSet(corpus.ids[extracted.rows], X, extractor.name)
    write_vectors(output / VECTORS, embedded)
    VectorsRecord.of(output, key, extracted.skipped).write(output)
    # only now: until the record exists, the next run needs the checkpoint and the frames
    checkpoint.unlink()
    shutil.rmtree(frames, ignore_errors=True)
    return CorpusVectors(embedded, skipped=extracted.skipped, is_trained=True)


def _network_key(corpus: Corpus, files: Sequence[FileSegment], configuration: Configuration) -> str:
    """Return a digest of the settings, recordings and labels on which the vectors of a trained network depend.

    files : location of each utterance's samples
    """
    settings = configuration.to_dict()
    train = corpus.protocol.train
    contents = [
        [settings[name] for name in NETWORK_SECTIONS],
        utterance_stamps(corpus.ids, files),
        train.tolist(),
        {view: values.tolist() for view, values in corpus.labels_at(train, corpus.views).items()},
    ]
    return hashlib.sha256(json.dumps(contents).encode()).hexdigest()


def _earlier_vectors(folder: Path, key: str) -> CorpusVectors | None:
    """Return the vectors that an earlier run wrote to a folder; None if they are incomplete or have another key.

    key : digest of recordings, labels and settings, from `_network_key`
    """
    try:
        values = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        skipped = tuple((name, reason) for name, reason in values["skipped"])
        recorded = VectorsRecord(values["key"], values["files"], skipped)
    except (OSError, ValueError, KeyError, TypeError):
        # no record, or one that this version did not write
        return None
    # a run that was killed may have replaced only some of the files
    if recorded != VectorsRecord.of(folder, key, skipped):
        return None
    return CorpusVectors(read_vectors(folder / VECTORS), skipped=skipped, is_trained=True)


def extract_corpus(
    corpus: Corpus, extractors: Sequence[str | Path], output: Path, echo: Echo, verbose: bool
) -> CorpusVectors:
    """Extract the vectors of a corpus with one or several extractors, and write them to the output folder.

    Vectors of several extractors are concatenated. An interrupted extraction resumes from a file in the output folder.

    Parameters
    ----------
    corpus : utterances with recordings
    extractors : names or files of extractors
    output : folder for the vectors
    echo : called with each line of output
    verbose : show progress on standard error too
    """
    extractor = load_extractor(list(extractors))
    echo(f"extracting the vectors of {len(corpus)} utterances with {extractor.name}")
    unfinished = output / UNFINISHED
    extracted = extractor.extract(
        list(_files_of(corpus)),
        on_error="skip",
        progress=verbose,
        workers=cores(),
        unfinished=unfinished,
    )
    # skipped utterances are in the order of the corpus
    skipped_ids = np.delete(corpus.ids, extracted.rows).tolist()
    reasons = [reason for _, reason in extracted.skipped]
    skipped = tuple(zip(skipped_ids, reasons, strict=True))
    blocks = {name: stop - start for name, (start, stop) in extractor.blocks.items()}
    vectors = VectorSet(corpus.ids[extracted.rows], extracted.X, extractor.name)
    write_vectors(output / VECTORS, vectors)
    unfinished.unlink()
    return CorpusVectors(vectors, blocks, skipped)


def _files_of(corpus: Corpus) -> tuple[FileSegment, ...]:
    """Return the locations of a corpus's recordings; raise `DataError` for a corpus of vectors."""
    if corpus.files is None:
        raise DataError(
            f"{corpus.name} contains no recordings: pass its vectors (--vectors) instead of an extractor"
        )
    return corpus.files


def read_corpus_vectors(corpus: Corpus, files: Sequence[str | Path]) -> CorpusVectors:
    """Read the vectors of a corpus from files, and concatenate those of each utterance.

    Parameters
    ----------
    corpus : utterances, whose ids select the vectors
    files : files of vectors; an .npz file without ids may have several arrays, one per extractor
    """
    blocks: dict[str, Names] = {}
    for file in files:
        for name, X in _blocks_of(Path(file), corpus).items():
            # several files may contain vectors of the same extractor
            blocks[name if name not in blocks else f"{name} ({len(blocks) + 1})"] = X
    X = np.concatenate(list(blocks.values()), axis=1)
    widths = {name: int(block.shape[1]) for name, block in blocks.items()}
    return CorpusVectors(VectorSet(corpus.ids, X, "+".join(blocks)), widths)


def _blocks_of(file: Path, corpus: Corpus) -> dict[str, Names]:
    """Return {extractor: vectors (n, D) of the n utterances of the corpus} from a file.

    A file has the vectors of one extractor, except for an .npz file without ids, which may have an array per extractor.
    """
    if file.suffix == ".npz":
        with np.load(file) as arrays:
            tables = [name for name in arrays if arrays[name].ndim == 2]
            # a file without ids: the ids of the corpus are row numbers
            if len(tables) > 1 and "ids" not in arrays:
                rows = corpus.ids.astype(np.int64)
                return {name: arrays[name][rows].astype(np.float32) for name in tables}
    vectors = read_vectors(file).select(corpus.ids)
    return {vectors.extractor or file.stem: vectors.X.astype(np.float32)}
