"""mvplda train, mvplda enrol"""

from __future__ import annotations

from typing import Any

import click

from .options import MODELS, SEED, KeyValue, Number, once


@click.command()
@click.argument("vectors")
@click.option(
    "-l",
    "--labels",
    multiple=True,
    type=KeyValue(),
    help="VIEW=FILE: read the classes of a view from FILE, such as utt2spk (vector id, class). Give one for every "
    "view; a vector that FILE does not list has no label in that view. Statistics have their own.",
)
@click.option(
    "-v",
    "--view",
    "views",
    multiple=True,
    required=True,
    type=KeyValue(),
    help="VIEW=RANK: model this view with so many dimensions, or choose them on held-out classes with VIEW=auto. "
    "A:B is the interaction of A and B and needs no labels of its own.",
)
@click.option("-o", "--output", required=True, help="Write the model to this file.")
@click.option(
    "--noise",
    type=click.Choice(["diagonal", "full", "isotropic"]),
    default="diagonal",
    help="Give what no view explains a covariance of this shape; full fits best and needs the most vectors.",
)
@click.option(
    "--shrinkage",
    help="Mix this share of the total variance, from 0 to below 1, into the noise, which steadies it where classes "
    "are few; auto chooses the share on held-out classes.  [default: 0; auto where a rank is auto]",
)
@click.option(
    "--reduce", type=click.IntRange(min=1), help="Keep only so many principal components of the vectors, whitened."
)
@click.option("--whiten", is_flag=True, help="Give the vectors zero mean and unit covariance first.")
@click.option("--length-norm", is_flag=True, help="Scale all vectors to one length, after whitening.")
@click.option(
    "--iterations", type=click.IntRange(min=1), default=100, help="Stop after this many EM iterations at the latest."
)
@click.option(
    "--tolerance",
    type=Number(min=0),
    default=1e-3,
    help="Stop when an iteration raises the log-likelihood by less than this, in nats a vector.",
)
@click.option(
    "--algorithm",
    type=click.Choice(["auto", "exact", "variational", "paper"]),
    default="auto",
    help="Solve the model by this algorithm. exact refuses what does not fit in memory; variational maximises a lower "
    "bound, for two views with many classes each; auto takes exact where that is quick, else variational; paper uses "
    "the formulas as printed in arXiv 1704.06061.",
)
@click.option(
    "--folds",
    type=click.IntRange(min=2),
    default=5,
    help="Hold classes out in so many folds, where a rank or the shrinkage is auto.",
)
@click.option(
    "--criterion",
    type=click.Choice(["likelihood", "cllr"]),
    default="cllr",
    help="Choose an auto rank or shrinkage by the likelihood of held-out classes, or by the cost of their scores.",
)
@click.option(
    "--seed",
    type=SEED,
    default=0,
    help="Draw the start and the folds with this seed; the same seed gives the same model.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print neither progress nor a summary; warnings are still shown.")
def train(
    vectors: str,
    labels: tuple[tuple[str, str], ...],
    views: tuple[tuple[str, str], ...],
    output: str,
    noise: Any,
    shrinkage: str | None,
    reduce: int | None,
    whiten: bool,
    length_norm: bool,
    iterations: int,
    tolerance: float,
    algorithm: Any,
    folds: int,
    criterion: Any,
    seed: int,
    quiet: bool,
) -> None:
    """Fit a model to VECTORS (scp, ark, npy, npz, parquet, arrow, h5) and labels, or to a file of mvplda stats.

    A summary of the data and of the fit goes to standard error: classes, cells filled, which algorithm was used and,
    of a bound, about how far it lies below the log-likelihood.

    \b
    Examples:
      mvplda train xvector.scp -l speaker=utt2spk -l phrase=utt2phrase -v speaker=100 -v phrase=20 -o model.safetensors
      mvplda train x.npz -l speaker=utt2spk -l phrase=utt2phrase -v speaker=auto -v phrase=auto \\
          -v speaker:phrase=auto --noise full --whiten --length-norm -o model.safetensors
      mvplda train stats.safetensors -v speaker=100 -v channel=50 --algorithm variational -o model.safetensors
    """
    from ..bundle import Bundle
    from ..estimators.cross_validation import MultiviewPLDACV
    from ..estimators.multiview import MultiviewPLDA
    from ..exceptions import DataError
    from ..files import check_writable
    from ..io.lists import read_labels
    from ..io.vectors import read_vectors
    from ..preprocessing import standard_chain
    from ..statistics import SufficientStatistics
    from ..statistics.storage import holds_statistics

    ranks: dict[str, Any] = {name: _rank(value) for name, value in once("--view", views).items()}
    automatic = "auto" in ranks.values() or shrinkage == "auto"
    if automatic and algorithm == "paper":
        raise click.UsageError("--algorithm paper has nothing to choose: give ranks, and no --shrinkage auto")
    share = 0.0 if shrinkage in (None, "auto") else _share(str(shrinkage))
    common: dict[str, Any] = {
        "algorithm": algorithm,
        "noise": noise,
        "max_iter": iterations,
        "tol": tolerance,
        "random_state": seed,
        "verbose": 0 if quiet else 1,
    }
    check_writable(output)
    gathered = holds_statistics(vectors)
    if gathered and (automatic or labels or reduce is not None or whiten or length_norm):
        raise click.UsageError(
            "statistics hold no vectors: leave out --labels, --reduce, --whiten, --length-norm and auto"
        )
    if not gathered and not labels:
        raise click.UsageError("name the labels: --labels speaker=utt2spk")
    model: MultiviewPLDA
    if gathered:
        model = MultiviewPLDA(ranks, noise_shrinkage=share, **common)
        model.fit_statistics(SufficientStatistics.load(vectors))
        Bundle(None, model).save(output)
    else:
        data = read_vectors(vectors)
        if len(data) < 2:
            raise DataError(f"{vectors} holds one vector: a model is trained on several of every class")
        table = read_labels(once("--labels", labels), data.ids)
        if automatic:
            if shrinkage not in (None, "auto"):
                common["noise_shrinkages"] = (share,)
            model = MultiviewPLDACV(ranks, cv=folds, criterion=criterion, **common)
        else:
            model = MultiviewPLDA(ranks, noise_shrinkage=share, **common)
        chain = None
        if reduce is not None or whiten or length_norm:
            whitening: Any = "pca" if whiten or reduce is not None else None
            chain = standard_chain(reduce, whitening=whitening, length="sqrt" if length_norm else None)
        bundle = Bundle(chain, model, extractor=data.extractor)
        bundle.fit(data.X, table)
        bundle.save(output)
    if not quiet:
        click.echo(str(model.diagnostics_), err=True)


def _rank(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isdigit() or int(text) < 1:
        raise click.BadParameter(f"a rank is a positive whole number, or auto; got {text!r}", param_hint="--view")
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise click.BadParameter(
            f"expected a number from 0 to below 1, or auto; got {text!r}", param_hint="--shrinkage"
        )
    return value


@click.command()
@click.argument("model")
@click.argument("vectors")
@click.option("--models", help=MODELS)
@click.option("-o", "--output", required=True, help="Write the profiles to this file.")
def enrol(model: str, vectors: str, models: str | None, output: str) -> None:
    """Make profiles of VECTORS with MODEL, to be scored later (mvplda score --profiles).

    \b
    Example:
      mvplda enrol model.safetensors enrol.scp --models spk2utt -o profiles.safetensors
    """
    from .. import load
    from ..files import check_writable
    from .scores import enrolled_profiles

    check_writable(output)
    profiles = enrolled_profiles(load(model), vectors, models, None, None)
    profiles.save(output)
    click.echo(f"wrote {len(profiles)} profiles to {output}", err=True)
