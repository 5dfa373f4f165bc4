"""mvplda evaluate, mvplda compare"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import KeyValue, Number, check_folder, load_bundle, once, seed_option

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..io.trials import Scores, Trials
    from ..kinds import Coded
    from ..metrics import Evaluation, Intervals
    from ..report import Report

COSTS = click.option(
    "--cost",
    "costs",
    multiple=True,
    default=("default",),
    help="Show the detection cost at this operating point: the name of a preset, or C_miss,C_fa,P_target. "
    "May be repeated.",
)
TRIALS = click.option(
    "--trials",
    "key",
    required=True,
    help="Judge the trials of this list, which says what each one is (target or nontarget; TC, TW, IC or IW).",
)
RATE = Number(0, 1, min_open=True, max_open=True)
JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, which holds every number in full."
)
SPEAKERS = (
    click.option(
        "--enrol-speakers",
        help="Read which speaker every model is of from this file (model id, speaker).  [default: the model id]",
    ),
    click.option(
        "--test-speakers",
        help="Read which speaker every test is of from this file (test id, speaker, as in utt2spk); "
        "intervals over speakers need it.",
    ),
)


def speaker_options(command: Any) -> Any:
    for option in reversed(SPEAKERS):
        command = option(command)
    return command


@click.command()
@click.argument("scores")
@TRIALS
@COSTS
@click.option(
    "--far",
    type=RATE,
    multiple=True,
    default=(0.01, 0.001, 0.0001),
    help="Show the misses at this false-alarm rate, which is a share of the non-targets, and the threshold for it. "
    "May be repeated.",
)
@click.option(
    "--frr",
    type=RATE,
    multiple=True,
    help="Show the false alarms at this miss rate, which is a share of the targets, and the threshold for it. "
    "May be repeated.",
)
@speaker_options
@click.option(
    "--spoof-cost",
    help="Show a-DCF, where trials of the kind spoof are in the list, for these costs and priors: "
    "C_miss,C_fa,C_spoof,P_nontarget,P_spoof.  [default: 1,10,10,0.0095,0.05]",
)
@click.option(
    "--equal", is_flag=True, help="Add a row in which every kind of non-target weighs the same."
)
@click.option(
    "--model",
    help="Show in the report how much of the variance every view of this model explains, and how EM went.",
)
@click.option(
    "--view-scores",
    multiple=True,
    type=KeyValue(),
    help="VIEW=SCORES: show in the report the scores of two single views against each other "
    "(`mvplda score --per-view` writes them). Give one for either view.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    help="Write a page to this file, and pictures and tables in several formats to a folder beside it.",
)
@click.option("--title", help="Give the page this title.  [default: the name of the score file]")
@JSON
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "latex", "csv"]),
    default="text",
    help="Print the table in this format.",
)
def evaluate(
    scores: str,
    key: str,
    costs: tuple[str, ...],
    far: tuple[float, ...],
    frr: tuple[float, ...],
    enrol_speakers: str | None,
    test_speakers: str | None,
    spoof_cost: str | None,
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
      mvplda evaluate scores --trials trials --far 0.001
      mvplda evaluate scores --trials trials --test-speakers utt2spk --report report.html
    """
    from ..report import write_report
    from ..spoofing import SpoofingCost

    if report is None and (model is not None or view_scores or title is not None):
        raise click.UsageError(
            "--model, --view-scores and --title are for a page: give --report too"
        )
    single = once("--view-scores", view_scores)
    if single and len(single) != 2:
        raise click.UsageError(
            "--view-scores shows one view against another: give it once for either of two views"
        )
    if report is not None:
        _check_page(report)
    spoofing = None if spoof_cost is None else SpoofingCost.parse(spoof_cost)
    trials, values = scored_trials(key, scores)
    fitted = None if model is None else load_bundle(model).scorer
    of_views = {view: matched(trials, path) for view, path in single.items()}
    people = enrol_speakers, test_speakers
    result, intervals = _judge(
        trials, values, people, spoofing, costs=costs, far=far, frr=frr, equal_weights=equal
    )
    if as_json:
        found = result.to_dict()
        if intervals is not None:
            found["intervals"] = intervals.to_dict()
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo(result.table(form, intervals=intervals))
    if report is not None:
        page = _page(
            title or Path(scores).name, trials, values, result, intervals, fitted, of_views
        )
        written = write_report(page, report)
        click.echo(f"wrote {written[0]} and {len(written) - 1} files beside it", err=True)


@click.command()
@click.argument("scores")
@TRIALS
@click.option(
    "--far",
    type=RATE,
    help="Find the lowest threshold with no more false alarms than this share of the non-targets.",
)
@click.option(
    "--frr",
    type=RATE,
    help="Find the highest threshold with no more misses than this share of the targets.",
)
@speaker_options
@JSON
def threshold(
    scores: str,
    key: str,
    far: float | None,
    frr: float | None,
    enrol_speakers: str | None,
    test_speakers: str | None,
    as_json: bool,
) -> None:
    """The threshold of SCORES for a wanted rate of false alarms (--far) or of misses (--frr).

    One row a kind of non-target, and one for all of them: the threshold, at and above which scores are
    accepted, and both error rates there. With --test-speakers each has its interval over speakers: where
    the threshold would lie, and what the rates would be, with other speakers.

    \b
    Examples:
      mvplda threshold scores --trials trials --far 0.001
      mvplda threshold scores --trials trials --far 0.001 --test-speakers utt2spk --json
    """
    from ..metrics.catalogue import Interval, OtherRateAt, RateThere, ThresholdAt
    from ..metrics.evaluation import aligned
    from ..metrics.intervals import plain

    if (far is None) == (frr is None):
        raise click.UsageError("give the rate that is wanted: either --far or --frr")
    wanted, other, rate = ("far", "frr", far) if frr is None else ("frr", "far", frr)
    assert rate is not None
    trials, values = scored_trials(key, scores)
    settings: dict[str, Any] = {"costs": (), "far": (), "frr": (), wanted: [rate]}
    result, intervals = _judge(trials, values, (enrol_speakers, test_speakers), **settings)
    sorts = {"threshold": ThresholdAt, wanted: RateThere, other: OtherRateAt}
    shown = {name: sort(rate, int(wanted == "far")) for name, sort in sorts.items()}
    if as_json:
        found: dict[str, Any] = {
            "wanted": {wanted: rate},
            "level": None,
            "n_speakers": None,
            "kinds": {},
        }
        if intervals is not None:
            found |= {"level": intervals.level, "n_speakers": intervals.n_speakers}
        for kind, row in result.rows.items():
            found["kinds"][kind] = {"n_targets": row.n_targets, "n_nontargets": row.n_nontargets}
            for name, metric in shown.items():
                ends = None if intervals is None else intervals.of(kind, metric.name)
                found["kinds"][kind][name] = plain(
                    ends or Interval(row[metric.name], math.nan, math.nan)
                )
        click.echo(json.dumps(found, indent=2))
        return
    lines = result.grid(shown.values(), intervals)
    notes = [*shown["threshold"].notes(), "No intervals: they need --test-speakers."]
    if intervals is not None:
        notes[-1] = intervals.definition()
    click.echo("\n".join([*aligned(lines), "", *notes]))


@click.command()
@click.argument("systems", nargs=-1, required=True, type=KeyValue())
@TRIALS
@COSTS
@speaker_options
@click.option(
    "--resamples",
    type=click.IntRange(min=2),
    default=1000,
    help="Draw the speakers this many times to test the differences; more make the tests steadier, and take longer.",
)
@seed_option("Draw the speakers with this seed; the same seed gives the same tests.")
@JSON
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
    from ..metrics.evaluation import aligned

    if len(systems) < 2:
        raise click.UsageError("give at least two systems, NAME=SCORES each")
    if test_speakers is None:
        raise click.UsageError("--test-speakers is needed: the comparison resamples speakers")
    (lead, path), *others = once("SYSTEMS", systems).items()
    trials, values = scored_trials(key, path)  # once: the list may come through a pipe
    scored = {lead: values} | {name: matched(trials, file) for name, file in others}
    sides = speakers_of(trials, enrol_speakers, test_speakers)
    settings: dict[str, Any] = {"n_resamples": resamples, "random_state": seed}
    results = {
        name: metrics.evaluate(values, trials.kinds, costs) for name, values in scored.items()
    }
    intervals = {
        name: metrics.speaker_intervals(values, trials.kinds, *sides, costs)
        for name, values in scored.items()
    }
    names = list(scored)
    tests = {
        other: metrics.compare_systems(
            scored[lead], scored[other], trials.kinds, *sides, costs, **settings
        )
        for other in names[1:]
    }
    if as_json:
        found = {
            "systems": {
                n: {**r.to_dict(), "intervals": intervals[n].to_dict()} for n, r in results.items()
            },
            "tests": {
                f"{names[0]} against {other}": test.to_dict() for other, test in tests.items()
            },
        }
        click.echo(json.dumps(found, indent=2))
        return
    lines = [["EER, %", *(heading for heading, _, _ in results[lead].summary())]]
    for name, result in results.items():
        lines.append(
            [
                name,
                *(
                    result.cell(metric, kind, intervals[name])
                    for _, metric, kind in result.summary()
                ),
            ]
        )
    click.echo("\n".join(aligned(lines)))
    click.echo(next(iter(intervals.values())).definition())
    for other, test in tests.items():
        click.echo(
            f"\n{names[0]} against {other}, difference of EER in % with its {100 * test.level:g} % interval:"
        )
        for kind, measures in test.tests.items():
            paired = measures["eer"]
            if math.isnan(paired.difference):
                click.echo(f"  {kind:>6} too few speakers for a test")
                continue
            better = {"A": f"{names[0]} is better", "B": f"{other} is better"}.get(
                paired.verdict, "undecided"
            )
            span = f"{100 * paired.difference:+.2f} [{100 * paired.low:+.2f}, {100 * paired.high:+.2f}]"
            click.echo(f"  {kind:>6} {span}  p = {paired.p_value:.3f}  {better}")


def _judge(
    trials: Trials,
    values: NDArray[Any],
    speakers: tuple[str | None, str | None],
    spoofing: Any = None,
    **settings: Any,
) -> tuple[Evaluation, Intervals | None]:
    """The evaluation of scores, and intervals where the speakers of the tests are known."""
    from .. import metrics

    result = metrics.evaluate(values, trials.kinds, spoofing=spoofing, **settings)
    enrol, test = speakers
    if test is None:
        return result, None
    return result, metrics.speaker_intervals(
        values, trials.kinds, *speakers_of(trials, enrol, test), **settings
    )


def scored_trials(
    key: str, scores: str, found: Scores | None = None
) -> tuple[Trials, NDArray[Any]]:
    """Trials with a key, and the score of each."""
    from ..exceptions import LabelError
    from ..io.trials import read_trials

    trials = read_trials(key)
    if trials.kind is None or "" in trials.kind.used:
        raise LabelError(
            f"{key} has no key: every trial needs target or nontarget, or TC, TW, IC, IW"
        )
    return trials, matched(trials, scores, found)


def matched(trials: Trials, path: str, scores: Scores | None = None) -> NDArray[Any]:
    """The score of every trial; what a score file holds besides is counted on standard error.

    scores : those of the file, where they were read before
    """
    from ..io.trials import match, read_scores

    found = match(trials, read_scores(path) if scores is None else scores)
    for count, what in (
        (found.duplicates, "repeat another"),
        (found.unused, "are of trials that are not in the list"),
    ):
        if count:
            click.echo(f"mvplda: {path}: {count} score(s) {what}", err=True)
    return found.score


def speakers_in(path: str, ids: Coded) -> Coded:
    """The speaker of every id, by a map."""
    from ..exceptions import LabelError
    from ..io.files import read_map

    known = read_map(path)
    missing = [name for name in ids.names.tolist() if name not in known]
    if missing:
        raise LabelError(
            f"{path} does not name the speaker of {missing[0]!r} ({len(missing)} such ids)"
        )
    return ids.renamed([known[name] for name in ids.names.tolist()])


def speakers_of(trials: Trials, enrol: str | None, test: str) -> tuple[Coded, Coded]:
    """Speaker of the model and of the test of every trial."""
    models = trials.enrol if enrol is None else speakers_in(enrol, trials.enrol)
    tested = speakers_in(test, trials.test)
    if enrol is None and not models.isin(tested.used).any():
        click.echo(
            "mvplda: warning: no model is called like a speaker of the tests; if models are not speakers, "
            "give --enrol-speakers, or the intervals count too many",
            err=True,
        )
    return models, tested


def _check_page(path: Path) -> None:
    """Whether a page, and the folder of what belongs to it, can be written there."""
    from ..persistence import check_writable
    from ..report import folder_beside

    check_writable(path)
    check_folder(folder_beside(path))


def _page(
    title: str,
    trials: Trials,
    values: NDArray[Any],
    result: Any,
    intervals: Any,
    fitted: Any,
    of_views: dict[str, NDArray[Any]],
) -> Report:
    from ..report import Report

    kinds = [result.target, *(k for k in result.rows if k not in ("Total", "Equal"))]

    def by_kind(scores: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return {
            kind: scores[trials.kinds == kind] for kind in kinds if (trials.kinds == kind).any()
        }

    extra: dict[str, Any] = {}
    if hasattr(fitted, "explained_variance_ratio_"):  # cosine and cascade have none
        extra = {
            "variance": fitted.explained_variance_ratio_,
            "log_likelihoods": fitted.log_likelihoods_,
        }
    single = {view: by_kind(scores) for view, scores in of_views.items()}
    return Report(title, result, by_kind(values), intervals, single, **extra)
