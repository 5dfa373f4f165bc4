"""Time and peak memory of the paper's experiment at the published size of RSR2015, with random vectors.

The folder of the corpus has empty sound files and lists of trials of the published size.

python -m benchmarks.rsr2015_size FOLDER [SYSTEM ...] [--people N] [--made-lists]

All systems of the paper's table are measured, with the interaction and `best`, unless systems are named. With fewer
evaluated people per gender (--people) the lists are shorter, and training is the same. With --made-lists the trials are
made in memory instead of being read, which saves minutes. Results for all people are written to
results/rsr2015-size/results.json, others to FOLDER.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np

from mvplda.coded import Coded
from mvplda.io.trials import Trials, read_rsr2015_enrolment, rsr2015_utterance
from mvplda.paper.corpora import load_corpus, rsr2015
from mvplda.paper.experiment import run_experiment
from mvplda.paper.experiment_settings import read_recipe
from mvplda.paper.provenance import provenance, write_results

PEOPLE = {"male": range(1, 158), "female": range(1, 144)}
FIRST_EVALUATED = {"male": 101, "female": 95}
PHRASES = range(1, 31)
DIMENSION = 256
OUTPUT = Path(__file__).parents[1] / "results" / "rsr2015-size" / "results.json"
MARKS = {(True, True): "Y,N,N,N", (True, False): "N,Y,N,N", (False, True): "N,N,Y,N"}


def file_of(gender: str, speaker: str, session: int, phrase: int) -> str:
    return f"{gender}/{speaker}/{speaker}_{session:02d}_{phrase:03d}.sph"


def write_tree(root: Path, most: int) -> None:
    """81,000 empty files, and lists of 30.5 million trials, or of so many people of a gender."""
    for gender, numbers in PEOPLE.items():
        for number in numbers:
            speaker = f"{gender[0]}{number:03d}"
            (root / "sph" / gender / speaker).mkdir(parents=True)
            for session in range(1, 10):
                for phrase in PHRASES:
                    (root / "sph" / file_of(gender, speaker, session, phrase)).touch()
    for kind in ("trn", "ndx"):
        (root / "key/part1" / kind).mkdir(parents=True)
    for gender, first in FIRST_EVALUATED.items():
        numbers = range(first, PEOPLE[gender].stop)[:most]
        people = [f"{gender[0]}{number:03d}" for number in numbers]
        tests = [
            (speaker, phrase, file_of(gender, speaker, session, phrase))
            for speaker in people
            for session in (2, 3, 5, 6, 8, 9)
            for phrase in PHRASES
        ]
        name = f"3sess-pwd_eval_{gender[0]}"
        enrolments = (root / f"key/part1/trn/{name}.trn").open("w")
        trials = (root / f"key/part1/ndx/{name}.ndx").open("w")
        with enrolments, trials:
            for speaker in people:
                for phrase in PHRASES:
                    model = f"{speaker}_{phrase:03d}"
                    files = [file_of(gender, speaker, session, phrase) for session in (1, 4, 7)]
                    enrolments.write(",".join([model, *files]) + "\n")
                    for who, what, file in tests:
                        mark = MARKS.get((who == speaker, what == phrase), "N,N,N,Y")
                        trials.write(f"{model},{file},{mark}\n")


def made_lists(folder: Path, genders: list[str]) -> tuple[dict[str, tuple[str, ...]], Trials]:
    """Enrolments as they are listed, and every model of a gender with every test of it."""
    models: dict[str, tuple[str, ...]] = {}
    parts = []
    for gender in genders:
        own = read_rsr2015_enrolment(folder / "trn" / f"3sess-pwd_eval_{gender[0]}.trn")
        models |= own
        speakers = dict.fromkeys(model.partition("_")[0] for model in own)
        tests = [
            rsr2015_utterance(file_of(gender, speaker, session, phrase))
            for speaker in speakers
            for session in (2, 3, 5, 6, 8, 9)
            for phrase in PHRASES
        ]
        pair = np.divmod(np.arange(len(own) * len(tests)), len(tests))
        columns = zip((list(own), tests), pair, strict=True)
        parts.append([Coded(np.array(names), codes.astype(np.int32)) for names, codes in columns])
    enrol, test = zip(*parts, strict=True)
    return models, Trials(rsr2015._joined(list(enrol)), rsr2015._joined(list(test)))


def write_vectors(root: Path, path: Path) -> None:
    """Speakers, phrases and noise, drawn."""
    rng = np.random.default_rng(0)
    files = sorted(file.relative_to(root / "sph").as_posix() for file in root.rglob("*.sph"))
    ids = np.array([rsr2015_utterance(file.removesuffix(".sph")) for file in files])
    speakers = np.unique([file.split("/")[1] for file in files], return_inverse=True)[1]
    phrases = np.array([int(file[-7:-4]) for file in files])
    X = rng.normal(size=(speakers.max() + 1, DIMENSION))[speakers]
    X += rng.normal(size=(phrases.max() + 1, DIMENSION))[phrases]
    X += 1.5 * rng.normal(size=X.shape)
    np.savez(path, X=X.astype(np.float32), ids=ids)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("systems", nargs="*", default=["paper"])
    parser.add_argument(
        "--people", type=int, default=0, help="evaluated people of a gender, at most"
    )
    parser.add_argument("--made-lists", action="store_true", help="do not read the lists of trials")
    given = parser.parse_args()
    if given.made_lists:
        rsr2015._read_lists = made_lists
    root = given.folder
    vectors = root / "vectors.npz"
    if not vectors.is_file():
        write_tree(root, given.people or len(PEOPLE["male"]))
        write_vectors(root, vectors)
    record = {**provenance([root]), "unchecked": "times and memory of a machine"}
    rows: list[dict[str, object]] = []
    started = time.perf_counter()
    processor = time.process_time()

    def say(text: str) -> None:
        """Keep what was done, when, and the most memory until then."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        row = {
            "step": text.strip(),
            "seconds": round(time.perf_counter() - started),
            "cpu_seconds": round(time.process_time() - processor),
            "peak_gb": round(peak, 2),
        }
        rows.append(row)
        print(*row.values(), flush=True)

    say("start")
    corpus = load_corpus("rsr2015", root)
    say(f"lists of {len(corpus.protocol.trials or ())} trials")
    settings = read_recipe("paper", {"name": "rsr2015"})
    settings = settings.with_changes({"evaluation.systems": given.systems})
    run_experiment(corpus, settings, root / "out", say, vectors=[vectors])
    found = {"vectors_gb": round(vectors.stat().st_size / 2**30, 2), "steps": rows}
    title = "RSR2015's published size: stub files, its lists, given vectors"
    output = root / "results.json" if given.people else OUTPUT
    write_results(output, title, rows={**found, "provenance": record})


if __name__ == "__main__":
    main()
