"""From a folder of recordings, or from vectors, to a model that is ready for use: `setup`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import training
from .bundle import Bundle
from .exceptions import DataError, ParameterError
from .extractors import Extracted, Extractor, load_extractor
from .extractors.frontends import cache_folder
from .extractors.sound import SUFFIXES as CONTAINERS
from .io.vectors import VectorSet
from .voices import (
    MARK,
    MODEL_FILE,
    REPORT_FILE,
    ProfileBook,
    VoiceModel,
    cosine_model,
    default_bundle,
)

SOUND = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".sph", ".aif", ".aiff", *CONTAINERS)
FIELD = re.compile(r"\{(\w+)\}|\*")
PREFERRED = ("campplus", "words")
"""Extractors that `setup` uses where they are fetched: one of voices, and that of words."""

ENOUGH_PEOPLE = 10
"""With fewer people than this no model of them is better than the extractor's cosine."""


@dataclass(frozen=True)
class Recordings:
    """Sound files with their labels.

    root : folder
    paths : (n,) relative to it
    labels : {view: (n,)}
    pattern : how labels were read from the paths
    unread : files whose names do not fit the pattern
    """

    root: Path
    paths: list[str]
    labels: dict[str, NDArray[Any]]
    pattern: str
    unread: list[str] = field(default_factory=list)

    @property
    def files(self) -> list[Path]:
        return [self.root / path for path in self.paths]


def find_recordings(root: str | os.PathLike[str], pattern: str | None = None) -> Recordings:
    """Sound files under a folder, and their labels by a pattern such as ``{speaker}/{phrase}/*``.

    pattern : fields are views, ``*`` is anything, and the suffix is left out. None: guessed from the names
    """
    folder = Path(root)
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}")
    paths = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix.lower() in SOUND and not path.name.startswith(".")
    )
    if not paths:
        raise DataError(f"there are no sound files under {folder}: {', '.join(SOUND)}")
    chosen = guess_pattern(paths) if pattern is None else pattern
    if "{speaker}" not in chosen:
        raise ParameterError(f"the pattern names no speaker: {{speaker}}/*; got {chosen!r}")
    expression = _compiled(chosen)
    matches = {path: expression.fullmatch(path.rpartition(".")[0]) for path in paths}
    read = [path for path, match in matches.items() if match]
    fields = list(dict.fromkeys(name for name in FIELD.findall(chosen) if name))
    labels = {
        view: np.array([match[view] for match in matches.values() if match]) for view in fields
    }
    if not read:
        raise DataError(f"no file under {folder} fits {chosen!r}, such as {paths[0]!r}")
    unread = [path for path, match in matches.items() if not match]
    return Recordings(folder, read, labels, chosen, unread)


def _compiled(pattern: str) -> re.Pattern[str]:
    parts = []
    end = 0
    seen: set[str] = set()
    for match in FIELD.finditer(pattern):
        parts.append(re.escape(pattern[end : match.start()]))
        name = match[1]
        if name is None:
            parts.append(".*")
        elif name in seen:
            parts.append(f"(?P={name})")
        else:
            parts.append(f"(?P<{name}>[^/]+?)")
            seen.add(name)
        end = match.end()
    return re.compile("".join(parts) + re.escape(pattern[end:]))


def guess_pattern(paths: Sequence[str]) -> str:
    """How labels stand in paths: speakers are folders, or else what names begin with; phrases are folders in these,
    or a part of the names that several speakers share and that is no plain number.

    Examples
    --------
    >>> guess_pattern(["ann/hello/1.wav", "ann/hello/2.wav", "bob/hello/1.wav"])
    '{speaker}/{phrase}/*'
    >>> guess_pattern(["ann/hello_1.wav", "ann/bye_1.wav", "bob/hello_1.wav", "bob/bye_1.wav"])
    '{speaker}/{phrase}_*'
    >>> guess_pattern(["ann/1.wav", "ann/2.wav", "bob/1.wav"])
    '{speaker}/*'
    """
    depths = [path.count("/") for path in paths]
    depth = max(set(depths), key=depths.count)
    usual = [path for path in paths if path.count("/") == depth]
    if depth >= 2:
        return "*/" * (depth - 2) + "{speaker}/{phrase}/*"
    stems = [path.rpartition("/")[2].rpartition(".")[0] for path in usual]
    separator = max("_-", key=lambda mark: sum(mark in stem for stem in stems))
    tokens = [stem.split(separator) for stem in stems]
    if depth == 1:
        speakers = [path.partition("/")[0] for path in usual]
        place = _phrase_place(tokens, speakers)
        return "{speaker}/" + _names(place, min(map(len, tokens)), separator)
    width = min(map(len, tokens)) - 1
    if width < 1:
        return "{speaker}"
    place = _phrase_place([parts[1:] for parts in tokens], [parts[0] for parts in tokens])
    return "{speaker}" + separator + _names(place, width, separator)


def _names(place: int | None, width: int, separator: str) -> str:
    """The pattern of file names whose part at this place is the phrase."""
    if place is None:
        return "*"
    behind = "" if place == width - 1 else f"{separator}*"
    return f"*{separator}" * place + "{phrase}" + behind


def _phrase_place(tokens: Sequence[Sequence[str]], speakers: Sequence[str]) -> int | None:
    """Which part of the names is the phrase; None where none is."""
    width = min(map(len, tokens))
    found: dict[int, int] = {}
    for place in range(width):
        values = [parts[place] for parts in tokens]
        people: dict[str, set[str]] = {value: set() for value in values}
        for value, who in zip(values, speakers, strict=True):
            people[value].add(who)
        shared = [value for value, own in people.items() if len(own) > 1]
        # Numbers at the end of names count takes.
        takes = place == width - 1 and all(value.isdigit() for value in people)
        if len(people) > 1 and 2 * len(shared) >= len(people) and not takes:
            found[place] = len(people)
    return min(found, key=lambda place: found[place]) if found else None


@dataclass
class Setup:
    """What `setup` made: a model for recordings, and what it tells of it.

    voices : the model with its extractor; None where only vectors were given
    bundle : the model
    report : one page of plain English
    vectors, owners : of all people, for their profiles
    """

    bundle: Bundle
    report: str
    vectors: VectorSet
    voices: VoiceModel | None = None

    def verify(self, one: Any, other: Any, **options: Any) -> Any:
        """As `VoiceModel.verify`."""
        if self.voices is None:
            raise ParameterError("this model was made of vectors: recordings need their extractor")
        return self.voices.verify(one, other, **options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a folder: the model, everybody's profile, and the report."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self.bundle.save(folder / MODEL_FILE)
        owners = [str(name).rpartition(MARK)[0] for name in self.vectors.ids]
        ProfileBook(folder).write(self.vectors, owners)
        (folder / REPORT_FILE).write_text(self.report + "\n", encoding="utf-8")


def setup(
    source: str | os.PathLike[str],
    *,
    pattern: str | None = None,
    extractors: Sequence[str] = (),
    far: float = 0.01,
    enrolment: int = 1,
    progress: bool = False,
) -> Setup:
    """A model of your own people, with its thresholds: from a folder of recordings to a file ready for use.

    Parameters
    ----------
    source : folder of recordings, one folder or name a person
    pattern : how names are to be read; see `find_recordings`. None: guessed
    extractors : names or files; none: those that are fetched, of voices and of words
    far : share of impostors of the worst kind that may pass
    enrolment : recordings per profile, as there will be in use
    """
    found = find_recordings(source, pattern)
    names = list(extractors) or fetched_extractors()
    extractor = load_extractor(names)
    extracted = extractor.extract(found.files, on_error="skip", progress=progress)
    usable = [place for place, q in enumerate(extracted.qualities) if q.usable]
    if not usable:
        raise DataError(f"no recording under {found.root} can be used: see mvplda quality")
    rows = [extracted.rows[place] for place in usable]
    labels = {view: column[rows] for view, column in found.labels.items()}
    digests = [extracted.qualities[place].digest for place in usable]
    notes = _read_notes(found, extracted)
    result = setup_vectors(
        extracted.X[usable],
        labels,
        marks=digests,
        extractor=extractor,
        far=far,
        enrolment=enrolment,
        notes=notes,
    )
    result.voices = VoiceModel(result.bundle, extractor)
    return result


def fetched_extractors() -> list[str]:
    """The extractor of voices that is in the cache, and that of words."""
    folder = cache_folder() / "extractors"
    there = [name for name in PREFERRED if (folder / name).is_dir()]
    voices = [name for name in there if name != "words"][:1]
    if not voices:
        raise ParameterError(
            "no extractor of voices is fetched: mvplda extractor get campplus words, or name one with -x"
        )
    return voices + [name for name in there if name == "words"]


def setup_vectors(
    X: NDArray[Any],
    labels: Mapping[str, Any],
    *,
    marks: Sequence[str] | None = None,
    extractor: Extractor | None = None,
    name: str | None = None,
    blocks: Mapping[str, int] | None = None,
    far: float = 0.01,
    enrolment: int = 1,
    notes: Sequence[str] = (),
) -> Setup:
    """The same from vectors and labels, the speaker's first."""
    columns = {view: np.asarray(column) for view, column in labels.items()}
    people = columns["speaker"]
    count = len(np.unique(people))
    told = list(notes)
    counts = np.unique(people, return_counts=True)[1]
    told.append(f"{count} people, {counts.min()} to {counts.max()} recordings each.")
    phrases = len(np.unique(columns["phrase"])) if "phrase" in columns else 0
    if phrases < 2:
        columns.pop("phrase", None)
        told.append("No two phrases are named: the model is about voices only.")
    elif count >= ENOUGH_PEOPLE:
        told.append(f"{phrases} phrases: the model is about voices and words.")
    own = extractor.name if extractor is not None else name
    bundle = _fitted(X, columns, count, extractor, own, blocks, far, enrolment, told)
    ids = [
        f"{who}{MARK}{mark[:12]}"
        for who, mark in zip(people, marks or map(str, range(len(X))), strict=True)
    ]
    first = np.unique(ids, return_index=True)[1]
    kept = np.sort(first)
    if len(kept) < len(ids):
        told.append(f"{len(ids) - len(kept)} recordings are copies of others and were left out.")
    vectors = VectorSet(np.array(ids)[kept], np.asarray(X)[kept], own)
    report = "\n".join([*told, *report_lines(bundle, far)])
    bundle.card = {**dict(bundle.card or {}), "report": report}
    return Setup(bundle, report, vectors)


def _fitted(
    X: NDArray[Any],
    labels: dict[str, NDArray[Any]],
    people: int,
    extractor: Extractor | None,
    name: str | None,
    blocks: Mapping[str, int] | None,
    far: float,
    enrolment: int,
    told: list[str],
) -> Bundle:
    """The better of a committee of these people and the default model in their domain, where there are both."""
    fars = (far, *(one for one in training.FARS if one != far))
    options: dict[str, Any] = {"enrolment": enrolment, "fars": fars}
    if blocks is None and extractor is not None:
        blocks = {part: stop - start for part, (start, stop) in extractor.blocks.items()}
    elif blocks is None:
        blocks = training.blocks_of(name, int(X.shape[1]))
    default = default_bundle(name)
    if default is not None and not default.fitted_scorer.has_domain:
        default = None
    if default is not None:
        default = training.deploy(default, X, labels, **options)
        if "phrase" not in labels:
            told.append("Where people say what they like, ask about the voice: --same speaker.")
    if people >= ENOUGH_PEOPLE:
        committee = training.train(X, labels, blocks=blocks, extractor=name, **options)
        if default is None:
            return committee
        return _better(committee, default, X, labels, blocks, options, told)
    few = f"{people} people are too few to train a model of them ({ENOUGH_PEOPLE} are the least)"
    if default is not None:
        told.append(f"{few}: the default model is used, in the domain that they show.")
        return default
    told.append(f"{few}: the extractor's cosine is used, which is about voices only.")
    voices = {"speaker": labels["speaker"]}
    if people >= training.FEWEST_PEOPLE:
        return training.train(X, voices, model="cosine", folds=2, fars=fars, extractor=name)
    if extractor is not None and extractor.recipe is not None:
        bundle = cosine_model(extractor)
        told.append("Its calibration is the default of the extractor, not one of your people.")
    else:
        bundle = training.train(X, voices, model="cosine", folds=0, extractor=name)
        told.append("It is not calibrated: no threshold can be given.")
    return bundle


def _better(
    committee: Bundle,
    default: Bundle,
    X: NDArray[Any],
    labels: Mapping[str, Any],
    blocks: Mapping[str, int] | None,
    options: Mapping[str, Any],
    told: list[str],
) -> Bundle:
    """Of two models that were measured in the same trials, the one with fewer errors; cosine stands beside them."""
    models = {"a committee trained on your people": committee, "the default model": default}
    cards = {title: dict(bundle.card or {}) for title, bundle in models.items()}
    if any("held_out" not in card for card in cards.values()):
        told.append(
            "Models could not be compared: the default model is used, in your people's domain."
        )
        return default
    unit = unit_blocks(X, blocks or {"vectors": X.shape[1]})
    cosine = training.train(unit, labels, model="cosine", folds=training.FOLDS, **options)
    cards["cosine"] = dict(cosine.card or {})
    eers = {title: training.worst_eer(card) for title, card in cards.items()}
    costs = {title: training.held_out_cllr(card) for title, card in cards.items()}
    first, second = models
    # the committee is calibrated by the very trials: it has to be better in both
    wins = eers[first] < eers[second] and costs[first] < costs[second]
    kept = first if wins else second
    told.append(f"Compared on people who were held out in turn; used is {kept}:")
    for title in cards:
        told.append(
            f"  {title}: EER of the worst kind {100 * eers[title]:.2f} %, Cllr {costs[title]:.3f}"
        )
    return models[kept]


def unit_blocks(X: NDArray[Any], blocks: Mapping[str, int]) -> NDArray[Any]:
    """Vectors whose blocks have length 1 each, so that they weigh the same in a cosine."""
    parts = []
    start = 0
    for width in blocks.values():
        part = np.asarray(X[:, start : start + width], dtype=np.float64)
        parts.append(part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-12))
        start += width
    return np.hstack(parts)


def _read_notes(found: Recordings, extracted: Extracted) -> list[str]:
    """What was read, what was left out and why."""
    lines = [f"Names were read as {found.pattern}: {len(found.paths)} recordings."]
    if found.unread:
        lines.append(
            f"{len(found.unread)} files do not fit and were left out, such as {found.unread[0]}."
        )
    for path, reason in extracted.skipped[:5]:
        lines.append(f"Left out: {path}: {' '.join(reason.split())}")
    bad = [row for row, q in zip(extracted.rows, extracted.qualities, strict=True) if not q.usable]
    for row in bad[:5]:
        lines.append(f"Left out: {found.paths[row]}: no voice that could be used.")
    faults: dict[str, int] = {}
    for quality in extracted.qualities:
        for fault in quality.warnings:
            faults[fault] = faults.get(fault, 0) + 1
    if faults:
        listed = ", ".join(f"{count} {fault}" for fault, count in faults.items())
        lines.append(f"Quality: {listed}.")
    return lines


def _impostor(kind: str) -> str:
    """A kind of trial that should be rejected, in words."""
    texts = {
        "same nothing": "somebody else who says something else",
        "same phrase": "somebody else who says the right words",
        "same speaker": "the right voice with other words",
        "IW": "somebody else who says something else",
        "IC": "somebody else who says the right words",
        "TW": "the right voice with other words",
    }
    return texts.get(kind, kind)


def report_lines(bundle: Bundle, far: float) -> list[str]:
    """What held-out people showed, in plain English."""
    lines = []
    for key, points in (bundle.points or {}).items():
        point = next((one for one in points if one.far == far), None)
        if point is None or point.measured is None:
            continue
        asked = key.replace("+", " and ").replace("|", ", ")
        _, low, high = point.measured["frr"]
        rates = point.measured["far"]
        worst = point.measured.get("worst") or max(rates, key=lambda kind: rates[kind][0])
        _, least, most = rates[worst]
        lines.append(
            f"Same {asked}: at the threshold {point.threshold:.2f} for {100 * far:g} % false acceptances, of 100 "
            f"owners {100 * low:.0f} to {100 * high:.0f} are not accepted; of 100 impostors of the worst kind "
            f"({_impostor(worst)}) {100 * least:.0f} to {100 * most:.0f} pass "
            f"(95 % intervals over {point.people} people: {point.basis})."
        )
        if point.measured.get("warning"):
            lines.append(f"  {point.measured['warning']}.")
    if lines:
        return lines
    if "held_out" in (bundle.card or {}):
        return [
            f"No threshold keeps false acceptances under {100 * far:g} %: among these people some recordings that "
            "should be rejected score as high as any. Use longer phrases or other extractors, or record more."
        ]
    return [
        "Errors could not be measured: that takes 8 people or more, with two recordings of the same each."
    ]
