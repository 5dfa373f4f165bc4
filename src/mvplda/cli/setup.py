"""Command that makes a model with thresholds for the people of a product: setup."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from .options import (
    COUNT,
    QUIET,
    RATE,
    check_folder,
    extractor_option,
    first_passed,
    labels_option,
    unique_pairs,
)
from .train import read_labelled_vectors

if TYPE_CHECKING:
    from ..voice.verification import VoiceModel
    from .options import Pairs, Texts


@click.command("setup")
@click.argument("source")
@click.option(
    "-o",
    "--output",
    required=True,
    help="Write the model, the profiles and a report to this folder.",
)
@click.option(
    "--far",
    type=RATE,
    default=0.01,
    help="Choose the threshold that accepts at most this share of the worst kind of impostors.",
)
@click.option(
    "--pattern",
    help="Pattern of the paths: {VIEW} stands for a label, * for any text, as in {speaker}/{phrase}_*.  [default: the "
    "folders are labels]",
)
@click.option(
    "--enrolment",
    type=COUNT,
    default=1,
    help="Number of recordings per profile in later use; error rates are measured with the same number.",
)
@labels_option(
    "VIEW=FILE or VIEW=COLUMN: read the labels of vectors from it, as in `mvplda train`."
)
@click.option(
    "--attacks",
    is_flag=True,
    help="Also simulate attacks on each person with copies, replays and vocoded versions of their recordings, and "
    "write the shares of accepted attacks to attacks.txt. This takes seconds per person and attack.",
)
@extractor_option(required=False)
@QUIET
def setup_command(
    source: str,
    output: str,
    pattern: str | None,
    labels: Pairs,
    extractors: Texts,
    quiet: bool,
    far: float,
    enrolment: int,
    attacks: bool,
) -> None:
    """Make a model for your own people, with a threshold.

    SOURCE is a folder of recordings, a table of recordings (.csv) with columns file, speaker and phrase, or vectors
    with labels. Thresholds also hold for impostors of the same sex: the sex is read from a column sex or gender; for
    recordings without it, people with a similar pitch count as of the same sex.

    Each person is held out in turn, and error rates are measured on held-out people. The commands verify, identify,
    profiles, people, score, serve, info and convert accept the output folder.

    \b
    Examples:
      mvplda setup recordings/ --far 0.01 -o voices/            (recordings/ann/hello/1.wav)
      mvplda setup recordings/ --pattern "{speaker}_{phrase}_*" -o voices/
      mvplda setup vectors.npz -o voices/                       (arrays X, speaker and phrase)
    """
    from ..voice.setup import has_table, setup_vectors
    from ..voice.setup import setup as set_up

    check_folder(Path(output))
    folder = Path(source)
    # a folder with .scp files is a Kaldi data folder of vectors; any other folder holds recordings
    if has_table(source, "file") or (folder.is_dir() and not any(folder.glob("*.scp"))):
        if labels:
            raise click.UsageError(
                f"--labels applies only to vectors, and {source} contains recordings, whose labels are in their paths "
                "or in the table: leave out --labels"
            )
        result = set_up(
            source,
            pattern=pattern,
            extractors=extractors,
            far=far,
            enrolment=enrolment,
            progress=not quiet,
        )
    else:
        if attacks:
            raise click.UsageError(
                f"--attacks needs recordings, and {source} contains vectors: leave out --attacks"
            )
        option = first_passed({"--extractor": bool(extractors), "--pattern": bool(pattern)})
        if folder.exists() and option is not None:
            raise click.UsageError(
                f"{option} applies only to recordings, and {source} is read as vectors: leave out {option}, or pass a "
                "folder of recordings without .scp files, or a table with a column file"
            )
        data, table = read_labelled_vectors(
            source, _label_sources(source, unique_pairs("--labels", labels))
        )
        ids = [str(name) for name in data.ids]
        result = setup_vectors(
            data.X,
            table,
            marks=ids,
            name=data.extractor,
            far=far,
            enrolment=enrolment,
            progress=not quiet,
        )
    result.save(output)
    click.echo(result.report)
    if attacks and result.voices is not None:
        attack_table = _attack_table(source, pattern, result.voices, progress=not quiet)
        (Path(output) / "attacks.txt").write_text(attack_table + "\n", encoding="utf-8")
        click.echo(f"\n{attack_table}")
    click.echo(
        f"wrote {output}. Try it: `mvplda verify a.wav b.wav --model {quote(output)}`", err=True
    )


def _attack_table(source: str, pattern: str | None, voices: VoiceModel, progress: bool) -> str:
    """Simulate attacks on the people of a setup, and return a table of the proportions of accepted attacks as text.

    source, pattern : folder or table of the recordings, and --pattern of their paths
    voices : model that decides about the attacks
    """
    from ..voice.attacks.measure import (
        ALL_ATTACKS,
        attack_everybody,
        decide_by,
        list_owners,
        missing_programs,
        text_table,
    )

    owners = list_owners(source, pattern)
    decide = decide_by(voices, owners)
    rows = attack_everybody(owners, decide, attacks=ALL_ATTACKS, progress=progress)
    return "\n".join([text_table(rows), *missing_programs(ALL_ATTACKS.values())])


def _label_sources(source: str, labels: dict[str, str]) -> dict[str, str]:
    """Return {view: source of its labels} for vectors, including the sex if it is stored with the vectors.

    A source is a column of the file, or a list such as utt2spk in its folder.

    labels : sources from --labels; empty: the labels of speaker and phrase that are stored with the vectors
    """
    from ..io.vectors import labels_beside
    from ..voice.sexes import SEX_COLUMNS

    sources = labels or labels_beside(source, ("speaker", "phrase"))
    if "speaker" not in sources:
        return labels
    return {**labels_beside(source, SEX_COLUMNS), **sources}
