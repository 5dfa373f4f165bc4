"""examples/plot_00_tour.py runs and prints the model and the hypotheses."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "plot_00_tour.py"


@pytest.mark.slow
def test_the_tour_prints_shares_and_probabilities(capsys):
    names = runpy.run_path(str(EXAMPLE))
    printed = capsys.readouterr().out
    shares = [float(share) for share in re.findall(r"(\d\.\d\d) of the variance", printed)]
    assert shares == [0.13, 0.27, 0.60]
    hypotheses = dict(
        re.findall(r"^(speaker and phrase|speaker|phrase|nothing) (\d\.\d+)$", printed, re.M)
    )
    assert sum(map(float, hypotheses.values())) == pytest.approx(1, abs=0.02)
    assert max(hypotheses, key=lambda name: float(hypotheses[name])) == "speaker and phrase"
    assert names["latents"].shape == (len(names["X"]), 39)
