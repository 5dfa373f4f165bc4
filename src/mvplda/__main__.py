"""Run the command line as ``python -m mvplda``."""

from .cli import main

main(prog_name="mvplda")
