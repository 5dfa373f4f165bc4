"""mvplda train, mvplda enrol"""

from __future__ import annotations

from typing import Any

import click

from .options import KeyValue, warnings_as_lines


@click.command()
@click.argument("vectors")
@click.option(
    "-l", "--labels", multiple=True, type=KeyValue(), help="VIEW=FILE such as utt2spk, once a view; not for statistics."
)
@click.option(
    "-v",
    "--view",
    "views",
    multiple=True,
    required=True,
    type=KeyValue(),
    help="VIEW=RANK, or VIEW=auto; A:B is the interaction of A and B.",
)
@click.option("-o", "--output", required=True, help="Model file to write.")
@click.option(
    "--noise",
    type=click.Choice(["diagonal", "full", "isotropic"]),
    default="diagonal",
    help="Covariance of what no view explains.",
)
@click.option(
    "--shrinkage",
    help="Share of the total variance in the noise, 0 to below 1, or auto.  [default: 0; auto with an auto rank]",
)
@click.option("--reduce", type=int, help="Keep so many principal components, whitened.")
@click.option("--whiten", is_flag=True, help="Whiten the vectors first.")
@click.option("--length-norm", is_flag=True, help="Scale vectors to one length, after whitening.")
@click.option("--iterations", default=100, help="Of EM, at most.")
@click.option("--tolerance", default=1e-3, help="Stop below this gain, nat a vector.")
@click.option(
    "--algorithm",
    type=click.Choice(["auto", "exact", "variational", "paper"]),
    default="auto",
    help="exact: refuses what does not fit. variational: a lower bound, for two views with many classes each. "
    "auto: exact where that is quick, else variational. paper: the formulas as printed in arXiv 1704.06061.",
)
@click.option("--folds", default=5, help="Of held-out classes, where a rank or the shrinkage is auto.")
@click.option(
    "--criterion",
    type=click.Choice(["likelihood", "cllr"]),
    default="cllr",
    help="What an auto rank or shrinkage is chosen by.",
)
@click.option("--seed", default=0, help="Of the start, and of the folds.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, no summary.")
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
    from ..io.lists import read_labels
    from ..io.vectors import read_vectors
    from ..preprocessing import standard_chain
    from ..statistics import SufficientStatistics
    from ..statistics.storage import holds_statistics

    ranks: dict[str, Any] = {name: _rank(value) for name, value in views}
    automatic = "auto" in ranks.values() or shrinkage == "auto"
    if automatic and algorithm == "paper":
        raise click.UsageError("--algorithm paper has nothing to choose: give ranks, and no --shrinkage auto")
    common: dict[str, Any] = {
        "algorithm": algorithm,
        "noise": noise,
        "max_iter": iterations,
        "tol": tolerance,
        "random_state": seed,
        "verbose": 0 if quiet else 1,
    }
    gathered = holds_statistics(vectors)
    if gathered and (automatic or labels or reduce is not None or whiten or length_norm):
        raise click.UsageError(
            "statistics hold no vectors: leave out --labels, --reduce, --whiten, --length-norm and auto"
        )
    if not gathered and not labels:
        raise click.UsageError("name the labels: --labels speaker=utt2spk")
    with warnings_as_lines():
        if gathered:
            share = 0.0 if shrinkage is None else _share(shrinkage)
            fitted = MultiviewPLDA(ranks, noise_shrinkage=share, **common)
            fitted.fit_statistics(SufficientStatistics.load(vectors))
            Bundle(None, fitted).save(output)
            if not quiet:
                click.echo(str(fitted.diagnostics_), err=True)
            return
        data = read_vectors(vectors)
        table = read_labels(dict(labels), data.ids)
        model: MultiviewPLDA
        if automatic:
            if shrinkage not in (None, "auto"):
                common["noise_shrinkages"] = (_share(str(shrinkage)),)
            model = MultiviewPLDACV(ranks, cv=folds, criterion=criterion, **common)
        else:
            share = 0.0 if shrinkage is None else _share(shrinkage)
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
        return float(text)
    except ValueError:
        raise click.BadParameter(
            f"expected a number from 0 to 1, or auto; got {text!r}", param_hint="--shrinkage"
        ) from None


@click.command()
@click.argument("model")
@click.argument("vectors")
@click.option("--models", help="Enrolment list: model id, then ids of its vectors (spk2utt). Default: one vector each.")
@click.option("-o", "--output", required=True, help="Profile file to write.")
def enrol(model: str, vectors: str, models: str | None, output: str) -> None:
    """Make profiles of VECTORS with MODEL, to be scored later (mvplda score --profiles).

    \b
    Example:
      mvplda enrol model.safetensors enrol.scp --models spk2utt -o profiles.safetensors
    """
    from .. import load
    from .scores import enrolled_profiles

    with warnings_as_lines():
        profiles = enrolled_profiles(load(model), vectors, models, None, None)
        profiles.save(output)
    click.echo(f"wrote {len(profiles)} profiles to {output}", err=True)
