"""Command that measures the error rates and costs of scores: evaluate."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from .options import COUNT, JSON, RATE, OutputFile, first_passed, labels_from_map
from .trial_kinds import same_labels, with_kinds

if TYPE_CHECKING:
    from .._typing import FloatArray, IntArray, Json
    from ..coded import Coded
    from ..distributed.sharded_evaluation import LabelMaps
    from ..io.trials import Scores, Trials
    from ..metrics.catalogue import Interval
    from ..metrics.comparison import SystemComparison
    from ..metrics.evaluation import Evaluation
    from ..metrics.intervals import Intervals
    from ..metrics.thresholds import GroupErrors
    from .options import Texts

    Speakers = tuple[Coded, Coded]
    """Speaker of the model, and speaker of the test, of each trial."""


class LabelFiles(NamedTuple):
    """Files with the speaker, and with the phrase, of each model and each test; None: the option was not passed."""

    enrol_speakers: str | None
    test_speakers: str | None
    enrol_phrases: str | None
    test_phrases: str | None


@click.command("evaluate")
@click.argument("scores", nargs=-1, required=True)
@click.option(
    "--trials",
    "key",
    help="List of trials with their kinds (target or nontarget; TC, TW, IC or IW). Without it, SCORES are shards of "
    "`mvplda score` with the kinds of their trials, or with --test-speakers.",
)
@click.option(
    "--cost",
    "costs",
    multiple=True,
    default=("default",),
    help="Show the detection cost at this operating point: default, sre08, sre10, sre21, sdsv, voxsrc, or three "
    "numbers C_miss,C_fa,P_target. May be repeated.",
)
@click.option(
    "--far",
    type=RATE,
    multiple=True,
    default=(0.01, 0.001, 0.0001),
    help="Show the miss rate and the threshold at which this proportion of the non-targets is accepted (false-alarm "
    "rate, between 0 and 1). May be repeated.",
)
@click.option(
    "--enrol-speakers",
    help="Map with the speaker of each model (model id, speaker).  [default: the model id]",
)
@click.option(
    "--test-speakers",
    help="Map with the speaker of each test (test id, speaker, as in utt2spk); required for intervals over speakers.",
)
@click.option(
    "--enrol-phrases",
    help="Map with the phrase of each model (model id, phrase). With --test-phrases, the kinds of trials become TC, "
    "TW, IC and IW by the speakers and phrases of both sides; contradictions to --trials are an error.",
)
@click.option("--test-phrases", help="Map with the phrase of each test (test id, phrase).")
@click.option(
    "--by",
    help="Also show error rates per group of people, such as men and women, at the threshold of the first --far; map "
    "with the group of each test (test id, group, as in utt2gender). Needs --test-speakers.",
)
@click.option(
    "--sessions",
    help="Evaluate transactions instead of trials: the tests of one session are attempts of one transaction, which is "
    "accepted if any attempt is. Map with the session of each test (test id, session).",
)
@click.option(
    "--attempts",
    type=COUNT,
    default=3,
    help="With --sessions: number of attempts per session; later tests of a session are ignored.",
)
@click.option(
    "--identification",
    is_flag=True,
    help="Also show the error rates of searches, FNIR and FPIR (ISO/IEC 19795-1), at every --far. Every test must be "
    "compared with every model; tests without a target trial are of people who are not enrolled.",
)
@click.option(
    "--report",
    type=OutputFile(),
    help="Write a self-contained HTML page with tables and plots of one system to this file.",
)
@click.option("--workers", type=COUNT, default=1, help="Number of processes that read shards.")
@click.option(
    "--scheduler", help="Read shards on the workers of the Dask scheduler at this address."
)
@JSON
def evaluate_command(
    scores: Texts,
    key: str | None,
    costs: Texts,
    far: tuple[float, ...],
    enrol_speakers: str | None,
    test_speakers: str | None,
    enrol_phrases: str | None,
    test_phrases: str | None,
    by: str | None,
    sessions: str | None,
    attempts: int,
    identification: bool,
    report: str | None,
    workers: int,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Measure error rates and costs of scores.

    SCORES is a file of scores, or several shards of `mvplda score` (.parquet). Shows the error rates of each kind of
    trial; with --test-speakers, also 95 % intervals over speakers. Pass NAME=SCORES for each of several systems to show
    them in one table; with --test-speakers, the first system is tested against each of the others.

    Shards give the same values as one file of all scores, but no intervals.

    \b
    Examples:
      mvplda evaluate scores --trials trials
      mvplda evaluate scores --trials trials --test-speakers utt2spk --report report.html
      mvplda evaluate ours=scores plda=scores-plda --trials trials --test-speakers utt2spk
      mvplda evaluate scores/part-*.parquet --workers 8
    """
    labels = LabelFiles(enrol_speakers, test_speakers, enrol_phrases, test_phrases)
    check_label_files(labels)
    if by is not None and test_speakers is None:
        raise click.UsageError(
            "--by needs --test-speakers: pass a map with the speaker of each test"
        )
    if key is None:
        needs_trials = {
            "--by": by is not None,
            "--sessions": sessions is not None,
            "--identification": identification,
            "--report": report is not None,
        }
        if option := first_passed(needs_trials):
            raise click.UsageError(
                f"{option} needs a list of trials (--trials): its results cannot be computed from shards"
            )
        show_shards(scores, costs, far, label_maps(labels), workers, scheduler, as_json)
        return
    if option := first_passed({"--workers": workers > 1, "--scheduler": scheduler is not None}):
        raise click.UsageError(
            f"{option} applies only to shards, which are evaluated without a list of trials: leave out {option}, or "
            "leave out --trials"
        )
    systems = score_files_by_name(scores)
    if report is not None and len(systems) > 1:
        raise click.UsageError(
            f"--report supports one system only, and {len(systems)} files of scores were passed: pass one file"
        )

    first_system = next(iter(systems))
    trials, speakers = read_labelled_trials(key, labels)
    system_scores = {name: match_scores(trials, path) for name, path in systems.items()}
    if speakers is not None and enrol_speakers is None:
        warn_of_unknown_models(*speakers)
    if sessions is not None:
        rows, system_scores = best_per_session(trials, system_scores, sessions, attempts)
        trials = trials[rows]
        if speakers is not None:
            speakers = (speakers[0][rows], speakers[1][rows])

    first_scores = system_scores[first_system]
    measured = measure_systems(system_scores, trials.kinds, speakers, costs, far)
    if identification:
        measured.searches = search_errors(trials, first_scores, far)
    if speakers is not None and by is not None:
        measured.groups = errors_by_group(trials, first_scores, speakers, by, far[0])

    if as_json:
        click.echo(json.dumps(measured.to_dict(), indent=2))
    else:
        click.echo("\n".join(measured.lines()))
    warn_if_uncalibrated(measured.results[first_system])
    if report is not None:
        title = Path(systems[first_system]).name
        write_system_report(report, title, measured, trials, first_scores)


def check_label_files(labels: LabelFiles) -> None:
    """Raise a usage error if --enrol-phrases, --test-phrases or --enrol-speakers is passed without its counterpart."""
    if labels.enrol_phrases is not None and labels.test_phrases is None:
        raise click.UsageError(
            "--enrol-phrases needs --test-phrases: pass also the map with the phrase of each test"
        )
    if labels.test_phrases is not None and labels.enrol_phrases is None:
        raise click.UsageError(
            "--test-phrases needs --enrol-phrases: pass also the map with the phrase of each model"
        )
    if labels.enrol_speakers is not None and labels.test_speakers is None:
        raise click.UsageError(
            "--enrol-speakers needs --test-speakers: pass also the map with the speaker of each test"
        )


def label_maps(labels: LabelFiles) -> list[LabelMaps]:
    """Return the maps of speakers and of phrases, by which the kinds of trials in shards are defined.

    The result is empty without --test-speakers; the shards must then have a column of kinds. Raises a usage error for
    maps of phrases without --test-speakers.
    """
    from ..distributed.sharded_evaluation import LabelMaps

    maps = []
    if labels.test_speakers is not None:
        maps.append(LabelMaps("speaker", labels.test_speakers, labels.enrol_speakers))
    if labels.test_phrases is not None:
        if not maps:
            raise click.UsageError(
                "for shards, --test-phrases also needs --test-speakers: pass the map with the speaker of each test"
            )
        maps.append(LabelMaps("phrase", labels.test_phrases, labels.enrol_phrases))
    return maps


def read_labelled_trials(key: str, labels: LabelFiles) -> tuple[Trials, Speakers | None]:
    """Read a list of trials and their speakers.

    With --enrol-phrases and --test-phrases, the kinds of the trials become TC, TW, IC and IW.

    key : file with the list of trials

    Returns
    -------
    trials
    speakers of both sides of each trial; None without --test-speakers
    """
    from ..io.trials import read_trials

    trials = read_trials(key)
    speakers = speakers_of_trials(trials, labels.enrol_speakers, labels.test_speakers)
    if labels.enrol_phrases is not None and labels.test_phrases is not None:
        same_phrase = same_labels(
            labels_of_trials(labels.enrol_phrases, trials.enrol, "phrase"),
            labels_of_trials(labels.test_phrases, trials.test, "phrase"),
        )
        trials = with_kinds(trials, same_phrase, speakers)
    return trials, speakers


def warn_if_uncalibrated(result: Evaluation) -> None:
    """Warn on standard error, with advice, if actDCF is much larger than minDCF."""
    from ..report import CALIBRATE

    if message := result.uncalibrated():
        click.echo(f"mvplda: warning: {message}. {CALIBRATE}", err=True)


def write_system_report(
    path: str, title: str, measured: SystemResults, trials: Trials, scores: FloatArray
) -> None:
    """Write the HTML report of the first system.

    path, title : output file, and title of the page
    measured : results of all systems, of which the page shows the first
    scores : scores of the first system, one per trial
    """
    from ..report import write_report

    kinds = trials.kinds
    by_kind = {kind: scores[kinds == kind] for kind in kinds.used}
    name, result = next(iter(measured.results.items()))
    write_report(path, title, result, by_kind, measured.intervals.get(name))
    click.echo(f"wrote {path}", err=True)


def show_shards(
    shards: Texts,
    costs: Texts,
    far: tuple[float, ...],
    labels: list[LabelMaps],
    workers: int,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Evaluate shards of scores, and print the table or JSON.

    labels : maps that define the kinds of the trials; empty: the shards contain the kinds
    """
    from ..distributed.sharded_evaluation import evaluate_shards

    for path in shards:
        if not path.endswith(".parquet"):
            raise click.UsageError(
                f"{path} is not a shard of scores (.parquet), so the kinds of its trials are unknown: pass the list of "
                "trials with --trials"
            )
    result = evaluate_shards(
        shards,
        costs=costs,
        far=far,
        labels=labels,
        workers=workers,
        scheduler=scheduler,
        progress=not as_json,
    )
    click.echo(json.dumps(result.to_dict(), indent=2) if as_json else result.table())
    warn_if_uncalibrated(result)


@dataclass
class SystemResults:
    """Results of one or more systems.

    results : {name of a system: metrics by kind of trial}, in the order of the command line
    intervals : {name of a system: intervals over speakers}; empty without --test-speakers
    tests : {name of another system: paired test of the first system against it}; empty without --test-speakers
    groups : error rates of the first system per group of people; None without --by
    searches : {"FPIR 0.01": threshold and FNIR} of the first system; None without --identification
    """

    results: dict[str, Evaluation]
    intervals: dict[str, Intervals] = field(default_factory=dict)
    tests: dict[str, SystemComparison] = field(default_factory=dict)
    groups: GroupErrors | None = None
    searches: Json | None = None

    def to_dict(self) -> Json:
        """Return values for JSON: the metrics of a single system, or {"systems": ..., "tests": ...} for several."""
        records: dict[str, Any] = {name: result.to_dict() for name, result in self.results.items()}
        for name, ends in self.intervals.items():
            records[name]["intervals"] = ends.to_dict()
        first_system, *other_systems = records
        if self.groups is not None:
            records[first_system]["groups"] = self.groups.to_dict()
        if self.searches is not None:
            records[first_system]["identification"] = self.searches
        if not other_systems:
            return dict(records[first_system])
        tests = {
            f"{first_system} against {name}": test.to_dict() for name, test in self.tests.items()
        }
        return {"systems": records, "tests": tests}

    def lines(self) -> list[str]:
        """Return lines of text: the tables of a single system, or one table with a row per system."""
        first_system, *other_systems = self.results
        if not other_systems:
            table = self.results[first_system].table(intervals=self.intervals.get(first_system))
            groups = [] if self.groups is None else group_lines(self.groups)
            searches = [f"{rate}: {errors}" for rate, errors in (self.searches or {}).items()]
            return [table, *groups, *searches]
        lines = system_table(self.results, self.intervals)
        if not self.intervals:
            return [
                *lines,
                "No intervals and no tests between systems: pass --test-speakers to compute them.",
            ]
        lines.append(self.intervals[first_system].definition())
        for name, test in self.tests.items():
            lines += ["", *comparison_lines(first_system, name, test)]
        return lines


def measure_systems(
    system_scores: dict[str, FloatArray],
    kinds: Coded,
    speakers: Speakers | None,
    costs: Texts,
    far: tuple[float, ...],
) -> SystemResults:
    """Return the error rates of each system.

    With speakers, the result also has intervals, and paired tests of the first system against each other system.

    system_scores : {name of a system: scores, one per trial}
    kinds : kind of each trial
    speakers : speaker of the model and of the test of each trial; None without --test-speakers
    costs, far : operating points, from --cost and --far
    """
    from .. import metrics

    measured = SystemResults(
        {
            name: metrics.evaluate(values, kinds, costs=costs, far=far)
            for name, values in system_scores.items()
        }
    )
    if speakers is None:
        return measured
    for name, values in system_scores.items():
        measured.intervals[name] = metrics.speaker_intervals(
            values, kinds, *speakers, costs=costs, far=far
        )
    first_system, *other_systems = system_scores
    for name in other_systems:
        measured.tests[name] = metrics.compare_systems(
            system_scores[first_system],
            system_scores[name],
            kinds,
            *speakers,
            costs,
            random_state=0,
        )
    return measured


def score_files_by_name(scores: Texts) -> dict[str, str]:
    """Return {name of a system: path of its scores} from arguments NAME=SCORES.

    A single argument may be a path alone; the system then has the name of the file. Raises a usage error for a missing
    or repeated name.
    """
    systems: dict[str, str] = {}
    for text in scores:
        name, sign, path = text.partition("=")
        if not sign and len(scores) > 1:
            raise click.UsageError(
                f"each of several files of scores needs the name of its system: expected NAME=SCORES, got {text}"
            )
        if not sign or Path(text).exists():
            name = Path(text).name
            path = text
        if systems.setdefault(name, path) != path:
            raise click.UsageError(
                f"two systems have the name {name}: pass different names in NAME=SCORES"
            )
    return systems


def best_per_session(
    trials: Trials, system_scores: dict[str, FloatArray], path: str, attempts: int
) -> tuple[IntArray, dict[str, FloatArray]]:
    """Combine the trials of each session into one transaction; see `mvplda.metrics.transactions`.

    Parameters
    ----------
    system_scores : {name of a system: scores, one per trial}
    path : map with the session of each test
    attempts : number of trials per session that count; later trials are ignored

    Returns
    -------
    index of the first trial of each transaction
    {name of a system: best score of each transaction}
    """
    from ..metrics import transactions

    session_labels = labels_of_trials(path, trials.test, "session")
    best = {
        name: transactions(values, trials.kinds, trials.enrol, session_labels, attempts)
        for name, values in system_scores.items()
    }
    rows, _ = next(iter(best.values()))
    return rows, {name: values for name, (_, values) in best.items()}


def errors_by_group(
    trials: Trials, values: FloatArray, speakers: Speakers, path: str, far: float
) -> GroupErrors:
    """Return the error rates per group of people, at one threshold for all groups.

    values : scores, one per trial
    speakers : speaker of the model and of the test of each trial
    path : map with the group of each test
    far : false-alarm rate that the threshold has over the trials of all groups
    """
    from .. import metrics

    groups = labels_of_trials(path, trials.test, "group")
    models, tested = speakers
    # a model belongs to the group of its speaker's tests
    group_by_speaker = dict(zip(tested.tolist(), groups.tolist(), strict=True))
    enrolled = models.renamed([group_by_speaker.get(name, "") for name in models.names.tolist()])
    target = trials.target
    threshold = metrics.ScoreCurve(values[target], values[~target]).threshold_for(far)
    return metrics.group_errors(values, target, threshold, models, tested, enrolled, groups)


def group_lines(groups: GroupErrors) -> list[str]:
    """Return lines of text: FRR and FAR of each group of people, then for each rate the largest ratio of two groups."""
    from ..metrics.evaluation import align_columns

    rows = [["group", "FRR %", "FAR %"]]
    for group, frr in groups.frr.items():
        cells = [
            "{:.2f} [{:.2f}, {:.2f}]".format(*_percent(rate)) for rate in (frr, groups.far[group])
        ]
        rows.append([group, *cells])
    lines = [f"Groups at the threshold {groups.threshold:.3f}:", *align_columns(rows)]
    for name, ratio in groups.largest_ratio.items():
        pair = " / ".join(groups.between[name])
        interval = f"[{ratio.low:.2f}, {ratio.high:.2f}]"
        lines.append(f"{name.upper()} of {pair}: {ratio.estimate:.2f} {interval}")
    return lines


def search_errors(trials: Trials, values: FloatArray, far: Iterable[float]) -> Json:
    """Return {"FPIR 0.01": {"threshold": ..., "FNIR": ...}} for each requested FPIR of searches.

    Raises `LabelError` unless every test is compared with every model.

    values : scores, one per trial
    far : requested FPIRs
    """
    import numpy as np

    from ..exceptions import LabelError
    from ..metrics import identification_curve

    models = len(np.unique(trials.enrol.codes))
    if (np.bincount(trials.test.codes) != models).any():
        raise LabelError(
            f"--identification needs trials of every test against all {models} models, and some are missing: run "
            "`mvplda score` without --trials, and evaluate these scores"
        )
    curve = identification_curve(values, trials.target, trials.test)
    errors: Json = {}
    for rate in far:
        threshold = curve.threshold_for(rate)
        errors[f"FPIR {rate:g}"] = {
            "threshold": threshold,
            "FNIR": float(curve.rates(threshold)[0]),
        }
    return errors


def _percent(rate: Interval) -> list[float]:
    """Return a rate with its interval as [estimate, lower end, upper end] in percent."""
    return [100 * value for value in (rate.estimate, rate.low, rate.high)]


def system_table(results: dict[str, Evaluation], intervals: dict[str, Intervals]) -> list[str]:
    """Return the lines of a table with a row per system: EER per kind of trial, and costs of all trials."""
    from ..metrics.evaluation import align_columns

    columns = next(iter(results.values())).summary()
    lines = [["EER, %", *(heading for heading, _, _ in columns)]]
    for name, result in results.items():
        cells = [result.cell(metric, kind, intervals.get(name)) for _, metric, kind in columns]
        lines.append([name, *cells])
    return align_columns(lines)


def comparison_lines(first: str, second: str, test: SystemComparison) -> list[str]:
    """Return lines with the difference of EER between two systems by kind of trial, its interval and p-value.

    first, second : names of the systems; a negative difference means that the first is better
    """
    lines = [f"{first} against {second}, difference of EER in % with its 95 % interval:"]
    verdicts = {"A": f"{first} is better", "B": f"{second} is better"}
    for kind, measures in test.tests.items():
        paired = measures["eer"]
        if math.isnan(paired.difference):
            lines.append(f"  {kind:>6} too few speakers for a test")
            continue
        interval = f"[{100 * paired.low:+.2f}, {100 * paired.high:+.2f}]"
        verdict = verdicts.get(paired.verdict, "undecided")
        difference = f"{100 * paired.difference:+.2f} {interval}"
        lines.append(f"  {kind:>6} {difference}  p = {paired.p_value:.3f}  {verdict}")
    return lines


def match_scores(trials: Trials, path: str, scores: Scores | None = None) -> FloatArray:
    """Return the score of each trial, (n,); warn of duplicate and unused scores on standard error.

    path : file of scores
    scores : contents of the file, if the caller has read it already; None: it is read here
    """
    from ..io.trials import match, read_scores

    score, duplicates, unused = match(trials, scores or read_scores(path))
    if duplicates:
        click.echo(
            f"mvplda: warning: {path}: {duplicates} score(s) repeat an earlier score of the same trial and are ignored",
            err=True,
        )
    if unused:
        click.echo(
            f"mvplda: warning: {path}: {unused} score(s) are ignored, because their trials are not in the list of "
            "--trials",
            err=True,
        )
    return score


def labels_of_trials(path: str, ids: Coded, label_name: str) -> Coded:
    """Return the label of each id, read from a map such as utt2spk.

    label_name : "speaker", "phrase" ..., for the error about an id that the map does not list
    """
    return ids.renamed(labels_from_map(path, ids.names.tolist(), f"its {label_name}"))


def speakers_of_trials(trials: Trials, enrol: str | None, test: str | None) -> Speakers | None:
    """Return the speaker of the model and of the test of each trial; None without a map for the tests.

    enrol : map with the speaker of each model; None: model ids are names of speakers
    test : map with the speaker of each test
    """
    if test is None:
        return None
    models = trials.enrol if enrol is None else labels_of_trials(enrol, trials.enrol, "speaker")
    tested = labels_of_trials(test, trials.test, "speaker")
    return models, tested


def warn_of_unknown_models(models: Coded, tested: Coded) -> None:
    """Warn on standard error if no model id is the name of a test speaker.

    models : ids of the models, which stand for their speakers without --enrol-speakers
    tested : speakers of the tests
    """
    if not models.isin(tested.used).any():
        click.echo(
            "mvplda: warning: without --enrol-speakers, model ids are taken as names of speakers, but none of them is "
            "the name of a test speaker; the intervals are then wrong. Pass the map with the speaker of each model "
            "with --enrol-speakers",
            err=True,
        )
