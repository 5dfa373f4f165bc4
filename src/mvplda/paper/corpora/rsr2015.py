"""Loading of RSR2015 part I, the paper's licensed corpus, with the published lists of enrolments and trials."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import numpy as np

from ..._typing import IntArray, Names, PathLike
from ...coded import Coded
from ...exceptions import DataError, ParameterError
from ...io.lists import Groups, read_groups
from ...io.trials import Trials, read_rsr2015_enrolment, read_trials, rsr2015_utterance
from ...kinds import TARGET
from .corpus import (
    TRIALS_PER_BLOCK,
    Corpus,
    abbreviated,
    listed_protocol,
    register_corpus,
)
from .folder import match_files

SOURCE = "RSR2015 part I, Larcher, Lee, Ma and Li, 2014"
VIEWS = ("speaker", "phrase")
SOUND_FOLDERS = ("wav", "flac", "sph")
"""Names of the folders of sound, in order of preference; SPHERE files (sph) may be in a format that cannot be read."""
PATTERN = "{gender}/{speaker}/{speaker}_{session}_{phrase}"
PHRASES = 30
"""Number of phrases of part I, 001 to 030; parts II and III have higher numbers."""
EVALUATION = {"male": 101, "female": 95}
"""{gender: number of the first evaluation speaker}. Evaluation speakers are m101 to m157 and f095 to f143. Lower
numbers are speakers of the background set, m001 to m050 and f001 to f047, and of the development set."""
LIST_NAMES = ("3sess-pwd_eval", "3sesspwd_eval")
"""Starts of the names of the corpus's lists. The corpus has both spellings, the first for trials, the second for
enrolments."""
PUBLIC_LISTS = ("enroll_spk2utt", "trials_td")
"""Files of enrolments and trials in the public list, https://github.com/Xflick/RSR2015_trials."""
PUBLIC_FOLDERS = (".", "text_dependent", "trials/text_dependent")
"""Folders in which the files of the public list are looked for, relative to the folder that the user passes."""
KINDS_OF_IDS = ("IW", "IC", "TW", "TC")
"""Kinds of trials; the index is 2 if the speaker is the same, plus 1 if the phrase is the same."""

log = logging.getLogger(__name__)


@register_corpus("rsr2015", root="the licensed corpus, with sph/ and key/")
def rsr2015(
    root: PathLike,
    *,
    gender: str | None = None,
    keys: PathLike | None = None,
) -> Corpus:
    """Load RSR2015 part I with the division of the paper: training on background and development speakers.

    If the kind of a trial in the lists contradicts the speakers and phrases in its ids, the ids are used; a warning
    counts such trials.

    Parameters
    ----------
    root : folder of the corpus with the files ``sph/<gender>/<speaker>/<speaker>_<session>_<phrase>.sph``. Converted
        files under ``wav`` or ``flac`` take precedence
    gender : "male" or "female" evaluates the enrolments of one gender, None those of both. Speakers of both genders
        are training speakers in any case
    keys : folder of the lists ``trn/3sesspwd_eval_m.trn`` and ``ndx/3sess-pwd_eval_m.ndx`` (``f`` for female; each may
        be spelt ``3sess-pwd`` or ``3sesspwd``) of enrolments and trials, or of the public list ``enroll_spk2utt`` and
        ``trials_td``; None: ``key/part1`` under the root. Missing lists are an error
    """
    if gender not in (None, *EVALUATION):
        raise ParameterError(f"gender must be 'male', 'female', or None for both; got {gender!r}")
    root = Path(root)
    listing = match_files(_sound_folder(root), PATTERN)
    phrase = _as_integers(listing.fields["phrase"])
    number = _as_integers(np.array([name[1:] for name in listing.fields["speaker"].tolist()]))
    is_part_1 = (number > 0) & (phrase > 0) & (phrase <= PHRASES)
    listing = listing.take(np.flatnonzero(is_part_1))
    ids = np.array([rsr2015_utterance(path) for path in listing.ids.tolist()])
    genders = listing.fields["gender"]

    # both genders are training speakers, whichever is evaluated
    evaluated = np.zeros(len(ids), dtype=bool)
    train = np.zeros(len(ids), dtype=bool)
    evaluated_genders = [gender] if gender else list(EVALUATION)
    for name, first_number in EVALUATION.items():
        is_evaluation_speaker = number[is_part_1] >= first_number
        train |= (genders == name) & ~is_evaluation_speaker
        evaluated |= (genders == name) & is_evaluation_speaker & (name in evaluated_genders)
    if not (train.any() and evaluated.any()):
        raise DataError(
            f"rsr2015: expected utterances of training and of evaluation speakers, such as male/m001/m001_01_001; got "
            f"{int(train.sum())} to train on and {int(evaluated.sum())} to evaluate"
        )

    keys = root / "key/part1" if keys is None else Path(keys)
    models, trials = _read_lists(keys, evaluated_genders)
    protocol = listed_protocol(ids, models, trials, np.flatnonzero(train))
    labels = listing.labels(VIEWS)
    session = listing.fields["session"]
    return Corpus("rsr2015", ids, labels, listing.files, protocol, SOURCE, session, genders)


def _as_integers(texts: Names) -> IntArray:
    """Convert numbers written as text, such as "007", to integers (n,); other texts become 0."""
    return np.where(np.char.isdecimal(texts), texts, "0").astype(np.int64)


def _sound_folder(root: Path) -> Path:
    """Return the folder that contains a subfolder of sound files per gender; raise `DataError` if there is none.

    root : folder of the corpus
    """
    for name in SOUND_FOLDERS:
        if any((root / name / gender).is_dir() for gender in EVALUATION):
            return root / name
    expected = ", ".join(str(root / name / "male") for name in SOUND_FOLDERS)
    raise DataError(
        f"RSR2015 was not found; expected one of the folders {expected}. RSR2015 is licensed by I2R, Singapore: pass "
        "the folder that contains sph/<male|female>/<speaker>/*.sph"
    )


def _read_lists(folder: Path, genders: list[str]) -> tuple[Groups, Trials]:
    """Read the enrolments and trials of the given genders, from the lists of the corpus or from the public list.

    folder : folder of the lists

    Returns
    -------
    {enrolment: ids of its utterances}, and the trials

    Raises
    ------
    DataError
        A list is missing.
    """
    for subfolder in PUBLIC_FOLDERS:
        enrolments, trials = (folder / subfolder / name for name in PUBLIC_LISTS)
        if enrolments.is_file() and trials.is_file():
            return _read_public_list(enrolments, trials, genders)

    files: dict[str, list[Path]] = {"trn": [], "ndx": []}
    missing = []
    for kind, paths in files.items():
        for gender in genders:
            names = [f"{name}_{gender[0]}.{kind}" for name in LIST_NAMES]
            present = [folder / kind / name for name in names if (folder / kind / name).is_file()]
            paths += present[:1]
            if not present:
                missing.append(f"{kind}/{' or '.join(names)}")
    if missing:
        raise DataError(
            f"rsr2015: {len(missing)} list(s) are missing in {folder}: {abbreviated(missing)}. Pass the folder that "
            "contains trn/ and ndx/, or a copy of github.com/Xflick/RSR2015_trials, with -s corpus.keys=FOLDER"
        )
    models: Groups = {}
    for file in files["trn"]:
        models |= read_rsr2015_enrolment(file)
    lists = []
    for file in files["ndx"]:
        lists.append(read_trials(file))
        _check_marks(lists[-1], file)
    enrol = _joined([trials.enrol for trials in lists])
    test = _joined([trials.test for trials in lists])
    return models, Trials(enrol, test)


def _read_public_list(enrolments: Path, trials: Path, genders: list[str]) -> tuple[Groups, Trials]:
    """Read the enrolments of the given genders and their trials from the two files of the public list."""
    initials = tuple(gender[0] for gender in genders)
    models = {
        model: tuple(map(_public_utterance, names))
        for model, names in read_groups(enrolments).items()
        if model.startswith(initials)
    }
    listed = read_trials(trials)
    listed = listed[listed.enrol.isin(models)]
    test = listed.test.renamed([_public_utterance(name) for name in listed.test.names.tolist()])
    listed = Trials(listed.enrol, test, listed.kind)
    _check_marks(listed, trials)
    return models, listed


def _public_utterance(name: str) -> str:
    """Convert the name of an utterance in the public list to its id.

    ``f095_001-f095_02_001`` becomes ``f095/f095_02_001``.
    """
    utterance = name.rpartition("-")[2]
    return f"{utterance.partition('_')[0]}/{utterance}"


def _check_marks(trials: Trials, file: Path) -> None:
    """Warn if the listed kinds of trials contradict the speakers and phrases in the ids of enrolments and tests.

    file : file of the list, for the warning
    """
    if trials.kind is None:
        return
    speakers, phrases = (_field_codes(trials, field) for field in (0, -1))
    marks = trials.kind.names.tolist()
    n_kinds = len(KINDS_OF_IDS)
    counts = np.zeros(len(marks) * n_kinds, dtype=np.int64)
    # in blocks: a list has tens of millions of trials
    for start in range(0, len(trials), TRIALS_PER_BLOCK):
        block = slice(start, start + TRIALS_PER_BLOCK)
        models = trials.enrol.codes[block]
        tests = trials.test.codes[block]
        by_ids = sum(
            weight * (codes[0][models] == codes[1][tests])
            for weight, codes in ((2, speakers), (1, phrases))
        )
        marked_kind = trials.kind.codes[block] * n_kinds + by_ids
        counts += np.bincount(marked_kind, minlength=len(counts))

    wrong: Counter[str] = Counter()
    for mark, row in zip(marks, counts.reshape(-1, n_kinds).tolist(), strict=True):
        for kind, count in zip(KINDS_OF_IDS, row, strict=True):
            binary = TARGET if kind == "TC" else f"non{TARGET}"
            if count and mark not in ("", kind, binary):
                wrong[f"{count} {kind} marked {mark}"] = count
    if wrong:
        details = "; ".join(text for text, _ in wrong.most_common())
        log.warning(
            "rsr2015: %d of %d marks in %s contradict the speakers and phrases of the ids, which are used: %s",
            wrong.total(),
            len(trials),
            file.name,
            details,
        )


def _field_codes(trials: Trials, field: int) -> tuple[IntArray, IntArray]:
    """Return an integer per distinct enrolment id, and one per distinct test id, for one field of the ids.

    A field is the speaker or the phrase. Two ids have the same integer if and only if the field has the same value in
    both.

    field : position of the field among the parts that underscores separate, as in m051_003 and m051/m051_01_003
    """
    columns = trials.enrol.names, trials.test.names
    fields = [
        [name.rpartition("/")[2].split("_")[field].lstrip("0") for name in names.tolist()]
        for names in columns
    ]
    numbers = Coded.of(fields[0] + fields[1]).codes.astype(np.int64)
    return numbers[: len(fields[0])], numbers[len(fields[0]) :]


def _joined(columns: list[Coded]) -> Coded:
    """Concatenate columns of coded text; codes are concatenated, so tens of millions of rows need little memory."""
    starts = np.cumsum([0, *(len(column.names) for column in columns[:-1])], dtype=np.int32)
    codes = [column.codes + start for column, start in zip(columns, starts, strict=True)]
    return Coded(np.concatenate([column.names for column in columns]), np.concatenate(codes))
