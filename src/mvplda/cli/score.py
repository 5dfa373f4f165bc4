"""Commands that score trials: score, calibrate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .options import KeyValue, OutputFile, labels_from_map, unique_pairs

if TYPE_CHECKING:
    from .._typing import Names
    from ..bundle import Bundle
    from ..io.trials import Trials
    from ..io.vectors import VectorSet
    from ..scoring.profiles import Profiles
    from ..scoring.question import Question
    from .options import Pairs, Texts

TRIALS_PER_CHUNK = 2**20
"""Number of trials of a list that are scored together."""


@click.command("score")
@click.argument("model")
@click.option(
    "--enrol", help="File with the vectors that are enrolled.  [default: the vectors of --test]"
)
@click.option(
    "--models",
    help="Enrolment list (model id, then the ids of its vectors, as in spk2utt).  [default: every vector is a model]",
)
@click.option(
    "--profiles",
    help="File of `mvplda profiles add`, instead of --enrol and --models.",
)
@click.option("--test", "tests", required=True, help="File with the test vectors.")
@click.option(
    "--trials",
    help="List of trials to score (model id, test id); the output has its order.  [default: every model against every "
    "test]",
)
@click.option(
    "-o",
    "--output",
    default="-",
    type=OutputFile(),
    help="Write the scores to this file; - is standard output.",
)
@click.option(
    "--same",
    multiple=True,
    help="Test whether both sides agree in this view, irrespective of the other views; may be repeated.  [default: all "
    "views without --given]",
)
@click.option(
    "--given",
    multiple=True,
    type=KeyValue(),
    help="VIEW=same or VIEW=different: condition on both sides agreeing, or differing, in VIEW.",
)
@click.option(
    "--known",
    type=KeyValue(),
    help="VIEW=FILE: use the claimed class of VIEW per model from FILE (model id, class). A class of the training data "
    "makes the score more accurate; other classes are ignored, and a warning counts them.",
)
def score_command(
    model: str,
    enrol: str | None,
    models: str | None,
    profiles: str | None,
    tests: str,
    trials: str | None,
    output: str,
    same: Texts,
    given: Pairs,
    known: tuple[str, str] | None,
) -> None:
    """Compute log-likelihood ratios of trials or of all pairs.

    Scores are natural logarithms; higher scores favour the target hypothesis.

    \b
    Examples:
      mvplda score model.safetensors --enrol enrol.npz --test test.npz -o scores
      mvplda score model.safetensors --enrol enrol.scp --models spk2utt --test test.scp --trials trials -o scores
      mvplda score model.safetensors --test test.scp --trials trials --same speaker -o -
    """
    from ..io.trials import Scores, read_trials, write_scores
    from ..model_files import load_model
    from ..scoring.question import Question

    if profiles is not None and (enrol is not None or models is not None):
        raise click.UsageError(
            "--profiles excludes --enrol and --models: profiles are already enrolled"
        )
    system = load_model(model)
    listed = None if trials is None else read_trials(trials)
    test_set = read_checked_vectors(system, tests)
    enrolled = enrolled_profiles(system, enrol, models, profiles, test_set)
    if listed is None:
        listed = all_pairs(enrolled, test_set)
    enrolled = enrolled.select(listed.enrol.names)
    tested = system.enrol(test_set.select(listed.test.names).X)
    claims = None
    if known is not None:
        view, path = known
        classes = system.fitted_scorer.known_names(view)
        claims = {view: read_claims(view, path, listed.enrol.names, classes)}
    question = Question(same or None, unique_pairs("--given", given) or None, known=claims)
    scores = score_trials(system, enrolled, tested, listed, question)
    write_scores(output, Scores(listed.enrol, listed.test, scores))


def all_pairs(enrolled: Profiles, tests: VectorSet) -> Trials:
    """Return the trials of every profile against every test."""
    import numpy as np

    from ..coded import Coded
    from ..io.trials import Trials

    rows, columns = np.indices((len(enrolled), len(tests)), dtype=np.int32)
    models = Coded(enrolled.ids.astype(np.str_), rows.ravel())
    return Trials(models, Coded(tests.ids, columns.ravel()))


def score_trials(
    system: Bundle,
    enrolled: Profiles,
    tested: Profiles,
    listed: Trials,
    question: Question,
) -> Names:
    """Score a list of trials in chunks; the scores are calibrated if the model supports it for the question."""
    import numpy as np

    calibrated = system.calibration(question) is not None
    if system.calibrations and not calibrated:
        click.echo(
            "mvplda: the model is not calibrated for this question: the scores are not calibrated",
            err=True,
        )
    chunks: list[Names] = []
    for start in range(0, len(listed), TRIALS_PER_CHUNK):
        rows = slice(start, start + TRIALS_PER_CHUNK)
        pairs = np.stack([listed.enrol.codes[rows], listed.test.codes[rows]], axis=1)
        if calibrated:
            chunks.append(system.answer(enrolled, tested, question, pairs).llr)
        else:
            chunks.append(np.asarray(system.llr_trials(enrolled, tested, pairs, question)))
    return np.concatenate(chunks)


def read_checked_vectors(bundle: Bundle, path: str) -> VectorSet:
    """Read vectors; raise an error if they are not of the model's extractor."""
    from ..io.vectors import read_vectors

    vectors = read_vectors(path)
    bundle.check_extractor(vectors.extractor, path)
    return vectors


def enrolled_profiles(
    bundle: Bundle, enrol: str | None, models: str | None, profiles: str | None, tests: VectorSet
) -> Profiles:
    """Enrol profiles from a file of profiles, or from vectors and an enrolment list."""
    from ..io.lists import read_groups
    from ..persistence import check_same_extractor

    if profiles is not None:
        from ..voice.profile_file import ProfileBook

        book = ProfileBook(profiles)
        X = book.all_vectors()
        bundle.check_extractor(book.extractor, profiles)
        return bundle.enrol(X, book.owners)
    vectors = tests if enrol is None else read_checked_vectors(bundle, enrol)
    if enrol is not None and bundle.extractor is None:
        check_same_extractor("the test vectors", tests.extractor, enrol, vectors.extractor)
    if models is None:
        return bundle.enrol(vectors.X, vectors.ids)
    groups = read_groups(models)
    vector_ids = [name for group in groups.values() for name in group]
    owners = [model for model, group in groups.items() for _ in group]
    return bundle.enrol(vectors.select(vector_ids).X, owners)


def read_claims(view: str, path: str, models: Names, classes: Names) -> Names:
    """Return the claimed class of each model, in the type of the trained classes."""
    import numpy as np

    from ..exceptions import LabelError

    claims = labels_from_map(path, models, f"the class of {view!r}")
    class_by_text = {str(name): name for name in classes.tolist()}
    if not class_by_text.keys() & set(claims):
        raise LabelError(
            f"none of the classes named in view {view!r} was seen in training: {path} has {claims[:3]}; expected "
            f"names like {list(class_by_text)[:3]}"
        )
    if classes.dtype.kind in "iu":
        # an unused number stands for unknown classes, so that all claims have one type
        class_by_text = {**dict.fromkeys(claims, classes.max() + 1), **class_by_text}
    return np.asarray([class_by_text.get(claim, claim) for claim in claims])


@click.command("calibrate")
@click.argument("scores")
@click.option(
    "--trials",
    "key",
    help="Train a calibrator on SCORES with the kinds of this list of trials (target, nontarget, TC ...).",
)
@click.option(
    "--enrol-speakers",
    help="Map with the speaker of each model (model id, speaker). The calibrator then accounts for the number of "
    "speakers and reports it.",
)
@click.option("--save", "target", type=OutputFile(), help="Write the calibrator to this file.")
@click.option(
    "--load", "source", help="Apply this calibrator, written by --save, instead of training one."
)
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    help="Write the calibrated SCORES to this file; - is standard output.",
)
def calibrate_command(
    scores: str,
    key: str | None,
    enrol_speakers: str | None,
    target: str | None,
    source: str | None,
    output: str | None,
) -> None:
    """Calibrate scores to log-likelihood ratios.

    Trains a calibrator on SCORES with --trials, or applies the calibrator --load to SCORES. A model of
    `mvplda train --folds 4` needs no further calibration.

    \b
    Examples:
      mvplda calibrate dev-scores --trials dev-trials --enrol-speakers model2spk --save cal.safetensors
      mvplda calibrate scores --load cal.safetensors -o calibrated
    """
    from ..calibration.scores import LinearCalibrator
    from ..io.trials import Scores, read_scores, read_trials, write_scores
    from .evaluate import labels_of_trials, match_scores

    if (key is None) == (source is None):
        raise click.UsageError("pass --trials to train a calibrator, or --load to apply one")
    if source is not None and target is not None:
        raise click.UsageError("--save needs --trials: only a trained calibrator is saved")
    if target is None and output is None:
        raise click.UsageError("no output: pass --save or --output")
    uncalibrated = read_scores(scores)  # read once, because the file may be a pipe
    if key is None:
        calibrator = LinearCalibrator.load(str(source))
    else:
        trials = read_trials(key)
        trial_scores = match_scores(trials, scores, uncalibrated)
        speakers = None
        if enrol_speakers is not None:
            speakers = labels_of_trials(enrol_speakers, trials.enrol, "speaker")
        calibrator = LinearCalibrator().fit(trial_scores, trials.kinds, speakers=speakers)
        if calibrator.n_speakers_ is not None:
            click.echo(
                f"mvplda: calibrated on the trials of {calibrator.n_speakers_} speakers", err=True
            )
    if target is not None:
        calibrator.save(target)
    if output is not None:
        calibrated = calibrator.transform(uncalibrated.score)
        write_scores(output, Scores(uncalibrated.enrol, uncalibrated.test, calibrated))
