"""Speech: features of sound, networks trained on them, corpora, and experiments from one to the other."""
