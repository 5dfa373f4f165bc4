"""Experiments of the joint PLDA paper: acoustic features, networks, corpora, compared systems and tables of results."""
