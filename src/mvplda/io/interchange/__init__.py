"""PLDA models of other toolkits, read into `PLDA` and written from it. No pickle."""

from .kaldi import read_kaldi_plda, write_kaldi_plda
from .numpy_plda import read_numpy_plda, write_numpy_plda

__all__ = ["read_kaldi_plda", "read_numpy_plda", "write_kaldi_plda", "write_numpy_plda"]
