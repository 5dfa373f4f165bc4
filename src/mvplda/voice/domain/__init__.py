"""PLDA of unit-length embeddings whose recording domain is estimated from enrolments."""

from .estimator import DomainPLDA

__all__ = ["DomainPLDA"]
