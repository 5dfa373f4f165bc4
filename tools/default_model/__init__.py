"""Programs that rebuild the default model: extract vectors of public corpora, fit, calibrate, choose thresholds."""
