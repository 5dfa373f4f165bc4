# ruff: noqa: RUF001 - Russian sentences are written in their own letters
"""Vectors for two studies: synthetic voices in several languages, and spoken digits in new places.

``python -m benchmarks.studies.sounds languages -o voices.npz`` lets espeak-ng's voices say sentences in five
languages: 120 synthetic speakers, each of them in every language, every sentence with its own pitch, rate,
microphone, room and noise; labels lie beside the vectors. ``python -m benchmarks.studies.sounds places AUDIOMNIST -o
places/`` sends AudioMNIST's clips through telephones, rooms and noise, a file of vectors a place, and makes those
that are not there. Vectors come from an extractor that was fetched (``mvplda extractor get
campplus``); the places are for ``python -m benchmarks.studies.new_places``.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.voices import Espeak, draw_speaker
from mvplda import load_extractor
from mvplda._optional import need

from ..augmentation import Channel, Noise, Recipe, Room, Speed, augment

RATE = 16000
SNR_DB = (6.0, 25.0)
SESSION = Recipe(
    (
        Speed(factor=(0.98, 1.02)),
        Channel(gain_db=(-7, 7), low_hz=(40, 250), high_hz=(3800, 7600)),
        Room(0.8, t60_s=(0.1, 0.5), direct_db=(0, 12)),
    )
)
LANGUAGES = {
    "en-us": (
        "the train to the coast leaves at seven in the morning",
        "my sister bought fresh bread and a little cheese",
        "it has been raining since yesterday and the streets are wet",
        "could you please close the window in the kitchen",
        "we are looking for a quiet room with two beds",
        "the doctor says that he should drink more water",
        "on Sunday the children play behind the old house",
        "I have forgotten where I left my keys",
        "the shop on the corner opens at half past nine",
        "tomorrow evening we will have guests for dinner",
    ),
    "de": (
        "der Zug an die Küste fährt morgens um sieben ab",
        "meine Schwester hat frisches Brot und etwas Käse gekauft",
        "seit gestern regnet es und die Straßen sind nass",
        "könnten Sie bitte das Fenster in der Küche schließen",
        "wir suchen ein ruhiges Zimmer mit zwei Betten",
        "der Arzt sagt, dass er mehr Wasser trinken soll",
        "am Sonntag spielen die Kinder hinter dem alten Haus",
        "ich habe vergessen, wo ich meine Schlüssel gelassen habe",
        "der Laden an der Ecke öffnet um halb zehn",
        "morgen Abend haben wir Gäste zum Essen",
    ),
    "fr": (
        "le train pour la côte part à sept heures du matin",
        "ma sœur a acheté du pain frais et un peu de fromage",
        "il pleut depuis hier et les rues sont mouillées",
        "pourriez-vous fermer la fenêtre de la cuisine",
        "nous cherchons une chambre calme avec deux lits",
        "le médecin dit qu'il devrait boire plus d'eau",
        "le dimanche les enfants jouent derrière la vieille maison",
        "j'ai oublié où j'ai laissé mes clés",
        "le magasin du coin ouvre à neuf heures et demie",
        "demain soir nous aurons des invités pour le dîner",
    ),
    "es": (
        "el tren a la costa sale a las siete de la mañana",
        "mi hermana ha comprado pan fresco y un poco de queso",
        "llueve desde ayer y las calles están mojadas",
        "podría cerrar la ventana de la cocina por favor",
        "buscamos una habitación tranquila con dos camas",
        "el médico dice que debería beber más agua",
        "los domingos los niños juegan detrás de la casa vieja",
        "he olvidado dónde dejé mis llaves",
        "la tienda de la esquina abre a las nueve y media",
        "mañana por la noche tendremos invitados a cenar",
    ),
    "ru": (
        "поезд к морю отправляется в семь часов утра",
        "моя сестра купила свежий хлеб и немного сыра",
        "со вчерашнего дня идёт дождь и улицы мокрые",
        "закройте пожалуйста окно на кухне",
        "мы ищем тихую комнату с двумя кроватями",
        "врач говорит что ему надо пить больше воды",
        "в воскресенье дети играют за старым домом",
        "я забыл где оставил свои ключи",
        "магазин на углу открывается в половине десятого",
        "завтра вечером у нас будут гости на ужин",
    ),
}
SPEAKERS, SEED = 120, 17

ADAPTING = 15
SESSIONS = {"train": 10, "adapt": 7, "evaluate": 5}
"""Repetitions of every digit: the 15 people who adapt have 10 minutes; of 20 who evaluate, 3 enrol and 2 test."""


def say_in_all(job: dict[str, Any]) -> tuple[int, np.ndarray, list[tuple[str, int]]]:
    """One speaker in every language, in a process of its own: what espeak-ng says depends on what it said before."""
    extractor, number = load_extractor(job["extractor"]), job["number"]
    speaker = draw_speaker(number, SEED)
    vectors, rows = [], []
    espeak = Espeak(seed=number + 1)
    for place, (language, sentences) in enumerate(LANGUAGES.items()):
        for k, text in enumerate(sentences):
            rng = np.random.default_rng([SEED, number, place, k])
            said = espeak.say(text, speaker._replace(accent=language), rng)
            noise = Recipe((Noise(snr_db=SNR_DB, kinds=("white", "pink")),))
            heard = augment(augment(said, SESSION, rng, rate=RATE), noise, rng, rate=RATE)
            vectors.append(extractor.embed((0.5 * heard / np.abs(heard).max()).astype(np.float32)))
            rows.append((language, k))
    return number, np.stack(vectors), rows


def languages(output: Path, extractor: str, workers: int) -> None:
    jobs = [{"number": number, "extractor": extractor} for number in range(SPEAKERS)]
    X, speaker, language, sentence = [], [], [], []
    with ProcessPoolExecutor(workers, get_context("spawn"), max_tasks_per_child=1) as pool:
        for number, vectors, rows in pool.map(say_in_all, jobs):
            X.append(vectors)
            speaker += [f"s{number + 1:03d}"] * len(rows)
            language += [name for name, _ in rows]
            sentence += [k for _, k in rows]
    ids = [f"{s}_{n}_{k}" for s, n, k in zip(speaker, language, sentence, strict=True)]
    np.savez(output, X=np.concatenate(X).astype(np.float16), ids=np.array(ids))
    for name, column in {"speaker": speaker, "language": language}.items():
        lines = (f"{i} {label}\n" for i, label in zip(ids, column, strict=True))
        output.with_suffix(f".{name}").write_text("".join(lines), encoding="utf-8")


# Places: what a clip goes through. Every clip draws its own room and noise within the place's bounds.


def places() -> dict[str, Callable[[list[np.ndarray], np.random.Generator], list[np.ndarray]]]:
    def heard(*steps: Any) -> Callable[..., list[np.ndarray]]:
        recipe = Recipe(steps)
        return lambda clips, rng: [augment(clip, recipe, rng, rate=RATE) for clip in clips]

    telephone = Channel(gain_db=(-3, 3), low_hz=(280, 320), high_hz=(3300, 3500), slope=6)
    return {
        "clean": lambda clips, rng: clips,
        "telephone": heard(telephone),
        "room": heard(Room(t60_s=(0.5, 0.7), direct_db=(-2, 4))),
        "noise": heard(Noise(snr_db=(5, 12), kinds=("pink",))),
        "noisy-telephone": heard(Noise(snr_db=(8, 15), kinds=("white", "pink")), telephone),
    }


def one_speaker(job: dict[str, Any]) -> np.ndarray:
    """Vectors of one speaker's clips in one place."""
    sound, rate = need("soundfile").read(job["file"])
    assert rate == RATE
    clips = [sound[start : start + length] for start, length in job["clips"]]
    rng = np.random.default_rng([SEED, int(job["speaker"]), sorted(places()).index(job["place"])])
    heard = places()[job["place"]]([0.5 * clip / np.abs(clip).max() for clip in clips], rng)
    extractor = load_extractor(job["extractor"])
    return np.stack([extractor.embed(clip.astype(np.float32)) for clip in heard])


def new_places(
    folder: Path, output: Path, extractor: str, workers: int, wanted: list[str] | None
) -> None:
    """The first 25 of the 40 training speakers train where it is clean, 15 adapt, and the other 20 evaluate."""
    with open(folder / "index.csv", newline="", encoding="utf-8") as file:
        index = list(csv.DictReader(file))
    training = np.load(folder.parent / "audiomnist_jvectors.npz")["training_speakers"]
    role = {
        int(name): "train" if k < len(training) - ADAPTING else "adapt"
        for k, name in enumerate(training)
    }
    for row in index:
        row["role"] = role.get(int(row["speaker"]), "evaluate")
        row["seconds"] = str(int(row["length"]) / RATE)
    output.mkdir(parents=True, exist_ok=True)
    for place in wanted or places():
        if (output / f"{place}.npz").exists():
            continue
        rows = [row for row in index if int(row["session"]) < SESSIONS[row["role"]]]
        rows = [row for row in rows if place == "clean" or row["role"] != "train"]
        jobs = []
        for name in sorted({row["speaker"] for row in rows}):
            own = [row for row in rows if row["speaker"] == name]
            clips = [(int(row["start"]), int(row["length"])) for row in own]
            file_of = {"file": str(folder / own[0]["file"]), "clips": clips}
            jobs.append({"place": place, "speaker": name, "extractor": extractor, **file_of})
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            X = np.concatenate(list(pool.map(one_speaker, jobs))).astype(np.float16)
        rows = [row for job in jobs for row in rows if row["speaker"] == job["speaker"]]
        columns = {
            key: np.array([row[key] for row in rows])
            for key in ("role", "speaker", "phrase", "session", "seconds")
        }
        np.savez(output / f"{place}.npz", X=X, **columns)
        print(f"wrote {output / place}.npz: {len(X)} vectors", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["languages", "places"])
    parser.add_argument(
        "audiomnist", type=Path, nargs="?", help="the packed folder with index.csv, for places"
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("-x", "--extractor", default="campplus")
    parser.add_argument(
        "--place", action="append", choices=list(places()), help="only this; may be repeated"
    )
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    began = time.perf_counter()
    if options.what == "languages":
        languages(options.output, options.extractor, options.workers)
    else:
        new_places(
            options.audiomnist, options.output, options.extractor, options.workers, options.place
        )
    print(f"wrote {options.output} in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
