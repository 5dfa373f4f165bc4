"""Measurements of speed, memory and errors: ``python -m benchmarks --help`` lists them."""
