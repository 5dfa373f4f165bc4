"""Experiments: configurations, tasks, systems, tables and their provenance."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mvplda.cli.experiment import experiment_command
from mvplda.exceptions import LabelError, ParameterError
from mvplda.metrics import evaluate
from mvplda.metrics.catalogue import Interval
from mvplda.paper.corpora import build_corpus, load_corpus
from mvplda.paper.corpus_vectors import read_corpus_vectors
from mvplda.paper.experiment import run_experiment, run_systems
from mvplda.paper.experiment_settings import (
    RECIPES,
    BackendSettings,
    Configuration,
    read_configuration,
    read_recipe,
    to_toml,
)
from mvplda.paper.provenance import SCHEMA, digest_of
from mvplda.paper.result_page import CURVES, SystemsDetDisplay, write_result_page
from mvplda.paper.results import KINDS, over_seeds
from mvplda.paper.systems import SYSTEMS, Task, run_system, systems_named
from mvplda.paper.trial_sample import TrialSample


def drawn(seed=0, speakers=12, phrases=3, sessions=6, width=12):
    """Return labels and vectors that depend on the speaker and on the phrase."""
    rng = np.random.default_rng(seed)
    speaker = np.repeat(np.arange(speakers), phrases * sessions)
    phrase = np.tile(np.repeat(np.arange(phrases), sessions), speakers)
    X = rng.normal(size=(speakers, width))[speaker] + rng.normal(size=(phrases, width))[phrase]
    X += 0.6 * rng.normal(size=X.shape)
    labels = {
        "speaker": np.array([f"s{i:02d}" for i in speaker]),
        "phrase": np.array([f"p{i}" for i in phrase]),
    }
    return np.array([f"u{i}" for i in range(len(X))]), labels, X.astype(np.float32)


@pytest.fixture(scope="module")
def task():
    ids, labels, X = drawn()
    corpus = build_corpus("toy", ids, labels, None)
    return Task(corpus, X)


def test_a_task_divides_vectors_by_the_protocol(task):
    assert task.train.shape == (144, 12)
    assert task.enrol_ids.shape == (36,)
    assert task.per_model == 3
    assert task.cell == "speaker:phrase"
    assert task.classes == {"speaker": 8, "phrase": 3, "speaker:phrase": 24}
    counts = {kind: int(mask.sum()) for kind, mask in task.kinds.items()}
    assert counts == {"TC": 36, "TW": 72, "IC": 108, "IW": 216}


def test_an_experiment_needs_two_views():
    ids, labels, X = drawn()
    corpus = build_corpus("toy", ids, {"speaker": labels["speaker"]}, None)
    with pytest.raises(LabelError, match="two views"):
        Task(corpus, X).views  # noqa: B018


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name != "best"])
def test_every_system_beats_chance(task, name):
    settings = BackendSettings(reduce=8, paper_iterations=3)
    scores, _ = run_system(SYSTEMS[name], task, settings)
    assert scores.shape == (12, 36)
    assert np.median(scores[task.kinds["TC"]]) > np.median(scores[task.kinds["IW"]])


def test_the_papers_systems_have_the_settings_of_the_paper(task):
    settings = BackendSettings(paper_rank=20)
    model = SYSTEMS["jplda-printed-raw"].build(task, settings).scorer
    assert model.views == {"speaker": 7, "phrase": 2}  # one fewer than there are classes
    assert (model.algorithm, model.init, model.max_iter, model.noise) == (
        "paper",
        "random",
        10,
        "diagonal",
    )
    cells = SYSTEMS["plda-cell"].build(task, settings).scorer
    assert cells.views == {"speaker:phrase": 23}
    other = replace(settings, start="moments", noise="full", priors=(1.0, 2.0, 3.0))
    model = SYSTEMS["jplda-printed"].build(task, other).scorer
    assert (model.init, model.noise) == ("moments", "full")
    question = SYSTEMS["jplda-printed"].question(task, other)
    assert question["priors"] == {("phrase",): 1.0, ("speaker",): 2.0, (): 3.0}
    assert question["scoring"] == "paper"


def test_systems_by_name_and_group():
    assert [s.name for s in systems_named(("best", "cosine"))] == ["cosine", "best"]
    assert "jplda-exact-raw" in {s.name for s in systems_named(("paper",))}
    with pytest.raises(ParameterError, match="unknown system 'magic'"):
        systems_named(("magic",))


def test_the_help_lists_the_default_systems():
    (option,) = [option for option in experiment_command.params if option.name == "systems"]
    *names, last = [system.name for system in systems_named(())]
    assert f"[default: {', '.join(names)} and {last}]" in option.help


def test_a_run_writes_its_table_its_model_and_their_provenance(tmp_path):
    ids, labels, X = drawn()
    np.savez(tmp_path / "v.npz", X=X, ids=ids, **labels)
    corpus = load_corpus("vectors", tmp_path / "v.npz")
    changes = {"evaluation.systems": ["cosine", "plda-cell", "best"], "evaluation.resamples": 10}
    configuration = read_recipe("small", {"name": "vectors"}).with_changes(changes)
    options: dict[str, Any] = {
        "vectors": [tmp_path / "v.npz"],
        "inputs": [tmp_path / "v.npz"],
    }
    lines: list[str] = []
    results = run_experiment(corpus, configuration, tmp_path / "out", lines.append, **options)
    saved = json.loads((tmp_path / "out" / "results.json").read_text())
    assert set(saved["systems"]) == {"cosine", "plda-cell", "best"}
    assert saved["schema"] == SCHEMA
    for row in (*saved["systems"].values(), *saved["comparisons"]):
        assert row["provenance"]["inputs"] == {"v.npz": digest_of(tmp_path / "v.npz")}
        assert {"mvplda", "commit", "date", "platform", "packages", "command"} <= set(
            row["provenance"]
        )
    assert [(c["of"], c["with"]) for c in saved["comparisons"]] == [
        ("best", "plda-cell"),
        ("plda-cell", "cosine"),
    ]
    assert results["best"].evaluation["Total"]["eer"] < 0.2
    assert (tmp_path / "out" / "model.safetensors").is_file()
    page = (tmp_path / "out" / "report.html").read_text()
    assert "the angle between the mean of the enrolment vectors" in page
    assert f"Best system: {html.escape(results.best().title)}, with " in page
    assert (
        page.index("<h2>Error rates")
        < page.index("What to do next")
        < page.index("Errors and costs by kind")
    )
    assert read_configuration(tmp_path / "out" / "configuration.toml") == configuration


def test_published_figures_are_shown_next_to_measured_ones(task):
    names = ["cosine-plain", "cosine", "plda-cell-raw", "jplda-exact-raw"]
    changes = {"evaluation.resamples": 0, "evaluation.systems": names}
    configuration = Configuration().with_changes(changes)
    results, _ = run_systems(task, configuration, lambda text: None)
    # no published figures for vectors of an unknown corpus
    assert "paper" not in results.table()
    results = replace(results, configuration={"corpus": {"name": "cvau"}})
    head, cosine, centred, cells, line, exact, source = results.table().splitlines()
    # other systems have no published figures, even between those of the paper
    assert len(centred.split()) == 2 + len(KINDS)
    assert "6.50" in cells.split()
    assert "IC, paper" in head
    ours = f"{100 * results['cosine-plain'].evaluation['IC']['eer']:.2f}"
    assert cosine.split()[4:6] == ["7.86", ours]
    assert set(line) == {"-"}
    assert exact.startswith("jPLDA exact")
    assert source == "paper: arXiv 1704.06061, on rsr2015"
    assert "paper" not in replace(results, systems=results.systems[3:]).table()


def test_a_kind_without_trials_has_dashes(tmp_path):
    """If every speaker has their own phrase, there are no trials of an impostor with the right phrase."""
    ids, labels, X = drawn(speakers=16, phrases=1)
    labels["phrase"] = np.char.replace(labels["speaker"], "s", "p")
    task = Task(build_corpus("toy", ids, labels, None), X)
    changes = {"evaluation.resamples": 10, "evaluation.systems": ["cosine", "plda-cell"]}
    results, _ = run_systems(task, Configuration().with_changes(changes), lambda text: None)
    (claim,) = results.claims()[1:]
    assert claim[2:4] == ["-", "-"]
    results.save(tmp_path)
    write_result_page(tmp_path / "report.html", results, "made here")
    assert "<h2>Comparisons" in (tmp_path / "report.html").read_text()


def test_the_page_presents_the_model_the_question_and_the_results(tmp_path):
    ids, labels, X = drawn(speakers=24)
    task = Task(build_corpus("toy", ids, labels, None), X)
    names = ["cosine", "plda-cell", "jplda-exact"]
    changes = {"evaluation.systems": names, "evaluation.resamples": 20, "corpus.name": "cvau"}
    configuration = Configuration().with_changes(changes)
    results, _ = run_systems(task, configuration, lambda text: None)
    results = replace(results, title="toy", configuration=configuration.to_dict())
    write_result_page(tmp_path / "report.html", results, "drawn here")
    page = (tmp_path / "report.html").read_text()
    headings = re.findall(r"<h2>([^<]*)", page)
    assert headings[:6] == [
        "The model and the question",
        "Error rates",
        "Beside the paper's figures",
        "Detection error trade-off",
        "The systems",
        "Comparisons",
    ]
    assert "Next steps" in headings
    assert "Ratio of the EER of joint PLDA to that of PLDA: " in page
    # two pictures, the plot of systems, and a DET plot per kind, without network access or colliding ids
    assert page.count("<svg") == 3 + len(CURVES)
    assert not re.search(r'(src|href)="(?!#|https://arxiv\.org)', page)
    identifiers = re.findall(r'\bid="([^"]+)"', page)
    assert len(identifiers) == len(set(identifiers))
    # the paper's figures are marked as those of other data
    assert "paper 6.50" in page
    assert "other data, RSR2015" in page


def test_a_page_of_three_views_has_no_pictures_of_two(tmp_path):
    ids, labels, X = drawn(speakers=24)
    labels["channel"] = np.array([f"c{i % 2}" for i in range(len(X))])
    task = Task(build_corpus("toy", ids, labels, None, per_model=2), X)
    changes = {"evaluation.systems": ["cosine", "plda-cell"], "evaluation.resamples": 5}
    results, _ = run_systems(task, Configuration().with_changes(changes), lambda text: None)
    write_result_page(tmp_path / "report.html", results, "drawn here")
    page = (tmp_path / "report.html").read_text()
    assert "The model and the question" not in page
    assert "Beside the paper" not in page
    assert page.count("<svg") == 1 + len(results.kinds)


def test_pictures_of_the_page_are_those_of_the_documents():
    pictures = files("mvplda.paper") / "pictures"
    for name in ("model.svg", "hypotheses.svg"):
        document = Path(__file__).parents[2] / "docs" / name
        assert (pictures / name).read_bytes() == document.read_bytes()


def test_det_curves_show_the_errors_of_the_evaluation(task):
    changes = {"evaluation.systems": ["cosine", "plda-cell"], "evaluation.resamples": 0}
    results, _ = run_systems(task, Configuration().with_changes(changes), lambda text: None)
    sample = results.sample
    for kind in ("IC", "Total"):
        display = SystemsDetDisplay(results.systems, sample, kind)
        for system in results.systems:
            kinds = list(sample.kinds)[1:] if kind == "Total" else [kind]
            curve = display._curve(system, "TC", kinds)
            assert curve.eer() == pytest.approx(system.evaluation[kind]["eer"])
    # kinds of which only a part was drawn have their full weight in Total
    part = TrialSample.of(task, max_trials=60)
    assert max(part.weights.values()) > 1.5
    scores, _ = run_system(SYSTEMS["cosine"], task, BackendSettings())
    sampled = replace(results["cosine"], sample=part.scores(scores))
    curve = SystemsDetDisplay([sampled], part, "Total")._curve(sampled, "TC", list(part.kinds)[1:])
    n_non_targets = results["cosine"].evaluation["Total"].n_nontargets
    assert curve.others.total == pytest.approx(n_non_targets)


def test_groups_are_evaluated_separately_and_together(tmp_path):
    ids, labels, X = drawn(speakers=24)
    corpus = build_corpus("toy", ids, labels, None)
    is_odd = np.array([int(name[1:]) % 2 == 1 for name in labels["speaker"]])
    task = Task(replace(corpus, groups=np.where(is_odd, "female", "male")), X)
    changes = {"evaluation.systems": ["cosine", "plda-cell"]}
    results, _ = run_systems(task, Configuration().with_changes(changes), lambda text: None)
    groups = results["cosine"].groups
    assert list(groups) == ["female", "male"]
    # errors of a group are those of a task with its enrolments alone
    women = task.groups["female"]
    scores, _ = run_system(SYSTEMS["cosine"], task, BackendSettings())
    kinds = {kind: mask[women] for kind, mask in task.kinds.items()}
    evaluation, intervals = groups["female"]
    assert evaluation["Total"]["eer"] == evaluate(scores[women], kinds)["Total"]["eer"]
    assert intervals is not None
    counts = [evaluation["IC"].n_nontargets for evaluation, _ in groups.values()]
    assert sum(counts) == results["cosine"].evaluation["IC"].n_nontargets
    results.save(tmp_path)
    table = (tmp_path / "table.txt").read_text()
    assert table.index("Enrolments of female speakers") < table.index("Enrolments of male speakers")
    saved = json.loads((tmp_path / "results.json").read_text())
    assert set(saved["systems"]["cosine"]["groups"]) == {"female", "male"}
    write_result_page(tmp_path / "report.html", results, "drawn here")
    page = (tmp_path / "report.html").read_text()
    assert "Enrolments of female speakers" in page


def test_blocks_of_a_file_are_concatenated(tmp_path):
    ids, labels, X = drawn()
    numbers = np.arange(len(ids)).astype(str)
    np.savez(tmp_path / "v.npz", voice=X, words=3 * X[:, :5])
    corpus = build_corpus("toy", numbers, labels, None)
    read = read_corpus_vectors(corpus, [tmp_path / "v.npz"])
    assert read.blocks == {"voice": 12, "words": 5}
    joined = Task(corpus, read.vectors.X, read.blocks).joined
    assert not joined.blocks
    for block in (joined.test[:, :12], joined.train[:, 12:]):
        np.testing.assert_allclose(np.linalg.norm(block, axis=1), 1, rtol=1e-5)
    np.savez(tmp_path / "w.npz", X=X, ids=[f"other{i}" for i in range(len(X))])
    with pytest.raises(LabelError, match="no vector; the first is '0'"):
        read_corpus_vectors(corpus, [tmp_path / "w.npz"])


# Configurations


def test_recipes_are_read_and_written(tmp_path):
    for name in RECIPES:
        configuration = read_recipe(name, {"name": "synthetic"})
        (tmp_path / "c.toml").write_text(to_toml(configuration.to_dict()))
        assert read_configuration(tmp_path / "c.toml") == configuration


def test_the_recipe_called_paper_is_the_papers():
    paper = read_recipe("paper", {"name": "rsr2015"})
    network = paper.network
    assert network.pretrained
    assert (network.hidden, network.layers, network.context) == (2048, 6, 5)
    assert (paper.features.kind, paper.features.cepstra, paper.features.deltas) == ("mfcc", 13, 2)
    assert (paper.training.epochs, network.pretraining.gaussian_epochs) == (20, 10)
    assert not read_recipe("paper-without-pretraining", {}).network.pretrained


def test_changes_are_addressed_by_section_and_name():
    changes = {"training.epochs": 3, "network.pretraining.epochs": 1, "backend.reduce": 0}
    changed = Configuration().with_changes(changes)
    assert changed.training.epochs == 3
    assert changed.network.pretraining.epochs == 1
    assert changed.backend.reduce == 0
    with pytest.raises(ParameterError, match=r"\[training\] epochs must be of type int"):
        Configuration().with_changes({"training.epochs": 2.5})
    with pytest.raises(ParameterError, match="epochs must be above 0; got 0"):
        Configuration().with_changes({"training.epochs": 0})
    with pytest.raises(ParameterError, match="momentum must be from 0 to below 1"):
        Configuration().with_changes({"training.momentum": 1.0})
    with pytest.raises(ParameterError, match="priors must be empty, or p1, p2 and p3"):
        Configuration().with_changes({"backend.priors": [1.0]})
    with pytest.raises(ParameterError, match=r"\[features\].*nonsense"):
        Configuration().with_changes({"features.nonsense": 0})
    with pytest.raises(ParameterError, match=r"section\.name"):
        Configuration().with_changes({"epochs": 0})
    with pytest.raises(ParameterError, match="name is a single setting, not a section"):
        Configuration(corpus={"name": "cvau"}).with_changes({"corpus.name.odd": 0})
    with pytest.raises(ParameterError, match="a configuration has no setting 'odd'"):
        Configuration.from_dict({"odd": {}})


# Readings of the paper


@pytest.mark.parametrize("reading", [{"e_step": "body"}, {"m_step": "together"}, {"noise": "full"}])
def test_readings_change_only_the_published_system(task, reading):
    settings = BackendSettings(paper_iterations=3)
    other = replace(settings, **reading)
    scores = [run_system(SYSTEMS["jplda-printed-raw"], task, s)[0] for s in (settings, other)]
    assert np.abs(scores[0] - scores[1]).max() > 1e-6
    if "noise" not in reading:
        exact = [run_system(SYSTEMS["jplda-exact-raw"], task, s)[0] for s in (settings, other)]
        np.testing.assert_array_equal(*exact)


def test_the_start_applies_to_all_of_the_papers_systems(task):
    for start in ("random", "moments"):
        settings = BackendSettings(start=start)
        for name in ("jplda-printed-raw", "jplda-exact-raw", "plda-cell-raw"):
            assert SYSTEMS[name].build(task, settings).scorer.init == start
            assert SYSTEMS[name].is_random(settings) == (start == "random")
    assert SYSTEMS["jplda-printed"].is_random(BackendSettings())
    assert not SYSTEMS["jplda-exact"].is_random(BackendSettings())


def test_a_grid_has_a_row_for_every_combination(task):
    changes = {
        "evaluation.resamples": 0,
        "evaluation.systems": ["cosine", "jplda-printed"],
        "backend.paper_iterations": 2,
        "grid.priors": [[1, 1, 1], [1, 1, 100]],
        "grid.e_step": ["appendix", "body"],
    }
    configuration = Configuration().with_changes(changes)
    results, _ = run_systems(task, configuration, lambda text: None)
    names = [system.name for system in results.systems]
    assert names[0] == "cosine"
    assert len(names) == 5
    assert names[1] == "jplda-printed; priors [1, 1, 1]; e_step appendix"
    errors = {system.evaluation["IC"]["eer"] for system in results.systems[1:]}
    assert len(errors) > 1
    with pytest.raises(ParameterError, match="e_step must be one of"):
        Configuration().with_changes({"grid.e_step": ["head"]})
    with pytest.raises(ParameterError, match=r"\[grid\] e_step must be a list"):
        Configuration().with_changes({"grid.e_step": "body"})


def test_seeds_widen_intervals(task):
    changes = {
        "evaluation.systems": ["jplda-printed", "jplda-exact"],
        "evaluation.seeds": 5,
        "evaluation.resamples": 5,
        "backend.paper_iterations": 2,
    }
    results, _ = run_systems(task, Configuration().with_changes(changes), lambda text: None)
    seeds = results["jplda-printed"].seeds
    assert len(seeds["IC"]["values"]) == 5
    assert not results["jplda-exact"].seeds  # its initialisation is not random
    assert f"{100 * seeds['IC']['eer']:.2f}" in results.table()
    assert "seeds" in results["jplda-printed"].to_dict()


class Errors(dict[str, Any]):
    """An evaluation with a single kind of trial."""

    rows = ("IC",)


class IntervalsAround:
    """Intervals from half the value to twice the value."""

    def __init__(self, eer):
        self.interval = Interval(eer, eer / 2, 2 * eer)

    def of(self, kind, name):
        return self.interval


def test_intervals_over_seeds_add_variances():
    def runs(*values) -> Any:
        return [(Errors(IC={"eer": value}), IntervalsAround(value)) for value in values]

    same = over_seeds(runs(0.1, 0.1, 0.1))["IC"]
    assert same["low"] == pytest.approx(0.05)
    assert same["high"] == pytest.approx(0.2)
    # a lower end of zero in one run of three leaves two thirds of the lower end of the others
    from_zero: Any = IntervalsAround(0.1)
    from_zero.of = lambda kind, name: Interval(0.1, 0.0, 0.2)
    three_runs: Any = [*runs(0.1, 0.1), (Errors(IC={"eer": 0.1}), from_zero)]
    with_zero = over_seeds(three_runs)["IC"]
    assert with_zero["low"] == pytest.approx(2 / 3 * 0.05)
    assert with_zero["high"] == pytest.approx(0.2)
    varied = over_seeds(runs(0.05, 0.1, 0.15))["IC"]
    assert varied["eer"] == pytest.approx(0.1)
    assert varied["low"] < 0.05
    assert varied["high"] > 0.2
