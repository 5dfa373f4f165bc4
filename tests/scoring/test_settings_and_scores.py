"""Priors of the printed score, a prior in a file, and inputs at the edge."""

import io

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from mvplda import Bundle, MultiviewPLDA, SufficientStatistics, load
from mvplda.exceptions import AudioError, LabelError, ParameterError
from mvplda.io import Scores, Trials, match
from mvplda.preprocessing import Centring, standard_chain
from mvplda.scoring.question import with_countermeasure

VIEWS = {"speaker": 2, "phrase": 2}
BOTH = ("speaker", "phrase")


def _data():
    rng = np.random.default_rng(0)
    speaker, phrase = np.divmod(np.arange(72), 8)
    y = {"speaker": speaker, "phrase": phrase // 2}
    X = (
        rng.normal(size=(9, 4))[speaker]
        + rng.normal(size=(4, 4))[phrase // 2]
        + 0.6 * rng.normal(size=(72, 4))
    )
    return X, y, rng.normal(size=(3, 4)), rng.normal(size=(2, 4))


@pytest.mark.parametrize("same", ["speaker", "phrase", BOTH])
@pytest.mark.parametrize(
    "priors",
    [
        {("phrase",): 1, ("speaker",): 2, (): 5},
        {BOTH: 4, ("phrase",): 3},
        {BOTH: 1, ("speaker",): 0, ("phrase",): 1, (): 1},
    ],
)
def test_printed_score_with_priors_that_leave_hypotheses_out(same, priors):
    X, y, E, T = _data()
    m = MultiviewPLDA(VIEWS).fit(X, y)
    S, P = (m.loadings_[v] @ m.loadings_[v].T for v in BOTH)
    blocks = {
        BOTH: (S + P, S + P),
        ("speaker",): (2 * S + P,) * 2,
        ("phrase",): (S + 2 * P,) * 2,
        (): (S + P, 0 * S),
    }
    noise = np.diag(m.noise_)
    logs = {
        h: [
            [
                multivariate_normal(
                    np.tile(m.mean_, 2), np.block([[a + noise, b], [b, a + noise]])
                ).logpdf([*e, *t])
                for t in T
            ]
            for e in E
        ]
        for h, (a, b) in blocks.items()
    }
    asked = {same} if isinstance(same, str) else set(same)

    def side(hypotheses):
        named = {h: priors[h] for h in hypotheses if h in priors} or dict.fromkeys(hypotheses, 1.0)
        weights = np.array(list(named.values()), dtype=float)[:, None, None]
        return logsumexp([logs[h] for h in named], axis=0, b=weights / weights.sum())

    expected = side([h for h in blocks if asked <= set(h)]) - side(
        [h for h in blocks if not asked <= set(h)]
    )
    found = m.llr(E, T, same=same, priors=priors, scoring="paper", dtype=np.float64)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_a_prior_stays_with_its_model(tmp_path):
    X, y, _, _ = _data()
    statistics = SufficientStatistics.from_arrays(X, y)
    model = MultiviewPLDA(
        dict.fromkeys(VIEWS), prior="isotropic", prior_strength={"speaker": 0.8, "noise": 0.1}
    )
    model.fit(X, y).save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert (
        again.prior_strength_
        == model.prior_strength_
        == {"speaker": 0.8, "phrase": 0.6, "noise": 0.1}
    )
    np.testing.assert_allclose(
        again.fit_statistics(statistics).noise_, model.fit_statistics(statistics).noise_
    )
    with pytest.raises(LabelError, match="no view 'phrase'"):
        model.fit_statistics(SufficientStatistics.from_arrays(X, {"speaker": y["speaker"]}))


def test_bundle_takes_tensors():
    torch = pytest.importorskip("torch")
    X, y, E, T = _data()
    bundle = Bundle(standard_chain(), MultiviewPLDA(VIEWS)).fit(X, y)
    expected = bundle.llr(E, T, dtype=np.float64)
    np.testing.assert_allclose(
        bundle.llr(torch.tensor(E), torch.tensor(T), dtype=np.float64), expected, atol=1e-9
    )
    assert np.isfinite(bundle.prepare(torch.tensor(E).bfloat16()).numpy()).all()


def test_bundle_settings_are_checked():
    X, y, _, _ = _data()
    with pytest.raises(ParameterError, match="Pipeline"):
        Bundle(Centring(), MultiviewPLDA(VIEWS)).fit(X, y)


def test_countermeasures_may_be_sure():
    scores, traces = [5.0, -np.inf, np.inf], [np.inf, -np.inf, 2.0]
    assert with_countermeasure(scores, traces, 0).tolist() == scores
    assert with_countermeasure(scores, traces, 1).tolist() == traces


def test_webm_that_is_damaged_within_is_an_error():
    av = pytest.importorskip("av")
    from mvplda.voice.audio.decode import read_sound

    sound = np.random.default_rng(0).normal(scale=0.1, size=72000).astype(np.float32)
    written = io.BytesIO()
    with av.open(written, "w", format="webm") as container:
        stream = container.add_stream("libopus", rate=48000)
        for start in range(0, len(sound), 960):
            frame = av.AudioFrame.from_ndarray(
                sound[None, start : start + 960], format="flt", layout="mono"
            )
            frame.sample_rate, frame.pts = 48000, start
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    body = written.getvalue()
    assert abs(len(read_sound(body)[0]) - 24000) < 400
    half = len(body) // 2
    with pytest.raises(AudioError, match="damaged"):
        read_sound(body[:half] + bytes(2000) + body[half + 2000 :])


def test_a_trial_of_two_kinds_is_an_error():
    scores = Scores(["a", "a", "b"], ["x", "y", "x"], [1.0, 2.0, 3.0])
    kinds = ["target", "nontarget", "nontarget"]
    again = match(Trials(["a", "a", "b", "a"], ["x", "y", "x", "x"], [*kinds, "target"]), scores)
    assert again.score.tolist() == [1.0, 2.0, 3.0, 1.0]
    with pytest.raises(LabelError, match="listed with two kinds; the first is 'a x'"):
        match(Trials(["a", "a", "b", "a"], ["x", "y", "x", "x"], [*kinds, "nontarget"]), scores)
