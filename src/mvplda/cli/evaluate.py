"""mvplda evaluate, mvplda threshold"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import KeyValue, Number, Written, check_folder, looked_up, seed_option

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..io.trials import Scores, Trials
    from ..kinds import Coded
    from ..metrics import Comparison, Evaluation, Intervals

    Sides = tuple[Coded, Coded]

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


FAR_ABOVE = 1.5
"""An actual cost of so many times the least one shows scores that are not calibrated."""


@click.command()
@click.argument("scores", nargs=-1, required=True)
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
    "--enrol-phrases",
    help="Read the phrase of every model from this file (model id, phrase); with --test-phrases, targets and "
    "nontargets of the list become TC, TW, IC and IW.",
)
@click.option(
    "--test-phrases", help="Read the phrase of every test from this file (test id, phrase)."
)
@click.option(
    "--by",
    help="Show the errors in every group of tests, too, as this file has them (test id, group, as in utt2gender).",
)
@click.option(
    "--spoof-cost",
    help="Show a-DCF, where trials of the kind spoof are in the list, for these costs and priors: "
    "C_miss,C_fa,C_spoof,P_nontarget,P_spoof.  [default: 1,10,10,0.0095,0.05]",
)
@click.option(
    "--equal", is_flag=True, help="Add a row in which every kind of non-target weighs the same."
)
@click.option(
    "--resamples",
    type=click.IntRange(min=2),
    default=1000,
    help="Draw the speakers this many times to compare several systems.",
)
@seed_option("Draw the speakers with this seed; the same seed gives the same comparison.")
@click.option(
    "--report",
    type=Written(),
    help="Write a page to this file, and plots and tables in several formats to a folder beside it.",
)
@click.option("--title", help="Give the page this title.  [default: the name of the score file]")
@click.option(
    "--model",
    help="Show in the report how much of the variance every view of this model explains, and how EM went.",
)
@JSON
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "latex", "csv"]),
    default="text",
    help="Print the table in this format.",
)
def evaluate(scores: tuple[str, ...], key: str, **options: Any) -> None:
    """Error rates and costs of SCORES by kind of trial, with intervals over speakers.

    Several systems, NAME=SCORES each, are shown side by side; with --test-speakers, the first is compared with every
    other one.

    \b
    Examples:
      mvplda evaluate scores --trials trials
      mvplda evaluate scores --trials trials --test-speakers utt2spk --report report.html
      mvplda evaluate ours=scores plda=scores-plda --trials trials --test-speakers utt2spk
    """
    systems = named_systems(scores)
    if options["report"] is None and (options["model"] or options["title"]):
        raise click.UsageError("--model and --title are for a page: give --report too")
    if (options["enrol_phrases"] is None) != (options["test_phrases"] is None):
        raise click.UsageError("kinds of trials need both --enrol-phrases and --test-phrases")
    first, *others = systems
    trials, values = scored_trials(key, systems[first])  # once: the list may come through a pipe
    if options["enrol_phrases"] is not None:
        trials = with_phrases(trials, options["enrol_phrases"], options["test_phrases"])
    scored = {first: values} | {name: matched(trials, systems[name]) for name in others}
    sides = speakers_of(trials, options["enrol_speakers"], options["test_speakers"])
    if others:
        evaluate_several(trials, scored, sides, options)
    else:
        evaluate_one(Path(systems[first]).name, trials, values, sides, options)


def named_systems(scores: tuple[str, ...]) -> dict[str, str]:
    """Score files by name; a single one needs none."""
    if len(scores) == 1 and ("=" not in scores[0] or Path(scores[0]).exists()):
        return {Path(scores[0]).name: scores[0]}
    pairs = [KeyValue().convert(text, None, click.get_current_context()) for text in scores]
    systems = dict(pairs)
    if len(systems) < len(pairs):
        raise click.UsageError("two systems have the same name")
    return systems


def with_phrases(trials: Trials, enrol: str, test: str) -> Trials:
    """The same trials, of which targets and nontargets are told by the phrases of both sides."""
    import numpy as np

    from ..io.trials import Trials
    from ..kinds import Coded

    phrases = [labels_in(enrol, trials.enrol, "phrase"), labels_in(test, trials.test, "phrase")]
    table = {name: code for code, name in enumerate({*phrases[0].names, *phrases[1].names})}
    codes = [np.array([table[name] for name in side.names])[side.codes] for side in phrases]
    impostor = ~trials.target
    wrong = codes[0] != codes[1]
    kinds = Coded(np.array(["TC", "TW", "IC", "IW"]), 2 * impostor + wrong)
    return Trials(trials.enrol, trials.test, kinds)


def evaluate_one(
    name: str, trials: Trials, values: NDArray[Any], sides: Sides | None, options: dict[str, Any]
) -> None:
    """Print the tables of one system, and write its page."""
    from ..spoofing import SpoofingCost
    from ..voices import load_model

    if options["report"] is not None:
        _check_page(Path(options["report"]))
    fitted = None if options["model"] is None else load_model(options["model"]).scorer
    cost = options["spoof_cost"]
    spoofing = None if cost is None else SpoofingCost.parse(cost)
    settings = {name: options[name] for name in ("costs", "far", "frr")}
    settings["equal_weights"] = options["equal"]
    result, intervals = measured(trials, values, sides, spoofing, **settings)
    groups = {} if options["by"] is None else by_group(trials, values, options)
    if options["as_json"]:
        about = result.to_dict()
        if intervals is not None:
            about["intervals"] = intervals.to_dict()
        if groups:
            about["groups"] = {group: one.to_dict() for group, one in groups.items()}
        click.echo(json.dumps(about, indent=2))
    else:
        click.echo(result.table(options["form"], intervals=intervals))
        if groups:
            click.echo("\n".join(["", *side_by_side(groups, {})]))
    warn_uncalibrated(result)
    if options["report"] is not None:
        title = options["title"] or name
        write_page(Path(options["report"]), title, trials, values, result, intervals, fitted)


def measured(
    trials: Trials, values: NDArray[Any], sides: Sides | None, spoofing: Any = None, **settings: Any
) -> tuple[Evaluation, Intervals | None]:
    """The evaluation of scores, and intervals where the speakers of the tests are known."""
    from .. import metrics

    result = metrics.evaluate(values, trials.kinds, spoofing=spoofing, **settings)
    if sides is None:
        return result, None
    return result, metrics.speaker_intervals(values, trials.kinds, *sides, **settings)


def by_group(
    trials: Trials, values: NDArray[Any], options: dict[str, Any]
) -> dict[str, Evaluation]:
    """The evaluation of the trials of every group of tests that has targets and others."""
    from .. import metrics

    groups = labels_in(options["by"], trials.test, "group")
    evaluations = {}
    for group in groups.used:
        here = groups == group
        some = trials[here]
        targets = int(some.target.sum())
        if 0 < targets < len(some):
            evaluations[group] = metrics.evaluate(values[here], some.kinds, options["costs"])
        else:
            click.echo(f"mvplda: group {group} has only one sort of trials: left out", err=True)
    return evaluations


def warn_uncalibrated(result: Evaluation) -> None:
    """A line where decisions at Bayes' threshold cost far more than they could."""
    total = result["Total"]
    for cost in result.costs:
        least = total[f"min_dcf/{cost.name}"]
        actual = total[f"act_dcf/{cost.name}"]
        if actual > FAR_ABOVE * least + 0.01:
            click.echo(
                f"mvplda: the scores are not calibrated: actDCF {cost.name} is {actual:.3f}, minDCF {least:.3f}; "
                "run mvplda calibrate",
                err=True,
            )
            return


def evaluate_several(
    trials: Trials, scored: dict[str, NDArray[Any]], sides: Sides | None, options: dict[str, Any]
) -> None:
    """Print several systems side by side, and whether the first beats the others."""
    from .. import metrics

    if options["report"] is not None:
        raise click.UsageError("--report is for one system: give one score file")
    kinds, costs = trials.kinds, options["costs"]
    results = {name: metrics.evaluate(values, kinds, costs) for name, values in scored.items()}
    intervals: dict[str, Intervals] = {}
    tests: dict[str, Comparison] = {}
    lead = next(iter(scored))
    if sides is not None:
        for name, values in scored.items():
            intervals[name] = metrics.speaker_intervals(values, kinds, *sides, costs)
            if name != lead:
                tests[name] = metrics.compare_systems(
                    scored[lead],
                    values,
                    kinds,
                    *sides,
                    costs,
                    n_resamples=options["resamples"],
                    random_state=options["seed"],
                )
    if options["as_json"]:
        about: dict[str, Any] = {name: result.to_dict() for name, result in results.items()}
        for name, ends in intervals.items():
            about[name]["intervals"] = ends.to_dict()
        against = {f"{lead} against {name}": test.to_dict() for name, test in tests.items()}
        click.echo(json.dumps({"systems": about, "tests": against}, indent=2))
        return
    click.echo("\n".join(side_by_side(results, intervals)))
    if not intervals:
        click.echo("No intervals and no comparison: they need --test-speakers.")
        return
    click.echo(intervals[lead].definition())
    for name, test in tests.items():
        click.echo("\n".join(["", *comparison_lines(lead, name, test)]))


def side_by_side(results: dict[str, Evaluation], intervals: dict[str, Intervals]) -> list[str]:
    """A table with one row for every system, or group."""
    from ..metrics.evaluation import aligned

    headings = list(dict.fromkeys(head for one in results.values() for head, _, _ in one.summary()))
    lines = [["EER, %", *headings]]
    for name, result in results.items():
        cells = {
            head: result.cell(metric, kind, intervals.get(name))
            for head, metric, kind in result.summary()
        }
        lines.append([name, *(cells.get(head, "") for head in headings)])
    return aligned(lines)


def comparison_lines(lead: str, other: str, test: Comparison) -> list[str]:
    """The difference of EER by kind, its interval, and who is better."""
    lines = [
        f"{lead} against {other}, difference of EER in % with its {100 * test.level:g} % interval:"
    ]
    words = {"A": f"{lead} is better", "B": f"{other} is better"}
    for kind, measures in test.tests.items():
        paired = measures["eer"]
        if math.isnan(paired.difference):
            lines.append(f"  {kind:>6} too few speakers for a test")
            continue
        ends = f"[{100 * paired.low:+.2f}, {100 * paired.high:+.2f}]"
        verdict = words.get(paired.verdict, "undecided")
        difference = f"{100 * paired.difference:+.2f} {ends}"
        lines.append(f"  {kind:>6} {difference}  p = {paired.p_value:.3f}  {verdict}")
    return lines


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
    from ..metrics.catalogue import OtherRateAt, RateThere, ThresholdAt
    from ..metrics.evaluation import aligned
    from ..metrics.intervals import plain
    from ..metrics.jackknife import Interval

    if (far is None) == (frr is None):
        raise click.UsageError("give the rate that is wanted: either --far or --frr")
    wanted, other, rate = ("far", "frr", far) if frr is None else ("frr", "far", frr)
    assert rate is not None
    trials, values = scored_trials(key, scores)
    settings: dict[str, Any] = {"costs": (), "far": (), "frr": (), wanted: [rate]}
    sides = speakers_of(trials, enrol_speakers, test_speakers)
    result, intervals = measured(trials, values, sides, **settings)
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


def labels_in(path: str, ids: Coded, what: str) -> Coded:
    """The label of every id, by a map such as utt2spk."""
    return ids.renamed(looked_up(path, ids.names.tolist(), f"its {what}"))


def speakers_of(trials: Trials, enrol: str | None, test: str | None) -> Sides | None:
    """Speaker of the model and of the test of every trial; None where those of the tests are not given."""
    if test is None:
        return None
    models = trials.enrol if enrol is None else labels_in(enrol, trials.enrol, "speaker")
    tested = labels_in(test, trials.test, "speaker")
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


def write_page(
    path: Path,
    title: str,
    trials: Trials,
    values: NDArray[Any],
    result: Evaluation,
    intervals: Intervals | None,
    fitted: Any,
) -> None:
    """Write the report of one system."""
    from ..report import Report, write_report

    kinds = [result.target, *(kind for kind in result.rows if kind not in ("Total", "Equal"))]
    by_kind = {kind: values[trials.kinds == kind] for kind in kinds}
    by_kind = {kind: some for kind, some in by_kind.items() if len(some)}
    extra: dict[str, Any] = {}
    if hasattr(fitted, "explained_variance_ratio_"):  # cosine and cascade have none
        extra["variance"] = fitted.explained_variance_ratio_
        extra["log_likelihoods"] = fitted.log_likelihoods_
    written = write_report(Report(title, result, by_kind, intervals, **extra), path)
    click.echo(f"wrote {written[0]} and {len(written) - 1} files beside it", err=True)
