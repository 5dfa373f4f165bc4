"""Verification in a browser: writing a static site with the networks, the model and a page."""
