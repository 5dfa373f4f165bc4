"""Scoring: likelihood ratios between enrolled profiles and tests, for questions about several views."""
