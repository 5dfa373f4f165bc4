"""Likelihood ratios between enrolled profiles and tests."""
