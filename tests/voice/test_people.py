"""People across recordings, sessions as a view, and takes that do not fit the others of their profile."""

from __future__ import annotations

import tracemalloc
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from domain_problems import domain_bundle, make_place
from scipy.stats import multivariate_normal

from mvplda import Bundle, MultiviewPLDA
from mvplda.decisions import OperatingPoint
from mvplda.exceptions import DataError, FileFormatError, MvpldaWarning
from mvplda.voice.evidence import MAX_COMPARED, leave_one_out, recording_weights
from mvplda.voice.people import find_people
from mvplda.voice.people_page import people_page
from mvplda.voice.profile_file import ProfileBook
from mvplda.voice.turns import Turn, read_turns

D = 6
RNG = np.random.default_rng(0)
BETWEEN = np.diag(np.linspace(2.0, 0.5, D))
SESSION = 0.7 * np.eye(D)
TAKE = 0.3 * np.eye(D)


def session_model() -> MultiviewPLDA:
    """x = speaker + what a session adds to a speaker + take."""
    loadings = {"speaker": np.sqrt(BETWEEN), "speaker:recording": np.sqrt(SESSION)}
    return MultiviewPLDA.from_parameters(np.zeros(D), loadings, TAKE)


@pytest.mark.parametrize("takes", [1, 3, 10])
def test_takes_of_one_session_have_its_covariance_in_common(takes):
    # the mean of n takes of one session has covariance C + S / n, not (C + S) / n
    enrolled = RNG.normal(size=(takes, D))
    test = RNG.normal(size=D)
    model = session_model()
    profiles = model.enrol(enrolled, ["ann"] * takes, {"recording": ["monday"] * takes})
    tests = model.enrol(test[None], ["test"], {"recording": ["friday"]})
    one = BETWEEN + SESSION + TAKE / takes
    other = BETWEEN + SESSION + TAKE
    joint = np.block([[one, BETWEEN], [BETWEEN, other]])
    both = np.concatenate([enrolled.mean(axis=0), test])
    same = multivariate_normal.logpdf(both, cov=joint)
    apart = multivariate_normal.logpdf(both[:D], cov=one)
    apart += multivariate_normal.logpdf(test, cov=other)
    llr = model.llr(profiles, tests, same="speaker", dtype=np.float64)
    np.testing.assert_allclose(llr, same - apart, rtol=1e-9)


def test_two_sessions_count_as_two():
    model = session_model()
    X = RNG.normal(size=(4, D))
    names = {"recording": ["a", "a", "b", "b"]}
    profiles = model.enrol(X, ["ann"] * 4, names)
    tests = model.enrol(X[:1] + 1, ["t"], {"recording": ["c"]})
    blocks = np.kron(np.ones((5, 5)), BETWEEN) + np.kron(np.eye(5), TAKE)
    for rows in ([0, 1], [2, 3], [4]):
        for i in rows:
            for j in rows:
                blocks[i * D : (i + 1) * D, j * D : (j + 1) * D] += SESSION
    vector = np.concatenate([X.reshape(-1), X[0] + 1])
    apart = blocks.copy()
    apart[4 * D :, : 4 * D] = apart[: 4 * D, 4 * D :] = 0.0
    expected = multivariate_normal.logpdf(vector, cov=blocks)
    expected -= multivariate_normal.logpdf(vector, cov=apart)
    llr = model.llr(profiles, tests, same="speaker", dtype=np.float64)
    np.testing.assert_allclose(llr, expected, rtol=1e-9)


def test_a_file_of_profiles_keeps_sessions(tmp_path):
    book = ProfileBook(tmp_path / "voices.npz")
    bundle = Bundle(None, session_model())
    X = RNG.normal(size=(4, D))
    book.add("a#nn", None, X[:2], ["mark1", "mark2"], "monday")
    book.add("a#nn", None, X[2:], ["mark3", "mark4"])
    again = ProfileBook(tmp_path / "voices.npz")
    assert again.of("a#nn").sessions == ["monday", "monday", "mark3", "mark3"]
    profiles = again.enrolled(bundle)
    assert len(profiles.weights) == 2
    assert profiles.labels["recording"].names.tolist() == ["mark3", "monday"]


def test_a_take_of_somebody_else_counts_less():
    model = session_model()
    ann, bob = np.sqrt(4 * np.diag(BETWEEN)) * np.array([[1], [-1]])
    noise = 0.3 * RNG.normal(size=(6, D))
    X = np.vstack([ann + noise[:5], bob + noise[5:]])
    fits = leave_one_out(Bundle(None, model), X, ["ann"] * 6, list("aabbcd"))
    others = model.enrol(X[:5], ["ann"] * 5, {"recording": list("aabbc")})
    last = model.enrol(X[5:], labels={"recording": ["d"]})
    expected = model.llr(others, last, same="speaker", dtype=np.float64)
    np.testing.assert_allclose(fits[5], expected[0, 0])
    assert fits[5] < -4 < 0 < fits[:5].min()
    weights = recording_weights(fits)
    assert weights[5] == 0.1
    assert (weights[:5] > 0.9).all()
    # nobody else's takes are there to compare with
    assert np.isnan(leave_one_out(Bundle(None, model), X[:1], ["ann"], ["a"])).all()
    assert recording_weights(np.array([np.nan])) == 1.0


def test_every_take_is_compared_with_the_first_others_of_its_owner(monkeypatch):
    model = session_model()
    rng = np.random.default_rng(3)
    # takes of one owner do not lie side by side, and one has more than are compared
    owners = rng.permutation(["ann"] * (MAX_COMPARED + 4) + ["bob"] * 3 + ["eve"] * 2 + ["joe"])
    sessions = rng.choice(["a", "b", "c"], len(owners))
    X = rng.normal(size=(len(owners), D))
    expected = np.full(len(X), np.nan)
    for row, owner in enumerate(owners):
        others = [i for i in np.flatnonzero(owners == owner) if i != row][:MAX_COMPARED]
        if others:
            labels = {"recording": sessions[others]}
            profile = model.enrol(X[others], [owner] * len(others), labels)
            test = model.enrol(X[[row]], labels={"recording": sessions[[row]]})
            expected[row] = model.llr(profile, test, same="speaker", dtype=np.float64)[0, 0]
    assert np.isnan(expected).sum() == 1
    bundle = Bundle(None, model)
    fits = leave_one_out(bundle, X, owners.tolist(), sessions.tolist())
    np.testing.assert_allclose(fits, expected, rtol=1e-9)
    # in parts, too
    monkeypatch.setattr("mvplda.voice.evidence.MAX_CHUNK_NUMBERS", 50 * D)
    fits = leave_one_out(bundle, X, owners.tolist(), sessions.tolist())
    np.testing.assert_allclose(fits, expected, rtol=1e-9)


def test_the_memory_of_leaving_one_out_grows_with_people_and_not_with_their_pairs():
    bundle = domain_bundle()
    peaks = []
    for people in (500, 2000):
        X = RNG.normal(size=(2 * people, bundle.width_in))
        owners = np.repeat([f"p{i}" for i in range(people)], 2).tolist()
        tracemalloc.start()
        leave_one_out(bundle, X, owners, owners)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 6 * peaks[0]


def meeting() -> tuple[np.ndarray, list[Turn], list[int]]:
    """Three recordings of four people, two of whom speak at once in the first."""
    place = make_place(7)
    turns: list[Turn] = []
    X: list[np.ndarray] = []
    truth: list[int] = []
    for recording in range(3):
        for person in range(recording, recording + 2):
            for k in range(3):
                X.append(place.say(person, k))
                start = 10.0 * k + 3 * person
                turns.append(Turn(f"r{recording}", start, start + 4))
                truth.append(person)
    return np.concatenate(X), turns, truth


def test_turns_become_people_and_what_overlaps_does_not():
    X, turns, truth = meeting()
    people = find_people(domain_bundle(), X, turns)
    pairs = np.equal.outer(people.person, people.person)
    same = np.equal.outer(truth, truth)
    assert not (pairs & ~same).any()
    assert (pairs & same).sum() > 0.8 * same.sum()
    assert np.bincount(people.person).tolist() == sorted(np.bincount(people.person))[::-1]
    # the same voice twice, at the same time: never one person
    twice = [Turn("r", 0, 5), Turn("r", 4, 9), Turn("r", 9, 12)]
    found = find_people(domain_bundle(), np.repeat(X[:1], 3, axis=0), twice)
    assert found.person[0] != found.person[1]
    # names of a diariser are one person from the start
    named = [turn._replace(name=str(person)) for turn, person in zip(turns, truth, strict=True)]
    whole = find_people(domain_bundle(), X, named)
    for recording in ("r0", "r1", "r2"):
        rows = [i for i, turn in enumerate(named) if turn.recording == recording]
        assert len({(named[i].name, whole.person[i]) for i in rows}) == 2
    with pytest.raises(DataError, match="a vector per turn"):
        find_people(domain_bundle(), X[:2], turns)


def plain_bundle() -> Bundle:
    """A model that is not calibrated: points of a speaker lie within 0.2 or so, speakers within 1."""
    loadings = {"speaker": np.eye(D)}
    return Bundle(None, MultiviewPLDA.from_parameters(np.zeros(D), loadings, 0.04 * np.eye(D)))


def in_a_row(count: int) -> list[Turn]:
    """Turns of one recording that do not overlap."""
    return [Turn("r", 5 * i, 5 * i + 4) for i in range(count)]


@pytest.mark.parametrize("others", [2, 10])
def test_a_merge_has_to_be_surer_the_more_turns_there_are(others: int):
    bundle = plain_bundle()
    rng = np.random.default_rng(1)
    same = np.zeros((2, D))
    llr = bundle.llr(same[:1], same[1:], dtype=np.float64)[0, 0]
    X = np.vstack([same, 3.0 * rng.normal(size=(others, D))])
    chances = np.log(len(X) - 1)
    for surplus in (0.05, -0.05):
        threshold = llr - chances - surplus
        assert threshold > 0
        people = find_people(bundle, X, in_a_row(len(X)), threshold=threshold)
        assert (people.person[0] == people.person[1]) == (surplus > 0)
        assert people.person.max() + 1 == others + (1 if surplus > 0 else 2)


def test_only_groups_that_are_each_other_s_best_are_merged():
    # c is nearest to b, and b to a: once these are one person, c is too far from it
    bundle = plain_bundle()
    step = 0.4 * np.eye(D)[0]
    X = np.stack([step, 0 * step, -1.1 * step])
    pairs = bundle.llr(X, X, dtype=np.float64)
    together = bundle.enrol(X[:2], ["ab", "ab"])
    joint = bundle.llr(together, X[2:], dtype=np.float64)[0, 0]
    accept = (joint + pairs[1, 2]) / 2
    assert np.log(2) < joint < accept < pairs[1, 2] < pairs[0, 1]
    for order in ([0, 1, 2], [2, 1, 0]):
        people = find_people(bundle, X[order], in_a_row(3), threshold=accept - np.log(2))
        assert people.person[np.argsort(order)].tolist() == [0, 0, 1]


def test_the_page_lists_every_turn_and_what_is_not_decided():
    X, turns, _ = meeting()
    turns[0] = turns[0]._replace(recording="<r>")
    people = find_people(domain_bundle(), X, turns)
    page = people_page(people, turns, {turn.recording: f"{turn.recording}.wav" for turn in turns})
    assert page.count("<audio") == len(turns)
    assert "<r>" not in page
    assert page.count("Are person") == len(people.undecided_pairs)


def test_turns_are_read_from_rttm_and_from_kaldi(tmp_path: Path):
    file = tmp_path / "turns"
    file.write_text("SPEAKER a 1 0.5 2.0 <NA> <NA> s1 <NA> <NA>\n\n")
    assert read_turns(file) == [Turn("a", 0.5, 2.5, "s1")]
    file.write_text("utt1 a 0.5 2.5\n")
    assert read_turns(file) == [Turn("a", 0.5, 2.5)]
    file.write_text("utt1 a half\n")
    with pytest.raises(FileFormatError, match="SPEAKER line"):
        read_turns(file)


def test_turns_without_a_name_are_not_one_person(tmp_path: Path):
    place = make_place(7)
    voices = [0, 1, 2, 3] * 2
    X = np.concatenate([place.say(person, 0) for person in voices])
    file = tmp_path / "activity.rttm"
    lines = (f"SPEAKER r 1 {5 * i} 4 <NA> <NA> <NA> <NA> <NA>\n" for i in range(len(voices)))
    file.write_text("".join(lines))
    turns = read_turns(file)
    assert [turn.name for turn in turns] == [None] * len(voices)
    people = find_people(domain_bundle(), X, turns)
    unnamed = find_people(domain_bundle(), X, [Turn("r", 5 * i, 5 * i + 4) for i in range(8)])
    assert people.person.tolist() == unnamed.person.tolist()
    different = np.not_equal.outer(voices, voices)
    assert not (np.equal.outer(people.person, people.person) & different).any()


def test_the_number_of_an_unnamed_turn_is_no_name():
    place = make_place(7)
    X = np.concatenate([place.say(person, 0) for person in range(4)])
    turns = [Turn("r", 5 * i, 5 * i + 4, "3" if i == 0 else None) for i in range(4)]
    people = find_people(domain_bundle(), X, turns)
    assert people.person[0] != people.person[3]
    empty = [turn._replace(name=turn.name or "") for turn in turns]
    assert find_people(domain_bundle(), X, empty).person.tolist() == people.person.tolist()
    # two who have no names and speak at once are two
    assert Turn("r", 0, 5).overlaps(Turn("r", 4, 9))
    assert not Turn("r", 0, 5, "a").overlaps(Turn("r", 4, 9, "a"))


def test_a_weight_divides_the_noise_of_a_take():
    model = session_model()
    X = RNG.normal(size=(3, D))
    weighted = model.enrol(X, ["ann"] * 3, weights=np.array([1.0, 1.0, 0.5]))
    assert weighted.weights.tolist() == [2.5]
    whole = model.enrol(np.vstack([X[:2], X]), ["ann"] * 5, weights=np.full(5, 0.5))
    # two takes of half the weight are one take
    np.testing.assert_allclose(whole.y, weighted.y)
    assert whole.weights.tolist() == weighted.weights.tolist()


@pytest.mark.parametrize(
    "line",
    [
        "a r 2.5 0.5",
        "a r 0 inf",
        "SPEAKER r 1 nan 1 - - A",
        "SPEAKER r 1 -3 1 - - A",
    ],
)
def test_turns_that_are_none_are_refused(tmp_path: Path, line: str):
    path = tmp_path / "turns"
    path.write_text(line)
    with pytest.raises(FileFormatError, match="line 1: expected a turn that ends after its start"):
        read_turns(path)


def test_comments_and_speakers_of_rttm_are_passed_over(tmp_path: Path):
    path = tmp_path / "turns.rttm"
    path.write_text(";; of a diariser\nSPKR-INFO r 1 - - - unknown A -\n\nSPEAKER r 1 1 2 - - A\n")
    assert read_turns(path) == [Turn("r", 1, 3, "A")]
    path.write_text(
        "SPEAKER r 1 1 2 - - A\nLEXEME r 1 1 2 well lex A -\nNON-SPEECH r 1 3 4 - noise - -\n"
    )
    with pytest.warns(MvpldaWarning, match=r"2 line\(s\) of RTTM that are not SPEAKER"):
        assert read_turns(path) == [Turn("r", 1, 3, "A")]
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError, match="UTF-8"):
        read_turns(path)


def line_model() -> Bundle:
    """Voices on a line: x = speaker + noise, of variances 9 and 1."""
    return Bundle(
        None, MultiviewPLDA.from_parameters(np.zeros(1), {"speaker": 3 * np.eye(1)}, np.eye(1))
    )


def people_on_a_line(places: list[float], threshold: float) -> list[int]:
    """Numbers of the people of one turn at each place."""
    turns = [Turn("r", 2.0 * k, 2.0 * k + 1) for k in range(len(places))]
    X = np.array(places)[:, None]
    return find_people(line_model(), X, turns, threshold=threshold).person.tolist()


def llr_on_a_line(enrolled: list[float], test: float) -> float:
    model = line_model()
    profile = model.enrol(np.array(enrolled)[:, None], ["a"] * len(enrolled))
    return float(model.answer(profile, np.array([[test]])).llr[0, 0])


@pytest.mark.parametrize("others", [1, 10])
def test_more_groups_of_turns_want_more_evidence(others):
    """Of n groups each has n - 1 chances to be merged wrongly: the threshold rises by log(n - 1)."""
    places = [8.0, 8.4, *(40.0 + 20.0 * np.arange(others))]
    limit = llr_on_a_line([8.0], 8.4) - np.log(others + 1)
    assert limit > 0.1  # no lower threshold is in use
    merged = people_on_a_line(places, limit - 0.05)
    assert merged[0] == merged[1]
    apart = people_on_a_line(places, limit + 0.05)
    assert apart[0] != apart[1]


def test_turns_are_merged_with_those_that_fit_best_first():
    """The one in the middle fits the last best; both together do not fit the first any more."""
    places = [8.0, 9.6, 10.6]
    first = llr_on_a_line([places[0]], places[1])
    together = llr_on_a_line(places[1:], places[0])
    best = llr_on_a_line([places[1]], places[2])
    threshold = (first + together) / 2 - np.log(2)
    assert threshold > 0
    assert together < first < best
    person = people_on_a_line(places, threshold)
    assert person[1] == person[2] != person[0]


@pytest.mark.parametrize(("reject", "n_expected"), [(0.0, 1), (-50.0, 6)])
def test_undecided_pairs_are_all_pairs_above_the_lower_threshold(reject: float, n_expected: int):
    places = [-9.0, -6.5, -4.0, 1.0]
    bundle = line_model()
    bundle.points = {"speaker": [OperatingPoint(20.0, reject=reject)]}
    turns = [Turn("r", 2.0 * k, 2.0 * k + 1) for k in range(len(places))]
    people = find_people(bundle, np.array(places)[:, None], turns)
    assert people.person.tolist() == [0, 1, 2, 3]

    expected = []
    for i, j in combinations(range(4), 2):
        llr = llr_on_a_line([places[i]], places[j])
        # three other groups raise the threshold
        if llr > reject + np.log(3):
            expected.append((llr, i, j))
    assert len(expected) == n_expected
    expected.sort(reverse=True)
    assert [pair for _, *pair in people.undecided_pairs] == [pair for _, *pair in expected]
    llrs = [llr for llr, *_ in people.undecided_pairs]
    np.testing.assert_allclose(llrs, [llr for llr, *_ in expected], rtol=1e-6)
