"""Commands that score trials: score, calibrate."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..exceptions import LabelError, UnknownClassWarning
from . import (
    MODELS,
    SPOOF_PRIOR,
    KeyValue,
    Number,
    Written,
    load_bundle,
    once,
    question_options,
    read_seconds,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..bundle import Bundle

AT_A_TIME = 2**22
"""Trials of a list that are scored together."""
FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["kaldi", "nist", "csv", "parquet"]),
    help="Write the scores in this format.  [default: csv or parquet where the name ends so, else kaldi]",
)


@click.command()
@click.argument("model")
@click.option("--enrol", help="Make the models of these vectors.  [default: those of --test]")
@click.option("--models", help=MODELS)
@click.option(
    "--profiles",
    help="Score these profiles, which `mvplda enrol` wrote, in place of --enrol and --models.",
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
    "-o", "--output", default="-", help="Write the scores to this file; - is standard output."
)
@FORMAT
@click.option(
    "--per-view",
    is_flag=True,
    help="Also write OUTPUT.VIEW for every view: how much that view alone speaks for the same class on both sides, "
    "with the same --given, --known and --scoring.",
)
@click.option(
    "--raw",
    is_flag=True,
    help="Write the model's own likelihood ratios, even if a calibration is saved with it.",
)
@click.option(
    "--countermeasure",
    help="Read what a detector of replays and synthetic voices says of every test from this file (test id, natural-log "
    "likelihood ratio of a person's voice against a spoof: low is suspicious). The scores are then against all that "
    "should be rejected, spoofs among them; they mean this if they are calibrated.",
)
@SPOOF_PRIOR
@click.option(
    "--posteriors",
    multiple=True,
    type=KeyValue(),
    help="VIEW=FILE: take into account what a recogniser says of the class of VIEW in every test, as FILE has it: a "
    "CSV table with a heading, test ids in the first column and a column of probabilities for every class, all of "
    "which it took for equally likely; `mvplda recognise` writes such. Models need a class: give --known VIEW=... too.",
)
@click.option(
    "--durations",
    help="Read the seconds of speech behind every vector, of models and of tests, from this file (id, seconds), for a "
    "model that `mvplda train --durations` made.",
)
@question_options
def score(
    model: str,
    enrol: str | None,
    models: str | None,
    profiles: str | None,
    tests: str,
    trials: str | None,
    output: str,
    form: str | None,
    per_view: bool,
    raw: bool,
    countermeasure: str | None,
    spoof_prior: float | None,
    posteriors: tuple[tuple[str, str], ...],
    durations: str | None,
    same: tuple[str, ...],
    given: tuple[tuple[str, str], ...],
    known: tuple[str, str] | None,
    scoring: str,
) -> None:
    """Natural-log likelihood ratios of a trial list, or of all pairs.

    \b
    Examples:
      mvplda score model.safetensors --enrol enrol.npz --test test.npz -o scores
      mvplda score model.safetensors --enrol enrol.scp --models spk2utt --test test.scp --trials trials -o scores
      mvplda score model.safetensors --test test.scp --trials trials --same speaker -o -
    """
    import numpy as np

    from ..io.trials import Scores, Trials, read_trials, write_scores
    from ..kinds import Coded
    from ..labels import base_columns
    from ..scoring.question import Question

    if per_view and output == "-":
        raise click.UsageError("--per-view needs --output: it writes one more file a view")
    if profiles is not None and (enrol is not None or models is not None):
        raise click.UsageError(
            "--profiles are models that are ready: leave out --enrol and --models"
        )
    check_scores_place(output, form=form)
    system = load_bundle(model)
    fitted = system.fitted_scorer
    views = getattr(fitted, "views_", getattr(fitted, "views", {}))
    if scoring != "exact" and not hasattr(fitted, "parameters_"):
        raise click.UsageError(f"--scoring {scoring}: a {type(fitted).__name__} has one score only")
    if per_view and not views:
        raise click.UsageError(f"--per-view: a {type(fitted).__name__} knows no views")
    single = {view: f"{output}.{view}" for view in base_columns(tuple(views))} if per_view else {}
    check_scores_place(*single.values(), form=form)
    if spoof_prior is not None and countermeasure is None:
        raise click.UsageError(
            "--spoof-prior is a share of spoofs, of which a --countermeasure tells: give it too"
        )
    listed = None if trials is None else read_trials(trials)
    test_set = read_side(system, tests)
    enrolled = enrolled_profiles(system, enrol, models, profiles, test_set, durations)
    if listed is None:
        rows, columns = (
            codes.ravel() for codes in np.indices((len(enrolled), len(test_set)), dtype=np.int32)
        )
        listed = Trials(Coded(enrolled.ids.astype(np.str_), rows), Coded(test_set.ids, columns))
    spoofs: dict[str, Any] = {}
    if countermeasure is not None:
        spoofs = {
            "countermeasure": read_ratios(countermeasure, listed.test.names),
            "spoof_prior": spoof_prior,
        }
    names = {str(name) for name in enrolled.ids.tolist()}
    missing = [name for name in listed.enrol.names.tolist() if name not in names]
    if missing:
        raise LabelError(
            f"{trials} names {len(missing)} model(s) that are not enrolled, the first is {missing[0]!r}: there are "
            f"{len(names)} models, such as {str(enrolled.ids[0])!r}"
        )
    rows = enrolled.number(listed.enrol.names)
    claims = None if known is None else read_claims(*known, enrolled.ids, np.unique(rows), fitted)
    chosen = test_set.select(listed.test.names)
    sides = (enrolled, system.enrol(chosen.X, **seconds_of(durations, chosen.ids)))

    def of_list(score: Callable[..., Any]) -> Scores:
        """Scores of the list, of some of its trials at a time."""
        stretches = (slice(start, start + AT_A_TIME) for start in range(0, len(listed), AT_A_TIME))
        pairs = (
            np.stack([rows[listed.enrol.codes[s]], listed.test.codes[s]], axis=1) for s in stretches
        )
        return Scores(
            listed.enrol, listed.test, np.concatenate([score(*sides, pairs=part) for part in pairs])
        )

    facts = once("--given", given)
    tables = once("--posteriors", posteriors).items()
    heard = {
        view: read_posteriors(view, path, listed.test.names, fitted) for view, path in tables
    } or None
    question = Question(same or None, facts or None, known=claims, recognised=heard)
    options = {} if scoring == "exact" else {"scoring": scoring}
    if heard is not None and not hasattr(fitted, "hypotheses"):
        raise click.UsageError(f"--posteriors: a {type(fitted).__name__} cannot be told of classes")
    meant = set(question.known_views) == set(
        getattr(fitted, "known", ())
    )  # a committee's calibration knows its views
    plain = meant and replace(question, known=None) == Question() and not options
    calibrated = not raw and system.calibrator is not None
    if calibrated and not plain:
        click.echo(
            "mvplda: the model's calibration is for another question: these scores are not calibrated",
            err=True,
        )
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UnknownClassWarning
        )  # read_claims has said it, and named the file
        answer = partial(system.llr_trials, question=replace(question, **spoofs), **options)
        told: dict[str, Any] = {"known": claims, **spoofs} if claims else spoofs
        sure = partial(system.calibrated, **told)
        write_scores(output, of_list(sure if calibrated and plain else answer), form)
        for view, path in single.items():
            others = {name: fact for name, fact in facts.items() if name != view}
            single_view = Question(view, others or None, known=claims, recognised=heard)
            alone = partial(system.llr_trials, question=single_view, **options)
            write_scores(path, of_list(alone), form)


def check_scores_place(*paths: str, form: str | None) -> None:
    """Whether scores can be written there, before they are made."""
    from .._optional import need
    from ..io.files import suffix_format
    from ..persistence import check_writable

    check_writable(*paths)
    if any((form or suffix_format(path)) == "parquet" for path in paths):
        need("pyarrow")


def read_side(bundle: Bundle, path: str) -> Any:
    """Vectors, of the extractor that the model is for."""
    from ..io.vectors import read_vectors

    vectors = read_vectors(path)
    bundle.check_extractor(vectors.extractor, path)
    return vectors


def seconds_of(durations: str | None, ids: Any) -> dict[str, Any]:
    return {} if durations is None else {"seconds": read_seconds(durations, ids)}


def enrolled_profiles(
    bundle: Bundle,
    enrol: str | None,
    models: str | None,
    profiles: str | None,
    tests: Any,
    durations: str | None = None,
) -> Any:
    """Profiles from a file, or from vectors and an enrolment list."""
    from ..io.files import read_groups
    from ..persistence import compare_extractors
    from ..scoring.profiles import Profiles

    if profiles is not None:
        return Profiles.load(profiles)
    vectors = tests if enrol is None else read_side(bundle, enrol)
    if tests is not None and enrol is not None and bundle.extractor is None:
        compare_extractors("the vectors of the tests", tests.extractor, enrol, vectors.extractor)
    if models is None:
        return bundle.enrol(vectors.X, vectors.ids, **seconds_of(durations, vectors.ids))
    groups = read_groups(models)
    members = [name for group in groups.values() for name in group]
    owners = [model for model, group in groups.items() for _ in group]
    return bundle.enrol(vectors.select(members).X, owners, **seconds_of(durations, members))


def read_claims(
    view: str, path: str, models: NDArray[Any], used: NDArray[Any], fitted: Any
) -> dict[str, Any]:
    """The class of a view that every model claims, as the model's classes are written.

    Models that no trial uses need no claim. A claim that is no class of the fitted model is
    counted in a warning; where none is, the file cannot be the one that was meant.
    """
    import numpy as np

    from ..io.files import read_map

    known = getattr(fitted, "classes_", {})
    classes = known.get(view)
    if classes is None:
        raise LabelError(
            f"--known: the model knows no classes of a view {view!r}; it does of {list(known)}"
        )
    listed = read_map(path)
    names = [str(name) for name in models.tolist()]
    wanted = [names[number] for number in used.tolist()]
    missing = [name for name in wanted if name not in listed]
    if missing:
        raise LabelError(
            f"{path} says nothing of {len(missing)} of the {len(wanted)} models in the trials, the first is "
            f"{missing[0]!r}; expected lines of a model id and the class of {view!r} that it claims"
        )
    by_text = {str(name): name for name in classes.tolist()}
    unknown = [name for name in wanted if listed[name] not in by_text]
    if unknown:
        some = ", ".join(map(repr, list(by_text)[:3]))
        said = (
            f"{path}: {len(unknown)} of {len(wanted)} models claim a class of {view!r} that the model was not trained "
            f"with, such as {listed[unknown[0]]!r}; it knows {len(by_text)} classes, such as {some}"
        )
        if len(unknown) == len(wanted):
            raise LabelError(said)
        warnings.warn(
            f"{said}. They are scored as if the class were not known",
            UnknownClassWarning,
            stacklevel=2,
        )
    # Numbers that no class has stand for texts that no class has: all claims are of one type.
    other = classes.max() + 1 if classes.dtype.kind in "iuf" else None
    claims = [listed.get(name, str(classes[0])) for name in names]
    return {
        view: np.asarray([by_text.get(text, text if other is None else other) for text in claims])
    }


NONE = "(none)"
"""Heads the column of "none of these classes"."""


def read_posteriors(view: str, path: str, tests: NDArray[Any], fitted: Any) -> Any:
    """What a recogniser says of every test, with classes as the model writes them."""
    import numpy as np

    from ..exceptions import DataError
    from ..io.files import read_table
    from ..scoring.question import Recognised

    heads, columns = read_table(path, "csv")
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


@click.command()
@click.argument("model")
@click.option(
    "--test", "tests", required=True, help="Read the vectors of the tests from this file."
)
@click.option(
    "--view",
    required=True,
    help="Recognise the classes of this view, which the model was trained on.",
)
@click.option(
    "-o", "--output", required=True, type=Written(), help="Write the posteriors to this CSV file."
)
def recognise(model: str, tests: str, view: str, output: str) -> None:
    """Say of every test which class of a view it is of, for `mvplda score --posteriors` with other vectors.

    A model of vectors that know words, of the same recordings, is a recogniser of the phrases that it was trained
    on. The last column, (none), is for a class that it was not trained on. Do not score the very same vectors with
    their own posteriors: what they say would count twice.

    \b
    Example:
      mvplda recognise words.safetensors --test words.scp --view phrase -o posteriors.csv
      mvplda score voices.safetensors --test voices.scp --trials trials --known phrase=model2phrase \\
          --posteriors phrase=posteriors.csv --same speaker -o scores
    """
    from ..io.files import write_table

    system = load_bundle(model)
    vectors = read_side(system, tests)
    found = system.recognise(vectors.X, view)
    heads = [NONE if name is None else str(name) for name in found.classes or ()]
    columns = {"test": vectors.ids, **dict(zip(heads, found.posteriors.T, strict=True))}
    write_table(output, columns, "csv")


def read_ratios(path: str, tests: NDArray[Any]) -> NDArray[Any]:
    """What a countermeasure says of every test."""
    import numpy as np

    from ..exceptions import DataError
    from ..io.files import read_map

    listed = read_map(path)
    missing = [name for name in tests.tolist() if name not in listed]
    if missing:
        raise LabelError(
            f"{path} says nothing of {len(missing)} of the {len(tests)} tests in the trials, the first is "
            f"{missing[0]!r}; expected lines of a test id and a likelihood ratio"
        )
    found = []
    for name in tests.tolist():
        try:
            found.append(float(listed[name]))
        except ValueError:
            found.append(float("nan"))
        if found[-1] != found[-1]:
            raise DataError(
                f"{path}: expected a number for {name!r}, a likelihood ratio; got {listed[name]!r}"
            )
    return np.asarray(found)


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
    "-o", "--output", help="Write the calibrated SCORES to this file; - is standard output."
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
    from ..io.trials import Scores, has_few_digits, read_scores, write_scores
    from .evaluate import scored_trials, speakers_in

    if (key is None) == (source is None):
        raise click.UsageError("give --trials to train a calibrator, or --load to apply one")
    if source is not None and (target is not None or model is not None):
        raise click.UsageError(
            "--save and --into are for a calibration that is trained: give --trials, not --load"
        )
    if target is None and output is None and model is None:
        raise click.UsageError("say what to write: --save, --into or --output")
    if output is not None:
        check_scores_place(output, form=form)
    found = read_scores(scores)  # once: they may come through a pipe
    if key is not None:
        trials, values = scored_trials(key, scores, found)
        kinds = {"linear": LinearCalibrator, "pav": PAVCalibrator, "kind": KindCalibrator}
        settings = {} if method == "pav" else {"prior": prior}
        speakers = None if enrol_speakers is None else speakers_in(enrol_speakers, trials.enrol)
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
        if has_few_digits(found.score):
            calibrated = calibrated.astype("float32")
        write_scores(output, Scores(found.enrol, found.test, calibrated), form)
