"""Networks: training learns both views, is reproducible and resumable, and yields an extractor."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from mvplda.exceptions import FileFormatError, LabelError, ParameterError
from mvplda.paper import multitask_network as networks
from mvplda.paper import network_training as training
from mvplda.paper.experiment_settings import FEATURES, PaperNetwork, Pretraining, Training
from mvplda.paper.frame_store import FeatureSet
from mvplda.paper.multitask_network import torch
from mvplda.paper.network_training import train_network, training_recipe, write_extractor

PAPER = PaperNetwork(hidden=24, layers=2, context=2)


def toy(seed=0, speakers=4, phrases=2, repetitions=5, frames=14, width=6):
    """Frames whose mean has the speaker in one feature and the phrase in another."""
    rng = np.random.default_rng(seed)
    speaker = np.repeat(np.arange(speakers), phrases * repetitions)
    phrase = np.tile(np.repeat(np.arange(phrases), repetitions), speakers)
    utterances = []
    for s, p in zip(speaker, phrase, strict=True):
        utterance = rng.normal(size=(int(rng.integers(frames - 4, frames)), width))
        utterance[:, 0] += 1.5 * s
        utterance[:, 1] += 1.5 * p
        utterances.append(utterance.astype(np.float32))
    labels = {"speaker": speaker.astype(str), "phrase": phrase.astype(str)}
    return FeatureSet.of(utterances), labels


def test_training_learns_both_views_and_is_the_same_twice():
    features, labels = toy()
    settings = Training(epochs=12, batch=16, learning_rate=0.05)
    first, second = (train_network(features, labels, PAPER, settings) for _ in range(2))
    assert first.history[-1]["loss"] < 0.8 * first.history[0]["loss"]
    assert first.history[-1]["accuracy"]["phrase"] > 0.6
    X = first.extract(features)
    assert X.shape == (len(features), PAPER.hidden)
    np.testing.assert_array_equal(X, second.extract(features))


def test_vectors_do_not_depend_on_the_others_in_a_batch():
    features, labels = toy()
    trained = train_network(features, labels, PAPER, Training(epochs=1))
    X = trained.extract(features)
    rows = np.array([7, 3, 30])
    np.testing.assert_allclose(trained.extract(features.take(rows)), X[rows], atol=2e-4)


def test_padding_does_not_change_a_vector():
    features, _ = toy()
    body = networks.PaperBody(PAPER, features.frames.shape[1]).eval()
    frames = torch.from_numpy(features[0])[None]
    padded = torch.cat([frames, torch.full((1, 5, frames.shape[2]), 9.0)], dim=1)
    length = torch.tensor([frames.shape[1]])
    with torch.no_grad():
        torch.testing.assert_close(body(frames, length), body(padded, length))


def test_a_resumed_training_equals_an_uninterrupted_one(tmp_path):
    features, labels = toy()
    settings: dict[str, Any] = {"batch": 16}
    whole = train_network(features, labels, PAPER, Training(epochs=4, **settings))
    checkpoint = tmp_path / "run.checkpoint"

    class Interrupted(Exception):
        pass

    def stop(*_):
        raise Interrupted

    first = training.TrainingState.save
    calls = []

    def save(run):
        first(run)
        calls.append(1)
        if len(calls) == 2:
            stop()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.TrainingState, "save", save)
        with pytest.raises(Interrupted):
            train_network(
                features, labels, PAPER, Training(epochs=4, **settings), checkpoint=checkpoint
            )
    resumed = train_network(
        features, labels, PAPER, Training(epochs=4, **settings), checkpoint=checkpoint
    )
    assert len(resumed.history) == 4
    np.testing.assert_array_equal(whole.extract(features), resumed.extract(features))
    # an interruption right after pre-training does not repeat it
    network = PaperNetwork(
        hidden=8, layers=2, context=1, pretrained=True, pretraining=Pretraining(epochs=1)
    )
    calls[:] = [1]
    later = tmp_path / "later.checkpoint"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.TrainingState, "save", save)
        with pytest.raises(Interrupted):
            train_network(
                features, labels, network, Training(epochs=1, **settings), checkpoint=later
            )
        patch.setattr(training.TrainingState, "save", first)
        patch.setattr(training, "pretrain", stop)
        train_network(features, labels, network, Training(epochs=1, **settings), checkpoint=later)
    with pytest.raises(ParameterError, match="other data or settings"):
        train_network(features, labels, PAPER, Training(epochs=4, batch=8), checkpoint=checkpoint)
    checkpoint.write_bytes(b"torn")
    with pytest.raises(FileFormatError, match="remove it"):
        train_network(features, labels, PAPER, checkpoint=checkpoint)


def test_the_duration_is_estimated_before_training(monkeypatch):
    features, labels = toy()
    network = replace(PAPER, pretrained=True, pretraining=Pretraining(gaussian_epochs=6, epochs=4))
    settings = Training(epochs=5, batch=16)
    silent = train_network(features, labels, network, settings)
    lines: list[str] = []
    trained = train_network(features, labels, network, settings, echo=lines.append)
    assert lines == ["training takes about a minute"]
    # the estimate leaves no trace in the network
    np.testing.assert_array_equal(silent.extract(features), trained.extract(features))

    # with batches that take a known time, the estimate is the time of all epochs of all machines and of the network
    batches = training.FrameBatches.batches

    def slow(source, size, rng):
        for batch in batches(source, size, rng):
            time.sleep(0.02)
            yield batch

    monkeypatch.setattr(training.FrameBatches, "batches", slow)
    estimates = []
    monkeypatch.setattr(
        training.TrainingState,
        "epochs",
        lambda run, verbose: estimates.extend(
            [run.remaining_seconds(True), run.remaining_seconds(False)]
        ),
    )
    train_network(features, labels, PAPER, replace(settings, batch=256))
    steps = len(features.frames) // 256
    whole, supervised = estimates
    assert 5 * steps * 0.02 < supervised < 5 * steps * 0.1
    # ten epochs of the first machine and five of the second
    assert 20 * steps * 0.02 < whole


def test_durations_have_a_unit():
    assert [training._as_duration(seconds) for seconds in (5, 150, 9000)] == [
        "a minute",
        "2 minutes",
        "2.5 hours",
    ]


def test_a_view_with_a_single_class_is_refused():
    features, _ = toy()
    with pytest.raises(LabelError, match="at least 2"):
        train_network(features, {"speaker": np.array(["a"] * len(features))}, PAPER)


def test_the_loss_is_the_sum_over_views():
    heads = networks.Heads(4, {"speaker": 3, "phrase": 2})
    hidden = torch.randn(5, 4)
    codes = torch.tensor([[0, 1], [1, 0], [2, 1], [0, 0], [1, 1]])
    loss, accuracies = heads(hidden, codes)
    speaker_loss, phrase_loss = (
        torch.nn.functional.cross_entropy(output(hidden), targets)
        for output, targets in zip(heads.outputs, codes.T, strict=True)
    )
    torch.testing.assert_close(loss, speaker_loss + phrase_loss)
    assert accuracies.shape == (2,)


def batches_of(features, codes, context):
    """Return batches of frames that are not standardised."""
    settings = PaperNetwork(hidden=4, layers=1, context=context)
    return training.FrameBatches(
        features, codes, networks.PaperBody(settings, features.frames.shape[1])
    )


def test_batches_hold_every_frame_once():
    features, labels = toy()
    codes, _ = training.number_classes(labels)
    numbers = np.arange(len(features.frames), dtype=np.float32)[:, None]
    source = batches_of(replace(features, frames=numbers), codes, 0)
    batched = torch.cat([x for x, _ in source.batches(1, np.random.default_rng(0))])
    assert sorted(batched[:, 0].tolist()) == list(range(len(numbers)))


def test_stacked_frames_stay_inside_their_utterance():
    features = FeatureSet.of([np.full((k, 1), i, np.float32) for i, k in enumerate((2, 3, 4, 2))])
    codes = np.arange(2)[:, None]
    # utterances in another order than in the file, and with others between them
    source = batches_of(features.take(np.array([3, 1])), codes, 2)
    stacked = source.stacked(torch.arange(5)).numpy()
    np.testing.assert_array_equal(stacked, np.repeat([[3], [3], [1], [1], [1]], 5, axis=1))
    assert source.utterance(torch.arange(5)).tolist() == [0, 0, 1, 1, 1]


def test_a_subset_of_utterances_trains_like_a_copy_of_them():
    features, labels = toy()
    rows = np.random.default_rng(0).permutation(len(features))[:30]
    subset = {view: values[rows] for view, values in labels.items()}
    copied = FeatureSet.of([features[i] for i in rows])
    networks_of = [
        train_network(of, subset, PAPER, Training(epochs=2, batch=16))
        for of in (features.take(rows), copied)
    ]
    vectors = [trained.extract(features) for trained in networks_of]
    np.testing.assert_array_equal(*vectors)


# Restricted Boltzmann machines


def machine(gaussian, seed=0):
    torch.manual_seed(seed)
    return networks.BoltzmannMachine(
        torch.randn(4, 3, dtype=torch.float64) * 0.5,
        torch.randn(4, dtype=torch.float64),
        torch.randn(3, dtype=torch.float64),
        gaussian,
    )


def free_energy(machine, visible):
    """F(v) of every row, (n,); -log p(v) up to the log of the partition function."""
    field = torch.addmm(machine.hidden_bias, visible, machine.weight)
    hidden_terms = torch.nn.functional.softplus(field).sum(dim=1)
    if machine.gaussian:
        return 0.5 * ((visible - machine.visible_bias) ** 2).sum(dim=1) - hidden_terms
    return -visible @ machine.visible_bias - hidden_terms


@pytest.mark.parametrize("gaussian", [False, True])
def test_the_free_energy_sums_over_all_hidden_states(gaussian):
    m = machine(gaussian)
    visible = torch.rand(5, 4, dtype=torch.float64)
    states = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 3)
    energy = -(visible @ m.weight @ states.T) - states @ m.hidden_bias
    if gaussian:
        energy = energy + 0.5 * ((visible - m.visible_bias) ** 2).sum(dim=1, keepdim=True)
    else:
        energy = energy - (visible @ m.visible_bias)[:, None]
    torch.testing.assert_close(free_energy(m, visible), -torch.logsumexp(-energy, dim=1))


@pytest.mark.parametrize("gaussian", [False, True])
def test_gradients_are_those_of_the_free_energy(gaussian):
    m = machine(gaussian)
    visible = torch.rand(6, 4, dtype=torch.float64)
    parameters = (m.weight, m.visible_bias, m.hidden_bias)
    for parameter in parameters:
        parameter.requires_grad_(True)
    free_energy(m, visible).mean().backward()
    for parameter, gradient in zip(parameters, m.gradients(visible), strict=True):
        torch.testing.assert_close(parameter.grad, gradient.detach())


def test_pretrained_layers_vary_over_frames():
    features, labels = toy(repetitions=12)
    network = PaperNetwork(
        hidden=24,
        layers=3,
        context=1,
        pretrained=True,
        pretraining=Pretraining(gaussian_epochs=3, epochs=2),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of layers that are constant
        trained = train_network(features, labels, network, Training(epochs=1, batch=64))
    assert trained.extract(features).std(axis=0).mean() > 0.01


@pytest.mark.slow
def test_a_trained_network_is_an_extractor_like_any_other(tmp_path):
    for module in ("onnx", "onnxscript", "onnxruntime", "kaldi_native_fbank"):
        pytest.importorskip(module)
    from mvplda.paper.frames import frames_of
    from mvplda.voice.extractors import load_extractor

    recipe = training_recipe(FEATURES)
    rng = np.random.default_rng(0)
    sounds = [0.1 * rng.standard_normal(4000 + 200 * k) for k in range(8)]
    features = FeatureSet.of([frames_of(x, recipe) for x in sounds])
    labels = {"speaker": [0, 0, 1, 1] * 2, "phrase": [0, 1] * 4}
    trained = train_network(features, labels, PAPER, Training(epochs=1))
    written = write_extractor(trained, recipe, tmp_path / "net.onnx")
    loaded = load_extractor(tmp_path / "net.onnx")
    assert loaded.name == written.name
    expected = trained.extract(features)
    vectors = np.array([loaded(x.astype(np.float32), 16000) for x in sounds])
    np.testing.assert_allclose(vectors, expected, atol=1e-3 * np.abs(expected).max())
