"""Which member of a household spoke, or nobody: telephone calls on other days, the whole default model.

    python -m benchmarks.studies.household ../shared/data work/wuw-all.npz

WUW: every member enrols three words, or three sentences, of one call. Tests are a word of a later call, or two words of
it (a wake word and a command), by members and by people of other households. Calls of WUW took part in the calibration
and the thresholds of the default model, not in its training. For the mean cosine of both networks of voices, the
threshold lets the same share of strangers through and is set on these very tests: to its advantage. The second file
stores the vectors; it is made if it does not exist.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.report import study_command
from mvplda import Bundle
from mvplda._typing import Array
from mvplda.decisions import name_among, naming_point
from mvplda.model_files import load_model
from mvplda.paper.provenance import DATA, WORK
from mvplda.voice.default_model import DEFAULT_MODEL, default_extractor
from mvplda.voice.evidence import session_labels, speaker_question
from tools.default_model.trials import BLOCKS

SIZES = (2, 4, 6)
HOUSEHOLDS = 60
STRANGERS = 20
MAX_CALLS = 4
"""Calls per person: a few people called up to ten times."""
ENROLLED = 3
"""Recordings per member."""

VOICES = ("campplus", "resnet")
"""Networks of voices."""


class Calls(NamedTuple):
    """Vectors of words and sentences with their owners and calls, numbered per person."""

    X: Array
    voices: Array
    person: Array
    call: Array
    is_word: Array


def read_calls(data: Path, cache: Path) -> Calls:
    """Return the first calls of everybody; voices are unit vectors of both networks of voices."""
    with (data / "wuw/index.csv").open(newline="") as stream:
        listed = list(csv.DictReader(stream))
    if not cache.is_file():
        cache.parent.mkdir(parents=True, exist_ok=True)
        files = [data / "wuw" / row["file"] for row in listed]
        made = default_extractor().extract(files, on_error="skip", progress=True)
        np.savez(cache, X=made.X, rows=made.rows)
    stored = np.load(cache)
    X, rows = stored["X"].astype(np.float64), stored["rows"]
    listed = [listed[row] for row in rows]
    person = np.array([row["speaker"] for row in listed])
    day = np.array([f"{row['date']} {row['session']}" for row in listed])
    call = np.zeros(len(listed), dtype=np.int64)
    for name in np.unique(person):
        of_person = person == name
        call[of_person] = np.unique(day[of_person], return_inverse=True)[1]
    first = call < MAX_CALLS
    # the blocks have length 1; those of voices come first
    voices = X[:, : sum(BLOCKS[name][0] for name in VOICES)]
    is_word = np.array([bool(row["phrase"]) for row in listed])
    return Calls(X[first], voices[first], person[first], call[first], is_word[first])


def enrolled_rows(calls: Calls, name: str, words: bool, rng: np.random.Generator) -> Array | None:
    """Return recordings of the first call of a person, or None if it has too few."""
    of_first = (calls.person == name) & (calls.call == 0) & (calls.is_word == words)
    rows = np.flatnonzero(of_first)
    return rng.permutation(rows)[:ENROLLED] if len(rows) >= ENROLLED else None


def tests_of(calls: Calls, name: str, words: int, first: int, rng: np.random.Generator) -> list:
    """Return tests of a person, each of `words` words of one call, from the call `first` on."""
    tests = []
    for call in range(first, MAX_CALLS):
        of_call = (calls.person == name) & (calls.call == call) & calls.is_word
        rows = rng.permutation(np.flatnonzero(of_call))
        tests += [rows[k : k + words] for k in range(0, len(rows) - words + 1, words)]
    return tests


def judge(bundle: Bundle, calls: Calls, size: int, words: bool, spoken: int) -> dict[str, float]:
    """Return shares of tests that are named in households of a size.

    words : whether members enrol words instead of sentences
    spoken : words in a test
    """
    rng = np.random.default_rng([size, words, spoken])
    names = np.unique(calls.person)
    callers = [name for name in names if (calls.call[calls.person == name] > 0).any()]
    question = speaker_question(bundle)
    right, wrong, unnamed, strangers_named, strangers_tested = 0, 0, 0, 0, 0
    cosines: list[tuple[float, bool]] = []
    cosines_of_strangers: list[float] = []
    for _ in range(HOUSEHOLDS):
        members = []
        for name in rng.permutation(callers):
            rows = enrolled_rows(calls, name, words, rng)
            tests = tests_of(calls, name, spoken, 1, rng)
            if rows is not None and tests and len(members) < size:
                members.append((name, rows, tests))
        at_home = [name for name, *_ in members]
        others = [name for name in rng.permutation(names) if name not in at_home][:STRANGERS]
        own = [(k, test) for k, (_, _, tests) in enumerate(members) for test in tests]
        foreign = [test for name in others for test in tests_of(calls, name, spoken, 0, rng)[:1]]

        enrolled = np.concatenate([rows for _, rows, _ in members])
        owners = np.repeat(np.arange(size), ENROLLED)
        labels = session_labels(bundle, owners.astype(str)) or None
        profiles = bundle.enrol(calls.X[enrolled], owners, labels)
        here = bundle.deployed(profiles)
        profiles = here.enrol(calls.X[enrolled], owners, labels)
        sides = [test for _, test in own] + foreign
        number = np.repeat(np.arange(len(sides)), [len(rows) for rows in sides])
        labels = session_labels(here, np.char.add("test ", number.astype(str))) or None
        tested = here.enrol(calls.X[np.concatenate(sides)], number, labels)
        answer = here.answer(profiles, tested, question)
        outlier_probability = here.outlier_probability(question)
        point = naming_point(
            here.operating_points(question), size, outlier_probability=outlier_probability
        )
        named = [
            name_among(column, point, outlier_probability=outlier_probability).best
            for column in answer.inlier_llr.T
        ]
        for (owner, _), best in zip(own, named, strict=False):
            right += best == owner
            wrong += best is not None and best != owner
            unnamed += best is None
        strangers_named += sum(best is not None for best in named[len(own) :])
        strangers_tested += len(foreign)

        means = np.stack([calls.voices[rows].mean(axis=0) for _, rows, _ in members])
        spoken_means = np.stack([calls.voices[rows].mean(axis=0) for rows in sides])
        unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (means, spoken_means)]
        similar = unit[0] @ unit[1].T
        for k, (owner, _) in enumerate(own):
            cosines.append((float(similar[:, k].max()), int(similar[:, k].argmax()) == owner))
        cosines_of_strangers += similar[:, len(own) :].max(axis=0).tolist()
    share = strangers_named / strangers_tested
    threshold = np.quantile(cosines_of_strangers, 1 - share)
    n_tests = right + wrong + unnamed
    found = sum(is_right and cosine > threshold for cosine, is_right in cosines)
    return {
        "tests": n_tests,
        "strangers": strangers_tested,
        "named rightly, %": 100 * right / n_tests,
        "named as somebody else, %": 100 * wrong / n_tests,
        "not named, %": 100 * unnamed / n_tests,
        "strangers named, %": 100 * share,
        "cosine: named rightly, %": 100 * found / n_tests,
    }


def study(data: Path, cache: Path) -> dict[str, Any]:
    """Shares of tests that are named, by enrolment, test and size of the household."""
    calls = read_calls(data, cache)
    bundle = load_model(DEFAULT_MODEL)
    conditions = {
        "3 words; a word": (True, 1),
        "3 words; two words": (True, 2),
        "3 sentences; a word": (False, 1),
        "3 sentences; two words": (False, 2),
    }
    results: dict[str, Any] = {}
    for title, (words, spoken) in conditions.items():
        for size in SIZES:
            row = judge(bundle, calls, size, words, spoken)
            results[f"{title}; {size} people"] = row
            print(title, size, json.dumps(row), flush=True)
    return results


if __name__ == "__main__":
    inputs = {"data": DATA, "vectors": f"{WORK}/wuw-all.npz"}
    study_command("household", __doc__, study, inputs=inputs, reads=["wuw"], title="Households")
