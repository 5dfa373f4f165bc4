"""Speech experiments: acoustic features, networks trained on them, corpora, systems and tables of results."""
