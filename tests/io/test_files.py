"""Model files: whole or not there, and a clear word about any other."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save, save_file

from mvplda import MultiviewPLDA, atomic_files, load, tensor_files
from mvplda.calibration.scores import LinearCalibrator
from mvplda.exceptions import FileFormatError


@pytest.fixture
def model() -> MultiviewPLDA:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 6)
    return MultiviewPLDA({"a": 2}).fit(
        rng.normal(size=(10, 4))[y] + rng.normal(size=(60, 4)), {"a": y}
    )


@pytest.fixture
def path(model: MultiviewPLDA, tmp_path: Path) -> Path:
    model.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def rewrite(path: Path, **changes: Any) -> None:
    """Write the file again with other metadata; None leaves an entry out."""
    tensors, metadata = tensor_files.read_tensors(path)
    metadata = {k: v for k, v in {**metadata, **changes}.items() if v is not None}
    path.write_bytes(save(tensors, metadata=metadata))


def test_the_file_says_what_it_is(path: Path) -> None:
    tensors, metadata = tensor_files.read_tensors(path)
    assert (metadata["format"], metadata["version"]) == ("mvplda", "1")
    about = json.loads(metadata["object"])
    assert (about["class"], about["values"]["views_"]) == ("MultiviewPLDA", {"a": 2})
    assert set(tensors) >= {"mean_", "noise_", "loadings_/a", "log_likelihoods_"}
    assert load_file(path)["loadings_/a"].shape == (4, 2)


def test_unchanged_metadata_still_loads(path: Path) -> None:
    """What the other tests damage is otherwise in order."""
    rewrite(path)
    assert load(path).views_ == {"a": 2}


@pytest.mark.parametrize("kept", [0, 4, 8, 100, -1, -9])
def test_a_truncated_file(path: Path, kept: int) -> None:
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(FileFormatError, match="not a safetensors file"):
        load(path)


def test_every_damaged_byte_is_noticed(path: Path) -> None:
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    places = {0, 7, 8, 9, len(whole) - 1, *rng.integers(0, len(whole), size=60).tolist()}
    for place in sorted(places):
        damaged = bytearray(whole)
        damaged[place] ^= 0x15
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match=path.name):
            load(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x04K\x01.", b"\xff" * 100])
def test_a_file_of_another_kind(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(FileFormatError, match="not a safetensors file"):
        load(tmp_path / "other")


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_a_safetensors_file_of_something_else(metadata: Any, tmp_path: Path) -> None:
    save_file({"weight": np.zeros((2, 2))}, tmp_path / "other.safetensors", metadata=metadata)
    with pytest.raises(FileFormatError, match="expected 'mvplda'"):
        load(tmp_path / "other.safetensors")


@pytest.mark.parametrize("version", ["2", "17", "1.5", "", None])
def test_a_newer_file(path: Path, version: str | None) -> None:
    rewrite(path, version=version)
    with pytest.raises(FileFormatError, match=r"version .* reads versions up to 1: install"):
        load(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fingerprint": "0" * 64}, "damaged"),
        ({"fingerprint": None}, "is incomplete"),
        ({"object": None}, "is incomplete"),
        ({"object": "{"}, "is incomplete"),
        ({"object": "{}"}, "damaged"),
    ],
)
def test_a_file_with_parts_missing_or_changed(path: Path, changes: Any, words: str) -> None:
    rewrite(path, **changes)
    with pytest.raises(FileFormatError, match=words):
        load(path)


@pytest.mark.parametrize(
    "change", [{"class": "Rocket"}, {"settings": {"colour": 1}}, {"values": {"views_": {"b": 2}}}]
)
def test_a_sealed_file_that_makes_no_sense(path: Path, change: dict[str, Any]) -> None:
    tensors, metadata = tensor_files.read_tensors(path)
    about = {**json.loads(metadata["object"]), **change}
    rewrite(path, object=json.dumps(about), fingerprint=tensor_files.fingerprint(tensors, about))
    with pytest.raises(FileFormatError, match="cannot be loaded"):
        load(path)


@pytest.mark.parametrize(
    "about", [{}, {"class": "Rocket"}, [], {"class": "LinearCalibrator", "settings": {"x": 1}}]
)
def test_a_sealed_calibrator_that_makes_no_sense(about: Any, tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"".join(tensor_files.packed_chunks({}, about)))
    with pytest.raises(FileFormatError, match=r"/c cannot be loaded"):
        LinearCalibrator.load(tmp_path / "c")


def test_a_folder_in_place_of_a_model(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"expected a .safetensors file; .* is a folder"):
        load(tmp_path)


def test_no_file_and_no_folder(model: MultiviewPLDA, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no file .*none"):
        load(tmp_path / "none")
    with pytest.raises(
        FileNotFoundError, match=r"m cannot be written, because the folder .*missing does not exist"
    ):
        model.save(tmp_path / "missing" / "m")


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_failure_while_writing_leaves_the_old_file(
    function: str, model: MultiviewPLDA, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError("no space left on device")

    model.mean_ = model.mean_ + 1.0
    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        with pytest.raises(OSError, match="no space left"):
            model.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    model.save(path)
    assert path.read_bytes() != before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_the_file_has_ordinary_permissions(model: MultiviewPLDA, tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        model.save(tmp_path / "m")
    finally:
        os.umask(old)
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o640


def test_a_pipe_is_written_and_stays_a_pipe(
    model: MultiviewPLDA, path: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    pipe = tmp_path / "out" / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        model.save(pipe)
        received = os.read(reader, 10**6)
    finally:
        os.close(reader)
    assert received == path.read_bytes()
    assert pipe.is_fifo()
    assert [p.name for p in pipe.parent.iterdir()] == ["pipe"]


def test_a_device_stays_a_device(model: MultiviewPLDA, tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        with device.open("wb") as file:
            file.write(b"x")
    except PermissionError:
        pytest.skip("devices can be made and used by root alone, and not in every container")
    model.save(device)
    assert device.is_char_device()
    assert [p.name for p in tmp_path.iterdir()] == ["null"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_a_link(
    model: MultiviewPLDA, path: Path, exists: bool, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "real", tmp_path / "link"
    if exists:
        target.write_bytes(b"old")
    link.symlink_to(target)
    model.save(link)
    assert link.is_symlink()
    assert target.read_bytes() == path.read_bytes()
    assert [p.name for p in target.parent.iterdir()] == ["real"]


def test_permissions_of_a_file_that_was_there_are_kept(model: MultiviewPLDA, path: Path) -> None:
    path.chmod(0o600)
    model.save(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_long_name_can_be_written(model: MultiviewPLDA, tmp_path: Path) -> None:
    model.save(tmp_path / ("é" * 127))
    assert [p.name for p in tmp_path.iterdir()] == ["é" * 127]


def test_two_saves_give_the_same_bytes(model: MultiviewPLDA, tmp_path: Path) -> None:
    for k in range(20):  # the order of the metadata was drawn anew for every save
        model.save(tmp_path / f"{k}")
    assert len({(tmp_path / f"{k}").read_bytes() for k in range(20)}) == 1


def test_whether_a_place_can_be_written_is_known_before(tmp_path: Path) -> None:
    atomic_files.check_writable("-", tmp_path / "new", tmp_path / "another")
    with pytest.raises(
        FileNotFoundError, match=r"m cannot be written, because the folder .*missing does not exist"
    ):
        atomic_files.check_writable(tmp_path / "missing" / "m")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        atomic_files.check_writable(tmp_path / "new", tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "gone" / "m")
    with pytest.raises(FileNotFoundError, match=r"the folder .*gone does not exist"):
        atomic_files.check_writable(tmp_path / "link")
    assert [p.name for p in tmp_path.iterdir()] == ["link"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_changed(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(PermissionError, match="you may not change"):
        atomic_files.check_writable(tmp_path / "locked" / "m")


def test_a_description_that_is_nested_too_deeply(path: Path) -> None:
    rewrite(path, object="[" * 100_000)
    with pytest.raises(FileFormatError, match=r"recursion|overflow"):
        load(path)
