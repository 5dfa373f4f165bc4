"""
The paper in a hundred lines of NumPy
=====================================

Z. Shi, L. Liu, M. Wang, R. Liu, "Multi-view (Joint) Probability Linear Discrimination
Analysis for Multi-view Feature Verification", arXiv 1704.06061: the model, EM as printed
and exact EM, the scores as printed and the exact ones. Everything is dense and slow; a
test compares each function with the library.

Recording k of speaker i, who says phrase j, is a vector ::

    x_ijk = mu + S u_i + T v_j + noise      u_i, v_j ~ N(0, I)      noise ~ N(0, diag(sigma))

All recordings of speaker i share u_i, and all recordings of phrase j share v_j. A model
is the tuple (mu, S, T, sigma); speakers and phrases are numbered from 0.

Run it for a table of error rates: ``python examples/paper.py``.
"""

import numpy as np


def printed_em(X, speaker, phrase, start, iterations, reading="appendix"):
    """Run EM as printed: each cell (speaker i, phrase j) has its own latents z = (u, v).

    X has a vector per row, `speaker` and `phrase` have the numbers of their classes.
    `start` is a model; `reading` is "appendix" or "body", two versions of the E step.
    """
    mu, S, T, sigma = start
    u, v = slice(S.shape[1]), slice(S.shape[1], None)
    cells = [
        (speaker == i) & (phrase == j) for i, j in {*zip(speaker, phrase, strict=True)}
    ]
    for _ in range(iterations):
        # E step: the posterior of a cell's z, given the H vectors of this cell alone.
        # The appendix has H in the precision; the body of the paper leaves it out.
        B = np.hstack([S, T])
        weighted = B.T / sigma
        z = np.zeros((len(X), B.shape[1]))
        R = np.zeros((B.shape[1], B.shape[1]))
        for cell in cells:
            H = cell.sum()
            count = H if reading == "appendix" else 1
            covariance = np.linalg.inv(np.eye(len(R)) + count * weighted @ B)
            z[cell] = mean = covariance @ weighted @ (X[cell] - mu).sum(axis=0)
            R += H * (covariance + np.outer(mean, mean))
        # M step: S given T, then T given the new S. R is a sum over all vectors; in print
        # this sum is missing.
        mu = X.mean(axis=0)
        C = (X - mu).T @ z
        S = (C[:, u] - T @ R[v, u]) @ np.linalg.inv(R[u, u])
        T = (C[:, v] - S @ R[u, v]) @ np.linalg.inv(R[v, v])
        explained = (np.hstack([S, T]) * C).sum(axis=1) / len(X)
        sigma = ((X - mu) ** 2).mean(axis=0) - explained
    return mu, S, T, sigma


def exact_em(X, speaker, phrase, start, iterations):
    """Run exact EM: one joint posterior of all u_i and v_j, because vectors share them.

    The arguments are those of `printed_em`.
    """
    mu, S, T, sigma = start
    r, q = S.shape[1], T.shape[1]
    who, what = np.eye(speaker.max() + 1)[speaker], np.eye(phrase.max() + 1)[phrase]
    N = who.T @ what  # vectors per cell
    I, J = N.shape
    for _ in range(iterations):
        # E step: the precision couples u_i and v_j wherever cell (i, j) has vectors.
        WS, WT = (S.T / sigma).T, (T.T / sigma).T
        precision = np.eye(I * r + J * q) + np.block(
            [
                [np.kron(np.diag(N.sum(axis=1)), S.T @ WS), np.kron(N, S.T @ WT)],
                [np.kron(N.T, T.T @ WS), np.kron(np.diag(N.sum(axis=0)), T.T @ WT)],
            ]
        )
        covariance = np.linalg.inv(precision)
        evidence = [who.T @ (X - mu) @ WS, what.T @ (X - mu) @ WT]
        means = covariance @ np.concatenate([part.ravel() for part in evidence])
        U, V = means[: I * r].reshape(I, r), means[I * r :].reshape(J, q)
        uu = covariance[: I * r, : I * r].reshape(I, r, I, r)
        uv = covariance[: I * r, I * r :].reshape(I, r, J, q)
        vv = covariance[I * r :, I * r :].reshape(J, q, J, q)
        # M step: regression of x on (u, v, 1), with the uncertainty of u and v in R.
        z = np.hstack([U[speaker], V[phrase], np.ones((len(X), 1))])
        R = z.T @ z
        R[:r, :r] += np.einsum("i,iaib->ab", N.sum(axis=1), uu)
        R[r:-1, r:-1] += np.einsum("j,jajb->ab", N.sum(axis=0), vv)
        cross = np.einsum("ij,iajb->ab", N, uv)
        R[:r, r:-1] += cross
        R[r:-1, :r] += cross.T
        C = X.T @ z
        W = C @ np.linalg.inv(R)
        sigma = (X**2).mean(axis=0) - (W * C).sum(axis=1) / len(X)
        # Latents must be N(0, I) on average over classes: move their mean and spread
        # into mu, S and T (minimum divergence). EM then needs few iterations.
        S, T, mu = W[:, :r], W[:, r:-1], W[:, -1]
        mu = mu + S @ U.mean(axis=0) + T @ V.mean(axis=0)
        S = S @ np.linalg.cholesky(
            np.einsum("iaib->ab", uu) / I + np.cov(U.T, bias=True)
        )
        T = T @ np.linalg.cholesky(
            np.einsum("jajb->ab", vv) / J + np.cov(V.T, bias=True)
        )
    return mu, S, T, sigma


def log_densities(model, enrolled, tests, printed=False):
    """Return the log-densities of all pairs of vectors under four hypotheses.

    Each result has the shape (enrolled, tests). `printed` selects the formulas in print.
    """
    mu, S, T, sigma = model
    SS, TT, noise = S @ S.T, T @ T.T, np.diag(sigma)
    A = SS + TT
    blocks = {  # covariance of one vector without its noise, and of two vectors
        "both": (A, A),
        "phrase": (A, TT),  # M1
        "speaker": (A, SS),  # M2
        "nothing": (A, 0 * A),  # M3
    }
    if printed:  # all blocks alike, so that both latents are shared under M1 and M2
        blocks["phrase"] = (SS + 2 * TT, SS + 2 * TT)
        blocks["speaker"] = (2 * SS + TT, 2 * SS + TT)
    shape = len(enrolled), len(tests), len(mu)
    sides = (
        np.broadcast_to((enrolled - mu)[:, None], shape),
        np.broadcast_to(tests - mu, shape),
    )
    pairs = np.concatenate(sides, axis=2)
    densities = {}
    for shared, (one, two) in blocks.items():
        covariance = np.block([[one + noise, two], [two, one + noise]])
        distances = ((pairs @ np.linalg.inv(covariance)) * pairs).sum(axis=2)
        log_volume = np.linalg.slogdet(2 * np.pi * covariance)[1]
        densities[shared] = -(distances + log_volume) / 2
    return densities


def joint_score(p):
    """Return the log-likelihood ratio of "same speaker and phrase" to the alternatives.

    `p` is the result of `log_densities`; the three alternatives have equal weights.
    """
    alternatives = [p["phrase"], p["speaker"], p["nothing"]]
    return p["both"] - np.logaddexp.reduce(alternatives) + np.log(3)


def speaker_score(p):
    """Return the log-likelihood ratio for "same speaker, whatever the phrase".

    `p` is the result of `log_densities`; the formula is that of the paper's appendix.
    """
    return np.logaddexp(p["both"], p["speaker"]) - np.logaddexp(
        p["phrase"], p["nothing"]
    )


def eer(targets, others):
    """Return the equal error rate in % from the scores of targets and of others."""
    thresholds = np.sort(np.concatenate([targets, others]))
    misses = np.searchsorted(np.sort(targets), thresholds) / len(targets)
    false_alarms = 1 - np.searchsorted(np.sort(others), thresholds) / len(others)
    k = np.abs(misses - false_alarms).argmin()
    return 50 * (misses[k] + false_alarms[k])


def main(D=20, r=4, q=4, speakers=90, phrases=8, takes=5):
    """Draw vectors from the model, fit it in three ways, and print error rates."""
    rng = np.random.default_rng(0)
    S, T = rng.normal(size=(D, r)), 1.5 * rng.normal(size=(D, q))
    who, what, take = (a.ravel() for a in np.indices((speakers, phrases, takes)))
    latents = rng.normal(size=(speakers, r)), rng.normal(size=(phrases, q))
    X = (
        latents[0][who] @ S.T
        + latents[1][what] @ T.T
        + 2 * rng.normal(size=(len(who), D))
    )
    train, enrol, test = who < 50, (who >= 50) & (take == 0), (who >= 50) & (take == 1)

    x = X[train]
    start = (
        x.mean(axis=0),
        rng.normal(size=(D, r)),
        rng.normal(size=(D, q)),
        x.var(axis=0),
    )
    data = x, who[train], what[train], start, 30
    models = {
        "exact": exact_em(*data),
        "printed, appendix": printed_em(*data),
        "printed, body": printed_em(*data, reading="body"),
    }
    same_speaker = who[enrol][:, None] == who[test]
    same_phrase = what[enrol][:, None] == what[test]
    kinds = {  # what differs in a trial that must be rejected
        "IW": ~same_speaker & ~same_phrase,
        "IC": ~same_speaker & same_phrase,
        "TW": same_speaker & ~same_phrase,
    }
    print("EM                 score      IW      IC      TW   speaker alone   (EER, %)")
    for em, model in models.items():
        for score in ("exact", "printed"):
            p = log_densities(model, X[enrol], X[test], printed=score == "printed")
            joint, alone = joint_score(p), speaker_score(p)
            right = joint[same_speaker & same_phrase]
            errors = [eer(right, joint[kind]) for kind in kinds.values()]
            errors.append(eer(alone[same_speaker], alone[~same_speaker]))
            print(f"{em:18} {score:8}", *(f"{error:7.2f}" for error in errors))


if __name__ == "__main__":
    main()
