# Every target first creates the virtual environment .venv, pinned by constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup demo test types tests test-benchmarks test-ray test-browser studio tour docs bench faults clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "heedful requires Python 3.11 or later with venv; '$(PYTHON)' does not provide it. Try: make PYTHON=python3.12 setup" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/heed demo

# mypy, which uses one core, runs beside the tests.
test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory --jobs 2 --keep-going types tests

types: $(STAMP)
	$(BIN)/mypy

# The processes that tests start share the compiled modules, also where this variable is set.
tests: export PYTHONDONTWRITEBYTECODE =
tests: $(STAMP)
	$(BIN)/pytest --numprocesses 2 --dist worksteal -m "not browser and not benchmark"

# The programs of benchmarks/, each with tiny models.
test-benchmarks: $(STAMP)
	$(BIN)/pytest --numprocesses 2 -m benchmark

# Bulk prediction on a local Ray cluster of two workers, one of which is killed: half a minute, after Ray is installed.
test-ray: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[ray]'
	$(BIN)/pytest -m benchmark tests/runs/test_ray_bulk.py

# Test the studio and the pages of results in Debian's Chromium, which is installed first when run by root; without it, fail.
test-browser: $(STAMP)
	@if ! command -v chromium >/dev/null && command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; fi
	@command -v chromium >/dev/null || \
	  { echo "test-browser needs Chromium, which is not installed and which only root can install: apt-get install chromium" >&2; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[browser]'
	$(BIN)/pytest -m browser

# The page of `heed studio`, from studio/ into src/heedful/studio; needs Node 20. `npm ci` fails where a registry lacks packages of other systems.
studio:
	cd studio && npm install --no-save --ignore-scripts --no-audit --no-fund && npx svelte-check --tsconfig ./tsconfig.json && npx vite build

# The recorded replies of the tour, in studio/public/tour.json: train the demo model and open each step in Chromium.
tour: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[browser]'
	$(BIN)/python studio/record_tour.py

# The documentation in docs/_build/html; a warning is an error.
docs: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

bench: $(STAMP)
	$(BIN)/python benchmarks/train_cpu.py

# Fault injection: kills, signals, failing disks, damaged files; some cases mount a disk, as root. Writes docs/reliability.md.
faults: $(STAMP)
	$(BIN)/python benchmarks/faults.py

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
