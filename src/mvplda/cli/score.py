"""Commands that score trials: score, calibrate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from . import MODELS, KeyValue, Written, looked_up, once

if TYPE_CHECKING:
    from .._typing import Json, Names
    from ..bundle import Bundle
    from ..io.trials import Trials
    from ..io.vectors import VectorSet
    from ..scoring.profiles import Profiles
    from ..scoring.question import Question

AT_A_TIME = 2**20
"""Trials of a list that are scored together."""


@click.command()
@click.argument("model")
@click.option("--enrol", help="Make the models of these vectors.  [default: those of --test]")
@click.option("--models", help=MODELS)
@click.option(
    "--profiles",
    help="Score these profiles, which `mvplda profiles add` wrote, in place of --enrol and --models.",
)
@click.option(
    "--test", "tests", required=True, help="Read the vectors of the tests from this file."
)
@click.option(
    "--trials",
    help="Score the trials of this list (model id, test id), and write them in its order.  [default: every model "
    "against every test]",
)
@click.option(
    "-o",
    "--output",
    default="-",
    type=Written(),
    help="Write the scores to this file; - is standard output.",
)
@click.option(
    "--same",
    multiple=True,
    help="Ask whether both sides are the same in this view, whatever the other views are; may be repeated.  "
    "[default: every view that is not given]",
)
@click.option(
    "--given",
    multiple=True,
    type=KeyValue(),
    help="VIEW=same or VIEW=different: take as known that both sides of every trial agree, or differ, in VIEW.",
)
@click.option(
    "--known",
    type=KeyValue(),
    help="VIEW=FILE: take as known which class of VIEW every model claims, as FILE lists it (model id, class). "
    "What training learnt of the claimed class then sharpens the score; a claim that training did not see is "
    "scored as if it were not known, and counted in a warning.",
)
def score(
    model: str,
    enrol: str | None,
    models: str | None,
    profiles: str | None,
    tests: str,
    trials: str | None,
    output: str,
    **asked: Any,
) -> None:
    """Natural-log likelihood ratios of a trial list, or of all pairs.

    \b
    Examples:
      mvplda score model.safetensors --enrol enrol.npz --test test.npz -o scores
      mvplda score model.safetensors --enrol enrol.scp --models spk2utt --test test.scp --trials trials -o scores
      mvplda score model.safetensors --test test.scp --trials trials --same speaker -o -
    """
    from ..io.trials import Scores, read_trials, write_scores
    from ..model_files import load_model

    if profiles is not None and (enrol is not None or models is not None):
        raise click.UsageError(
            "--profiles are models that are ready: leave out --enrol and --models"
        )
    system = load_model(model)
    listed = None if trials is None else read_trials(trials)
    test_set = read_side(system, tests)
    enrolled = enrolled_profiles(system, enrol, models, profiles, test_set)
    if listed is None:
        listed = all_pairs(enrolled, test_set)
    enrolled = enrolled.select(listed.enrol.names)
    tested = system.enrol(test_set.select(listed.test.names).X)
    question = read_question(system, listed, asked)
    values = of_list(system, enrolled, tested, listed, question)
    write_scores(output, Scores(listed.enrol, listed.test, values))


def all_pairs(enrolled: Profiles, tests: VectorSet) -> Trials:
    """Every profile against every test."""
    import numpy as np

    from ..coded import Coded
    from ..io.trials import Trials

    rows, columns = np.indices((len(enrolled), len(tests)), dtype=np.int32)
    models = Coded(enrolled.ids.astype(np.str_), rows.ravel())
    return Trials(models, Coded(tests.ids, columns.ravel()))


def read_question(system: Bundle, listed: Trials, asked: Json) -> Question:
    """What the options ask of every trial, with the file that they name."""
    from ..scoring.question import Question

    known = None
    if asked["known"] is not None:
        view, path = asked["known"]
        classes = system.fitted_scorer.known_names(view)
        known = {view: read_claims(view, path, listed.enrol.names, classes)}
    return Question(asked["same"] or None, once("--given", asked["given"]) or None, known=known)


def of_list(
    system: Bundle,
    enrolled: Profiles,
    tested: Profiles,
    listed: Trials,
    question: Question,
) -> Names:
    """Scores of a list, of some of its trials at a time; calibrated where the model has it for the question."""
    import numpy as np

    calibrated = system.calibration(question) is not None
    if system.calibrations and not calibrated:
        click.echo(
            "mvplda: the model's calibration is for another question: these scores are not calibrated",
            err=True,
        )
    values: list[Any] = []
    for start in range(0, len(listed), AT_A_TIME):
        some = slice(start, start + AT_A_TIME)
        pairs = np.stack([listed.enrol.codes[some], listed.test.codes[some]], axis=1)
        if calibrated:
            values.append(system.answer(enrolled, tested, question, pairs).llr)
        else:
            values.append(system.llr_trials(enrolled, tested, pairs, question))
    return np.concatenate(values)


def read_side(bundle: Bundle, path: str) -> VectorSet:
    """Vectors, of the extractor that the model is for."""
    from ..io.vectors import read_vectors

    vectors = read_vectors(path)
    bundle.check_extractor(vectors.extractor, path)
    return vectors


def enrolled_profiles(
    bundle: Bundle, enrol: str | None, models: str | None, profiles: str | None, tests: VectorSet
) -> Profiles:
    """Profiles from a file, or from vectors and an enrolment list."""
    from ..io.lists import read_groups
    from ..persistence import check_same_extractor

    if profiles is not None:
        from ..voice.profile_file import ProfileBook

        book = ProfileBook(profiles)
        X = book.all_vectors()
        bundle.check_extractor(book.extractor, profiles)
        return bundle.enrol(X, book.owners)
    vectors = tests if enrol is None else read_side(bundle, enrol)
    if enrol is not None and bundle.extractor is None:
        check_same_extractor("the vectors of the tests", tests.extractor, enrol, vectors.extractor)
    if models is None:
        return bundle.enrol(vectors.X, vectors.ids)
    groups = read_groups(models)
    members = [name for group in groups.values() for name in group]
    owners = [model for model, group in groups.items() for _ in group]
    return bundle.enrol(vectors.select(members).X, owners)


def read_claims(view: str, path: str, models: Names, classes: Names) -> Names:
    """The class of a view that every model claims, as the model's classes are written."""
    import numpy as np

    texts = looked_up(path, models, f"the class of {view!r}")
    by_text = {str(name): name for name in classes.tolist()}
    if classes.dtype.kind in "iu":
        # a number that no class has stands for texts that no class has: all claims are of one type
        by_text = {**dict.fromkeys(texts, classes.max() + 1), **by_text}
    return np.asarray([by_text.get(text, text) for text in texts])


@click.command()
@click.argument("scores")
@click.option(
    "--trials",
    "key",
    help="Train a calibration on SCORES and the key of this trial list (target, nontarget, TC ...).",
)
@click.option(
    "--enrol-speakers",
    help="Read the speaker of every model id from this map: the calibration is then as sure as that many speakers "
    "allow, and says how many there were.",
)
@click.option("--save", "target", type=Written(), help="Write the calibration to this file.")
@click.option(
    "--load", "source", help="Apply this calibration, which --save wrote, in place of training one."
)
@click.option(
    "-o",
    "--output",
    type=Written(),
    help="Write the calibrated SCORES to this file; - is standard output.",
)
def calibrate(
    scores: str,
    key: str | None,
    enrol_speakers: str | None,
    target: str | None,
    source: str | None,
    output: str | None,
) -> None:
    """Make scores natural-log likelihood ratios: train on SCORES with a key, or apply to them.

    A model of `mvplda train --folds 4` is calibrated already, for every question.

    \b
    Examples:
      mvplda calibrate dev-scores --trials dev-trials --enrol-speakers model2spk --save cal.safetensors
      mvplda calibrate scores --load cal.safetensors -o calibrated
    """
    from ..calibration.scores import LinearCalibrator
    from ..io.trials import Scores, read_scores, read_trials, write_scores
    from .evaluate import labels_in, matched

    if (key is None) == (source is None):
        raise click.UsageError("give --trials to train a calibrator, or --load to apply one")
    if source is not None and target is not None:
        raise click.UsageError("--save is for a calibration that is trained: give --trials")
    if target is None and output is None:
        raise click.UsageError("say what to write: --save or --output")
    read = read_scores(scores)  # once: they may come through a pipe
    if key is None:
        calibrator = LinearCalibrator.load(str(source))
    else:
        trials = read_trials(key)
        values = matched(trials, scores, read)
        speakers = None
        if enrol_speakers is not None:
            speakers = labels_in(enrol_speakers, trials.enrol, "speaker")
        calibrator = LinearCalibrator().fit(values, trials.kinds, speakers=speakers)
        if calibrator.n_speakers_ is not None:
            click.echo(
                f"mvplda: calibrated on the trials of {calibrator.n_speakers_} speakers", err=True
            )
    if target is not None:
        calibrator.save(target)
    if output is not None:
        calibrated = calibrator.transform(read.score)
        write_scores(output, Scores(read.enrol, read.test, calibrated))
