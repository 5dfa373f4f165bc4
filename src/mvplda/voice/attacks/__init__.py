"""Attacks on a voice log-in, made from recordings of its owner, and the measurement of how many are accepted."""
