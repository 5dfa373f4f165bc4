"""Speakers who speak one language each: what a model of both gains over models of speakers alone.

Where every training speaker is heard in one condition only, what a condition does to a vector looks like what a
speaker does, and PLDA of speakers believes it. A model of speakers and conditions can tell them apart, since several
speakers share a condition (Ferrer and McLaren, "Joint PLDA for simultaneous modeling of two factors", JMLR 2019). The
study varies how many of the training speakers are heard in two conditions, and judges speakers who were not trained
on, within a condition and across.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline

from ...bundle import Bundle
from ...distributed.engines import ordered_map
from ...exceptions import DataError, MvpldaWarning
from ...metrics import compare_systems, eer, speaker_intervals
from ...metrics.evaluation import markdown_rows
from ...models.baselines import CosineScorer
from ...models.multiview import PLDA, MultiviewPLDA
from ...persistence import write_atomically
from ...preprocessing import LDA, Centring, LengthNormalisation, standard_chain, unit_chain
from ...report import SYSTEM_COLOURS, figure, pictures_where_possible, save_figure
from ...training import make_committee
from .task import Task, score

Mask = NDArray[np.bool_]
Labels = Mapping[str, NDArray[Any]]

SIZES = 80, 40, 5
"""Speakers to train on and others, and languages, of vectors that are drawn from a known model."""
SHARES = (0.0, 0.05, 0.25, 1.0)
ALL = "all"
"""The last column: every training speaker is heard in every condition, where nothing is left to tell apart."""
AXES = 100
"""Principal axes that models without a prior see, whitened."""
BASELINES = "cosine", "PLDA of {0}, prior", "PLDA of {0}, prior, centred by {1}*"
"""What the joint model with its prior is held against, paired."""
PRIOR: dict[str, Any] = {"prior": "isotropic", "prior_strength": 0.6, "max_iter": 3}
LIKELIHOOD: dict[str, Any] = {"noise": "full", "max_iter": 20}


@dataclass(frozen=True)
class LanguageResult:
    """EER of every system by share of training speakers who are heard in two conditions.

    speaker, condition : the two views
    errors : {system: {share: {"same", "other" or "any" condition: one EER a draw of the training speakers}}}
    intervals : the same with (low, high), the mean over draws of intervals over evaluation speakers
    tests : {share: {baseline: (EER of the joint model with its prior over the baseline's, low, high)}}, first draw
    """

    speaker: str
    condition: str
    errors: dict[str, dict[str, dict[str, list[float]]]]
    intervals: dict[str, dict[str, dict[str, tuple[float, float]]]]
    tests: dict[str, dict[str, tuple[float, float, float]]]

    def tables(self) -> str:
        """Markdown: a table a kind of trials, systems by shares, EER in percent."""
        shares = list(next(iter(self.errors.values())))
        head = [
            "EER, %",
            *(f"{share} two" if share != ALL else "all speak all" for share in shares),
        ]
        lines = []
        for kind in ("same", "other", "any"):
            rows = [head]
            for system, found in self.errors.items():
                cells = [
                    f"{100 * np.mean(found[s][kind]):.2f} [{100 * low:.2f}, {100 * high:.2f}]"
                    for s in shares
                    for low, high in [self.intervals[system][s][kind]]
                ]
                rows.append([system, *cells])
            lines += [f"**{self.title(kind)}**", "", *markdown_rows(rows), ""]
        rows = [["joint, prior, over ...", *shares]]
        for baseline in next(iter(self.tests.values())):
            cells = [
                f"{ratio:.2f} [{low:.2f}, {high:.2f}]"
                for ratio, low, high in (self.tests[s][baseline] for s in shares)
            ]
            rows.append([baseline, *cells])
        lines += ["**Ratio of EER, all trials, first draw**", "", *markdown_rows(rows), ""]
        note = f"EER: mean over draws of who is heard in what, with the mean of 95 % intervals over {self.speaker}s."
        return "\n".join(
            [
                *lines,
                f"{note} Systems with * are told the {self.condition}, or whether it is the same.",
                "",
            ]
        )

    def title(self, kind: str) -> str:
        """Which trials they are, in words."""
        return {
            "same": f"Trials within one {self.condition}",
            "other": f"Trials across two {self.condition}s",
        }.get(kind, "All trials")


def assigned(labels: Labels, share: float | str, random_state: int) -> Mask:
    """Training vectors (n,) that stay when a share of the speakers keep two conditions, the others one.

    Every speaker keeps as many vectors as there are in one condition, so that columns differ in nothing else; all
    conditions have about the same number of speakers.
    """
    who, what = (np.unique(column, return_inverse=True)[1] for column in labels.values())
    rng = np.random.default_rng(random_state)
    n, conditions = who.max() + 1, what.max() + 1
    if not 1 < conditions <= n:
        raise DataError(
            f"{n} training speakers and {conditions} conditions; expected two conditions or more, and a "
            "speaker for each"
        )
    several = conditions if share == ALL else 2
    bilingual = np.zeros(n, dtype=bool)
    bilingual[rng.permutation(n)[: n if share == ALL else round(float(share) * n)]] = True
    first = rng.permutation(np.arange(n) % conditions)
    stays = np.zeros(len(who), dtype=bool)
    for speaker in range(n):
        own = [np.flatnonzero((who == speaker) & (what == c)) for c in range(conditions)]
        order = [first[speaker], *rng.permutation(np.delete(np.arange(conditions), first[speaker]))]
        heard = order[: several if bilingual[speaker] else 1]
        kept = min(map(len, own))
        for place, c in enumerate(heard):
            stays[own[c][place : kept : len(heard)]] = True  # other sentences in each
    return stays


def systems(task: Task, *, drawn: Any = None) -> dict[str, NDArray[Any]]:
    """Scores of all systems, by name; `drawn` is the model that the vectors come from, where that is known."""
    speaker, condition = task.views
    who = task.train_labels[speaker]
    told = task.model_labels[condition][:, None] == task.test_labels[condition]
    centred = _centred(task)

    def chain(axes: int | None = None) -> Any:
        if drawn is not None:  # Gaussian as they are
            return Pipeline([("centre", Centring())])
        return (
            unit_chain()
            if axes is None
            else standard_chain(min(axes, task.train.shape[1], len(task.train) - 1))
        )

    def ask(bundle: Any, **question: Any) -> NDArray[Any]:
        return score(bundle, task, same=speaker, **question)

    def tell(bundle: Any, **question: Any) -> NDArray[Any]:
        """Of every trial it is known whether the condition is the same."""
        answers = [
            ask(bundle, given={condition: what}, **question) for what in ("same", "different")
        ]
        return np.where(told, *answers)

    directions = Pipeline(
        [
            ("centre", Centring()),
            ("lda", LDA(view=speaker, shrinkage=0.1)),
            ("length", LengthNormalisation()),
        ]
    )
    two = dict.fromkeys((speaker, condition))
    plain = Bundle(chain(), CosineScorer(centre=False))
    plda = Bundle(chain(), PLDA(**PRIOR))
    likely = Bundle(chain(AXES), MultiviewPLDA(two, **LIKELIHOOD)).fit(
        task.train, task.train_labels
    )
    joint = Bundle(chain(), MultiviewPLDA(two, **PRIOR)).fit(task.train, task.train_labels)
    best = make_committee({"all": task.train.shape[1]}, task.views, labels=task.train_labels)
    best.fit(task.train, task.train_labels)
    found = {
        "cosine": score(plain.fit(task.train), task),
        f"cosine, centred by {condition}*": score(plain.fit(centred.train), centred),
        f"LDA of {speaker}, cosine": score(
            Bundle(directions, CosineScorer(centre=False)).fit(task.train, task.train_labels), task
        ),
        f"PLDA of {speaker}": score(
            Bundle(chain(AXES), PLDA(**LIKELIHOOD)).fit(task.train, who), task
        ),
        f"PLDA of {speaker}, centred by {condition}*": score(
            Bundle(chain(AXES), PLDA(**LIKELIHOOD)).fit(centred.train, who), centred
        ),
        f"PLDA of {speaker}, prior": score(plda.fit(task.train, who), task),
        f"PLDA of {speaker}, prior, centred by {condition}*": score(
            plda.fit(centred.train, who), centred
        ),
        "joint": ask(likely),
        f"joint, {condition} same or not told*": tell(likely),
        "joint, prior": ask(joint),
        f"joint, prior, {condition} same or not told*": tell(joint),
        f"joint, prior, {condition} of the profile and same or not told*": tell(
            joint, known={condition: task.model_labels[condition]}
        ),
        f"best, {condition} not told": ask(best),
    }
    if drawn is not None:
        found["true parameters"] = ask(drawn)
        found[f"true parameters, {condition} same or not told*"] = tell(drawn)
    return found


def _centred(task: Task) -> Task:
    """Every vector less the training mean of its condition, which must be told."""
    view = task.views[1]
    names, codes = np.unique(task.train_labels[view], return_inverse=True)
    means = np.stack([task.train[codes == k].mean(axis=0) for k in range(len(names))])

    def less(X: NDArray[Any], column: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(X - means[np.searchsorted(names, column)])

    return replace(
        task,
        train=less(task.train, task.train_labels[view]),
        enrol=less(task.enrol, task.model_labels[view][task.enrol_ids]),
        test=less(task.test, task.test_labels[view]),
    )


@dataclass(frozen=True)
class Draw:
    """One draw of who is heard in what, and the EER, interval and paired tests of every system there."""

    share: float | str
    number: int

    @property
    def name(self) -> str:
        return self.share if isinstance(self.share, str) else f"{self.share:.0%}"

    def judged(self, task: Task, drawn: Any, resamples: int) -> tuple[Any, Any, Any]:
        speaker, condition = task.views
        kinds = task.kinds
        asked: dict[str, dict[str, Mask]] = {
            "same": {"TC": kinds["TC"], "IC": kinds["IC"]},
            "other": {"TC": kinds["TW"], "IC": kinds["IW"]},
            "any": {"TC": kinds["TC"] | kinds["TW"], "IC": kinds["IC"] | kinds["IW"]},
        }
        people = task.model_labels[speaker], task.test_labels[speaker]
        kept = assigned(task.train_labels, self.share, self.number)
        labels = {view: column[kept] for view, column in task.train_labels.items()}
        errors: dict[str, dict[str, float]] = {}
        ends: dict[str, dict[str, tuple[float, float]]] = {}
        tests = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MvpldaWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            scores = systems(
                replace(task, train=task.train[kept], train_labels=labels), drawn=drawn
            )
            for system, values in scores.items():
                errors[system], ends[system] = {}, {}
                for kind, split in asked.items():
                    errors[system][kind] = float(eer(values[split["TC"]], values[split["IC"]]))
                    end = speaker_intervals(values, split, *people, far=()).of("Total", "eer")
                    ends[system][kind] = (
                        (0.0, 1.0) if end is None else (float(end.low), float(end.high))
                    )
            for other in BASELINES if self.number == 0 else ():
                other = other.format(speaker, condition)
                pair = scores["joint, prior"], scores[other]
                result = compare_systems(
                    *pair, asked["any"], *people, n_resamples=resamples, random_state=0, far=()
                )
                test = result.tests["Total"]["eer"]
                tests[other] = (test.ratio, test.ratio_low, test.ratio_high)
        return errors, ends, tests


def study_languages(
    task: Task,
    output: Path,
    *,
    drawn: Any = None,
    draws: int = 3,
    shares: Sequence[float] = SHARES,
    resamples: int = 200,
    workers: int = 1,
    say: Callable[[str], None] = lambda text: None,
) -> LanguageResult:
    """Every system at every share, with `draws` draws of who is heard in what; tables and a picture in a folder."""
    errors: dict[str, Any] = {}
    ends: dict[str, Any] = {}
    tests: dict[str, Any] = {}
    columns: list[float | str] = [*shares, ALL]
    every = [Draw(share, number) for share in columns for number in range(draws)]
    work = partial(Draw.judged, task=task, drawn=drawn, resamples=resamples)
    done = ordered_map(
        work, every, engine="serial" if workers == 1 else "processes", workers=workers
    )
    for draw, (found, intervals, compared) in zip(every, done, strict=True):
        for system, by_kind in found.items():
            for kind, error in by_kind.items():
                place = errors.setdefault(system, {}).setdefault(draw.name, {})
                place.setdefault(kind, []).append(error)
                place = ends.setdefault(system, {}).setdefault(draw.name, {})
                place.setdefault(kind, []).append(intervals[system][kind])
        tests |= {draw.name: compared} if compared else {}
        shown = ", ".join(
            f"{system} {100 * by_kind['any']:.2f}" for system, by_kind in found.items()
        )
        say(f"{draw.name}, draw {draw.number + 1} of {draws}: {shown}")
    means = {
        system: {
            share: {k: tuple(np.mean(v, axis=0).tolist()) for k, v in kinds.items()}
            for share, kinds in rows.items()
        }
        for system, rows in ends.items()
    }
    speaker, condition = task.views
    result = LanguageResult(speaker, condition, errors, means, tests)
    output.mkdir(parents=True, exist_ok=True)
    write_atomically(output / "languages.md", result.tables().encode())
    write_atomically(
        output / "languages.json", (json.dumps(vars(result), indent=1) + "\n").encode()
    )
    say("\n" + result.tables())
    with pictures_where_possible():
        say(f"wrote {draw_languages(result, output / 'languages.png')}")
    return result


def draw_languages(result: LanguageResult, path: Path) -> Path:
    """EER over the share of training speakers who are heard in two conditions, a panel a kind of trials."""
    fig, panels = figure(14, 5, 3)
    shares = list(next(iter(result.errors.values())))
    shown = [name for name in result.errors if not name.endswith("*") or "PLDA" in name]
    for axes, kind in zip(panels, ("same", "other", "any"), strict=True):
        for place, system in enumerate(shown):
            values = [100 * np.mean(result.errors[system][share][kind]) for share in shares]
            colour = SYSTEM_COLOURS[place % len(SYSTEM_COLOURS)]
            axes.plot(
                shares,
                values,
                "o--" if system.endswith("*") else "o-",
                color=colour,
                label=system,
                ms=4,
            )
        axes.set(
            xlabel=f"training {result.speaker}s heard in two {result.condition}s",
            ylabel="EER, %",
            ylim=(0, None),
        )
        axes.set_title(result.title(kind).lower())
        axes.grid(alpha=0.25)
    fig.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=4,
        fontsize="small",
    )
    return save_figure(fig, path)
