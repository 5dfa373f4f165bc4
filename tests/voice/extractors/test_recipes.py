"""Recipes as the only description of extractors: widths, blocks, lists and help are derived from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import mvplda
from mvplda.bundle import Bundle
from mvplda.cli import main
from mvplda.exceptions import FetchError
from mvplda.io.vectors import VectorSet, write_vectors
from mvplda.voice.default_model import DEFAULT_MODEL, extractor_names
from mvplda.voice.extractors.blocks import blocks_of, extractor_widths, point_blocks
from mvplda.voice.extractors.download import cached_file
from mvplda.voice.extractors.recipe import (
    default_recipes,
    downloadable,
    families,
    recipe_from,
)

SHIPPED = ["campplus", "resnet", "words", "sounds"]
FIFTH = """
title = "voices: an invented network"
width = 7
licence = "MIT"
source = "https://example.org/invented"
views = ["speaker"]

[default_model]
order = 5

[wheel]
requirement = "invented==1.0"
digest = "00"
size_mb = 1

[wheel.members]
"fifth.onnx" = "invented/network.onnx"
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a package with the recipe of a fifth extractor, `fifth`."""
    site = tmp_path / "site"
    for folder in ("invented-1.dist-info", "invented"):
        (site / folder).mkdir(parents=True)
    (site / "invented-1.dist-info" / "METADATA").write_text("Name: invented\nVersion: 1\n")
    (site / "invented-1.dist-info" / "entry_points.txt").write_text(
        "[mvplda.recipes]\ninvented = invented\n"
    )
    (site / "invented" / "__init__.py").write_text("")
    (site / "invented" / "fifth.toml").write_text(FIFTH)
    monkeypatch.syspath_prepend(site)
    families.cache_clear()
    yield site
    families.cache_clear()


def help_of(*command: str) -> str:
    result = CliRunner().invoke(main, [*command, "--help"])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_recipe_alone_adds_an_extractor(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(downloadable()) == [*SHIPPED, "fifth"]
    assert extractor_widths()["fifth"] == 7
    blocks = blocks_of("fifth-0a1b2c3d4e5f+campplus-0703590a6d1b", 199)
    assert blocks == {"fifth-0a1b2c3d4e5f": 7, "campplus-0703590a6d1b": 192}
    assert point_blocks(blocks) == []

    assert "fifth" in help_of("extractor", "get")
    assert "voices: an invented network" in help_of("extractor", "get")
    monkeypatch.setenv("MVPLDA_CACHE", str(plugin / "empty"))
    listed = CliRunner().invoke(main, ["extractor", "list"]).output
    assert "fifth" in listed
    with pytest.raises(FetchError, match="mvplda extractor get fifth"):
        mvplda.load_extractor("fifth")


def test_a_plugin_does_not_change_the_default_model(plugin: Path) -> None:
    assert list(default_recipes()) == SHIPPED
    assert extractor_names(None) == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_help_lists_the_titles(name: str) -> None:
    # help text is wrapped
    text = " ".join(help_of("extractor", "get").split())
    assert f"{name} {families()[name].title}" in text


@pytest.mark.parametrize("name", SHIPPED)
def test_a_recipe_to_download_is_complete(name: str) -> None:
    recipe = downloadable()[name]
    assert recipe.title.startswith(("voices: ", "phrases: "))
    assert recipe.views in (("speaker",), ("phrase",))
    assert recipe.licence
    assert recipe.source
    assert recipe.width == len(recipe.golden.vector)
    assert len(recipe.wheel.digest) == 64
    assert recipe.wheel.members


def test_recipes_of_one_wheel_have_its_hash() -> None:
    wheels = [recipe.wheel for recipe in downloadable().values()]
    digests = {wheel.requirement: wheel.digest for wheel in wheels}
    for wheel in wheels:
        assert wheel.digest == digests[wheel.requirement]


def test_blocks_and_weights_are_those_of_the_shipped_model() -> None:
    scorer = Bundle.load(DEFAULT_MODEL).scorer
    recipes = default_recipes()
    blocks = {name: [recipe.width, recipe.views[0]] for name, recipe in recipes.items()}
    assert {name: list(block) for name, block in scorer.blocks.items()} == blocks
    plain = {name: recipe for name, recipe in recipes.items() if not recipe.has_points}
    assert scorer.weights == {name: recipe.default_model.weight for name, recipe in plain.items()}
    variances = {name: recipe.default_model.domain_variance for name, recipe in plain.items()}
    assert scorer.delta == variances
    assert list(scorer.points) == [name for name, recipe in recipes.items() if recipe.has_points]


def test_fingerprints_are_those_of_the_shipped_model() -> None:
    try:
        extractor = mvplda.load_extractor([cached_file(name) for name in SHIPPED])
    except FetchError as error:
        pytest.skip(str(error))
    assert extractor.name == Bundle.load(DEFAULT_MODEL).extractor
    assert list(extractor_widths()) == sorted(SHIPPED)
    widths = {name: stop - start for name, (start, stop) in extractor.blocks.items()}
    assert blocks_of(extractor.name, extractor.dimension) == widths


def test_descriptions_do_not_change_the_fingerprint() -> None:
    recipe = families()["campplus"]
    described = recipe_from({"family": "campplus"}).canonical()
    assert described == recipe.canonical()
    changed = recipe_from({"family": "campplus", "title": "another", "width": 5})
    assert changed.fingerprint("weights") == recipe.fingerprint("weights")


def test_a_network_of_a_family_is_not_the_one_that_its_recipe_describes() -> None:
    recipe = recipe_from({"family": "campplus", "name": "mine"})
    assert (recipe.title, recipe.width, recipe.golden.vector) == ("", 0, ())
    assert recipe.wheel.requirement == ""
    assert recipe.default_model.order == 0


@pytest.mark.parametrize(
    ("extractor", "width"),
    [(None, 192), ("campplus-0703590a6d1b", 192), ("campplus+unknown", 199), ("campplus+words", 1)],
)
def test_vectors_without_known_blocks(extractor: str | None, width: int) -> None:
    assert blocks_of(extractor, width) is None


def test_blocks_of_points() -> None:
    assert point_blocks(["words-db2c46ec595f", "sounds-d99c15408e44"]) == ["sounds-d99c15408e44"]
    assert point_blocks(None) == []


def test_train_models_the_blocks_that_the_vectors_name(tmp_path: Path, plugin: Path) -> None:
    """Without --block, `mvplda train` separates joint vectors by the widths of the recipes."""
    rng = np.random.default_rng(0)
    speaker = np.repeat(np.arange(12), 4)
    X = rng.normal(size=(12, 199))[speaker] + 0.5 * rng.normal(size=(48, 199))
    vectors = VectorSet(np.arange(48).astype(str), X, "fifth-0a1b2c3d4e5f+campplus-0703590a6d1b")
    write_vectors(str(tmp_path / "x.parquet"), vectors)
    labels = "".join(f"{row} {name}\n" for row, name in enumerate(speaker))
    (tmp_path / "utt2spk").write_text(labels)
    command = ["train", tmp_path / "x.parquet", "-l", f"speaker={tmp_path / 'utt2spk'}"]
    result = CliRunner().invoke(
        main, [*map(str, command), "--folds", "0", "-o", str(tmp_path / "model")]
    )
    assert result.exit_code == 0, result.output
    experts = Bundle.load(tmp_path / "model").scorer.experts_
    assert {name.partition(",")[0] for name in experts} == {
        "fifth-0a1b2c3d4e5f",
        "campplus-0703590a6d1b",
    }
