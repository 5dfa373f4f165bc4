"""Calibrators of the package, for the tests that every calibrator passes without being named in them."""

from __future__ import annotations

import inspect

from mvplda.calibration import Calibrator
from mvplda.persistence import REGISTRY


def package_calibrators() -> dict[str, type[Calibrator]]:
    """Classes of calibrators of hypotheses that importing `mvplda.calibration` registers, by name."""
    return {
        name: cls
        for name, cls in REGISTRY.items()
        if issubclass(cls, Calibrator)
        and cls.__module__.startswith("mvplda.")
        and not inspect.isabstract(cls)
    }
