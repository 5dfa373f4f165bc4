"""Commands that score trials and calibrate scores: score, calibrate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from .options import COUNT, QUIET, KeyValue, OutputFile, first_passed, labels_from_map, unique_pairs

if TYPE_CHECKING:
    from .._typing import Names
    from ..bundle import Bundle
    from ..io.trials import Trials
    from ..scoring.profiles import Profiles
    from ..scoring.question import Question
    from .options import Pairs, Texts


@click.command("score")
@click.argument("model")
@click.option(
    "--enrol", help="File with the vectors of the models.  [default: the vectors of --test]"
)
@click.option(
    "--models",
    help="Enrolment list (model id, then the ids of its vectors, as in spk2utt).  [default: every vector is a model]",
)
@click.option(
    "--profiles",
    help="Score the profiles in this file of `mvplda profiles add`, instead of --enrol and --models.",
)
@click.option(
    "--test",
    "tests",
    required=True,
    help="File with the test vectors, or pattern of several files, such as 'vectors/part-*.npz'.",
)
@click.option(
    "--trials",
    multiple=True,
    help="List of trials to score (model id, test id); the scores have the order of the list. For shards, it may be "
    "repeated or be a pattern of several lists.  [default: every model against every test]",
)
@click.option(
    "-o",
    "--output",
    default="-",
    type=OutputFile(sharded=True),
    help="Write the scores to this file; - is standard output. With {shard} in the name of a .parquet file, write one "
    "shard per list of trials, or per range of models.",
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
    help="VIEW=FILE: the claimed class of each model in VIEW, such as its phrase, is in FILE (model id, class). A "
    "class that the model was trained on makes scores more accurate; other classes are ignored, and a warning counts "
    "them.",
)
@click.option(
    "--shard-size",
    type=COUNT,
    help="Number of models per shard if there is no --trials.  [default: the number with ten million pairs per shard]",
)
@click.option("--workers", type=COUNT, default=1, help="Number of processes that score shards.")
@click.option(
    "--scheduler",
    help="Score the shards on the workers of the Dask scheduler at this address.",
)
@QUIET
def score_command(
    model: str,
    enrol: str | None,
    models: str | None,
    profiles: str | None,
    tests: str,
    trials: Texts,
    output: str,
    same: Texts,
    given: Pairs,
    known: tuple[str, str] | None,
    shard_size: int | None,
    workers: int,
    scheduler: str | None,
    quiet: bool,
) -> None:
    """Compute log-likelihood ratios of trials or of all pairs.

    Scores are natural logarithms of likelihood ratios; higher scores favour the target hypothesis. If shards are
    interrupted, run the same command again: finished shards, which have a file SHARD.finished beside them, are kept.

    \b
    Examples:
      mvplda score model.safetensors --enrol enrol.npz --test test.npz -o scores
      mvplda score model.safetensors --enrol enrol.scp --models spk2utt --test test.scp --trials trials -o scores
      mvplda score model.safetensors --test test.scp --trials trials --same speaker -o -
      mvplda score model.safetensors --test 'test/part-*.npz' --trials 'trials/*' --workers 8 \\
          -o 'scores/part-{shard}.parquet'
    """
    from ..distributed.outputs import is_sharded
    from ..distributed.scoring import score_shards
    from ..model_files import load_model
    from ..scoring.question import Question

    option = first_passed({"--enrol": enrol is not None, "--models": models is not None})
    if profiles is not None and option is not None:
        raise click.UsageError(
            f"--profiles and {option} exclude each other, because profiles are already enrolled: pass one of them"
        )
    views = unique_pairs("--given", given)
    if is_sharded(output):
        if option := first_passed(
            {"--profiles": profiles is not None, "--known": known is not None}
        ):
            raise click.UsageError(
                f"{option} is not supported for shards: leave it out, or pass -o without {{shard}} in the name"
            )
        _warn_uncalibrated(load_model(model), Question(same or None, views or None))
        scored = score_shards(
            model,
            tests,
            output,
            enrol=enrol,
            models=models,
            trials=_listed_files(trials),
            same=same,
            given=views,
            shard_size=shard_size,
            workers=workers,
            scheduler=scheduler,
            progress=not quiet,
        )
        if not quiet:
            click.echo(f"wrote {scored} scores to {output}", err=True)
        return
    writes_shards = {
        "--scheduler": scheduler is not None,
        "--workers": workers > 1,
        "--shard-size": shard_size is not None,
        "more than one --trials": len(trials) > 1,
    }
    if option := first_passed(writes_shards):
        raise click.UsageError(
            f"{option} is supported for shards only: pass -o with {{shard}} in the name, such as "
            "'scores/part-{shard}.parquet'"
        )
    system = load_model(model)
    list_path = trials[0] if trials else None
    sides = _read_sides(system, tests, enrol, models, profiles, list_path)
    claims = None if known is None else _known_classes(system, known, sides.listed.enrol.names)
    question = Question(same or None, views or None, known=claims)
    _score_to_file(output, system, sides, question)


class ScoredSides(NamedTuple):
    """Both sides of the trials to score.

    enrolled : profiles of the models
    tested : profiles of the tests, one vector each
    listed : trials; ``enrol.codes`` and ``test.codes`` are row numbers in `enrolled` and `tested`
    """

    enrolled: Profiles
    tested: Profiles
    listed: Trials


def _read_sides(
    system: Bundle,
    tests: str,
    enrol: str | None,
    models: str | None,
    profiles: str | None,
    list_path: str | None,
) -> ScoredSides:
    """Return the trials to score, and the profiles of the models and tests that occur in them.

    tests, enrol, models, profiles : paths from the options of `mvplda score` with these names
    list_path : list of trials; None: every model against every test
    """
    from ..distributed.scoring import all_pairs, enrolled_profiles, read_checked_vectors
    from ..io.trials import read_trials

    # the list is read first: a fault in it is then reported before large files are read
    listed = None if list_path is None else read_trials(list_path)
    test_set = read_checked_vectors(system, tests)
    if profiles is None:
        enrolled = enrolled_profiles(system, enrol, models, test_set)
    else:
        enrolled = _profiles_of_file(system, profiles)
    if listed is None:
        listed = all_pairs(enrolled, test_set)
    enrolled = enrolled.select(listed.enrol.names)
    tested = system.enrol(test_set.select(listed.test.names).X)
    return ScoredSides(enrolled, tested, listed)


def _known_classes(system: Bundle, known: tuple[str, str], models: Names) -> dict[str, Names]:
    """Return {view: claimed class of each model}, from the option --known VIEW=FILE.

    known : the pair (VIEW, FILE)
    models : ids of the models
    """
    view, path = known
    return {view: read_claims(view, path, models, system.fitted_scorer.known_names(view))}


def _score_to_file(output: str, system: Bundle, sides: ScoredSides, question: Question) -> None:
    """Score the trials, and write the scores to a file, or to standard output if `output` is ``-``."""
    from ..distributed.scoring import score_trials
    from ..io.trials import Scores, write_scores

    _warn_uncalibrated(system, question)
    scores = score_trials(system, sides.enrolled, sides.tested, sides.listed, question)
    write_scores(output, Scores(sides.listed.enrol, sides.listed.test, scores))


def _listed_files(patterns: Texts) -> list[str]:
    """Return the paths of the lists of trials that match patterns such as ``trials/part-*``, sorted per pattern.

    Raises `FileNotFoundError` for a pattern without a match.
    """
    from glob import glob

    files = []
    for pattern in patterns:
        matches = [pattern] if Path(pattern).exists() else sorted(glob(pattern))
        if not matches:
            raise FileNotFoundError(
                f"--trials {pattern}: there is no file of this name, and no file matches it as a pattern: correct the "
                "path"
            )
        files += matches
    return files


def _profiles_of_file(bundle: Bundle, path: str) -> Profiles:
    """Return the profiles in a file of `mvplda profiles add`, enrolled by the model.

    Raises `DataError` if the model was trained on vectors of another extractor.
    """
    from ..voice.profile_file import ProfileBook

    book = ProfileBook(path)
    X = book.all_vectors()
    bundle.check_extractor(book.extractor, path)
    return bundle.enrol(X, book.owners)


def _warn_uncalibrated(system: Bundle, question: Question) -> None:
    """Warn on standard error if the model has calibrations, but none for the question."""
    if system.calibrations and system.calibration(question) is None:
        click.echo(
            "mvplda: warning: the model is not calibrated for this question (--same, --given, --known): the scores "
            "are not calibrated. Calibrate them with `mvplda calibrate`",
            err=True,
        )


def read_claims(view: str, path: str, models: Names, classes: Names) -> Names:
    """Return the claimed class of each model, as text or as numbers like the classes of training.

    view : name of the view, for errors
    path : file with the claimed class of each model
    models : (n,) ids of the models
    classes : classes of the view that the model was trained on

    Raises `LabelError` if no claimed class is among `classes`.
    """
    import numpy as np

    from ..exceptions import LabelError

    claims = labels_from_map(path, models, f"the class of {view!r}")
    class_by_text = {str(name): name for name in classes.tolist()}
    if not class_by_text.keys() & set(claims):
        raise LabelError(
            f"--known {view}: {path} lists none of the classes that the model was trained on, such as "
            f"{list(class_by_text)[:3]}; its classes begin with {claims[:3]}. Correct the classes, or leave out --known"
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

    With --trials, trains a calibrator on SCORES; with --load, applies a saved calibrator to SCORES. The scores of a
    model of `mvplda train --folds 4` are calibrated already.

    \b
    Examples:
      mvplda calibrate dev-scores --trials dev-trials --enrol-speakers model2spk --save cal.safetensors
      mvplda calibrate scores --load cal.safetensors -o calibrated
    """
    from ..calibration.scores import LinearCalibrator
    from ..io.trials import Scores, read_scores, read_trials, write_scores
    from .evaluate import labels_of_trials, match_scores

    if key is None and source is None:
        raise click.UsageError(
            "pass --trials to train a calibrator, or --load to apply a saved one"
        )
    if key is not None and source is not None:
        raise click.UsageError(
            "--trials and --load exclude each other: pass --trials to train a calibrator, or --load to apply one"
        )
    if source is not None and target is not None:
        raise click.UsageError(
            "--save needs --trials, because only a newly trained calibrator is saved: leave out --save"
        )
    if target is None and output is None:
        raise click.UsageError(
            "the command would write nothing: pass --save for the calibrator, or --output for calibrated scores"
        )
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
                f"mvplda: trained the calibrator on trials of {calibrator.n_speakers_} speakers",
                err=True,
            )
    if target is not None:
        calibrator.save(target)
    if output is not None:
        calibrated = calibrator.transform(uncalibrated.score)
        write_scores(output, Scores(uncalibrated.enrol, uncalibrated.test, calibrated))
