"""Commands that score trials: score, calibrate."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..exceptions import DataError, LabelError, UnknownClassWarning
from . import MODELS, SPOOF_PRIOR, KeyValue, Number, Written, load_bundle, looked_up, once

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..bundle import Bundle
    from ..io.trials import Trials
    from ..io.vectors import VectorSet
    from ..scoring.profiles import Profiles
    from ..scoring.question import Question

AT_A_TIME = 2**20
"""Trials of a list that are scored together."""
NONE = "(none)"
"""Heads the column of "none of these classes" in a table of posteriors."""
FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["kaldi", "csv", "parquet"]),
    help="Write the scores in this format.  [default: csv or parquet where the name ends so, else kaldi]",
)


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
@FORMAT
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
@click.option(
    "--posteriors",
    multiple=True,
    type=KeyValue(),
    help="VIEW=FILE: take into account what a recogniser says of the class of VIEW in every test, as FILE has it: a "
    "CSV table with a heading, test ids in the first column and a column of probabilities for every class, all of "
    "which it took for equally likely. Models need a class: give --known VIEW=... too.",
)
@click.option(
    "--countermeasure",
    help="Read the output of a detector of replays and synthetic voices for every test from this file (test id, "
    "natural-log likelihood ratio of a person's voice against a spoof: low is suspicious). The scores are then "
    "against all that should be rejected, spoofs among them; they mean this if they are calibrated.",
)
@SPOOF_PRIOR
@click.option(
    "--raw",
    is_flag=True,
    help="Write the model's own likelihood ratios, even if a calibration is saved with it.",
)
def score(
    model: str,
    enrol: str | None,
    models: str | None,
    profiles: str | None,
    tests: str,
    trials: str | None,
    output: str,
    form: str | None,
    raw: bool,
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

    if profiles is not None and (enrol is not None or models is not None):
        raise click.UsageError(
            "--profiles are models that are ready: leave out --enrol and --models"
        )
    if asked["spoof_prior"] is not None and asked["countermeasure"] is None:
        raise click.UsageError(
            "--spoof-prior is a share of spoofs, of which a --countermeasure tells: give it too"
        )
    check_scores_format(output, form=form)
    system = load_bundle(model)
    listed = None if trials is None else read_trials(trials)
    test_set = read_side(system, tests)
    enrolled = enrolled_profiles(system, enrol, models, profiles, test_set)
    if listed is None:
        listed = all_pairs(enrolled, test_set)
    rows = rows_of_models(str(trials), listed, enrolled)
    question = read_question(system, listed, enrolled, rows, asked)
    tested = system.enrol(test_set.select(listed.test.names).X)
    answer = answering(system, question, raw)
    values = of_list(answer, enrolled, tested, listed, rows)
    write_scores(output, Scores(listed.enrol, listed.test, values), form)


def all_pairs(enrolled: Profiles, tests: VectorSet) -> Trials:
    """Every profile against every test."""
    import numpy as np

    from ..io.trials import Trials
    from ..kinds import Coded

    rows, columns = np.indices((len(enrolled), len(tests)), dtype=np.int32)
    models = Coded(enrolled.ids.astype(np.str_), rows.ravel())
    return Trials(models, Coded(tests.ids, columns.ravel()))


def rows_of_models(path: str, listed: Trials, enrolled: Profiles) -> NDArray[Any]:
    """The row of every model that a list names."""
    import numpy as np

    row_of = {str(name): row for row, name in enumerate(enrolled.ids.tolist())}
    names = listed.enrol.names.tolist()
    missing = [name for name in names if name not in row_of]
    if missing:
        raise LabelError(
            f"{path} names {len(missing)} model(s) that are not enrolled, the first is {missing[0]!r}: there are "
            f"{len(row_of)} models, such as {str(enrolled.ids[0])!r}"
        )
    return np.array([row_of[name] for name in names], dtype=np.int64)


def read_question(
    system: Bundle, listed: Trials, enrolled: Profiles, rows: NDArray[Any], asked: dict[str, Any]
) -> Question:
    """What the options ask of every trial, with the files that they name."""
    import numpy as np

    from ..scoring.question import Question

    fitted = system.fitted_scorer
    names = listed.test.names
    settings: dict[str, Any] = {}
    if asked["known"] is not None:
        view, path = asked["known"]
        settings["known"] = read_claims(view, path, enrolled.ids, np.unique(rows), fitted)
    tables = once("--posteriors", asked["posteriors"])
    if tables:
        settings["recognised"] = {
            view: read_posteriors(view, path, names, fitted) for view, path in tables.items()
        }
    if asked["countermeasure"] is not None:
        settings["countermeasure"] = read_ratios(asked["countermeasure"], names)
        settings["spoof_prior"] = asked["spoof_prior"]
    return Question(asked["same"] or None, once("--given", asked["given"]) or None, **settings)


def answering(system: Bundle, question: Question, raw: bool) -> Callable[..., Any]:
    """What scores pairs of profiles and tests: calibrated where the model has a calibration for the question."""
    from ..calibration import question_key

    key = question_key(question, system.views)
    calibrations = system.calibrations or {}
    plain = question_key(type(question)(known=question.known), system.views) == key
    # a committee is calibrated for the views that are known where it is used
    plain = plain and set(question.known_views) == set(getattr(system.fitted_scorer, "known", ()))

    def uncalibrated(enrol: Profiles, test: Profiles, pairs: Any) -> Any:
        return system.llr_trials(enrol, test, pairs, question=question)

    def by_hypotheses(enrol: Profiles, test: Profiles, pairs: Any) -> Any:
        return system.answer(enrol, test, question, pairs).llr

    def by_scores(enrol: Profiles, test: Profiles, pairs: Any) -> Any:
        names = ("known", "recognised", "countermeasure", "spoof_prior")
        options = {name: getattr(question, name) for name in names}
        options = {name: value for name, value in options.items() if value is not None}
        return system.calibrated(enrol, test, pairs=pairs, **options)

    if raw:
        return uncalibrated
    if system.calibrator is not None and plain:
        return by_scores
    if key in calibrations:
        return by_hypotheses
    if calibrations or system.calibrator is not None:
        click.echo(
            "mvplda: the model's calibration is for another question: these scores are not calibrated",
            err=True,
        )
    return uncalibrated


def of_list(
    answer: Callable[..., Any],
    enrolled: Profiles,
    tested: Profiles,
    listed: Trials,
    rows: NDArray[Any],
) -> NDArray[Any]:
    """Scores of a list, of some of its trials at a time."""
    import numpy as np

    values = []
    with warnings.catch_warnings():
        # read_claims has warned of claims that are no classes, and named the file
        warnings.simplefilter("ignore", UnknownClassWarning)
        for start in range(0, len(listed), AT_A_TIME):
            some = slice(start, start + AT_A_TIME)
            pairs = np.stack([rows[listed.enrol.codes[some]], listed.test.codes[some]], axis=1)
            values.append(answer(enrolled, tested, pairs))
    return np.concatenate(values)


def check_scores_format(*paths: str, form: str | None) -> None:
    """Whether what the format of scores needs is installed, before they are made."""
    from .._optional import need
    from ..io.files import suffix_format

    if any((form or suffix_format(path)) == "parquet" for path in paths):
        need("pyarrow")


def read_side(bundle: Bundle, path: str) -> VectorSet:
    """Vectors, of the extractor that the model is for."""
    from ..io.vectors import read_vectors

    vectors = read_vectors(path)
    bundle.check_extractor(vectors.extractor, path)
    return vectors


def enrolled_profiles(
    bundle: Bundle, enrol: str | None, models: str | None, profiles: str | None, tests: Any
) -> Profiles:
    """Profiles from a file, or from vectors and an enrolment list."""
    from ..io.files import read_groups
    from ..persistence import compare_extractors
    from ..voices import ProfileBook

    if profiles is not None:
        book = ProfileBook(profiles)
        X = book.all_vectors()
        bundle.check_extractor(book.extractor, profiles)
        return bundle.enrol(X, book.owners)
    vectors = tests if enrol is None else read_side(bundle, enrol)
    if tests is not None and enrol is not None and bundle.extractor is None:
        compare_extractors("the vectors of the tests", tests.extractor, enrol, vectors.extractor)
    if models is None:
        return bundle.enrol(vectors.X, vectors.ids)
    groups = read_groups(models)
    members = [name for group in groups.values() for name in group]
    owners = [model for model, group in groups.items() for _ in group]
    return bundle.enrol(vectors.select(members).X, owners)


def read_claims(
    view: str, path: str, models: NDArray[Any], used: NDArray[Any], fitted: Any
) -> dict[str, Any]:
    """The class of a view that every model claims, as the model's classes are written.

    Models that no trial uses need no claim. A claim that is no class of the fitted model is
    counted in a warning; where none is, the file cannot be the one that was meant.
    """
    import numpy as np

    known = getattr(fitted, "classes_", {})
    classes = known.get(view)
    if classes is None:
        raise LabelError(
            f"--known: the model knows no classes of a view {view!r}; it does of {list(known)}"
        )
    wanted = [str(models[number]) for number in used.tolist()]
    claimed = dict(zip(wanted, looked_up(path, wanted, f"the class of {view!r}"), strict=True))
    by_text = {str(name): name for name in classes.tolist()}
    unknown = [text for text in claimed.values() if text not in by_text]
    if unknown:
        some = ", ".join(map(repr, list(by_text)[:3]))
        message = (
            f"{path}: {len(unknown)} of {len(claimed)} models claim a class of {view!r} that the model was not trained "
            f"with, such as {unknown[0]!r}; it knows {len(by_text)} classes, such as {some}"
        )
        if len(unknown) == len(claimed):
            raise LabelError(message)
        message += ". They are scored as if the class were not known"
        warnings.warn(message, UnknownClassWarning, stacklevel=2)
    # Numbers that no class has stand for texts that no class has: all claims are of one type.
    numbers = classes.dtype.kind in "iuf"
    claims = []
    for name in models.tolist():
        text = claimed.get(str(name), str(classes[0]))
        claims.append(by_text.get(text, classes.max() + 1 if numbers else text))
    return {view: np.asarray(claims)}


def read_posteriors(view: str, path: str, tests: NDArray[Any], fitted: Any) -> Any:
    """What a recogniser says of every test, with classes as the model writes them."""
    import numpy as np

    from ..io.files import read_table
    from ..scoring.question import Recognised

    heads, columns = read_table(path)
    rows = {str(name): row for row, name in enumerate(columns[0] if columns else ())}
    missing = [name for name in tests.tolist() if name not in rows]
    if missing or len(heads) < 2:
        raise LabelError(
            f"{path} says nothing of {len(missing)} of the {len(tests)} tests in the trials; expected a CSV table "
            f"with a heading, test ids in the first column and a column a class of {view!r}"
        )
    try:
        said = np.asarray([[float(value) for value in column] for column in columns[1:]]).T
    except ValueError as error:
        raise DataError(f"{path}: expected probabilities; {error}") from error
    known = {
        str(name): name for name in getattr(fitted, "classes_", {}).get(view, np.empty(0)).tolist()
    }
    classes = tuple(None if head == NONE else known.get(head, head) for head in heads[1:])
    return Recognised(said[[rows[name] for name in tests.tolist()]], classes)


def read_ratios(path: str, tests: NDArray[Any]) -> NDArray[Any]:
    """What a countermeasure gives for every test."""
    import numpy as np

    texts = looked_up(path, tests.tolist(), "a likelihood ratio")
    try:
        ratios = np.array(texts, dtype=np.float64)
    except ValueError as error:
        raise DataError(f"{path}: expected a number for every test: {error}") from error
    if np.isnan(ratios).any():
        raise DataError(f"{path}: expected a number for every test; some are NaN")
    return ratios


@click.command()
@click.argument("scores")
@click.option(
    "--trials",
    "key",
    help="Train a calibration on SCORES and the key of this trial list (target, nontarget, TC ...).",
)
@click.option(
    "--method",
    type=click.Choice(["linear", "pav", "kind"]),
    default="linear",
    help="Train a straight line (linear), any rising curve (pav), or a line for which every kind of non-target "
    "weighs the same, however many trials it has (kind).",
)
@click.option(
    "--prior",
    type=Number(0, 1, min_open=True, max_open=True),
    default=0.5,
    help="Make the calibration best where targets are this probable; pav is the same for all.",
)
@click.option(
    "--enrol-speakers",
    help="Read the speaker of every model id from this map: the calibration is then as sure as that many speakers "
    "allow, and says how many there were.",
)
@click.option("--save", "target", type=Written(), help="Write the calibration to this file.")
@click.option(
    "--into",
    "model",
    type=Written(),
    help="Save the calibration in this model file; `mvplda score` then applies it by itself.",
)
@click.option(
    "--load", "source", help="Apply this calibration, which --save wrote, in place of training one."
)
@click.option(
    "-o",
    "--output",
    type=Written(),
    help="Write the calibrated SCORES to this file; - is standard output.",
)
@FORMAT
def calibrate(
    scores: str,
    key: str | None,
    method: str,
    prior: float,
    enrol_speakers: str | None,
    target: str | None,
    model: str | None,
    source: str | None,
    output: str | None,
    form: str | None,
) -> None:
    """Make scores natural-log likelihood ratios: train on SCORES with a key, or apply to them.

    \b
    Examples:
      mvplda calibrate dev-scores --trials dev-trials --enrol-speakers model2spk --into model.safetensors
      mvplda calibrate dev-scores --trials dev-trials --save cal.safetensors
      mvplda calibrate scores --load cal.safetensors -o calibrated
    """
    from ..calibration import Calibrator, KindCalibrator, LinearCalibrator, PAVCalibrator
    from ..io.trials import Scores, read_scores, write_scores
    from .evaluate import labels_in, scored_trials

    if (key is None) == (source is None):
        raise click.UsageError("give --trials to train a calibrator, or --load to apply one")
    if source is not None and (target is not None or model is not None):
        raise click.UsageError(
            "--save and --into are for a calibration that is trained: give --trials, not --load"
        )
    if target is None and output is None and model is None:
        raise click.UsageError("say what to write: --save, --into or --output")
    if output is not None:
        check_scores_format(output, form=form)
    found = read_scores(scores)  # once: they may come through a pipe
    if key is not None:
        trials, values = scored_trials(key, scores, found)
        kinds = {"linear": LinearCalibrator, "pav": PAVCalibrator, "kind": KindCalibrator}
        settings = {} if method == "pav" else {"prior": prior}
        speakers = None
        if enrol_speakers is not None:
            speakers = labels_in(enrol_speakers, trials.enrol, "speaker")
        calibrator = kinds[method](**settings).fit(values, trials.kinds, speakers=speakers)
        if calibrator.n_speakers_ is not None:
            click.echo(
                f"mvplda: calibrated on the trials of {calibrator.n_speakers_} speakers", err=True
            )
        if target is not None:
            calibrator.save(target)
        if model is not None:
            bundle = load_bundle(model)
            bundle.calibrator = calibrator
            bundle.save(model)
    else:
        calibrator = Calibrator.load(str(source))
    if output is not None:
        calibrated = calibrator.transform(found.score)
        write_scores(output, Scores(found.enrol, found.test, calibrated), form)
