"""Both networks: formulas against NumPy, and padding, batches and order that change nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from problems import there

torch = pytest.importorskip("torch", reason="torch is not installed")

from jvector_problems import reordered, toy  # noqa: E402

from mvplda.exceptions import DataError, ParameterError  # noqa: E402
from mvplda.speech.networks import Extractor, FrameAugmentation, ModernNetwork, PaperNetwork  # noqa: E402
from mvplda.speech.networks.batches import FrameBatches, UtteranceBatches  # noqa: E402
from mvplda.speech.networks.modern import (  # noqa: E402
    AttentiveStatistics,
    MaskedBatchNorm,
    angular_margin_logits,
)

SMALL: dict[str, Any] = {
    "channels": 12,
    "dilations": (1, 2),
    "pooled": 10,
    "attention": 5,
    "embedding": 7,
}
NETWORKS: list[Any] = [
    PaperNetwork(hidden=16, layers=3),
    PaperNetwork(hidden=8, layers=1, context=(3, 0)),
    ModernNetwork(**SMALL),
    ModernNetwork(**SMALL, block="tdnn", output="embedding"),
]
CPU = torch.device("cpu")


def any_extractor(network, width=6):
    """Random weights, and statistics that are not those of a fresh network."""
    torch.manual_seed(0)
    body = network.build(width)
    with torch.no_grad():
        for name, value in [*body.named_parameters(), *body.named_buffers()]:
            if name.endswith(("variance", "deviation", "norm.weight")):
                value.uniform_(0.5, 2)
            elif value.ndim == 1:
                value.normal_(0, 0.3)
    return Extractor(network, body.eval())


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_vectors_do_not_depend_on_batches_or_order(network):
    features, _ = toy(n=30, shortest=1, longest=40)
    extractor = any_extractor(network)
    whole = extractor.extract(features, batch_frames=10_000)
    assert whole.shape == (30, extractor.dimension)
    assert whole.dtype == np.float32
    for frames in (1, 50, 333):
        np.testing.assert_allclose(
            extractor.extract(features, batch_frames=frames), whole, atol=1e-5
        )
    other, order = reordered(features)
    np.testing.assert_allclose(extractor.extract(other), whole[order], atol=1e-5)
    assert np.abs(whole - whole.mean(0)).max() > 0.01


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_what_lies_in_padded_frames_is_never_seen(network):
    body = any_extractor(network).body
    rng = np.random.default_rng(0)
    frames = torch.from_numpy(rng.normal(size=(3, 25, 6)).astype(np.float32))
    lengths = torch.tensor([25, 11, 1])
    with torch.no_grad():
        expected = body(frames, lengths)
        alone = torch.cat(
            [
                body(frames[i : i + 1, :n], lengths[i : i + 1])
                for i, n in enumerate(lengths.tolist())
            ]
        )
        spoilt = frames.clone()
        for i, n in enumerate(lengths.tolist()):
            spoilt[i, n:] = 1e6
        got = body(spoilt, lengths)
    torch.testing.assert_close(alone, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_training_forward_of_the_modern_network_ignores_padding():
    """In training too, where batch statistics could carry padding into every utterance."""
    body = any_extractor(ModernNetwork(**SMALL, dropout=0.0)).body.train()
    frames = torch.randn(4, 20, 6, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([20, 15, 9, 12])
    expected = body.embed(frames, lengths)
    longer = torch.cat([frames, 100 * torch.ones(4, 7, 6)], dim=1)
    for i, n in enumerate(lengths.tolist()):
        longer[i, n:] = -50.0
    torch.testing.assert_close(body.embed(longer, lengths), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("block", ["residual", "tdnn"])
def test_modern_network_layer_by_layer(block):
    """Against its description: convolutions with short cuts, attentive statistics, embedding and pooled statistics."""
    torch.manual_seed(0)
    settings = ModernNetwork(
        block=block, channels=4, dilations=(1, 2), pooled=3, attention=2, embedding=5
    )
    body: Any = settings.build(6)
    with torch.no_grad():
        for name, value in (*body.named_parameters(), *body.named_buffers()):
            value.copy_(
                torch.rand_like(value) + 0.5 if "variance" in name else torch.randn_like(value)
            )
        body.deviation.abs_().add_(0.5)
    body.eval()

    def normed(x, norm):
        gain = norm.weight / torch.sqrt(norm.running_variance + 1e-5)
        return (x - norm.running_mean[:, None]) * gain[:, None] + norm.bias[:, None]

    def step(x, part, dilation):
        weight = part.convolution.weight
        reach, time = dilation * (weight.shape[2] // 2), x.shape[1]
        wide = torch.nn.functional.pad(x, (reach, reach))
        taps = [
            weight[:, :, k] @ wide[:, k * dilation : k * dilation + time]
            for k in range(weight.shape[2])
        ]
        return normed(sum(taps), part.norm)

    frames = torch.randn(11, 6)
    with torch.no_grad():
        x = step(((frames - body.shift) / body.deviation).T, body.entry, 1).relu()
        for inner, dilation in zip(body.blocks, (1, 2), strict=True):
            first = step(x, inner.first, dilation).relu()
            x = first if block == "tdnn" else (step(first, inner.second, dilation) + x).relu()
        x = step(x, body.exit, 1).relu()
        pooled = normed(body.pool(x[None])[0][:, None], body.pooled_norm)[:, 0]
        embedding = normed((body.project.weight @ pooled)[:, None], body.embedding_norm)[:, 0]
        got = body(frames[None], torch.tensor([11]))[0]
    torch.testing.assert_close(got, torch.cat([embedding, pooled]), rtol=1e-4, atol=1e-4)


def test_dropout_is_of_training_only():
    torch.manual_seed(0)
    body = dataclasses.replace(NETWORKS[2], dropout=0.5).build(6)
    pooled = torch.randn(8, 2 * NETWORKS[2].pooled)
    body.train()
    assert not torch.equal(body.project_pooled(pooled), body.project_pooled(pooled))
    body.eval()
    assert torch.equal(body.project_pooled(pooled), body.project_pooled(pooled))


def test_paper_network_is_the_mean_of_the_last_layer_over_stacked_frames():
    network = PaperNetwork(hidden=9, layers=2, context=(5, 5))
    extractor = any_extractor(network)
    features, _ = toy(n=4, shortest=3, longest=9)
    state = {name: value.numpy() for name, value in extractor.body.state_dict().items()}
    for row, got in enumerate(extractor.extract(features)):
        x = (features[row] - state["shift"]) / state["deviation"]
        edges = np.concatenate([np.repeat(x[:1], 5, 0), x, np.repeat(x[-1:], 5, 0)])
        h = np.stack([edges[t : t + 11].ravel() for t in range(len(x))])
        assert h.shape[1] == 66
        for k in range(2):
            h = 1 / (1 + np.exp(-(h @ state[f"layers.{k}.weight"].T + state[f"layers.{k}.bias"])))
        np.testing.assert_allclose(got, h.mean(0), atol=1e-5)


def test_stacked_frames_of_shuffled_batches_stay_within_their_utterance():
    features, _ = toy(n=6, shortest=2, longest=5, width=2)
    codes = np.arange(6)[:, None]
    frames = torch.from_numpy(features.frames)
    source = FrameBatches(features, frames, codes, (2, 1), 4, CPU, FrameAugmentation())
    seen = 0
    for inputs, y in source.epoch(np.random.default_rng(0)):
        x = inputs[0]
        for row, code in zip(x.numpy().reshape(len(x), 4, 2), y[:, 0].tolist(), strict=True):
            own = features[code]
            t = next(t for t in range(len(own)) if (own[t] == row[2]).all())
            np.testing.assert_array_equal(
                row, own[np.clip([t - 2, t - 1, t, t + 1], 0, len(own) - 1)]
            )
            seen += 1
    assert seen == 4 * (len(frames) // 4)


def test_angular_margin_against_numpy():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(50, 4)), rng.normal(size=(6, 4))
    x[0], x[1] = 3 * w[2], -2 * w[2]  # straight at the class, and straight away from it
    y = rng.integers(0, 6, 50)
    y[:2] = 2
    cosine = (x / np.linalg.norm(x, axis=1)[:, None]) @ (w / np.linalg.norm(w, axis=1)[:, None]).T
    angle = np.arccos(np.clip(cosine, -1, 1))
    expected = 20 * cosine
    for i, c in enumerate(y):
        turned = angle[i, c] + 0.3
        expected[i, c] = 20 * (
            np.cos(turned) if turned < np.pi else cosine[i, c] - 0.3 * np.sin(0.3)
        )
    got = angular_margin_logits(torch.from_numpy(cosine), torch.from_numpy(y), 0.3, 20.0)
    np.testing.assert_allclose(got.numpy(), expected, atol=5e-3)  # the sine is floored near 0
    np.testing.assert_allclose(got.numpy()[2:], expected[2:], atol=1e-6)


def test_heads_are_a_weighted_sum_and_missing_labels_cost_nothing():
    from scipy.special import log_softmax

    torch.manual_seed(0)
    network = ModernNetwork(margin_views=(), loss_weights={"b": 0.5})
    heads = network.heads(5, {"a": 3, "b": 4})
    x = np.random.default_rng(0).normal(size=(6, 5))
    codes = np.array([[0, 1], [2, -1], [1, 3], [-1, -1], [0, 0], [2, 2]])
    loss, right, counted = heads(torch.from_numpy(x), torch.from_numpy(codes))
    expected = 0.0
    for k, weight in ((0, 1.0), (1, 0.5)):
        w, b = (p.detach().numpy() for p in heads.outputs[k].parameters())
        logits = x.astype(np.float32) @ w.T + b
        rows = np.flatnonzero(codes[:, k] >= 0)
        expected -= weight * log_softmax(logits, axis=1)[rows, codes[rows, k]].mean()
        assert right[k] == (logits.argmax(1) == codes[:, k]).sum()
        assert counted[k] == len(rows)
    assert loss.item() == pytest.approx(expected, abs=1e-5)
    nothing, _, _ = heads(torch.from_numpy(x), torch.full((6, 2), -1))
    assert nothing.item() == 0.0
    with pytest.raises(ParameterError, match="'pose'"):
        ModernNetwork(margin_views=("pose",)).heads(5, {"a": 3})


def test_heads_grow_the_margin_by_its_share():
    torch.manual_seed(0)
    heads = ModernNetwork(margin=0.3, scale=10.0).heads(5, {"speaker": 3})
    x, codes = torch.randn(7, 5), torch.arange(7)[:, None] % 3
    cosines = (
        torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(heads.outputs[0].weight).T
    )
    for share in (0.0, 0.5, 1.0):
        logits = angular_margin_logits(cosines, codes[:, 0], 0.3 * share, 10.0)
        expected = torch.nn.functional.cross_entropy(logits, codes[:, 0]).item()
        assert heads(x, codes, share)[0].item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("named", "classes", "expected"),
    [
        (None, {"phrase": 3, "speaker": 4}, [False, True]),
        (None, {"person": 3, "pose": 4}, [True, False]),
        (("pose",), {"person": 3, "pose": 4}, [False, True]),
        ((), {"person": 3, "pose": 4}, [False, False]),
    ],
)
def test_some_view_gets_the_margin_unless_none_is_asked_for(named, classes, expected):
    heads = ModernNetwork(margin_views=named).heads(5, classes)
    assert [margin is not None for margin in heads.margins] == expected
    assert [output.bias is None for output in heads.outputs] == expected


def test_a_named_view_that_is_not_there_is_refused():
    with pytest.raises(ParameterError, match="'speaker'"):
        ModernNetwork(margin_views=("speaker",)).heads(5, {"person": 3, "pose": 4})


def test_attentive_statistics_against_numpy():
    torch.manual_seed(0)
    layer = AttentiveStatistics(4, 3).double()
    x = torch.randn(2, 4, 7, dtype=torch.float64)
    lengths = [7, 4]
    mask = torch.tensor([[1.0] * n + [0.0] * (7 - n) for n in lengths])[:, None, :]
    got = layer(x, mask).detach().numpy()
    w1, b1, w2, b2 = (p.detach().numpy().reshape(len(p), -1) for p in layer.parameters())
    for i, n in enumerate(lengths):
        h = x[i, :, :n].numpy()
        score = w2 @ np.tanh(w1 @ h + b1) + b2
        weight = np.exp(score) / np.exp(score).sum(1, keepdims=True)
        mean = (weight * h).sum(1)
        deviation = np.sqrt((weight * (h - mean[:, None]) ** 2).sum(1) + layer.floor)
        np.testing.assert_allclose(got[i], np.concatenate([mean, deviation]), atol=1e-5)


def test_masked_batch_norm_is_batch_norm_of_the_valid_frames():
    torch.manual_seed(0)
    x = torch.randn(3, 5, 8, requires_grad=True)
    mask = (torch.arange(8)[None] < torch.tensor([8, 5, 2])[:, None]).float()[:, None, :]
    ours, theirs = MaskedBatchNorm(5), torch.nn.BatchNorm1d(5)
    with torch.no_grad():
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            p.uniform_(-1, 1)
            q.copy_(p)
    valid = mask[:, 0].bool()
    y = ours(x, mask).transpose(1, 2)[valid]
    z = theirs(x.transpose(1, 2)[valid])
    torch.testing.assert_close(y, z, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_variance, theirs.running_var)
    weight = torch.randn_like(y)
    (a,) = torch.autograd.grad((y * weight).sum(), x, retain_graph=True)
    (b,) = torch.autograd.grad((z * weight).sum(), x)
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert float(a.transpose(1, 2)[~valid].abs().max()) == 0


def test_masked_batch_norm_gradient_by_finite_differences():
    torch.manual_seed(1)
    layer = MaskedBatchNorm(2)
    mask = torch.tensor([[[1.0, 1.0, 1.0]], [[1.0, 1.0, 0.0]]])
    x = torch.randn(2, 2, 3)
    weight = torch.randn(2, 2, 3) * mask

    def value(x):
        return (layer(x, mask).double() * weight).sum().item()

    leaf = x.clone().requires_grad_()
    (got,) = torch.autograd.grad((layer(leaf, mask) * weight).sum(), leaf)
    for i in range(12):
        step = torch.zeros(12)
        step[i] = 1e-2
        slope = (value(x + step.view(2, 2, 3)) - value(x - step.view(2, 2, 3))) / 2e-2
        assert float(got.view(-1)[i]) == pytest.approx(slope, abs=5e-3)


def test_utterance_batches_crop_stretch_and_pad_within_their_utterance():
    rng = np.random.default_rng(0)
    features, _ = toy(n=50, shortest=5, longest=40, width=3)
    ramp = np.concatenate([100 * i + np.arange(n) for i, n in enumerate(features.lengths)])
    frames = torch.from_numpy(np.repeat(ramp[:, None], 3, 1).astype(np.float32))
    codes = np.arange(50)[:, None]
    for change in (
        FrameAugmentation(),
        FrameAugmentation(crop=0.3, stretch=0.2),
        FrameAugmentation(stretch=0.1),
    ):
        source: Any = UtteranceBatches(features, frames, codes, 8, CPU, change)
        seen = []
        for (x, lengths), y in source.epoch(rng):
            held = [x.shape[1]] * len(x) if lengths is None else lengths.tolist()
            for row, n, code in zip(x.numpy(), held, y[:, 0].tolist(), strict=True):
                own = row[:n, 0] - 100 * code
                size = features.lengths[code]
                assert own.min() >= 0
                assert own.max() <= size - 1
                assert np.all(row[n:] == 0)
                step = np.diff(own)
                assert len(step) < 2 or np.ptp(step[:-1]) < 4e-3
                assert n >= np.floor((1 - change.crop) * size / (1 + change.stretch))
                if change == FrameAugmentation():
                    np.testing.assert_array_equal(own, np.arange(size))
                seen.append(code)
        assert sorted(seen) == list(range(50))


def test_no_step_is_of_a_single_utterance():
    """Batch normalisation has nothing to say of one."""
    frames = torch.zeros(400, 3)
    for count in (2, 3, 5, 9):
        features = toy(n=count, shortest=5, longest=9, width=3)[0]
        source = UtteranceBatches(
            features, frames, np.zeros((count, 1), np.int64), 2, CPU, FrameAugmentation()
        )
        batches = source.orders(np.random.default_rng(0))
        assert len(batches) == len(source)
        assert min(map(len, batches)) >= 2
        assert sorted(np.concatenate(batches)) == list(range(count))
    with pytest.raises(
        ParameterError, match="at least 2 utterances a step; there are 9, batch is 1"
    ):
        UtteranceBatches(features, frames, np.zeros((9, 1), np.int64), 1, CPU, FrameAugmentation())


def test_masks_blank_at_most_what_was_asked():
    features, _ = toy(n=40, shortest=30, longest=30, width=12)
    frames = torch.ones(len(features.frames), 12)
    change = FrameAugmentation(time_masks=1, time_mask=0.2, frequency_masks=1, frequency_mask=4)
    source = UtteranceBatches(features, frames, np.zeros((40, 1), np.int64), 40, CPU, change)
    x, _ = source.utterances(np.arange(40), np.random.default_rng(0))
    times, bands = (x == 0).all(2).sum(1), (x == 0).all(1).sum(1)
    assert times.max() == 6
    assert times.min() == 0
    assert bands.max() == 4
    assert (x[:, :, :] == 1).any()


def test_crops_of_a_mixed_batch_take_the_share_that_was_asked_for():
    features, _ = toy(n=60, shortest=60, longest=100, width=1)
    ramp = np.concatenate([np.arange(n) for n in features.lengths]).astype(np.float32)[:, None] + 1
    source = UtteranceBatches(
        features,
        torch.from_numpy(ramp),
        np.zeros((60, 1), np.int64),
        60,
        CPU,
        FrameAugmentation(crop=0.3),
    )
    x, lengths = source.utterances(np.arange(60), np.random.default_rng(0))
    held = np.full(60, x.shape[1]) if lengths is None else lengths.numpy()
    np.testing.assert_array_equal(
        held, np.minimum(features.lengths, np.ceil(0.7 * features.lengths.max()))
    )
    begins = x[:, 0, 0].numpy() - 1
    assert (begins <= features.lengths - held).all()
    assert len(set(begins[features.lengths > held + 5])) > 5  # at random ends


def test_noise_has_the_deviation_that_was_asked_for():
    features, _ = toy(n=40, shortest=30, longest=30, width=12)
    frames = torch.zeros(len(features.frames), 12)
    source = UtteranceBatches(
        features, frames, np.zeros((40, 1), np.int64), 40, CPU, FrameAugmentation(noise=0.2)
    )
    torch.manual_seed(0)
    x, _ = source.utterances(np.arange(40), np.random.default_rng(0))
    assert float(x.std()) == pytest.approx(0.2, rel=0.03)


def test_masks_of_time_are_shares_of_the_utterance_itself():
    features, _ = toy(n=60, shortest=10, longest=100, width=2)
    frames = torch.ones(len(features.frames), 2)
    source = UtteranceBatches(
        features,
        frames,
        np.zeros((60, 1), np.int64),
        60,
        CPU,
        FrameAugmentation(time_masks=1, time_mask=0.2),
    )
    blanked = np.zeros(60)
    for seed in range(5):
        x, lengths = source.utterances(np.arange(60), np.random.default_rng(seed))
        assert there(lengths).tolist() == features.lengths.tolist()
        inside = torch.arange(x.shape[1])[None, :] < there(lengths)[:, None]
        lost = ((x[:, :, 0] == 0) & inside).sum(1).numpy()
        assert (lost < 0.2 * features.lengths + 1).all()  # whole frames
        blanked += lost
    assert (blanked > 0).mean() > 0.7


def test_frames_that_cannot_be_used_are_named():
    extractor = any_extractor(NETWORKS[2])
    features, _ = toy(n=5)
    features.frames[features.offsets[3] + 1, 2] = np.nan
    with pytest.raises(DataError, match="'u3' contain NaN"):
        extractor.extract(features)
    with pytest.raises(DataError, match="have 5 features, the extractor takes 6"):
        extractor.extract(toy(n=5, width=5)[0])
    empty = features.take(np.arange(3))
    empty.offsets[1] = 0
    with pytest.raises(DataError, match="have no frames, the first is 'u0'"):
        extractor.extract(empty)
