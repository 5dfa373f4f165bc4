"""From a corpus to the paper's table: extractor, vectors, every system, error rates, a page."""
