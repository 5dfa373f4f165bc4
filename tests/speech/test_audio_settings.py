"""Settings of features: checked, plain, with a key that neither process nor spelling changes."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tomllib
from typing import Any

import pytest

from mvplda.exceptions import ParameterError
from mvplda.speech.features import ActivitySettings, FeatureSettings

OTHERS: list[dict[str, Any]] = [
    {"rate": 8000},
    {"kind": "fbank"},
    {"cepstra": 12},
    {"energy": False},
    {"mel_bins": 24},
    {"low_hz": 40},
    {"high_hz": 7600},
    {"frame_length_ms": 20},
    {"frame_shift_ms": 5},
    {"preemphasis": 0.95},
    {"lifter": 0},
    {"deltas": 1},
    {"delta_window": 3},
    {"normalisation": "mean"},
    {"level": "rms"},
    {"activity": ActivitySettings()},
    {"activity": ActivitySettings(context=4)},
    {"shortest_ms": 200},
]


def test_every_setting_changes_the_key() -> None:
    keys = {FeatureSettings(**change).key for change in [{}, *OTHERS]}
    assert len(keys) == len(OTHERS) + 1


def test_the_key_is_the_same_everywhere() -> None:
    """A key that changes throws away every cache: then `settings.VERSION` must change too, and this value."""
    assert FeatureSettings().key == "f575577b06b45e52"
    assert FeatureSettings(frame_length_ms=25, lifter=22).key == FeatureSettings().key
    assert (
        pickle.loads(pickle.dumps(FeatureSettings(rate=8000))).key == FeatureSettings(rate=8000).key
    )


@pytest.mark.parametrize("change", OTHERS)
def test_there_and_back(change: dict[str, Any]) -> None:
    settings = FeatureSettings(**change)
    assert FeatureSettings.from_dict(settings.to_dict()) == settings
    assert FeatureSettings.from_dict(json.loads(json.dumps(settings.to_dict()))).key == settings.key


def test_from_toml() -> None:
    text = 'kind = "fbank"\nmel_bins = 40\n[activity]\nproportion = 0.25\n'
    settings = FeatureSettings.from_dict(tomllib.loads(text))
    assert (settings.dimension, settings.activity) == (120, ActivitySettings(proportion=0.25))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "plp"}, "kind is one of mfcc, fbank; got 'plp'"),
        ({"normalisation": None}, "normalisation is one of"),
        ({"rate": 0}, "rate lies between"),
        ({"rate": 16000.5}, "rate is a whole number"),
        ({"rate": "16000"}, "rate is a whole number"),
        ({"rate": float("nan")}, "rate is a whole number"),
        ({"deltas": True}, "deltas is a whole number"),
        ({"deltas": 3}, "deltas lies between 0 and 2"),
        ({"cepstra": 24}, "cepstra lies between 1 and 23"),
        ({"frame_length_ms": 0.01}, "frame_length lies between"),
        ({"frame_shift_ms": 30}, "frame_shift lies between"),
        ({"frame_shift_ms": 0.01}, "frame_shift lies between"),
        ({"low_hz": 9000}, "half the rate"),
        ({"high_hz": 8001}, "half the rate"),
        ({"mel_bins": 200}, "200 mel filters between 20 and 8000 Hz are too many"),
        ({"energy": 2}, "energy is true or false"),
    ],
)
def test_settings_that_do_not_fit(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ParameterError, match=says):
        FeatureSettings(**change)


def test_unknown_settings_are_named() -> None:
    with pytest.raises(
        ParameterError, match="FeatureSettings has no setting 'frame_lenght_ms'; it has rate, "
    ):
        FeatureSettings.from_dict({"frame_lenght_ms": 20})
    with pytest.raises(ParameterError, match=r"\[activity\] ActivitySettings has no setting 'on'"):
        FeatureSettings.from_dict({"activity": {"on": True}})
    with pytest.raises(
        ParameterError, match=r"\[activity\] ActivitySettings is a section of settings; got True"
    ):
        FeatureSettings.from_dict({"activity": True})
    with pytest.raises(ParameterError, match="proportion"):
        ActivitySettings(proportion=0)


def test_names_come_without_the_packages_they_use() -> None:
    """A user without the audio extra can look, and learns which extra when it is needed."""
    script = """
import sys
from mvplda.speech import features as audio
for name in audio.__all__:
    getattr(audio, name)
heavy = ("soundfile", "soxr", "kaldi_native_fbank", "joblib", "torch", "sklearn")
print([name for name in heavy if name in sys.modules])
sys.modules["soundfile"] = None
try:
    audio.read_audio("x.wav")
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "[]",
        "soundfile is not installed, which this needs: pip install 'mvplda[audio]', "
        "or '.[audio]' in a copy of the sources",
    ]


def test_filter_banks_may_be_fewer_than_cepstra() -> None:
    assert FeatureSettings.fbank(8).dimension == 8
