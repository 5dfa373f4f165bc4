"""Makers of the files that the package ships."""
