"""Labelled speech: what was recorded, who said what, and who is trained, enrolled and tested on."""
