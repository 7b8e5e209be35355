# The commands of this book; `make` alone lists them. Everything runs in .venv, which is made on first use.

PYTHON ?= python3
PORT ?= 8000
SEEDS ?= 20
# Chapters for `make refresh`, by name; all if empty.
CHAPTERS ?=
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# What committed outputs are made and tested with, whatever the machine has.
ON_CPU := env -u LIB_SEED LIB_DEVICE=cpu LIB_BUDGET=cpu

# Chapters and tests run side by side: one thread each, or they get in each other's way.
export OMP_NUM_THREADS := 1

.PHONY: help setup book serve test quick lint refresh mutants seeds benchmarks clean

help:
	@echo "make book        run the chapters (on the GPU if there is one) and build _build/html/index.html"
	@echo "make serve       show the built book on http://127.0.0.1:$(PORT) (PORT=...)"
	@echo "make test        everything: lint, types, unit tests, all chapters against their stored outputs, site, browser"
	@echo "make quick       the inner loop: lint, types, fast tests"
	@echo "make refresh     run the chapters on the CPU and rewrite their stored outputs (CHAPTERS=\"name ...\")"
	@echo "make mutants     plant faults in lib: does a chapter or a test notice?"
	@echo "make seeds       run the chapters under $(SEEDS) seeds: do the verdicts stay? (SEEDS=...)"
	@echo "make benchmarks  time the library beside others"
	@echo "make clean       delete what was built (not .venv)"

# Skipped while the requirements are what was installed: the stamp holds the place and the content, not a time.
setup:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "This book needs Python 3.11 or newer, and '$(PYTHON)' is not (or is missing)."; \
	  echo "Name another one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12"; exit 1; }
	@place="$$($(PYTHON) -c 'import os, sys; print("%d.%d" % sys.version_info[:2], os.getcwd())')"; \
	content="$$($(PYTHON) -c 'import hashlib; print(hashlib.sha256(b"".join(open(f, "rb").read() for f in ("requirements.txt", "pyproject.toml"))).hexdigest())')"; \
	if [ "$$(cat .venv/installed 2>/dev/null)" != "$$place $$content" ] || ! $(BIN)/python -c '' 2>/dev/null; then \
	  case "$$(cat .venv/installed 2>/dev/null)" in ""|"$$place "*) clear=;; *) clear=--clear;; esac; \
	  echo "Installing the requirements into .venv; the first time this takes some minutes."; \
	  rm -f .venv/installed; \
	  $(PYTHON) -m venv $$clear .venv && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt && \
	  echo "$$place $$content" > .venv/installed || { echo "The set-up failed; the lines above say why."; exit 1; }; \
	fi

# The site is built even if a chapter failed, and says so; the exit status then is not 0.
book: setup
	@$(BIN)/python book/tools/execute.py; status=$$?; $(BIN)/python book/tools/stage.py && exit $$status

serve: setup
	@test -f _build/html/index.html || { echo "There is no built book yet: run make book"; exit 1; }
	@echo "http://127.0.0.1:$(PORT)  (stop with Ctrl-C)"
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory _build/html $(PORT)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(PYTEST) -n $(JOBS) --ignore=tests/test_site.py
	$(ON_CPU) $(PYTEST) --nbval --nbval-current-env -n $(JOBS) --dist loadfile book/*.ipynb
	$(ON_CPU) $(BIN)/python book/tools/stage.py
	$(PYTEST) tests/test_site.py

quick: lint
	$(PYTEST) -q -n $(JOBS) $(addprefix --ignore=tests/test_,site.py build.py nbval_hook.py mutants.py seeds_record.py)

refresh: setup
	$(BIN)/python book/tools/execute.py --refresh $(CHAPTERS)

mutants: setup
	$(BIN)/python tests/mutants.py

seeds: setup
	$(BIN)/python book/tools/seeds.py --seeds $(SEEDS)

benchmarks: setup
	$(PYTEST) tests/benchmarks -o addopts= --benchmark-only --benchmark-columns=min,median,iqr,rounds

clean:
	rm -rf _build
