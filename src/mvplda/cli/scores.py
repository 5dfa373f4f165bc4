"""mvplda score, mvplda calibrate"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .options import question_options, warnings_as_lines

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMATS = click.Choice(["kaldi", "nist", "csv", "parquet"])


@click.command()
@click.argument("model")
@click.option("--enrol", help="Vectors of the models; default: the test vectors.")
@click.option("--models", help="Enrolment list: model id, then ids of its vectors (spk2utt). Default: one vector each.")
@click.option("--profiles", help="Profiles that `mvplda enrol` wrote, in place of --enrol and --models.")
@click.option("--test", "tests", required=True, help="Vectors of the tests.")
@click.option("--trials", required=True, help="Trial list.")
@click.option("-o", "--output", default="-", help="Where the scores go; - is standard output.")
@click.option("--format", "form", type=FORMATS, default="kaldi", help="Of the scores.")
@click.option("--per-view", is_flag=True, help="Also write OUTPUT.VIEW with the LLR of every single view.")
@click.option("--raw", is_flag=True, help="The model's own LLR, even if a calibrator is saved with it.")
@question_options
def score(
    model: str,
    enrol: str | None,
    models: str | None,
    profiles: str | None,
    tests: str,
    trials: str,
    output: str,
    form: str,
    per_view: bool,
    raw: bool,
    same: tuple[str, ...],
    given: tuple[tuple[str, str], ...],
    known: tuple[str, str] | None,
    scoring: str,
) -> None:
    """Natural-log likelihood ratios of a trial list.

    \b
    Examples:
      mvplda score model.safetensors --enrol enrol.scp --models spk2utt --test test.scp --trials trials -o scores
      mvplda score model.safetensors --test test.scp --trials trials --same speaker -o -
    """
    import numpy as np

    from .. import load
    from ..exceptions import LabelError
    from ..io.lists import read_map
    from ..io.scores import Scores, write_scores
    from ..io.trial_files import read_trials
    from ..labels import base_columns

    if per_view and output == "-":
        raise click.UsageError("--per-view needs --output: it writes one more file a view")
    with warnings_as_lines():
        system = load(model)
        listed = read_trials(trials)
        test_set = read_side(system, tests)
        enrolled = enrolled_profiles(system, enrol, models, profiles, test_set)
        rows = enrolled.number(listed.enrol)
        columns = test_set.rows(listed.test)
        claims: dict[str, NDArray[Any]] | None = None
        if known is not None:
            claimed = read_map(known[1])
            missing = [name for name in enrolled.ids.tolist() if name not in claimed]
            if missing:
                raise LabelError(f"{known[1]} does not name the class of model {missing[0]!r}")
            claims = {known[0]: _like_classes([claimed[n] for n in enrolled.ids.tolist()], system, known[0])}
        needed, columns = np.unique(columns, return_inverse=True)
        sides = (enrolled, system.enrol(test_set.X[needed]), np.stack([rows, columns.reshape(-1)], axis=1))
        question: dict[str, Any] = {"given": dict(given) or None, "scoring": scoring}
        plain = not same and not given and known is None and scoring == "exact"
        if not plain and not raw and getattr(system, "calibrator", None) is not None:
            click.echo(
                "mvplda: the model's calibration is for another question: these scores are not calibrated", err=True
            )
        if plain and not raw and getattr(system, "calibrator", None) is not None:
            values = system.calibrated(sides[0], sides[1], pairs=sides[2])
        else:
            values = system.llr_trials(*sides, same=same or None, known=claims, **question)
        write_scores(output, Scores(listed.enrol, listed.test, np.asarray(values)), form)
        fitted = getattr(system, "model", system)
        for view in base_columns(tuple(fitted.views_)) if per_view else ():
            single = np.asarray(system.llr_trials(*sides, same=view))
            write_scores(f"{output}.{view}", Scores(listed.enrol, listed.test, single), form)


def read_side(system: Any, path: str) -> Any:
    """Vectors, of the extractor that the model is for."""
    from ..io.vectors import read_vectors

    vectors = read_vectors(path)
    if hasattr(system, "check_extractor"):
        system.check_extractor(vectors.extractor, path)
    return vectors


def enrolled_profiles(system: Any, enrol: str | None, models: str | None, profiles: str | None, tests: Any) -> Any:
    """Profiles from a file, or from vectors and an enrolment list."""
    from ..io.lists import read_groups
    from ..verification.storage import load_profiles

    if profiles is not None:
        return load_profiles(profiles)
    vectors = tests if enrol is None else read_side(system, enrol)
    if models is None:
        return system.enrol(vectors.X, vectors.ids)
    groups = read_groups(models)
    members = [name for group in groups.values() for name in group]
    owners = [model for model, group in groups.items() for _ in group]
    return system.enrol(vectors.select(members).X, owners)


def _like_classes(names: list[str], system: Any, view: str) -> NDArray[Any]:
    """Class names read from text, as the type that the model's classes have."""
    import numpy as np

    classes = getattr(system, "model", system).classes_.get(view)
    array = np.asarray(names)
    if classes is not None and classes.dtype.kind in "iuf":
        try:
            return array.astype(classes.dtype)
        except ValueError:
            return array.astype(object)
    return array


@click.command()
@click.argument("scores")
@click.option("--trials", "key", help="Trials with their key, to train on.")
@click.option(
    "--method", type=click.Choice(["linear", "pav", "kind"]), default="linear", help="kind: every kind alike."
)
@click.option("--prior", default=0.5, help="Where the calibration is to be best.")
@click.option(
    "--enrol-speakers",
    help="Map of model id to speaker. The calibration is then as sure as that many speakers allow, and says how many.",
)
@click.option("--save", "target", help="Where the calibrator goes.")
@click.option("--into", "model", help="A model file that is to hold the calibrator; `mvplda score` then applies it.")
@click.option("--load", "source", help="A calibrator to apply, in place of --trials.")
@click.option("-o", "--output", help="Where the calibrated scores go; - is standard output.")
@click.option("--format", "form", type=FORMATS, default="kaldi", help="Of the scores.")
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
    form: str,
) -> None:
    """Make scores natural-log likelihood ratios: train on SCORES with a key, or apply to them.

    \b
    Examples:
      mvplda calibrate dev-scores --trials dev-trials --enrol-speakers model2spk --into model.safetensors
      mvplda calibrate dev-scores --trials dev-trials --save cal.safetensors
      mvplda calibrate scores --load cal.safetensors -o calibrated
    """
    from ..bundle import Bundle, load
    from ..calibration import KindCalibrator, LinearCalibrator, PAVCalibrator
    from ..io.scores import Scores, read_scores, write_scores
    from ..parts import load_calibrator, save_calibrator
    from .judge import scored_trials, speakers_in

    if (key is None) == (source is None):
        raise click.UsageError("give --trials to train a calibrator, or --load to apply one")
    with warnings_as_lines():
        if key is not None:
            trials, values = scored_trials(key, scores)
            kinds = {"linear": LinearCalibrator, "pav": PAVCalibrator, "kind": KindCalibrator}
            settings = {} if method == "pav" else {"prior": prior}
            speakers = None if enrol_speakers is None else speakers_in(enrol_speakers, trials.enrol)
            calibrator = kinds[method](**settings).fit(values, trials.kind, speakers=speakers)
            if calibrator.n_speakers_ is not None:
                click.echo(f"mvplda: calibrated on the trials of {calibrator.n_speakers_} speakers", err=True)
            if target is not None:
                save_calibrator(calibrator, target)
            if model is not None:
                system = load(model)
                bundle = system if isinstance(system, Bundle) else Bundle(None, system)
                bundle.calibrator = calibrator
                bundle.save(model)
        else:
            calibrator = load_calibrator(str(source))
        if output is not None:
            found = read_scores(scores)
            write_scores(output, Scores(found.enrol, found.test, calibrator.transform(found.score)), form)
    if target is None and output is None and model is None:
        click.echo("mvplda: nothing was written: give --save, --into or --output", err=True)
