# make demo   the main job, end to end
# make test   lint, types and all tests
# make quick  the tests without the slow ones
# make bench  the benchmarks (minutes)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test quick lint bench clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[plot]" --group dev
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/mvplda demo --output demo-output

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n 2

quick: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "not slow"

bench: $(STAMP)
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) demo-output
