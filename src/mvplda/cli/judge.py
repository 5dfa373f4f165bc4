"""mvplda evaluate, mvplda compare"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import KeyValue, warnings_as_lines

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..io.trials import Trials

COSTS = click.option(
    "--cost", "costs", multiple=True, default=("default",), help="Preset, or C_miss,C_fa,P_target. May be repeated."
)
TRIALS = click.option("--trials", "key", required=True, help="Trials with their key.")
SPEAKERS = (
    click.option("--enrol-speakers", help="Map of model id to speaker; default: the model id."),
    click.option("--test-speakers", help="Map of test id to speaker (utt2spk); needed for intervals."),
    click.option("--resamples", default=1000, help="Bootstrap resamples of speakers."),
    click.option("--seed", default=0, help="Of the bootstrap."),
)


def speaker_options(command: Any) -> Any:
    for option in reversed(SPEAKERS):
        command = option(command)
    return command


@click.command()
@click.argument("scores")
@TRIALS
@COSTS
@speaker_options
@click.option("--equal", is_flag=True, help="Add a row in which every kind of impostor weighs the same.")
@click.option("--model", help="Model file, for the variance and convergence pictures.")
@click.option("--view-scores", multiple=True, type=KeyValue(), help="VIEW=SCORES of single views, for the scatter.")
@click.option("--report", type=click.Path(path_type=Path), help="Write a page, with pictures and tables beside it.")
@click.option("--title", help="Of the page; default: the name of the score file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, everything in it.")
@click.option(
    "--format", "form", type=click.Choice(["text", "markdown", "latex", "csv"]), default="text", help="Of the table."
)
def evaluate(
    scores: str,
    key: str,
    costs: tuple[str, ...],
    enrol_speakers: str | None,
    test_speakers: str | None,
    resamples: int,
    seed: int,
    equal: bool,
    model: str | None,
    view_scores: tuple[tuple[str, str], ...],
    report: Path | None,
    title: str | None,
    as_json: bool,
    form: str,
) -> None:
    """Error rates and costs of SCORES by kind of trial, with intervals over speakers.

    \b
    Examples:
      mvplda evaluate scores --trials trials
      mvplda evaluate scores --trials trials --test-speakers utt2spk --report report.html
    """
    from .. import metrics

    with warnings_as_lines():
        trials, values = scored_trials(key, scores)
        result = metrics.evaluate(values, trials.kind, costs, equal_weights=equal)
        intervals = None
        if test_speakers is not None:
            sides = speakers_of(trials, enrol_speakers, test_speakers)
            intervals = metrics.speaker_bootstrap(
                values, trials.kind, *sides, costs, equal_weights=equal, n_resamples=resamples, random_state=seed
            )
        if report is not None:
            written = _write_page(
                report, title or Path(scores).name, trials, values, result, intervals, model, view_scores
            )
            click.echo(f"wrote {written[0]} and {len(written) - 1} files beside it", err=True)
    if as_json:
        found = result.to_dict()
        if intervals is not None:
            found["intervals"] = intervals.to_dict()
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo(result.table(form, intervals=intervals))


@click.command()
@click.argument("systems", nargs=-1, required=True, type=KeyValue())
@TRIALS
@COSTS
@speaker_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, everything in it.")
def compare(
    systems: tuple[tuple[str, str], ...],
    key: str,
    costs: tuple[str, ...],
    enrol_speakers: str | None,
    test_speakers: str | None,
    resamples: int,
    seed: int,
    as_json: bool,
) -> None:
    """Several systems, NAME=SCORES each, side by side, and whether the first beats the others.

    Example: mvplda compare ours=scores plda=scores-plda --trials trials --test-speakers utt2spk
    """
    from .. import metrics

    if len(systems) < 2:
        raise click.UsageError("give at least two systems, NAME=SCORES each")
    if test_speakers is None:
        raise click.UsageError("--test-speakers is needed: the comparison resamples speakers")
    with warnings_as_lines():
        scored = {name: scored_trials(key, path) for name, path in systems}
        trials = next(iter(scored.values()))[0]
        sides = speakers_of(trials, enrol_speakers, test_speakers)
        settings: dict[str, Any] = {"n_resamples": resamples, "random_state": seed}
        results = {name: metrics.evaluate(values, trials.kind, costs) for name, (_, values) in scored.items()}
        intervals = {
            name: metrics.speaker_bootstrap(values, trials.kind, *sides, costs, **settings)
            for name, (_, values) in scored.items()
        }
        names = list(scored)
        tests = {
            other: metrics.compare_systems(
                scored[names[0]][1], scored[other][1], trials.kind, *sides, costs, **settings
            )
            for other in names[1:]
        }
    if as_json:
        found = {
            "systems": {n: {**r.to_dict(), "intervals": intervals[n].to_dict()} for n, r in results.items()},
            "tests": {f"{names[0]} against {other}": test.to_dict() for other, test in tests.items()},
        }
        click.echo(json.dumps(found, indent=2))
        return
    kinds = list(results[names[0]].rows)
    width = max(map(len, names)) + 2
    click.echo(f"{'EER, %':{width}}" + "".join(f"{kind:>21}" for kind in kinds) + f"{'Cllr':>9}")
    for name, result in results.items():
        cells = ""
        for kind in kinds:
            ends = intervals[name].intervals[kind]["eer"]
            cells += f"{100 * result[kind].eer:7.2f} [{100 * ends.low:5.2f},{100 * ends.high:5.2f}]"
        click.echo(f"{name:{width}}{cells}{result['Total'].cllr:9.3f}")
    click.echo(next(iter(intervals.values())).definition())
    for other, test in tests.items():
        click.echo(f"\n{names[0]} against {other}, difference of EER in % with its {100 * test.level:g} % interval:")
        for kind in kinds:
            paired = test.tests[kind]["eer"]
            better = {"A": f"{names[0]} is better", "B": f"{other} is better"}.get(paired.verdict, "undecided")
            span = f"{100 * paired.difference:+.2f} [{100 * paired.low:+.2f}, {100 * paired.high:+.2f}]"
            click.echo(f"  {kind:>6} {span}  p = {paired.p_value:.3f}  {better}")


def scored_trials(key: str, scores: str) -> tuple[Trials, NDArray[Any]]:
    """Trials with a key, and the score of each."""
    from ..exceptions import LabelError
    from ..io.trial_files import read_trials

    trials = read_trials(key)
    if trials.kind is None or not all(trials.kind):
        raise LabelError(f"{key} has no key: every trial needs target or nontarget, or TC, TW, IC, IW")
    return trials, matched(trials, scores)


def matched(trials: Trials, path: str) -> NDArray[Any]:
    """The score of every trial; what a score file holds besides is counted on standard error."""
    from ..io.scores import match, read_scores

    found = match(trials, read_scores(path))
    for count, what in ((found.duplicates, "repeat another"), (found.unused, "are of trials that are not in the list")):
        if count:
            click.echo(f"mvplda: {path}: {count} score(s) {what}", err=True)
    return found.score


def speakers_in(path: str, ids: NDArray[Any]) -> NDArray[Any]:
    """The speaker of every id, by a map."""
    import numpy as np

    from ..exceptions import LabelError
    from ..io.lists import read_map

    known = read_map(path)
    missing = [name for name in ids.tolist() if name not in known]
    if missing:
        raise LabelError(f"{path} does not name the speaker of {missing[0]!r} ({len(set(missing))} such ids)")
    return np.asarray([known[name] for name in ids.tolist()])


def speakers_of(trials: Trials, enrol: str | None, test: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Speaker of the model and of the test of every trial."""
    import numpy as np

    models = trials.enrol if enrol is None else speakers_in(enrol, trials.enrol)
    tested = speakers_in(test, trials.test)
    if enrol is None and not np.isin(models, tested).any():
        click.echo(
            "mvplda: warning: no model is called like a speaker of the tests; if models are not speakers, "
            "give --enrol-speakers, or the intervals count too many",
            err=True,
        )
    return models, tested


def _write_page(
    path: Path,
    title: str,
    trials: Trials,
    values: NDArray[Any],
    result: Any,
    intervals: Any,
    model: str | None,
    view_scores: tuple[tuple[str, str], ...],
) -> list[Path]:
    from .. import load
    from ..report.page import Report, write_report

    kinds = [result.target, *(k for k in result.rows if k not in ("Total", "Equal"))]

    def by_kind(scores: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return {kind: scores[trials.kind == kind] for kind in kinds if (trials.kind == kind).any()}

    extra: dict[str, Any] = {}
    if model is not None:
        loaded = load(model)
        fitted: Any = getattr(loaded, "model", loaded)
        extra = {"variance": fitted.explained_variance_ratio_, "log_likelihoods": fitted.log_likelihoods_}
    single = {view: by_kind(matched(trials, file)) for view, file in view_scores}
    page = Report(title, result, by_kind(values), intervals, single, **extra)
    return write_report(page, path)
