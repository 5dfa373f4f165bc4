"""mvplda web: the files of a site, and what refuses to make one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from domain_problems import VOICE, WORDS, domain_bundle
from extractor_problems import network

import mvplda
from mvplda import Bundle, Committee, CosineScorer
from mvplda.cli import main
from mvplda.exceptions import FetchError, ParameterError
from mvplda.voice.extractors.extractor import load_extractor
from mvplda.voice.extractors.onnx_network import OnnxNetwork
from mvplda.voice.extractors.recipe import with_values
from mvplda.voice.verification import VoiceModel
from mvplda.voice.web import export, runtime
from mvplda.voice.web.site import PAGE, UNCACHED, write_site

SERVICE_PAGE = Path(mvplda.__file__).parent / "serve" / "page"
SHARED = [SERVICE_PAGE / name for name in ("dom.js", "recorder.js", "worklet.js")]
FILES = {file.name: file.read_text(encoding="utf-8") for file in sorted(PAGE.iterdir())}
SCRIPTS = [name for name in FILES if name.endswith(".js")]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An unpacked package with files that stand for the runtime."""
    dist = tmp_path / "package" / "dist"
    dist.mkdir(parents=True)
    for name in runtime.FILES:
        (dist / name).write_text(name)
    return dist.parent


@pytest.fixture
def voices(tmp_path: Path) -> VoiceModel:
    """A small model of domains with two small networks."""
    files = [
        network(tmp_path / "voice.onnx", dimension=VOICE),
        network(tmp_path / "words.onnx", dimension=WORDS, seed=1),
    ]
    extractor = load_extractor(files)
    drawn = domain_bundle()
    return VoiceModel(
        Bundle(None, drawn.scorer, extractor.name, drawn.calibrations, drawn.points), extractor
    )


def test_a_site_has_all_files_and_a_worker_that_keeps_them(
    voices: VoiceModel, package: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "site"
    site = write_site(folder, voices, scripts=SHARED, runtime=package)
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert written == set(site.files)
    assert site.size_mb == pytest.approx(
        sum((folder / name).stat().st_size for name in written) / 1e6
    )
    worker = (folder / "sw.js").read_text(encoding="utf-8")
    version, files = re.findall(r"^const \w+ = (.*);$", worker, flags=re.MULTILINE)[:2]
    assert set(json.loads(files)) == (written - set(UNCACHED)) | {"./"}
    model = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    assert [recipe["files"] for recipe in model["recipes"]] == [
        ["wespeaker/voice.onnx"],
        ["wespeaker/words.onnx"],
    ]
    # an earlier site is replaced, and its worker with it if a file changed
    (package / "dist" / runtime.FILES[0]).write_text("newer")
    write_site(folder, voices, scripts=SHARED, runtime=package)
    newer = (folder / "sw.js").read_text(encoding="utf-8")
    assert re.findall(r"^const \w+ = (.*);$", newer, flags=re.MULTILINE)[0] != version


def test_arrays_are_at_their_positions(voices: VoiceModel) -> None:
    arrays = export.Arrays()
    scorer: Any = voices.bundle.scorer
    voice, words = export.export_blocks(scorer, arrays)
    numbers = arrays.to_bytes()

    def read(position: dict[str, list[int]]) -> np.ndarray:
        offset, *shape = position["$array"]
        return np.frombuffer(numbers, "<f8", int(np.prod(shape)), offset).reshape(shape)

    assert np.array_equal(read(voice["mean"]), scorer.mean_[:VOICE])
    assert np.array_equal(read(words["mean"]), scorer.mean_[VOICE:])
    assert read(words["channel"]).shape == (0, WORDS)
    assert (words["start"], words["end"]) == (VOICE, VOICE + WORDS)


def test_other_models_and_recipes_are_refused(voices: VoiceModel, tmp_path: Path) -> None:
    scorer = CosineScorer(centre=False, views=["speaker"]).fit(np.zeros((1, VOICE + WORDS)))
    other = VoiceModel(Bundle(None, scorer, voices.extractor.name), voices.extractor)
    with pytest.raises(ParameterError, match="this model is a CosineScorer"):
        export.export_model(other, export.Arrays())
    committee = Committee({"cosine": CosineScorer(), "other": CosineScorer()})
    rng = np.random.default_rng(0)
    people = np.repeat([str(i) for i in range(12)], 3)
    committee.fit(rng.normal(size=(36, VOICE + WORDS)), {"speaker": people})
    trained = VoiceModel(Bundle(None, committee, voices.extractor.name), voices.extractor)
    with pytest.raises(
        ParameterError, match=r"is a committee that was trained on your people\. Leave"
    ):
        write_site(tmp_path / "site", trained)
    assert not (tmp_path / "site").exists()
    recipe = with_values(voices.extractor.networks[0].recipe, {"features": {"kind": "mfcc"}}, "r")
    cepstra = OnnxNetwork(network(tmp_path / "mfcc.onnx", bins=39), recipe)
    with pytest.raises(ParameterError, match="'mfcc'; a page can compute kaldi, graph, samples"):
        export.export_network(cepstra, export.Arrays())


def test_the_command_writes_a_site(
    voices: VoiceModel, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VoiceModel, "load", lambda path: voices)
    site = tmp_path / "site"
    words = ["web", "-o", str(site), "--runtime", str(package / "dist")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert f"wrote {site}: " in done.output
    assert (site / "index.html").is_file()
    # somebody's own files are safe
    other = tmp_path / "other"
    other.mkdir()
    (other / "diary.txt").write_text("mine")
    refused = CliRunner().invoke(main, ["web", "-o", str(other), "--runtime", str(package)])
    assert refused.exit_code == 1
    assert "contains other files" in refused.output
    assert [file.name for file in other.iterdir()] == ["diary.txt"]
    missing = CliRunner().invoke(main, ["web", "-o", str(site), "--runtime", str(other)])
    assert missing.exit_code == 1
    assert "no unpacked onnxruntime-web" in missing.output


def test_without_npm_the_error_names_the_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime.shutil, "which", lambda name: None)
    with pytest.raises(FetchError, match=r"npm is needed.*--runtime FOLDER"):
        runtime.put_runtime(tmp_path / "runtime")


def test_the_runtime_comes_from_the_package_that_npm_packs(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def pack(command: list[str], *, cwd: Path, **_: Any) -> Any:
        calls.append(command[1:3])
        with tarfile.open(Path(cwd) / "package.tgz", "w:gz") as archive:
            archive.add(package, "package")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(runtime.shutil, "which", lambda name: "npm")
    monkeypatch.setattr(runtime.subprocess, "run", pack)
    runtime.put_runtime(tmp_path / "runtime")
    assert calls == [["pack", f"onnxruntime-web@{runtime.VERSION}"]]
    assert {file.name for file in (tmp_path / "runtime").iterdir()} == set(runtime.FILES)

    def fail(command: list[str], **_: Any) -> Any:
        return subprocess.CompletedProcess(command, 1, "", "no such host")

    monkeypatch.setattr(runtime.subprocess, "run", fail)
    with pytest.raises(FetchError, match=r"no such host\. Check that the registry is reachable"):
        runtime.put_runtime(tmp_path / "again")


@pytest.mark.parametrize("name", FILES)
def test_nothing_comes_from_elsewhere(name: str) -> None:
    assert not re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'>]*", FILES[name])
    assert not re.search(r"\beval\(|new Function\(|innerHTML", FILES[name])


def test_files_that_scripts_name_are_there() -> None:
    there = {*FILES, *(file.name for file in SHARED)}
    pattern = r"""(?:from|import\(|register\(|href=|src=)\s*["'](?:\./)?([\w-]+\.(?:js|css))["']"""
    named = {name for text in FILES.values() for name in re.findall(pattern, text)}
    assert named <= there
    assert {"mvplda.js", "page.js", "page.css", "sw.js", "recorder.js"} <= named


def test_the_policy_of_the_page_lets_nothing_leave() -> None:
    page = FILES["index.html"]
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)
    sources = set(re.findall(r"-(?:src|uri|action) ([^;]+)", policy))
    assert sources <= {"'none'", "'self'", "'self' 'wasm-unsafe-eval'", "'self' data:"}
    assert "default-src 'none'" in policy
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_valid(name: str) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node, which checks scripts")
    done = subprocess.run([node, "--check", str(PAGE / name)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert max(map(len, FILES[name].splitlines())) <= 120


def test_types_name_what_the_module_exports() -> None:
    exported = re.findall(
        r"^export (?:class|const|function) (\w+)", FILES["mvplda.js"], re.MULTILINE
    )
    exported += re.findall(r"^export \{ (\w+) \}", FILES["mvplda.js"], re.MULTILINE)
    typed = re.findall(r"^export class (\w+)", FILES["mvplda.d.ts"], re.MULTILINE)
    assert sorted(exported) == sorted(typed)
    members = r"^  (?:readonly |static |get )?(?:async )?(\w+)(?:\(|:)"
    body = FILES["mvplda.d.ts"].partition("export class Verifier {")[2].partition("\n}")[0]
    for member in set(re.findall(members, body, re.MULTILINE)):
        assert re.search(
            rf"^  (?:static )?(?:async )?(?:get )?{member}\(", FILES["mvplda.js"], re.MULTILINE
        ), member
