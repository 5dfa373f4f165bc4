"""The loop: it learns, stops, goes on, repeats; and what it gives is kept in a file and exported."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from jvector_problems import toy  # noqa: E402

from mvplda.exceptions import DataError, FileFormatError, LabelError, NumericalError, ParameterError  # noqa: E402
from mvplda.speech.features.store import FeatureSet  # noqa: E402
from mvplda.speech.networks import (  # noqa: E402
    Extractor,
    FrameAugmentation,
    ModernNetwork,
    NetworkSettings,
    PaperNetwork,
    Pretraining,
    Training,
    default_training,
    train,
)
from mvplda.speech.networks.training import (  # noqa: E402
    cosine_scores,
    held_out_eer,
    plda_scores,
    rate_at,
)

MODERN = ModernNetwork(channels=16, dilations=(1, 2), pooled=16, attention=8, embedding=12)
PAPER = PaperNetwork(hidden=24, layers=2, context=(1, 1))
QUICK = default_training(MODERN, epochs=6, batch=16, learning_rate=5e-3)
FRAMES = default_training(PAPER, epochs=4, batch=32, learning_rate=0.05)


@pytest.mark.parametrize(
    ("network", "training"), [(MODERN, QUICK), (PAPER, FRAMES)], ids=["modern", "paper"]
)
def test_three_views_are_learnt_at_once(network, training):
    features, labels = toy(n=240, classes=(4, 3, 2), width=8, strength=2.5)
    extractor = train(features, labels, network, training)
    assert extractor.views == ("speaker", "phrase", "channel")
    assert extractor.classes["phrase"] == ["phrase0", "phrase1", "phrase2"]
    last = extractor.history[-1]
    assert len(extractor.history) == training.epochs
    assert last["loss"] < 0.5 * extractor.history[0]["loss"]
    assert min(last["accuracy"].values()) > 0.8
    vectors = extractor.extract(features)
    codes = np.stack([np.unique(c, return_inverse=True)[1] for c in labels.values()], axis=1)
    assert held_out_eer(cosine_scores(vectors), codes, 0) < 0.15


def test_same_seed_same_network_and_the_global_generator_is_left_alone():
    features, labels = toy(n=60)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    short = dataclasses.replace(QUICK, epochs=2)
    first = train(features, labels, MODERN, short)
    assert torch.equal(torch.rand(3), expected)
    again = train(features, labels, MODERN, short)
    assert again.extract(features).tobytes() == first.extract(features).tobytes()
    assert again.name == first.name
    other = train(features, labels, MODERN, dataclasses.replace(short, random_state=1))
    assert np.abs(other.extract(features) - first.extract(features)).max() > 0.01
    assert other.name != first.name


@pytest.mark.parametrize(
    ("network", "training"),
    [
        (MODERN, QUICK),
        (dataclasses.replace(PAPER, pretraining=Pretraining(gaussian_epochs=1, epochs=1)), FRAMES),
    ],
    ids=["modern", "paper"],
)
def test_resumed_training_is_the_same_bit_by_bit(network, training, tmp_path, monkeypatch):
    features, labels = toy(n=80, classes=(6, 3))
    held_out = toy(n=60, classes=(6, 3), seed=9)
    training = dataclasses.replace(training, epochs=4)
    whole = train(features, labels, network, training, held_out=held_out)

    from mvplda.speech.networks import training as module

    path = tmp_path / "run.checkpoint"
    kept = dataclasses.replace(training, checkpoint=str(path))
    epoch = module._Run._epoch

    def interrupted(run, number):
        if number == 2:
            raise KeyboardInterrupt
        return epoch(run, number)

    with monkeypatch.context() as patch:
        patch.setattr(module._Run, "_epoch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(features, labels, network, kept, held_out=held_out)
    resumed = train(features, labels, network, kept, held_out=held_out)
    assert [r["loss"] for r in resumed.history] == [r["loss"] for r in whole.history]
    assert resumed.extract(features).tobytes() == whole.extract(features).tobytes()
    assert resumed.health == whole.health
    assert len(whole.health) == (2 if network is not MODERN else 0)
    assert [p.name for p in tmp_path.iterdir()] == ["run.checkpoint"]

    with pytest.raises(ParameterError, match=r"training\.learning_rate"):
        train(
            features,
            labels,
            network,
            dataclasses.replace(kept, learning_rate=0.5),
            held_out=held_out,
        )
    others, theirs = toy(n=80, classes=(6, 3), seed=3)
    with pytest.raises(ParameterError, match="other data"):
        train(others, theirs, network, kept, held_out=held_out)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(FileFormatError, match="truncated"):
        train(features, labels, network, kept, held_out=held_out)


def test_early_stopping_keeps_the_best_epoch(monkeypatch):
    from mvplda.speech.networks import training as module

    features, labels = toy(n=80, classes=(6, 3))
    errors = iter([0.4, 0.2, 0.3, 0.25, 0.2, 0.1])
    weights = []

    def error(watched, body, device):
        weights.append({name: value.clone() for name, value in body.state_dict().items()})
        return next(errors)

    monkeypatch.setattr(module._Watched, "error", error)
    training = dataclasses.replace(QUICK, patience=3, hold_out=0.34, epochs=6)
    extractor = train(features, labels, MODERN, training)
    assert [r["held_out_eer"] for r in extractor.history] == [0.4, 0.2, 0.3, 0.25, 0.2]
    for name, value in extractor.body.state_dict().items():
        assert torch.equal(value, weights[1][name])
    assert len(extractor.classes["speaker"]) == 4  # 2 of 6 were held out
    assert any(not torch.equal(weights[1][n], weights[4][n]) for n in weights[1])


def test_held_out_error_against_brute_force():
    from mvplda.metrics import eer

    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, (40, 2))
    X = rng.normal(size=(40, 5)) + codes[:, :1] * [1, 0, 0, 0, 0] + codes[:, 1:] * [0, 2, 0, 0, 0]
    scores = cosine_scores(X)
    centred = X - X.mean(0)
    targets: list[float] = []
    nontargets: list[float] = []
    for i in range(40):
        for j in range(i):
            value = (
                centred[i] @ centred[j] / np.linalg.norm(centred[i]) / np.linalg.norm(centred[j])
            )
            if codes[i, 1] == codes[j, 1]:
                (targets if codes[i, 0] == codes[j, 0] else nontargets).append(value)
    assert held_out_eer(scores, codes, 0) == pytest.approx(eer(targets, nontargets), abs=1e-9)
    alone = np.stack([np.repeat([0, 1], 5), np.arange(10)], axis=1)
    assert (
        0 <= held_out_eer(scores[:10, :10], alone, 0) <= 1
    )  # no two share the other view: all pairs
    assert np.isnan(held_out_eer(scores[:3, :3], np.zeros((3, 1), dtype=np.int64), 0))
    assert held_out_eer(plda_scores(X, X, codes), codes, 0) < 0.5


def test_plda_criterion_and_held_out_set():
    features, labels = toy(n=120, classes=(6, 3))
    held_out = toy(n=60, classes=(6, 3), seed=9)
    training = dataclasses.replace(QUICK, epochs=2, criterion="plda", monitor="phrase")
    history = train(features, labels, MODERN, training, held_out=held_out).history
    assert all(0 <= r["held_out_eer"] < 0.6 for r in history)
    with pytest.raises(LabelError, match="no view 'phrase'"):
        train(
            features,
            labels,
            MODERN,
            training,
            held_out=(held_out[0], {"speaker": held_out[1]["speaker"]}),
        )
    few = held_out[0].take(np.arange(1)), {v: c[:1] for v, c in held_out[1].items()}
    with pytest.raises(LabelError, match="no two of one class"):
        train(features, labels, MODERN, training, held_out=few)


def test_a_loss_that_is_not_finite_names_the_epoch_and_what_to_do():
    features, labels = toy(n=40)
    wild = Training(epochs=3, optimiser="sgd", learning_rate=1e20, clip=None, warmup=0.0)
    with pytest.raises(NumericalError, match=r"epoch \d: lower learning_rate \(now 1e\+20\)"):
        train(features, labels, MODERN, wild)


def test_labels_that_are_missing_or_wrong():
    features, labels = toy(n=60)
    some = labels["phrase"].astype(object)
    some[::3] = None
    extractor = train(
        features, {**labels, "phrase": some}, MODERN, dataclasses.replace(QUICK, epochs=1)
    )
    assert extractor.classes["phrase"] == ["phrase0", "phrase1", "phrase2"]
    with pytest.raises(LabelError, match="60 utterances but 59 labels"):
        train(features, {"speaker": labels["speaker"][:59]}, MODERN, QUICK)
    with pytest.raises(LabelError, match="'speaker' has 1 class"):
        train(features, {"speaker": np.zeros(60)}, MODERN, QUICK)
    with pytest.raises(LabelError, match="no view '' to monitor"):
        train(features, {}, MODERN, QUICK)
    with pytest.raises(ParameterError, match="noise only"):
        train(
            features,
            labels,
            PAPER,
            dataclasses.replace(FRAMES, augmentation=FrameAugmentation(stretch=0.1)),
        )


def test_settings_travel_as_plain_values_and_refuse_what_does_not_fit():
    import json

    for network in (
        MODERN,
        dataclasses.replace(PAPER, pretraining=Pretraining(rate=0.1)),
        ModernNetwork(loss_weights={"phrase": 0.5}, margin_views=("speaker", "phrase")),
    ):
        assert NetworkSettings.from_dict(json.loads(json.dumps(network.to_dict()))) == network
    assert Training.from_dict(json.loads(json.dumps(QUICK.to_dict()))) == QUICK
    with pytest.raises(ParameterError, match="no setting 'width'"):
        NetworkSettings.from_dict({"kind": "modern", "width": 3})
    with pytest.raises(ParameterError, match="kind"):
        NetworkSettings.from_dict({"kind": "transformer"})
    for bad in (
        {"dropout": 1.0},
        {"kernel": 4},
        {"block": "lstm"},
        {"dilations": ()},
        {"channels": 0},
    ):
        with pytest.raises(ParameterError, match=next(iter(bad))):
            ModernNetwork(**bad)
    for bad in ({"epochs": 0}, {"learning_rate": 0.0}, {"schedule": "odd"}, {"hold_out": 1.0}):
        with pytest.raises(ParameterError, match=next(iter(bad))):
            Training(**bad)


def test_rates_follow_the_schedule():
    training = Training(learning_rate=1.0, warmup=0.2, schedule="cosine")
    assert rate_at(training, 0.1) == pytest.approx(0.5)
    assert rate_at(training, 0.2) == pytest.approx(1.0)
    assert rate_at(training, 0.6) == pytest.approx(0.5)
    assert rate_at(dataclasses.replace(training, schedule="linear"), 0.9) == pytest.approx(0.125)
    assert rate_at(dataclasses.replace(training, schedule="constant"), 0.99) == 1.0


def test_the_margin_grows_over_its_share_of_the_training(monkeypatch):
    from mvplda.speech.networks.training import Step

    shares, plain = [], Step.__call__

    def spied(self, inputs, codes, margin_share):
        shares.append(margin_share)
        plain(self, inputs, codes, margin_share)

    monkeypatch.setattr(Step, "__call__", spied)
    features, labels = toy(n=64)
    network = dataclasses.replace(MODERN, margin_warmup=0.5)
    train(features, labels, network, dataclasses.replace(QUICK, epochs=4))  # four steps an epoch
    assert shares == pytest.approx([min(1.0, i / 8) for i in range(16)])


def test_sets_are_joined():
    a, b = toy(n=5)[0], toy(n=3, seed=1)[0]
    both = FeatureSet.concatenate([a, b])
    assert both.ids.tolist() == [*a.ids, *b.ids]
    for i in range(3):
        np.testing.assert_array_equal(both[5 + i], b[i])
    with pytest.raises(DataError, match="one width"):
        FeatureSet.concatenate([a, toy(n=3, width=4)[0]])
    with pytest.raises(DataError, match="nothing"):
        FeatureSet.concatenate([])


@pytest.fixture(scope="module", params=[MODERN, PAPER], ids=["modern", "paper"])
def extractor(request):
    features, labels = toy(n=60)
    training = default_training(request.param, epochs=1, batch=16)
    return train(features, labels, request.param, training, feature_settings={"rate": 16000})


def test_file_round_trip(extractor, tmp_path):
    features, _ = toy(n=10, seed=2)
    path = tmp_path / "x.safetensors"
    extractor.save(path)
    loaded = Extractor.load(path)
    assert loaded.extract(features).tobytes() == extractor.extract(features).tobytes()
    assert loaded.fingerprint == extractor.fingerprint
    assert loaded.name == extractor.name
    assert loaded.network == extractor.network
    assert loaded.feature_settings == {"rate": 16000}
    assert loaded.describe() == extractor.describe()
    assert not any("output" in name for name in loaded.body.state_dict())  # the heads are gone
    whole = path.read_bytes()
    for size in (len(whole) // 2, 100, 3, 0):
        path.write_bytes(whole[:size])
        with pytest.raises(FileFormatError, match="truncated"):
            Extractor.load(path)
    changed = bytearray(whole)
    changed[-2] ^= 1
    path.write_bytes(changed)
    with pytest.raises(FileFormatError, match="fingerprint"):
        Extractor.load(path)
    from mvplda.models.multiview import PLDA
    from mvplda.toy import make_two_views

    X, labels = make_two_views(n_speakers=2, n_phrases=4, dimension=5, ranks=(2, 2), random_state=0)
    PLDA(n_components=2, max_iter=1, tol=0).fit(X, labels["phrase"]).save(path)
    with pytest.raises(FileFormatError, match="holds a PLDA: use"):
        Extractor.load(path)


@pytest.mark.slow
def test_onnx_is_the_same_function(extractor, tmp_path):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from mvplda.speech.networks import export_onnx

    path = tmp_path / "x.onnx"
    assert export_onnx(extractor, path) < 1e-5
    assert b".py" not in path.read_bytes()  # nothing tells of the machine that wrote it
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    features, _ = toy(n=12, shortest=1, longest=33, seed=4)
    expected = extractor.extract(features)
    longest = int(features.lengths.max())
    frames = np.full((12, longest, 6), 77.0, dtype=np.float32)  # what is padded must not matter
    for i, own in enumerate(features):
        frames[i, : len(own)] = own
    (got,) = session.run(None, {"frames": frames, "lengths": features.lengths})
    np.testing.assert_allclose(got, expected, atol=1e-4)
    for i in (0, 5):
        (one,) = session.run(
            None, {"frames": features[i][None], "lengths": features.lengths[i : i + 1]}
        )
        np.testing.assert_allclose(one[0], expected[i], atol=1e-4)
    assert np.abs(expected - expected.mean(0)).max() > 0.01


def test_torch_is_imported_only_when_it_is_used():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import mvplda.speech.networks as j\n"
        "j.ModernNetwork()\n"
        "from mvplda.exceptions import MissingExtraError\n"
        "try: j.train\n"
        "except MissingExtraError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "mvplda[train]" in done.stdout


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize(
    ("network", "training"), [(MODERN, QUICK), (PAPER, FRAMES)], ids=["modern", "paper"]
)
def test_cuda_learns_and_extracts_like_the_cpu(network, training):
    features, labels = toy(n=240, classes=(4, 3, 2), width=8, strength=2.5)
    extractor = train(features, labels, network, dataclasses.replace(training, device="cuda"))
    assert min(extractor.history[-1]["accuracy"].values()) > 0.8
    on_gpu, on_cpu = (
        extractor.extract(features, device="cuda"),
        extractor.extract(features, device="cpu"),
    )
    np.testing.assert_allclose(on_gpu, on_cpu, atol=1e-4)
