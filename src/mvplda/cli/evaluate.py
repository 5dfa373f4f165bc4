"""mvplda evaluate"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import COUNT, JSON, Written, looked_up

if TYPE_CHECKING:
    from .._typing import BoolArray, FloatArray, IntArray, Json
    from ..coded import Coded
    from ..io.trials import Scores, Trials
    from ..metrics.catalogue import Interval
    from ..metrics.comparison import SystemComparison
    from ..metrics.evaluation import Evaluation
    from ..metrics.intervals import Intervals
    from ..metrics.thresholds import GroupErrors
    from . import Texts

    Sides = tuple[Coded, Coded]

TWO_VIEWS = {
    "TC": (True, True),
    "TW": (True, False),
    "IC": (False, True),
    "IW": (False, False),
}
"""Same speaker and same phrase, by kind of trial."""
RATE = click.FloatRange(0, 1, min_open=True, max_open=True)


@click.command()
@click.argument("scores", nargs=-1, required=True)
@click.option(
    "--trials",
    "key",
    required=True,
    help="Evaluate the trials of this list, which says what each one is (target or nontarget; TC, TW, IC or IW).",
)
@click.option(
    "--cost",
    "costs",
    multiple=True,
    default=("default",),
    help="Show the detection cost at this operating point: the name of a preset, or C_miss,C_fa,P_target. "
    "May be repeated.",
)
@click.option(
    "--far",
    type=RATE,
    multiple=True,
    default=(0.01, 0.001, 0.0001),
    help="Show the misses at this false-alarm rate, which is a share of the non-targets, and the threshold for it. "
    "May be repeated.",
)
@click.option(
    "--enrol-speakers",
    help="Read which speaker every model is of from this file (model id, speaker).  [default: the model id]",
)
@click.option(
    "--test-speakers",
    help="Read which speaker every test is of from this file (test id, speaker, as in utt2spk); "
    "intervals over speakers need it.",
)
@click.option(
    "--enrol-phrases",
    help="Read the phrase of every model from this file (model id, phrase); with --test-phrases, trials become TC, "
    "TW, IC and IW by the speakers and phrases of both sides. A list that contradicts them is refused.",
)
@click.option(
    "--test-phrases", help="Read the phrase of every test from this file (test id, phrase)."
)
@click.option(
    "--by",
    help="Show the errors in every group of people, too, at the threshold of the first --far, as this file has them "
    "(test id, group, as in utt2gender). Needs --test-speakers.",
)
@click.option(
    "--sessions",
    help="Evaluate transactions, not trials: tests of one session, as this file has them (test id, session), are "
    "attempts, and one that is accepted is enough.",
)
@click.option(
    "--attempts",
    type=COUNT,
    default=3,
    help="Allow so many attempts in a session; later ones are left out.",
)
@click.option(
    "--identification",
    is_flag=True,
    help="Show the errors of searches, too, at every --far: FNIR and FPIR of ISO/IEC 19795-1, where every test is "
    "compared with every model; tests without a target are of people who are not enrolled.",
)
@click.option(
    "--report",
    type=Written(),
    help="Write a page with tables and plots to this file, which needs no other.",
)
@JSON
def evaluate(
    scores: Texts,
    key: str,
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
    as_json: bool,
) -> None:
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
    if (enrol_phrases is None) != (test_phrases is None):
        raise click.UsageError("kinds of trials need both --enrol-phrases and --test-phrases")
    if enrol_speakers is not None and test_speakers is None:
        raise click.UsageError("--enrol-speakers needs --test-speakers")
    if by is not None and (test_speakers is None or not far):
        raise click.UsageError("--by needs --test-speakers and a --far")
    if report is not None and len(systems) > 1:
        raise click.UsageError("--report is for one system: give one score file")
    from .. import metrics
    from ..io.trials import read_trials
    from ..report import CALIBRATE, write_report

    lead, *others = systems
    trials = read_trials(key)
    sides = speakers_of(trials, enrol_speakers, test_speakers)
    if enrol_phrases is not None and test_phrases is not None:
        phrases = phrases_of(trials, enrol_phrases, test_phrases)
        trials = with_kinds(trials, same_labels(*phrases), sides)
    scored = {name: matched(trials, path) for name, path in systems.items()}
    if sides is not None and enrol_speakers is None:
        warn_of_unknown_models(*sides)
    if sessions is not None:
        rows, scored = in_sessions(trials, scored, sessions, attempts)
        trials = trials[rows]
        sides = None if sides is None else (sides[0][rows], sides[1][rows])
    values = scored[lead]
    kinds = trials.kinds
    found = Found({k: metrics.evaluate(v, kinds, costs=costs, far=far) for k, v in scored.items()})
    if identification:
        found.searches = search_errors(trials, values, far)
    if sides is not None:
        for name, own in scored.items():
            ends = metrics.speaker_intervals(own, kinds, *sides, costs=costs, far=far)
            found.intervals[name] = ends
        for name in others:
            found.tests[name] = metrics.compare_systems(
                values, scored[name], kinds, *sides, costs, random_state=0
            )
        if by is not None:
            found.groups = by_group(trials, values, sides, by, far[0])
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    else:
        click.echo("\n".join(found.lines()))
    result = found.results[lead]
    if shown := result.uncalibrated():
        click.echo(f"mvplda: {shown}. {CALIBRATE}", err=True)
    if report is not None:
        by_kind = {kind: values[kinds == kind] for kind in kinds.used}
        title = Path(systems[lead]).name
        write_report(report, title, result, by_kind, found.intervals.get(lead))
        click.echo(f"wrote {report}", err=True)


@dataclass
class Found:
    """What was measured, by name of the system; the first is compared with the others."""

    results: dict[str, Evaluation]
    intervals: dict[str, Intervals] = field(default_factory=dict)
    tests: dict[str, SystemComparison] = field(default_factory=dict)
    groups: GroupErrors | None = None
    searches: Json | None = None

    def to_dict(self) -> Json:
        """Plain values for JSON; those of a single system without its name."""
        about: Json = {name: result.to_dict() for name, result in self.results.items()}
        for name, ends in self.intervals.items():
            about[name]["intervals"] = ends.to_dict()
        lead, *others = about
        if self.groups is not None:
            about[lead]["groups"] = self.groups.to_dict()
        if self.searches is not None:
            about[lead]["identification"] = self.searches
        if not others:
            return dict(about[lead])
        against = {f"{lead} against {name}": test.to_dict() for name, test in self.tests.items()}
        return {"systems": about, "tests": against}

    def lines(self) -> list[str]:
        """The tables of one system, or one row for each of several."""
        lead, *others = self.results
        if not others:
            table = self.results[lead].table(intervals=self.intervals.get(lead))
            groups = [] if self.groups is None else group_lines(self.groups)
            searches = [f"{one}: {each}" for one, each in (self.searches or {}).items()]
            return [table, *groups, *searches]
        lines = side_by_side(self.results, self.intervals)
        if not self.intervals:
            return [*lines, "No intervals and no comparison: they need --test-speakers."]
        lines.append(self.intervals[lead].definition())
        for name, test in self.tests.items():
            lines += ["", *comparison_lines(lead, name, test)]
        return lines


def named_systems(scores: Texts) -> dict[str, str]:
    """Score files by name; a single one needs none."""
    systems: dict[str, str] = {}
    for text in scores:
        name, sign, path = text.partition("=")
        if not sign and len(scores) > 1:
            raise click.UsageError(f"name every one of several systems: NAME=SCORES; got {text}")
        if not sign or Path(text).exists():
            name = Path(text).name
            path = text
        if systems.setdefault(name, path) != path:
            raise click.UsageError(f"two systems have the same name, {name}: NAME=SCORES")
    return systems


def with_kinds(trials: Trials, same_phrase: BoolArray, sides: Sides | None) -> Trials:
    """Return the trials as TC, TW, IC and IW; those of the kind spoof keep it.

    Parameters
    ----------
    same_phrase : (n,) bool
        Trials of which both sides have the same phrase.
    sides : two Coded, optional
        Speaker of the model and of the test of every trial. Without them, the kinds in the list
        have to determine which trials are of one speaker.
    """
    import numpy as np

    from ..coded import Coded
    from ..exceptions import LabelError
    from ..io.trials import Trials
    from ..kinds import SPOOF

    listed = Coded.of([""] * len(trials)) if trials.kind is None else trials.kind
    odd = set(listed.used) - {"", SPOOF, "target", "nontarget", *TWO_VIEWS}
    if odd:
        raise LabelError(
            f"phrases make TC, TW, IC and IW of targets and nontargets; the list has the kind {min(odd)!r}: "
            "leave out --enrol-phrases and --test-phrases"
        )
    if sides is None:
        same_speaker = same_speaker_in(trials, same_phrase)
    else:
        same_speaker = same_labels(*sides)
        refuse_contradictions(trials, listed, same_speaker, same_phrase)
    names = np.array([*TWO_VIEWS, SPOOF])
    codes = 2 * ~same_speaker + ~same_phrase
    codes[listed == SPOOF] = len(TWO_VIEWS)
    return Trials(trials.enrol, trials.test, Coded(names, codes))


def same_speaker_in(trials: Trials, same_phrase: BoolArray) -> BoolArray:
    """Return which trials are of one speaker, from the kinds in the list; an undetermined one is an error.

    A nontarget of another phrase is of another speaker if targets mean the speaker alone, which
    the list shows by a target of another phrase. If every target has the same phrase on both
    sides, the nontarget may as well be the right speaker with the wrong phrase.
    """
    import numpy as np

    from ..exceptions import LabelError

    kinds = trials.kinds
    wrong = np.flatnonzero(
        (same_phrase & kinds.isin(["TW", "IW"])) | (~same_phrase & kinds.isin(["TC", "IC"]))
    )
    if len(wrong):
        raise LabelError(
            f"the list contradicts the phrases in {len(wrong)} of {len(trials)} trials, the first is "
            f"{example(trials, wrong[0])} with {'the same phrase' if same_phrase[wrong[0]] else 'different phrases'}"
        )
    other_phrase = np.flatnonzero(~same_phrase & (kinds == "target"))
    unknown = np.flatnonzero(~same_phrase & (kinds == "nontarget"))
    if len(unknown) and not len(other_phrase):
        raise LabelError(
            f"{len(unknown)} of {len(trials)} trials are nontargets with different phrases, the first is "
            f"{example(trials, unknown[0])}: right speaker or impostor? Give --test-speakers, and --enrol-speakers "
            "unless models are called like their speakers"
        )
    if len(unknown):
        click.echo(
            f"mvplda: {len(other_phrase)} target(s) have different phrases, the first is "
            f"{example(trials, other_phrase[0])}: nontargets are taken for impostors; give --test-speakers and "
            "--enrol-speakers to check it",
            err=True,
        )
    return kinds.isin(["TC", "TW", "target"])


def refuse_contradictions(
    trials: Trials, listed: Coded, same_speaker: BoolArray, same_phrase: BoolArray
) -> None:
    """Raise an error if the kinds in the list are not those of the speakers and phrases.

    Targets mean the same speaker and phrase, or the same speaker alone, but in one list not both;
    contradictions are counted by the meaning that has fewer.
    """
    import numpy as np

    from ..exceptions import LabelError

    target = listed == "target"
    nontarget = listed == "nontarget"
    meanings = {
        "the same speaker and phrase": same_speaker & same_phrase,
        "the same speaker": same_speaker,
    }
    contradictions = {
        meaning: (target & ~accepted) | (nontarget & accepted)
        for meaning, accepted in meanings.items()
    }
    meaning = min(contradictions, key=lambda name: int(contradictions[name].sum()))
    wrong = contradictions[meaning]
    for kind, (speaker, phrase) in TWO_VIEWS.items():
        wrong |= (listed == kind) & ((same_speaker != speaker) | (same_phrase != phrase))
    if not wrong.any():
        return
    first = int(np.argmax(wrong))
    by_kind = {kind: int((wrong & (listed == kind)).sum()) for kind in listed.used}
    counts = ", ".join(f"{count} {kind}" for kind, count in by_kind.items() if count)
    speakers = "the same speaker" if same_speaker[first] else "different speakers"
    phrases = "the same phrase" if same_phrase[first] else "different phrases"
    notes = ""
    if (wrong & (target | nontarget)).any():
        notes += f"; target is read as {meaning}"
    if (wrong & target & ~same_speaker).any():
        notes += "; without --enrol-speakers, models are called like their speakers"
    raise LabelError(
        f"the list contradicts the speakers and phrases in {int(wrong.sum())} of {len(trials)} trials ({counts}), "
        f"the first is {example(trials, first)} with {speakers} and {phrases}{notes}"
    )


def example(trials: Trials, row: int) -> str:
    """Line of the list, for a message."""
    kind = "" if trials.kind is None else f" {trials.kind[row]}"
    return repr(f"{trials.enrol[row]} {trials.test[row]}{kind}")


def phrases_of(trials: Trials, enrol: str, test: str) -> Sides:
    """Phrase of the model and of the test of every trial."""
    return labels_in(enrol, trials.enrol, "phrase"), labels_in(test, trials.test, "phrase")


def same_labels(models: Coded, tests: Coded) -> BoolArray:
    """Which trials have the same label on both sides."""
    import numpy as np

    from ..io.trials import rows_in

    # compare codes: lists are long, names are few
    rows = rows_in(models.names, tests.names.tolist())[models.codes]
    return np.asarray(rows == tests.codes)


def in_sessions(
    trials: Trials, scored: dict[str, FloatArray], path: str, attempts: int
) -> tuple[IntArray, dict[str, FloatArray]]:
    """The row of the first trial of every session, and the best score of its attempts by every system."""
    from ..metrics import transactions

    made = labels_in(path, trials.test, "session")
    best = {
        name: transactions(own, trials.kinds, trials.enrol, made, attempts)
        for name, own in scored.items()
    }
    rows, _ = next(iter(best.values()))
    return rows, {name: own for name, (_, own) in best.items()}


def by_group(
    trials: Trials, values: FloatArray, sides: Sides, path: str, far: float
) -> GroupErrors:
    """Errors of the groups of people, at the threshold that gives all of them this share of false alarms."""
    from .. import metrics

    groups = labels_in(path, trials.test, "group")
    models, tested = sides
    # a model is of the group of its speaker's tests
    of_speaker = dict(zip(tested.tolist(), groups.tolist(), strict=True))
    enrolled = models.renamed([of_speaker.get(name, "") for name in models.names.tolist()])
    target = trials.target
    threshold = metrics.ScoreCurve(values[target], values[~target]).threshold_for(far)
    return metrics.group_errors(values, target, threshold, models, tested, enrolled, groups)


def group_lines(groups: GroupErrors) -> list[str]:
    """Both errors of every group, and how far the worst and the best lie apart."""
    from ..metrics.evaluation import align_columns

    rows = [["group", "FRR %", "FAR %"]]
    for group, frr in groups.frr.items():
        cells = ["{:.2f} [{:.2f}, {:.2f}]".format(*_percent(r)) for r in (frr, groups.far[group])]
        rows.append([group, *cells])
    lines = [f"Groups at the threshold {groups.threshold:.3f}:", *align_columns(rows)]
    for name, ratio in groups.largest_ratio.items():
        both = " / ".join(groups.between[name])
        ends = f"[{ratio.low:.2f}, {ratio.high:.2f}]"
        lines.append(f"{name.upper()} of {both}: {ratio.estimate:.2f} {ends}")
    return lines


def search_errors(trials: Trials, values: FloatArray, far: Iterable[float]) -> Json:
    """FNIR of the best candidate at the thresholds for some FPIR, from a list of every model against every test."""
    import numpy as np

    from ..exceptions import LabelError
    from ..metrics import identification_curve

    models = len(np.unique(trials.enrol.codes))
    if (np.bincount(trials.test.codes) != models).any():
        raise LabelError(
            f"a search has a test against all {models} models, and the list leaves some out: score without --trials"
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
    return [100 * value for value in (rate.estimate, rate.low, rate.high)]


def side_by_side(results: dict[str, Evaluation], intervals: dict[str, Intervals]) -> list[str]:
    """A table with one row for every system."""
    from ..metrics.evaluation import align_columns

    shown = next(iter(results.values())).summary()
    lines = [["EER, %", *(heading for heading, _, _ in shown)]]
    for name, result in results.items():
        cells = [result.cell(metric, kind, intervals.get(name)) for _, metric, kind in shown]
        lines.append([name, *cells])
    return align_columns(lines)


def comparison_lines(lead: str, other: str, test: SystemComparison) -> list[str]:
    """The difference of EER by kind, its interval, and who is better."""
    lines = [f"{lead} against {other}, difference of EER in % with its 95 % interval:"]
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


def matched(trials: Trials, path: str, scores: Scores | None = None) -> FloatArray:
    """The score of every trial; what a score file holds besides is counted on standard error.

    scores : those of the file, where they were read before
    """
    from ..io.trials import match, read_scores

    score, duplicates, unused = match(trials, scores or read_scores(path))
    if duplicates:
        click.echo(f"mvplda: {path}: {duplicates} score(s) repeat another", err=True)
    if unused:
        what = "are of trials that are not in the list"
        click.echo(f"mvplda: {path}: {unused} score(s) {what}", err=True)
    return score


def labels_in(path: str, ids: Coded, what: str) -> Coded:
    """The label of every id, by a map such as utt2spk."""
    return ids.renamed(looked_up(path, ids.names.tolist(), f"its {what}"))


def speakers_of(trials: Trials, enrol: str | None, test: str | None) -> Sides | None:
    """Speaker of the model and of the test of every trial; None where those of the tests are not given."""
    if test is None:
        return None
    models = trials.enrol if enrol is None else labels_in(enrol, trials.enrol, "speaker")
    tested = labels_in(test, trials.test, "speaker")
    return models, tested


def warn_of_unknown_models(models: Coded, tested: Coded) -> None:
    """Warn if no model has the name of a test speaker: models are then probably no speakers."""
    if not models.isin(tested.used).any():
        click.echo(
            "mvplda: warning: no model has the name of a test speaker; if models are not speakers, pass "
            "--enrol-speakers, or the intervals count too many speakers",
            err=True,
        )
