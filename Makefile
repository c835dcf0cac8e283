# Two commands do everything: `make demo` and `make test`. Each target sets up what it needs; a second run is quick.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes
DEMO := .demo
PORT ?= 8077
# Both workers and the programs they start share what is compiled, whatever the environment says.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest --numprocesses 2 --dist loadgroup

.DEFAULT_GOAL := help
.PHONY: help setup demo test check real-parts bench soak fmt clean requirements

help:
	@echo "make demo    load the demo fleet and serve its pages (PORT=8077)"
	@echo "make test    check the style and run all tests"
	@echo "make setup   only make $(BIN)/plimsoll"
	@echo "make check   style and types;  make fmt  put the style right"
	@echo "make bench   measure;  make soak  the long runs;  make clean  remove what was made"

$(BIN)/python:
	@scripts/debian-packages 'python3-venv: $(PYTHON) -c "import ensurepip, venv"'
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Plimsoll needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/runtime.stamp: $(BIN)/python requirements/build.txt requirements/runtime.txt pyproject.toml
	$(PIP) -r requirements/build.txt -r requirements/runtime.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q src
	@touch $@

$(VENV)/dev.stamp: $(VENV)/runtime.stamp requirements/dev.txt
	$(PIP) -r requirements/dev.txt
	@touch $@

setup: $(VENV)/runtime.stamp

demo: setup
	@mkdir -p $(DEMO)
	@echo "To type commands beside it: export PLIMSOLL_DB=sqlite:///$(CURDIR)/$(DEMO)/plimsoll.db PATH=$(CURDIR)/$(BIN):\$$PATH"
	@$(BIN)/plimsoll demo --serve --port $(PORT) --db sqlite:///$(DEMO)/plimsoll.db

check: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The real parts that tests start privately on loopback. Without root they are not installed and their tests skip.
real-parts:
	@scripts/debian-packages \
	    'postgresql: ls /usr/lib/postgresql/*/bin/initdb' \
	    'munge slurm-client slurmctld slurmd: which munged scontrol slurmctld slurmd' \
	    'slurmdbd mariadb-server-core: which slurmdbd mariadbd' \
	    'prometheus openssl: which prometheus openssl' \
	    'prometheus-alertmanager: which prometheus-alertmanager' \
	    'kubernetes-client: which kubectl' \
	    'dbconfig-sqlite3 glewlwyd: which glewlwyd' \
	    'chromium fonts-dejavu-core: which chromium'

test: check real-parts
	$(PYTEST)

bench: $(VENV)/dev.stamp real-parts
	@scripts/debian-packages 'wrk: which wrk'
	$(BIN)/python -m bench

soak: $(VENV)/dev.stamp real-parts
	@scripts/debian-packages 'wrk: which wrk'
	PLIMSOLL_SOAK=1 $(PYTEST)
	PLIMSOLL_BENCH_MEMORY_SECONDS=600 $(BIN)/python -m bench serving

fmt: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# After a change of requirements/*.in; needs uv. Hashes and no addresses.
requirements:
	cd requirements && for name in build runtime azure dev; do \
	    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	        --no-emit-index-url $$name.in -o $$name.txt || exit 1; \
	done

clean:
	rm -rf $(VENV) $(DEMO) .mypy_cache .ruff_cache .hypothesis build dist src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
