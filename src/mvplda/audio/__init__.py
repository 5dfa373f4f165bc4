"""From sound files to frames of features."""
