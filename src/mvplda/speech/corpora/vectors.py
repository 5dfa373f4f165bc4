"""Corpora without sound: vectors from elsewhere and what is known of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...exceptions import LabelError, ParameterError
from ...io.lists import read_groups, read_map
from ...io.trials import Trials, read_trials
from ...io.vectors import read_vectors
from .corpus import Corpus, StringArray, named, register_corpus
from .protocol import build_corpus, listed_protocol


@register_corpus("vectors", root="vectors from elsewhere (scp, npz, parquet ...), their labels given by -l")
def corpus_of_vectors(
    ids: Any,
    labels: Mapping[str, Any],
    session: Any = None,
    training: float | int | Sequence[str] | None = None,
    *,
    split: Any = None,
    random_state: int = 0,
    per_model: int = 3,
    models: Mapping[str, Sequence[str]] | str | os.PathLike[str] | None = None,
    trials: Trials | str | os.PathLike[str] | None = None,
    name: str = "vectors",
    source: str = "",
) -> Corpus:
    """The corpus of vectors that were made elsewhere.

    Parameters
    ----------
    ids : (n,) names of the vectors, or their file
    labels : view -> (n,) classes, or the path of an ``utt2X`` file; the speaker first
    session : (n,) what orders the utterances of a cell, or the path of a file; None: the order of `ids`
    training, split, random_state, per_model : the protocol (see `mvplda.speech.corpora.protocol.make_protocol`)
    models : {model: ids} or the path of a ``spk2utt``: enrolments that are given. Then the vectors
        of `training` (names of classes; all that no trial uses, if None) are trained on.
    trials : the trials, or their file; needs `models`
    """
    if isinstance(ids, (str, os.PathLike)):
        ids = read_vectors(ids).ids
    names = np.array([str(i) for i in ids], dtype=np.str_)
    columns = {view: _column(view, values, names) for view, values in labels.items()}
    if not columns:
        raise LabelError("a corpus needs labels of at least one view, the speaker")
    sessions = None if session is None else _column("session", session, names)
    if models is None:
        if trials is not None:
            raise LabelError("trials need models: which utterances make which enrolment")
        return build_corpus(
            name,
            names,
            columns,
            None,
            sessions,
            split=None if split is None else _column("split", split, names),
            training=training,
            random_state=random_state,
            per_model=per_model,
            source=source,
        )
    if isinstance(models, (str, os.PathLike)):
        models = read_groups(models)
    if isinstance(trials, (str, os.PathLike)):
        trials = read_trials(trials)
    train = None
    if training is not None:
        if isinstance(training, (int, float)):
            raise ParameterError("with models, training names the classes to train on; got a number")
        train = np.flatnonzero(np.isin(next(iter(columns.values())), [str(c) for c in training]))
    protocol = listed_protocol(names, models, trials, train=train)
    return Corpus(name, names, columns, None, protocol, source, sessions)


def _column(view: str, values: Any, names: StringArray) -> StringArray:
    if isinstance(values, (str, os.PathLike)):
        found = read_map(values)
        unknown = [name for name in names.tolist() if name not in found]
        if unknown:
            raise LabelError(f"{os.fspath(values)}: {len(unknown)} id(s) have no {view}: {named(unknown)}")
        return np.array([found[name] for name in names.tolist()], dtype=np.str_)
    column = np.array([str(value) for value in values], dtype=np.str_)
    if len(column) != len(names):
        raise LabelError(f"{len(column)} values of {view!r} for {len(names)} ids; expected as many")
    return column
