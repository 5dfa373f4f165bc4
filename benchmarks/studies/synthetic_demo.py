"""The table of ``make demo``: every usual system on synthetic speech, the network included.

    python -m benchmarks.studies.synthetic_demo build/synthetic [-o results/synthetic-demo]

The speech is written into the folder, or read from it if it is there already. Needs espeakng_loader and torch.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import study_arguments
from benchmarks.studies.readings import keep_tables
from benchmarks.synthetic import synthetic
from mvplda.paper.experiment import run_experiment
from mvplda.paper.experiment_settings import read_recipe
from mvplda.paper.provenance import OUTPUT, WORK


def main() -> None:
    (speech,), output = study_arguments(__doc__, ["speech"], Path("results/synthetic-demo"))
    command = f"python -m benchmarks.studies.synthetic_demo {WORK}/speech --output {OUTPUT}"
    configuration = read_recipe("small", {"name": "synthetic"})
    # without the vectors and the network of an earlier run: a table is made whole
    keep_tables(output)
    run_experiment(synthetic(speech), configuration, output, print, command=command)
    keep_tables(output)


if __name__ == "__main__":
    main()
