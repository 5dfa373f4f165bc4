"""Verification in a browser: a static site with the networks, the model and a page."""
