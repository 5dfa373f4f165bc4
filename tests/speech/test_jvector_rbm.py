"""The machines: closed forms against enumeration and finite differences; layers that keep information."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from mvplda.exceptions import NumericalError  # noqa: E402
from mvplda.speech.networks import (  # noqa: E402
    ConstantLayerWarning,
    FrameAugmentation,
    PaperNetwork,
    Pretraining,
    train,
)
from mvplda.speech.networks.batches import FrameBatches  # noqa: E402
from mvplda.speech.networks.paper import (  # noqa: E402  # noqa: E402
    Gradients,
    Machine,
    MachineTrainer,
    centred,
    contrastive_divergence,
    free_energy,
    free_energy_gradients,
    gibbs,
    hidden_probability,
    layer_health,
    pretrain,
    visible_mean,
)

V, H = 4, 3


def tiny(gaussian, seed=0, scale=0.7):
    generator = torch.Generator().manual_seed(seed)
    draw = [
        scale * torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((V, H), (V,), (H,))
    ]
    weights, visible, hidden = draw
    return Machine(weights, visible, hidden, gaussian)


def binary(width):
    return torch.tensor(list(itertools.product([0.0, 1.0], repeat=width)), dtype=torch.float64)


def energy(m, v, h):
    """E(v, h) of every pair, straight from the definition."""
    visible = 0.5 * ((v - m.visible_bias) ** 2).sum(1) if m.gaussian else -(v @ m.visible_bias)
    return visible[:, None] - (h @ m.hidden_bias)[None, :] - v @ m.weight @ h.T


def log_partition(m):
    """By enumeration of the hidden units; Gaussian visible units are integrated, binary ones enumerated."""
    h = binary(H)
    if not m.gaussian:
        return torch.logsumexp(-energy(m, binary(V), h).flatten(), 0)
    drive = h @ m.weight.T
    inner = h @ m.hidden_bias + drive @ m.visible_bias + 0.5 * (drive**2).sum(1)
    return torch.logsumexp(inner, 0) + 0.5 * V * np.log(2 * np.pi)


def log_likelihood(m, v):
    return (-free_energy(m, v)).mean() - log_partition(m)


def data(gaussian, n=50, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, V, generator=generator, dtype=torch.float64)
    return x if gaussian else (x > 0.3).double()


def differences(function, m, step=1e-5):
    """Central differences of a function of the machine, by parameter."""
    parts = []
    for k, parameter in enumerate(m.parameters):
        slope = torch.zeros_like(parameter)
        for i in range(parameter.numel()):
            values = []
            for sign in (1, -1):
                moved = [p.clone() for p in m.parameters]
                moved[k].view(-1)[i] += sign * step
                weights, visible, hidden = moved
                values.append(function(Machine(weights, visible, hidden, m.gaussian)))
            slope.view(-1)[i] = (values[0] - values[1]) / (2 * step)
        parts.append(slope)
    return Gradients(*parts)


def close(a, b, atol):
    for x, y in zip(a.parts, b.parts, strict=True):
        torch.testing.assert_close(x, y, atol=atol, rtol=0)


@pytest.mark.parametrize("gaussian", [False, True])
def test_free_energy_is_the_sum_over_hidden_states(gaussian):
    m, v = tiny(gaussian), data(gaussian)
    torch.testing.assert_close(free_energy(m, v), -torch.logsumexp(-energy(m, v, binary(H)), 1))


@pytest.mark.parametrize("gaussian", [False, True])
def test_gradients_are_those_of_the_free_energy(gaussian):
    m, v = tiny(gaussian), data(gaussian)
    close(free_energy_gradients(m, v), differences(lambda x: free_energy(x, v).mean(), m), 1e-8)


@pytest.mark.parametrize("gaussian", [False, True])
def test_likelihood_gradient_is_data_minus_model(gaussian):
    """-dF(data) + E_model[dF], the model's expectation exact, against differences of the exact likelihood."""
    m, v = tiny(gaussian), data(gaussian)
    expected = differences(lambda x: log_likelihood(x, v), m)
    h = binary(H)
    if gaussian:
        drive = h @ m.weight.T
        inner = h @ m.hidden_bias + drive @ m.visible_bias + 0.5 * (drive**2).sum(1)
        p = torch.softmax(inner, 0)
        mean = m.visible_bias + drive
        model = Gradients(
            -(p[:, None] * mean).T @ h,
            -(p[:, None] * (mean - m.visible_bias)).sum(0),
            -(p[:, None] * h).sum(0),
        )
    else:
        states = binary(V)
        p = torch.softmax(-free_energy(m, states), 0)
        each = [free_energy_gradients(m, s[None]) for s in states]
        parts = [sum(w * g.parts[k] for w, g in zip(p, each, strict=True)) for k in range(3)]
        model = Gradients(*parts)
    close(model - free_energy_gradients(m, v), expected, 1e-7)


@pytest.mark.parametrize("gaussian", [False, True])
def test_long_chains_give_the_exact_gradient(gaussian):
    m = tiny(gaussian, scale=0.4)
    v = data(gaussian, n=60_000)
    torch.manual_seed(0)
    got, _ = contrastive_divergence(m, v, steps=30, sample_visible=True)
    exact = differences(lambda x: -log_likelihood(x, v), m)
    close(got, exact, 0.03)
    assert max(float(p.abs().max()) for p in exact.parts) > 0.15  # or nothing was tested


@pytest.mark.parametrize("gaussian", [False, True])
def test_gibbs_steps_follow_the_conditionals(gaussian):
    m = tiny(gaussian)
    v = data(gaussian, n=1).expand(40_000, V)
    torch.manual_seed(0)
    p = hidden_probability(m, v[:1])[0]
    weights = torch.stack([torch.prod(torch.where(h > 0, p, 1 - p)) for h in binary(H)])
    expected = (weights[:, None] * visible_mean(m, binary(H))).sum(0)
    torch.testing.assert_close(
        gibbs(m, v, 1, sample_visible=True).mean(0), expected, atol=0.03, rtol=0
    )


def test_centred_gradients_descend_and_vanish_with_the_plain_ones():
    m, v = tiny(False), data(False)
    plain = differences(lambda x: -log_likelihood(x, v), m)
    moved = centred(plain, v.mean(0), hidden_probability(m, v).mean(0))
    slope = sum(float((a * b).sum()) for a, b in zip(plain.parts, moved.parts, strict=True))
    assert slope > 0
    weights, visible, hidden = (
        p - 1e-3 * g for p, g in zip(m.parameters, moved.parts, strict=True)
    )
    step = Machine(weights, visible, hidden, False)
    assert log_likelihood(step, v) > log_likelihood(m, v)
    zero = Gradients(*(torch.zeros_like(p) for p in m.parameters))
    assert all(
        float(p.abs().max()) == 0
        for p in centred(zero, v.mean(0), torch.ones(H, dtype=torch.float64)).parts
    )


def test_weights_decay_and_biases_do_not():
    ends = []
    for decay in (0.0, 0.5):
        m, v = tiny(False), data(False)
        start = m.weight.clone()
        torch.manual_seed(0)
        MachineTrainer(m, Pretraining(rate=0.1, weight_decay=decay, centred=False)).step(v)
        ends.append(m)
    torch.testing.assert_close(ends[0].weight - ends[1].weight, 0.1 * 0.5 * start)
    for plain, decayed in zip(ends[0].parameters[1:], ends[1].parameters[1:], strict=True):
        torch.testing.assert_close(plain, decayed)


def speech_like(n=100, width=10, seed=0):
    """Frames that move slowly, of a few speakers and phrases: what a layer can keep or lose."""
    from mvplda.speech.features.store import FeatureSet

    rng = np.random.default_rng(seed)
    speaker, phrase = np.arange(n) % 5, np.arange(n) // 5 % 4
    offsets = 30 * np.arange(n + 1)
    time = np.arange(30)[None, :, None] / 30
    paths = rng.normal(size=(4, 3, width))[phrase]
    waves = np.stack([np.sin(2 * np.pi * (k + 1) * time[..., 0]) for k in range(3)], -1) @ paths
    x = (
        waves
        + 0.7 * rng.normal(size=(5, 1, width))[speaker]
        + 0.5 * rng.normal(size=(n, 30, width))
    )
    frames = x.reshape(-1, width)
    frames = (frames - frames.mean(0)) / frames.std(0)
    features = FeatureSet(
        np.arange(n).astype(str), frames.astype(np.float32), offsets.astype(np.int64)
    )
    return features, {"speaker": speaker, "phrase": phrase}


def stack(settings, layers=4, hidden=64, start_scale=4.0):
    features, _ = speech_like()
    torch.manual_seed(0)
    body: Any = PaperNetwork(
        hidden=hidden, layers=layers, context=(2, 2), start_scale=start_scale
    ).build(10)
    codes = np.zeros((len(features), 1), dtype=np.int64)
    frames = torch.from_numpy(features.frames)
    source = FrameBatches(
        features, frames, codes, (2, 2), 64, torch.device("cpu"), FrameAugmentation()
    )
    health = pretrain(body, source, settings, 0) if settings else None
    return body, source, health


def probe_accuracy(body, layer):
    """Speakers read from a layer by a linear map, on frames that it was not fitted on."""
    from sklearn.linear_model import RidgeClassifier

    from mvplda.speech.networks.paper import below

    features, labels = speech_like()
    frames = torch.from_numpy(features.frames)
    codes = np.zeros((len(features), 1), dtype=np.int64)
    source = FrameBatches(
        features, frames, codes, (2, 2), 64, torch.device("cpu"), FrameAugmentation()
    )
    hidden = below(body, source.stacked(torch.arange(len(frames))), layer).numpy()
    speaker = np.repeat(labels["speaker"], 30)
    half = len(hidden) // 2
    return (
        RidgeClassifier(alpha=1.0)
        .fit(hidden[:half], speaker[:half])
        .score(hidden[half:], speaker[half:])
    )


GOOD = Pretraining(gaussian_epochs=10, epochs=5, batch=64)


def test_pretraining_keeps_information_in_every_layer():
    body, source, health = stack(GOOD)
    assert [h.layer for h in health] == [1, 2, 3, 4]
    assert min(h.deviation for h in health) > 0.1
    assert min(h.kept for h in health) > 0.65
    assert max(h.constant for h in health) == 0
    assert probe_accuracy(body, 4) > 0.9 * probe_accuracy(body, 0)
    # a start that is too small, left untrained, loses it
    small, source, _ = stack(None, start_scale=0.3)
    dead = layer_health(small, source.sample(2000, np.random.default_rng(0)), 4)
    assert dead.deviation < 0.01
    assert dead.kept < 0.1
    assert probe_accuracy(body, 4) > probe_accuracy(small, 4) + 0.2


def test_a_constant_layer_is_named():
    bad = Pretraining(gaussian_epochs=1, epochs=1, gaussian_rate=1e-6, rate=1e-6, start=0.01)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, _, health = stack(bad, layers=3)
    assert all(w.category is ConstantLayerWarning for w in caught)
    assert [str(w.message)[:19] for w in caught] == ["layer 2 is constant", "layer 3 is constant"]
    assert health[2].reconstruction < 1e-3  # a small reconstruction error says nothing of health
    assert health[2].kept < 0.1


def test_a_machine_that_diverges_is_named():
    wild = Pretraining(gaussian_epochs=3, epochs=1, gaussian_rate=10.0)
    with pytest.raises(NumericalError, match=r"layer 1 diverged in epoch \d: lower gaussian_rate"):
        stack(wild, layers=2)


def test_pretraining_helps_a_deep_network():
    """Six layers from a plain small start do not learn in these epochs; from the machines they do."""
    from mvplda.speech.networks import default_training

    features, labels = speech_like()
    settings: dict[str, Any] = {"hidden": 64, "layers": 6, "context": (2, 2), "start_scale": 1.0}
    training = default_training(
        PaperNetwork(), epochs=6, batch=64, learning_rate=0.05, schedule="constant"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pretrained = train(features, labels, PaperNetwork(pretraining=GOOD, **settings), training)
    plain = train(features, labels, PaperNetwork(**settings), training)
    assert pretrained.history[-1]["loss"] < plain.history[-1]["loss"] - 0.5
    assert (
        pretrained.history[-1]["accuracy"]["speaker"]
        > plain.history[-1]["accuracy"]["speaker"] + 0.2
    )
