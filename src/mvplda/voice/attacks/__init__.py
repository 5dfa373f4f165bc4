"""Attacks on a voice log-in, made from recordings, to measure how many are accepted."""
