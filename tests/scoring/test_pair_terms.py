"""The two derivations of a pair term, from latents and from vectors, against each other and against dense densities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mvplda import MultiviewPLDA
from mvplda.exceptions import ParameterError
from mvplda.scoring import assignments
from mvplda.scoring.assignments import CellTable, group_profiles
from mvplda.scoring.latent_elimination import EvidenceReduction
from mvplda.scoring.latent_space import LatentSpace, Layout
from mvplda.scoring.log_sums import OffsetSum
from mvplda.scoring.pair_matrices import latent_term, reduce_evidence, vector_term
from mvplda.scoring.pair_terms import multiply


def random_model(D: int, ranks: dict[str, int], seed: int = 0) -> MultiviewPLDA:
    rng = np.random.default_rng(seed)
    loadings = {view: rng.normal(size=(D, rank)) for view, rank in ranks.items()}
    return MultiviewPLDA.from_parameters(rng.normal(size=D), loadings, rng.uniform(0.3, 2.0, D))


@pytest.mark.parametrize("keep", [range(3), range(3, 7), range(7)])
@pytest.mark.parametrize("counts", [(1.0, 1.0), (3.0, 0.5)])
def test_latents_and_vectors_agree(keep: range, counts: tuple[float, float]) -> None:
    rng = np.random.default_rng(1)
    space = LatentSpace.of(random_model(5, {"a": 3, "b": 4}).parameters_)
    kept = np.array(keep)
    n_e, n_t = counts
    of_latents = latent_term(n_e * space.gram, n_t * space.gram, kept, kept)
    W = space.whitened
    A, B = (W @ W.T + np.eye(5) / n for n in counts)
    of_vectors = vector_term(A, B, W[:, kept] @ W[:, kept].T)
    e, t = rng.normal(size=(2, 6, 5))  # whitened means
    y_e, y_t = n_e * e @ W, n_t * t @ W
    values = []
    for term, left, right in ((of_latents, y_e, y_t), (of_vectors, e, t)):
        other = multiply(right, term.right)
        own = np.einsum("ni,ij,nj->n", left, term.row, left)
        theirs = np.einsum("ni,ij,nj->n", right, term.column, right)
        cross = np.einsum("ni,ni->n", left @ term.left, other)
        values.append(own + theirs + cross + term.constant)
    np.testing.assert_allclose(values[0], values[1], atol=1e-10)


def known_model(wide: bool) -> MultiviewPLDA:
    rng = np.random.default_rng(2)
    ranks = {"speaker": 4, "phrase": 4} if wide else {"speaker": 2, "phrase": 2}
    model = random_model(5, ranks, seed=3)
    rank = ranks["phrase"]
    roots = rng.normal(size=(3, rank, rank)) / 3
    model.classes_["phrase"] = np.array(["x", "y", "z"])
    model.class_means_["phrase"] = rng.normal(size=(3, rank))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(rank)
    model.class_covariances_["phrase"] = covariances[[0, 0, 2]]  # two alike, one not
    return model


@pytest.mark.parametrize("question", [{}, {"same": "speaker"}, {"same": "phrase"}])
def test_known_classes_in_vectors_are_those_in_latents(
    question: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    E, T = 2 * rng.normal(size=(2, 9, 5))
    asked: dict[str, Any] = {
        **question,
        "known": {"phrase": list("xyzxyzxyz")},
        "dtype": np.float64,
    }
    quick = known_model(True).llr(E, T, **asked)
    monkeypatch.setattr(LatentSpace, "is_wide", False)
    np.testing.assert_allclose(known_model(True).llr(E, T, **asked), quick, atol=1e-9)


@pytest.mark.parametrize("wide", [False, True])
def test_assignments_that_share_a_product_are_added_up_with_care(wide: bool) -> None:
    """Far from all classes, the largest rows and columns belong to different assignments."""
    model = known_model(wide)
    rng = np.random.default_rng(6)
    E, T = 200 * rng.normal(size=(2, 6, 5))
    asked: dict[str, Any] = {
        "known": {"phrase": list("xyzxyz")},
        "same": "speaker",
        "dtype": np.float64,
    }
    whole = model.llr(E, T, **asked)
    assert np.isfinite(whole).all()
    one = np.empty((6, 6))
    for i, j in np.ndindex(6, 6):
        single = {**asked, "known": {"phrase": ["xyzxyz"[i]]}}
        one[i, j] = model.llr(E[[i]], T[[j]], **single)[0, 0]
    np.testing.assert_allclose(whole, one, rtol=1e-9, atol=1e-6)
    some = OffsetSum(np.array([[0.0, -900.0]]), np.array([[-900.0, 0.0], [0.0, -900.0]]))
    expected = [[-900 + np.log(2), 0.0]]
    np.testing.assert_allclose(some.block(slice(None), slice(None)), expected)
    np.testing.assert_allclose(some.pairs(np.array([0, 0]), np.array([0, 1])), expected[0])


def test_too_many_possibilities_are_refused_and_as_many_as_allowed_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def score() -> Any:
        model = random_model(5, {"speaker": 2, "phrase": 2})
        rng = np.random.default_rng(7)
        E = model.enrol(rng.normal(size=(3, 5)), [0, 0, 0], {"phrase": list("abc")})
        T = model.enrol(rng.normal(size=(2, 5)), [0, 0], {"speaker": list("uv")})
        return model.llr(E, T)

    # "same in every view" leaves 3 x 2 pairs of cells
    monkeypatch.setattr(assignments, "MAX_ASSIGNMENTS", 6)
    assert np.isfinite(score()).all()
    monkeypatch.setattr(assignments, "MAX_ASSIGNMENTS", 5)
    with pytest.raises(ParameterError, match="6 possible assignments"):
        score()


CELLS = {"speaker": 3, "phrase": 2, "speaker:phrase": 2, "recording": 1}


def several_cells(ranks: dict[str, int]) -> Layout:
    """Five cells of one speaker: three phrases, two recordings, of which two cells weigh the same."""
    base = ("speaker", "phrase", "recording")
    classes = ((0,) * 5, (0, 0, 1, 1, 2), (0, 1, 0, 1, 1))
    table = CellTable(base, (2.0, 1.0, 2.0, 0.5, 1.5), classes, ((-1,), (-1,) * 3, (-1,) * 2))
    gram = LatentSpace.of(random_model(6, ranks).parameters_).gram
    return Layout(table, ranks, gram)


@pytest.mark.parametrize("seed", range(6))
def test_evidence_is_reduced_cell_by_cell_as_it_is_at_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layout = several_cells(CELLS)
    keep = rng.permutation(layout.width)[: rng.integers(1, layout.width + 1)]
    kept, reduction = EvidenceReduction.of(layout.cells, layout, keep)
    expected, M = reduce_evidence(layout.precision, keep)
    np.testing.assert_allclose(kept, expected, atol=1e-12)
    y = rng.normal(size=(4, layout.width))
    np.testing.assert_allclose(reduction.apply(y), y @ M, atol=1e-12)


@pytest.mark.parametrize("known", [None, "phrase"])
@pytest.mark.parametrize("same", [None, "speaker", "phrase"])
def test_profiles_of_many_cells_against_vectors_are_those_against_latents(
    known: str | None, same: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(8)
    E, T = rng.normal(size=(8, 5)), rng.normal(size=(6, 5))
    ids = list("aaaaabbb")
    asked: dict[str, Any] = {"same": same, "dtype": np.float64}
    if known:
        asked["known"] = [known]

    def llrs() -> Any:
        model = known_model(True)
        return model.llr(model.enrol(E, ids, {"phrase": list("xxyzzyxy")}), model.enrol(T), **asked)

    quick = llrs()
    monkeypatch.setattr(LatentSpace, "is_wide", False)
    np.testing.assert_allclose(llrs(), quick, atol=1e-9)


def test_no_matrix_of_a_form_is_as_wide_as_a_profile_of_many_cells() -> None:
    ranks = {"speaker": 20, "phrase": 20, "speaker:phrase": 20}
    model = random_model(20, ranks)
    rng = np.random.default_rng(9)
    phrases = [f"p{i}" for i in range(12)]
    profile = model.enrol(rng.normal(size=(12, 20)), ["a"] * 12, {"phrase": phrases})
    pair_terms = model.pair_terms()
    (group,) = group_profiles(profile, pair_terms.base, {})
    enrol = pair_terms.prepare(group.table, group.gather(profile.y))
    test = pair_terms.prepare(
        CellTable.single_cell(pair_terms.base, 1.0), rng.normal(size=(1, 1, 60))
    )
    (term,) = pair_terms.assignment_terms(
        enrol, test, group.table.without_training_classes(), (((0, -1),), ((3, -1),))
    )
    width = enrol.layout.width
    assert width == 20 + 12 * 40
    arrays = [term.left, term.right, term.row.values, term.row.matrix, term.column.matrix]
    assert all(width not in np.shape(array) for array in arrays)
    assert "precision" not in vars(enrol.layout)
