"""The table, its intervals, its claim, its files and its page."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from experiment_problems import SMALL, drawn, drawn_task, in_groups
from scipy.special import ndtr
from scipy.stats import t as student

from mvplda.exceptions import ParameterError
from mvplda.metrics import PairedTest, compare_systems, eer, evaluate, speaker_intervals
from mvplda.speech.experiment import run as compare
from mvplda.speech.experiment.results import write_experiment_page
from mvplda.speech.experiment.run import run_systems
from mvplda.speech.experiment.systems import SYSTEMS, systems_named
from mvplda.speech.experiment.task import Task

FEW = systems_named(("cosine", "plda-cell", "jplda-exact", "best"))
PAIRS = [("best", "plda-cell"), ("jplda-exact", "plda-cell"), ("plda-cell", "cosine")]


def run(task, systems=FEW, **options):
    said: list[str] = []
    settings = {
        "title": "drawn <&> vectors",
        "summary": "a corpus",
        "resamples": 40,
        "say": said.append,
        **options,
    }
    results, scored = run_systems(task, systems, SMALL, **settings)
    return results, scored, said


@pytest.fixture(scope="module")
def task():
    return drawn_task({"speaker": 24, "phrase": 4}, noise=2.0)


@pytest.fixture(scope="module")
def done(task):
    return run(task, configuration={"backend": {"random_state": 0}, "corpus": {"name": "drawn"}})


@pytest.fixture(scope="module")
def without_tw(task):
    """The same without trials of a target with another phrase."""
    return replace(task, mask=~task.kinds["TW"])


def test_a_table_has_a_line_for_every_system(task, done):
    results, scored, said = done
    lines = results.table().splitlines()
    assert lines[0].split() == [
        "EER,",
        "%",
        "IW",
        "IC",
        "TW",
        "Total",
        "minDCF",
        "default",
        "Cllr",
        "minCllr",
        "s",
    ]
    assert said[0] == lines[0]
    for line, told, system in zip(lines[1:], said[1:], FEW, strict=False):
        assert line == told
        assert line.startswith(system.title)
        cells = line[32:].split()
        errors = evaluate(scored[system.name].scores, task.kinds)
        assert cells[:4] == [
            f"{100 * errors[kind]['eer']:.2f}" for kind in ("IW", "IC", "TW", "Total")
        ]
        assert cells[5] == ("-" if system.name == "cosine" else f"{errors['Total']['cllr']:.3f}")
    counts = {kind: int(mask.sum()) for kind, mask in task.kinds.items()}
    assert lines[-1].startswith(
        f"{counts['TC']} target trials; non-targets: IW {counts['IW']}, IC {counts['IC']}, TW {counts['TW']}."
    )


def test_files_hold_the_same_numbers(done, tmp_path):
    results, _, _ = done
    assert {p.name for p in results.save(tmp_path)} == {
        "table.txt",
        "table.md",
        "table.csv",
        "results.json",
    }
    plain = json.loads((tmp_path / "results.json").read_text())
    assert plain == json.loads(json.dumps(results.to_dict()))
    rows = list(csv.DictReader(io.StringIO((tmp_path / "table.csv").read_text())))
    assert len(rows) == len(FEW) * 4
    for row in rows:
        measured = results[row["system"]].evaluation[row["kind"]]
        stored = plain["systems"][row["system"]]["kinds"][row["kind"]]
        assert float(row["eer"]) == measured["eer"] == stored["eer"]
        assert float(row["cllr"]) == measured["cllr"] == stored["cllr"]
        assert float(row["eer_low"]) <= float(row["eer_high"])
        assert int(row["n_nontargets"]) == stored["n_nontargets"]
    head, _, *body = (tmp_path / "table.md").read_text().splitlines()
    assert head == "| system | IW | IC | TW | Total | minDCF default | Cllr | minCllr |"
    assert [line.split(" | ")[0][2:] for line in body] == [system.heading(SMALL) for system in FEW]
    text = (tmp_path / "table.txt").read_text()
    assert results.table() in text
    assert results.claim() in text
    assert [(pair["of"], pair["with"]) for pair in plain["comparisons"]] == PAIRS


def test_the_claim_is_a_share_of_another_systems_error(task, done):
    results, scored, _ = done
    assert list(results.comparisons) == PAIRS
    lines = results.claim().splitlines()[2:]
    for (pair, found), line in zip(results.comparisons.items(), lines, strict=True):
        assert line.startswith(" / ".join(results[name].title for name in pair))
        cells = re.findall(r"([\d.]+) \[[\d.]+, [\d.]+\]( [+-])?", line)
        for kind, cell in zip(("IW", "IC", "TW", "Total"), cells, strict=True):
            test = found.tests[kind]["eer"]
            others = ~task.kinds["TC"] if kind == "Total" else task.kinds[kind]
            ours, theirs = (
                eer(scored[n].scores[task.kinds["TC"]], scored[n].scores[others]) for n in pair
            )
            assert test.ratio == pytest.approx(ours / theirs, rel=1e-9)
            assert test.ratio_low <= test.ratio <= test.ratio_high
            assert cell == (f"{ours / theirs:.2f}", {"A": " +", "B": " -"}.get(test.verdict, ""))
    assert run(task, FEW[:1])[0].claim() == ""


def test_listed_trials_give_the_intervals_of_the_matrix(task, done):
    results, scored, _ = done
    people = task.model_labels["speaker"], task.test_labels["speaker"]
    expected = speaker_intervals(scored["best"].scores, task.kinds, *people)
    found = results["best"].intervals
    assert found.n_speakers == expected.n_speakers
    for kind, row in expected.intervals.items():
        assert set(found.intervals[kind]) == set(row)
        for name, interval in row.items():
            assert vars(found.intervals[kind][name]) == pytest.approx(vars(interval), nan_ok=True)


def test_of_too_many_trials_some_are_drawn_and_stand_for_all(task, done, monkeypatch):
    """The error rates stay those of all trials, and so do the shares of the kinds in Total."""
    most = 150
    counts = {kind: int(mask.sum()) for kind, mask in task.kinds.items()}
    assert max(counts.values()) > 5 * most > most > min(counts.values())
    monkeypatch.setattr(compare, "MOST_TRIALS", most)
    results, scored, _ = run(task)
    for name in ("plda-cell", "best"):
        assert results[name].evaluation == done[0][name].evaluation
    drawn = compare._BootstrapTrials.of(task)
    for kind, mask in drawn.kinds.items():
        assert mask.sum() == min(counts[kind], most)
        assert drawn.weights[kind] * mask.sum() == pytest.approx(counts[kind])
    people = [side.copy() for side in drawn.people]
    own = scored["plda-cell"].scores.reshape(-1)[drawn.where]
    expected = speaker_intervals(own, drawn.kinds, *people, weights=drawn.weights).intervals[
        "Total"
    ]["eer"]
    unweighted = speaker_intervals(own, drawn.kinds, *people).intervals["Total"]["eer"]
    found = results["plda-cell"].intervals.intervals["Total"]["eer"]
    whole = done[0]["plda-cell"].evaluation["Total"]["eer"]
    assert found == expected
    assert abs(found.estimate - whole) < 0.5 * abs(unweighted.estimate - whole)
    assert results.comparisons[PAIRS[0]].tests["Total"]["eer"].b == pytest.approx(found.estimate)


def test_a_kind_without_trials_is_a_dash(without_tw, tmp_path):
    results, scored, _ = run(without_tw)
    assert math.isnan(results["best"].evaluation["TW"]["eer"])
    assert [line[32:].split()[2] for line in results.table().splitlines()[1:5]] == ["-"] * 4
    assert results.claim().splitlines()[1].split() == ["IW", "IC", "Total"]
    results.save(tmp_path)
    assert (
        json.loads((tmp_path / "results.json").read_text())["systems"]["best"]["kinds"]["TW"]["eer"]
        is None
    )
    rows = csv.DictReader(io.StringIO((tmp_path / "table.csv").read_text()))
    assert {row["eer"] for row in rows if row["kind"] == "TW"} == {""}
    write_experiment_page(results, scored, without_tw, tmp_path / "report.html")
    assert "nan" not in re.sub(
        r"<svg.*?</svg>", "", (tmp_path / "report.html").read_text(), flags=re.S
    )


def test_groups_are_judged_on_their_own(tmp_path):
    corpus, vectors = drawn({"speaker": 24, "phrase": 3}, noise=2.0)
    group = np.where(corpus.labels["speaker"] < "s12", "f", "m")
    task = Task.of(in_groups(corpus, group), vectors)
    results, scored, _ = run(task, FEW[:2], resamples=0)
    for name in ("f", "m"):
        rows = np.flatnonzero(task.groups == name)
        own = {v: c[rows] for v, c in task.model_labels.items()}
        columns = np.flatnonzero(np.isin(task.test_labels["speaker"], own["speaker"]))
        part = replace(
            task,
            model_labels=own,
            test_labels={v: c[columns] for v, c in task.test_labels.items()},
            mask=None,
            groups=None,
        )
        expected = evaluate(scored["plda-cell"].scores[np.ix_(rows, columns)], part.kinds)
        assert results["plda-cell"].groups[name] == expected
    results.save(tmp_path)
    assert "EER, %, f " in (tmp_path / "table.txt").read_text()
    assert set(
        json.loads((tmp_path / "results.json").read_text())["systems"]["cosine"]["groups"]
    ) == {"f", "m"}


def test_a_group_that_cannot_be_judged_is_left_out():
    corpus, vectors = drawn({"speaker": 8, "phrase": 1}, training=4, views=("speaker",))
    alone = corpus.labels["speaker"][corpus.protocol.test[0]]
    task = Task.of(
        in_groups(corpus, np.where(corpus.labels["speaker"] == alone, "one", "rest")), vectors
    )
    results, _, _ = run(task, FEW[:1], resamples=0)
    assert set(results["cosine"].groups) == {"rest"}


def test_too_few_speakers_for_intervals_is_said_and_no_more():
    task = drawn_task({"speaker": 8, "phrase": 3}, training=6)
    results, _, _ = run(task)
    intervals = results["best"].intervals
    assert intervals is not None
    assert set(intervals.too_few) >= {"IC", "IW"}
    assert not any(intervals.intervals.get(kind) for kind in intervals.too_few)


def test_systems_of_two_views_are_left_out_of_three():
    task = drawn_task(
        {"speaker": 8, "phrase": 2, "channel": 2},
        sessions=4,
        training=5,
        views=("speaker", "phrase"),
    )
    results, _, said = run(task, [SYSTEMS["cosine"], SYSTEMS["jplda-printed"]], resamples=0)
    assert said[0] == "left out, for two views only: jplda-printed"
    assert [s.name for s in results.systems] == ["cosine"]
    assert results.kinds[-1] == "Total"
    assert len(results.kinds) == 8
    with pytest.raises(ParameterError, match="no system is left"):
        run(task, [SYSTEMS["jplda-printed"]])


def test_columns_of_long_names_stay_apart(tmp_path):
    """Three views make kinds such as speaker+channel; every table keeps its columns apart and in line."""
    corpus, vectors = drawn(
        {"speaker": 20, "phrase": 2, "channel": 2},
        sessions=4,
        training=10,
        noise=2.0,
        views=("speaker", "phrase"),
    )
    sexes = np.where(
        np.isin(corpus.labels["speaker"], np.unique(corpus.labels["speaker"])[::2]), "f", "m"
    )
    task = Task.of(in_groups(corpus, sexes), vectors)
    results, _, said = run(task, [SYSTEMS["cosine"], SYSTEMS["plda-cell"], SYSTEMS["best"]])
    assert "speaker+channel" in results.kinds
    table, spans, groups = (part.splitlines() for part in
                            (results.table(), results.intervals_table(), results.groups_table()))  # fmt: skip
    assert re.split(r"  +", table[0])[1:] == [
        *results.kinds,
        "minDCF default",
        "Cllr",
        "minCllr",
        "s",
    ]
    assert spans[0].split()[2:] == results.kinds
    assert groups[0].split()[3:] == results.kinds
    assert said == table[: len(said)]
    for lines in (table[:4], spans, groups[:4]):
        assert len({len(line) for line in lines}) == 1
        ends = {match.end() for match in re.finditer(r"\S+", lines[0])}
        for line in lines[1:]:
            cells = re.split(r"  +", line.strip())
            assert len(cells) == len(re.split(r"  +", lines[0]))
            assert {match.end() for match in re.finditer(r"[\d\]-]+(?=  |$)", line)} <= ends
    assert results.claim().splitlines()[1].split() == results.kinds


def test_the_page_stands_alone(task, done, tmp_path):
    results, scored, _ = done
    results = replace(results, notes=("utt7: <truncated>",))
    history = [
        {
            "epoch": e,
            "loss": 2 / e,
            "accuracy": {"speaker": 0.5, "phrase": 0.9},
            "held_out_eer": 0.1,
        }
        for e in (1, 2)
    ]
    written = write_experiment_page(
        results, scored, task, tmp_path / "report.html", source="drawn & known", history=history
    )
    pictures = {path.name for path in written}
    assert {
        f"{when}-{view}.png" for when in ("before", "after") for view in ("speaker", "phrase")
    } <= pictures
    assert "training.png" in pictures
    page = written[0].read_text()
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert not re.search(r"@import|url\((?!#)", page)
    assert "<script" not in page
    for system in FEW:
        assert f"<td>{system.title.strip()}" in page
    assert "drawn &lt;&amp;&gt; vectors" in page
    assert "utt7: &lt;truncated&gt;" in page
    assert "EER as a share" in page
    assert page.count("<svg") >= 6
    assert all(path.stat().st_size > 500 for path in written)


@pytest.mark.parametrize("name", ["cosine", "cascade", "plda-speaker", "jplda-printed"])
def test_any_system_can_be_the_last(task, tmp_path, name):
    results, scored, _ = run(task, [SYSTEMS[name]], resamples=0)
    write_experiment_page(results, scored, task, tmp_path / "report.html")
    assert results[name].title in (tmp_path / "report.html").read_text()


# -- the interval of a ratio ---------------------------------------------------


def simulate(rng, speakers=25, tests=3, mean=3.0, noises=(1.0, 1.6), spread=0.5):
    """Scores of two systems, with effects of the speakers in common and noise of their own."""
    who = np.arange(speakers)
    test = np.repeat(who, tests)
    same = who[:, None] == test[None, :]
    own, enrolled, tested = rng.normal(0, spread, (3, speakers))
    effect = np.where(same, mean + own[:, None], enrolled[:, None] + tested[test][None, :])
    return [effect + rng.normal(0, noise, same.shape) for noise in noises], same, who, test


def population_eer(mean, noise, spread):
    return ndtr(-mean / (np.hypot(spread, noise) + np.sqrt(2 * spread**2 + noise**2)))


def test_a_ratio_interval_by_hand():
    """Draw the same speakers, weigh their trials, and take both systems' EER of the same draw."""
    (a, b), same, who, test = simulate(np.random.default_rng(0))
    found = compare_systems(a, b, same, who, test, n_resamples=200, random_state=5).tests["Total"][
        "eer"
    ]
    rng, ratios = np.random.default_rng(5), []
    for _ in range(200):
        times = np.bincount(rng.integers(len(who), size=len(who)), minlength=len(who))
        weight = np.where(same, times[:, None], times[:, None] * times[test][None, :])
        ours, theirs = (eer(*(np.repeat(s[m], weight[m]) for m in (same, ~same))) for s in (a, b))
        ratios.append(ours / theirs)
    z = student.ppf(0.975, len(who) - 1) * math.sqrt(len(who) / (len(who) - 1))
    assert (found.ratio_low, found.ratio_high) == pytest.approx(
        tuple(np.quantile(ratios, [ndtr(-z), ndtr(z)]))
    )
    assert found.ratio == pytest.approx(eer(a[same], a[~same]) / eer(b[same], b[~same]))
    assert found.ratio_low < found.ratio < found.ratio_high < 1


def test_ratios_at_the_edge():
    """No error of either is one; no error of B alone is infinitely more."""
    assert math.isnan(PairedTest(0.1, 0.0, 0.1, 0, 0, 0.01, 0.95, 1, 1).ratio)
    perfect = np.eye(6) * 10
    found = compare_systems(
        perfect, perfect, np.eye(6, dtype=bool), np.arange(6), np.arange(6), n_resamples=50
    )
    test = found.tests["Total"]["eer"]
    assert (test.ratio_low, test.ratio_high) == (1.0, 1.0)
    wrong = perfect.copy()
    wrong[0, 0] = -1.0
    test = compare_systems(wrong, perfect, np.eye(6, dtype=bool), np.arange(6), np.arange(6), n_resamples=50,
                           random_state=0).tests["Total"]["eer"]  # fmt: skip
    assert test.ratio_high == math.inf
    assert test.verdict != "A"


@pytest.mark.slow
def test_ratio_intervals_cover_the_ratio():
    """The population's ratio lies in about 95 % of the intervals, and none is idle: one always lies in few."""
    rng = np.random.default_rng(1)
    truth = population_eer(3.0, 1.0, 0.5) / population_eer(3.0, 1.6, 0.5)
    inside, ones = 0, 0
    for _ in range(50):
        (a, b), same, who, test = simulate(rng)
        found = compare_systems(a, b, same, who, test, n_resamples=100, random_state=0).tests[
            "Total"
        ]["eer"]
        inside += found.ratio_low <= truth <= found.ratio_high
        ones += found.ratio_low <= 1 <= found.ratio_high
    assert inside >= 43
    assert ones <= 10
