"""From a corpus to the paper's table: extractor, vectors, every system, error rates, a page.

vectors : a corpus -> vectors, of a network that is trained on it, of extractors, or of files
task : vectors -> what every system is given
systems : the rows of the table
run : all of it, one after the other
results : the table, with intervals; the page
configuration, provenance : what made it
"""

from .configuration import Configuration, read_configuration, read_recipe
from .run import run_experiment

__all__ = ["Configuration", "read_configuration", "read_recipe", "run_experiment"]
