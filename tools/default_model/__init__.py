"""Maker of the default model: vectors of public corpora, fit, calibration, thresholds."""
