"""Settings of a run as a file: what is written is read again, and what is wrong is said at once."""

from __future__ import annotations

import tomllib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvplda.exceptions import FileFormatError, ParameterError
from mvplda.speech.experiment.configuration import (
    Configuration,
    EvaluationSettings,
    read_configuration,
    read_recipe,
    recipes,
    to_toml,
    write_configuration,
)
from mvplda.speech.experiment.extraction import Variants
from mvplda.speech.experiment.systems import SYSTEMS, BackendSettings
from mvplda.speech.features.augmentation import Channel, Gain, Noise, Recipe, Room, Speed
from mvplda.speech.features.frames import ActivitySettings, FeatureSettings
from mvplda.speech.networks.settings import (
    FrameAugmentation,
    ModernNetwork,
    PaperNetwork,
    Pretraining,
    Training,
    default_training,
)

shares = st.floats(0, 0.99)
positives = st.floats(1e-6, 1e3)
counts = st.integers(1, 500)
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
names = texts.filter(bool)

recipe = st.lists(
    st.one_of(
        st.builds(Speed, shares, st.tuples(st.floats(0.5, 0.9), st.floats(1, 2))),
        st.builds(
            Noise, shares, kinds=st.sampled_from([("white",), ("pink", "babble")]), voices=counts
        ),
        st.builds(Room, shares),
        st.builds(Channel, shares, slope=counts),
        st.builds(Gain, shares, st.tuples(st.floats(-9, 0), st.floats(0, 9))),
    ),
    max_size=3,
).map(lambda steps: Recipe(tuple(steps)))
variants = st.builds(
    Variants,
    st.lists(st.floats(0.5, 0.99), unique=True, max_size=3).map(tuple),
    st.integers(0, 3),
    recipe,
    st.sampled_from(["speakers", "voices", "copies"]),
)
features = st.one_of(
    st.builds(
        FeatureSettings,
        deltas=st.integers(0, 2),
        activity=st.none() | st.builds(ActivitySettings, context=counts),
    ),
    st.integers(13, 40).map(FeatureSettings.fbank),
    st.builds(
        FeatureSettings,
        high_hz=st.none() | st.floats(4000, 8000),
        level=st.sampled_from(["peak", "none"]),
    ),
)
network = st.one_of(
    st.builds(
        PaperNetwork,
        hidden=counts,
        context=st.tuples(st.integers(0, 9), st.integers(0, 9)),
        pretraining=st.none()
        | st.builds(Pretraining, epochs=counts, start=st.none() | positives, centred=st.booleans()),
    ),
    st.builds(
        ModernNetwork,
        block=st.sampled_from(["residual", "tdnn"]),
        dilations=st.lists(counts, min_size=1, max_size=4).map(tuple),
        split=st.booleans(),
        margin_views=st.lists(names, max_size=2).map(tuple),
        loss_weights=st.dictionaries(names, positives, max_size=2),
    ),
)
training = st.builds(
    Training,
    epochs=counts,
    learning_rate=positives,
    clip=st.none() | positives,
    patience=st.none() | counts,
    monitor=st.none() | names.filter(lambda name: name != "none"),
    hold_out=shares,
    augmentation=st.builds(FrameAugmentation, noise=shares, time_masks=st.integers(0, 3)),
)
backend = st.builds(
    BackendSettings, paper_rank=counts, shrinkages=st.lists(st.floats(0, 1), min_size=1).map(tuple)
)
evaluation = st.builds(
    EvaluationSettings,
    st.lists(st.sampled_from(list(SYSTEMS)), unique=True).map(tuple),
    st.sampled_from([("default",), ("default", "sdsv")]),
    st.sampled_from([0, 2, 500]),
)
plain = st.one_of(st.booleans(), st.integers(-(2**40), 2**40), st.floats(allow_nan=False), texts)
corpus = st.dictionaries(names, plain | st.lists(texts, max_size=3), max_size=3)


@settings(max_examples=60)
@given(st.builds(Configuration, corpus.map(lambda c: {**c, "name": "folder"}), features, variants, network, training,
                 backend, evaluation))  # fmt: skip
def test_every_value_comes_back_from_its_file(configuration):
    assert Configuration.from_dict(tomllib.loads(to_toml(configuration.to_dict()))) == configuration


def test_recipes_and_files(tmp_path):
    assert {"modern", "paper", "paper-rbm", "small"} <= set(recipes())
    for name in recipes():
        found = read_recipe(
            name,
            {"name": "folder", "pattern": 'a "quoted" \\ {speaker}', "training": ["ann", "bob"]},
        )
        write_configuration(tmp_path / "run.toml", found)
        assert read_configuration(tmp_path / "run.toml") == found
    with pytest.raises(ParameterError, match="no recipe 'huge'; there are"):
        read_recipe("huge", {"name": "folder"})


def test_numbers_of_numpy_are_numbers():
    numbers = {"a": np.float64(0.1), "b": np.int64(3), "c": [np.float32(0.5)], "d": np.bool_(True)}
    settings: dict[str, Any] = {"epochs": np.int64(3), "learning_rate": np.float32(0.5)}
    start = Configuration(numbers, training=Training(**settings))
    written = tomllib.loads(to_toml(start.to_dict()))
    assert written["corpus"] == {"a": 0.1, "b": 3, "c": [0.5], "d": True}
    assert (written["training"]["epochs"], written["training"]["learning_rate"]) == (3, 0.5)


def test_what_is_left_out_suits_the_network():
    paper = Configuration.from_dict({"network": {"kind": "paper"}, "training": {"epochs": 3}})
    assert paper.features == FeatureSettings()
    assert paper.training == default_training(PaperNetwork(), epochs=3)
    modern = Configuration.from_dict({"training": {"augmentation": {"noise": 0.5}}})
    assert modern.training.augmentation.noise == 0.5
    assert modern.training.augmentation.crop == default_training(ModernNetwork()).augmentation.crop


def test_another_kind_of_network_comes_with_its_own():
    start = Configuration().with_changes(
        {"training.epochs": 2, "network.channels": 8, "backend.random_state": 4}
    )
    changes = {"network.kind": "paper", "network.hidden": 32, "network.pretraining.epochs": 3,
               "training.augmentation.noise": 0.1}  # fmt: skip
    paper = start.with_changes(changes)
    assert paper.network == PaperNetwork(hidden=32, pretraining=Pretraining(epochs=3))
    assert paper.training == default_training(
        PaperNetwork(), augmentation=FrameAugmentation(noise=0.1)
    )
    assert paper.features == FeatureSettings()
    assert paper.backend == start.backend
    assert start.with_changes({"network.kind": "modern"}) == start
    assert start.with_changes({"training.clip": "none"}).training.clip is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"training.epoch": 3}, "Training has no setting 'epoch'; it has epochs, "),
        ({"training.epochs": "many"}, "[training] epochs is a whole number; got 'many'"),
        ({"training.epochs": 2.5}, "epochs is a whole number; got 2.5"),
        ({"training.epochs": True}, "epochs is a whole number; got True"),
        ({"training.patience": "long"}, "patience is a whole number; got 'long'"),
        (
            {"training.augmentation": 3},
            "[training.augmentation] FrameAugmentation is a section of settings; got 3",
        ),
        (
            {"training.augmentation.noise": -1},
            "[training.augmentation] noise is at least 0; got -1",
        ),
        (
            {"training.augmentation.hiss": 3},
            "[training.augmentation] FrameAugmentation has no setting 'hiss'",
        ),
        ({"training.epochs.more": 3}, "training.epochs.more: epochs is a value, not a section"),
        ({"network.kind": "huge"}, "[network] kind is one of paper, modern; got 'huge'"),
        ({"network.hidden": 3}, "ModernNetwork has no setting 'hidden'"),
        ({"network.split": 1}, "split is true or false; got 1"),
        ({"network.dilations": 3}, "dilations is a list; got 3"),
        ({"features.mel": 3}, "[features] FeatureSettings has no setting 'mel'; it has rate, "),
        ({"variants.voices": 0.9}, "[variants] voices is a list; got 0.9"),
        ({"variants.voices": [1.0]}, "voices are speeds from 0.5 to 2 other than 1; got "),
        ({"variants.voices": [3.0]}, "voices are speeds from 0.5 to 2 other than 1; got "),
        ({"variants.voices": [0.9, 0.9]}, "none stands twice"),
        ({"variants.copies": -1}, "[variants] copies is at least 0; got -1"),
        ({"variants.backend": "all"}, "backend is one of speakers, voices, copies; got 'all'"),
        ({"variants.recipe": 3}, "[variants.recipe] Recipe is a section of settings; got 3"),
        (
            {"variants.recipe.steps": [{"step": "hiss"}]},
            "[variants.recipe.steps.0] step is one of speed, ",
        ),
        (
            {"variants.speeds": []},
            "Variants has no setting 'speeds'; it has voices, copies, recipe, backend",
        ),
        ({"backend.rank": 3}, "BackendSettings has no setting 'rank'"),
        ({"evaluation.systems": ["worst"]}, "no system 'worst'; there are cosine-plain, "),
        ({"evaluation.systems": "best"}, "systems is a list; got 'best'"),
        ({"evaluation.costs": ["dear"]}, "dear"),
        ({"evaluation.resamples": 1}, "resamples are 0, for no intervals, or at least 2; got 1"),
        ({"extractor.epochs": 1}, "no section 'extractor'; it has corpus, features, "),
        ({"epochs": 1}, "a change is of section.name, such as training.epochs; got 'epochs'"),
    ],
)
def test_what_is_wrong_is_said(change, message):
    with pytest.raises(ParameterError) as raised:
        Configuration().with_changes(change)
    assert message in str(raised.value)


def test_files_that_are_none(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("[training\n")
    with pytest.raises(FileFormatError, match=r"run\.toml is no TOML"):
        read_configuration(path)
    path.write_text("training = 3\n")
    with pytest.raises(
        ParameterError, match=r"run\.toml: training is a section of settings; got 3"
    ):
        read_configuration(path)
    path.write_text("[training]\nepochs = 'x'\n")
    with pytest.raises(ParameterError, match=r"run\.toml: \[training\] epochs is a whole number"):
        read_configuration(path)


def test_a_file_without_a_corpus_is_for_any_and_options_win(tmp_path):
    (tmp_path / "a.toml").write_text(
        '[network]\nhidden = 16\n[training]\nepochs = 3\nclip = "none"\n'
    )
    (tmp_path / "a.json").write_text(
        '{"network": {"hidden": 16}, "training": {"epochs": 3, "clip": null}}'
    )
    found = [
        read_configuration(
            tmp_path / name,
            {"network": {"kind": "paper"}, "training": {"epochs": 5}},
            corpus="folder",
        )
        for name in ("a.toml", "a.json")
    ]
    assert found[0] == found[1]
    assert found[0].corpus == {"name": "folder"}
    network = found[0].network
    assert isinstance(network, PaperNetwork)
    assert (network.hidden, found[0].training.epochs, found[0].training.clip) == (16, 5, None)
    (tmp_path / "b.json").write_text('{"corpus": {"name": "rsr2015"}}')
    assert read_configuration(tmp_path / "b.json", corpus="folder").corpus["name"] == "rsr2015"
    assert read_configuration(None, {"training": {"epochs": 5}}).training.epochs == 5
    for text, words in (
        ("[1]", "holds no sections"),
        ("{", "is no JSON"),
        ('{"network": 3}', "section of settings"),
    ):
        (tmp_path / "b.json").write_text(text)
        with pytest.raises((FileFormatError, ParameterError), match=words):
            read_configuration(tmp_path / "b.json", {"network": {"kind": "paper"}})
