"""From a corpus to the paper's table: extractor, vectors, every system, error rates, a page.

configuration : what is run
vectors : a corpus -> vectors, of a network that is trained on it, of extractors, or of files; what systems are given
systems : the rows of the table
results : the table, with intervals; the page; where it comes from
run : all of it, one after the other
"""

from .configuration import Configuration, read_configuration, read_recipe
from .run import run_experiment
from .vectors import Reading

__all__ = ["Configuration", "Reading", "read_configuration", "read_recipe", "run_experiment"]
