# `make demo` and `make test` need Python 3.11 or 3.12, Node 20.19 or newer, make and a C compiler; they install the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --jobs=2

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || echo python3)
PYTEST_ARGUMENTS ?=
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help install develop web demo test test-slow lint format docs bench chaos tools clean

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

install: .venv/.installed web ## Install Atoll into .venv and build the web UI

develop: .venv/.developed web ## Install what the checks and tests need besides

.venv/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 13) else "Atoll needs Python 3.11 or 3.12; PYTHON=python3.11 make ... names one")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

.venv/.developed: .venv/.installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

web: web/dist/.built ## Build the web UI

web/node_modules/.installed: web/package-lock.json web/package.json
	npm --prefix web ci --no-fund --no-audit --loglevel=error
	touch $@

WEB_SOURCES := $(shell find web/src web/public web/index.html web/*.json web/*.ts -type f 2>/dev/null)
web/dist/.built: web/node_modules/.installed $(WEB_SOURCES)
	npm --prefix web run --silent build
	touch $@

demo: install ## Train the demo job on this machine, with a rank killed half-way
	$(BIN)/atoll demo

tools: .venv/.developed ## Install what the tests need: browser, PostgreSQL, Helm
	.ci/test-tools

test: develop tools lint ## Run all checks and tests but the slow ones
	OMP_NUM_THREADS=1 PATH="$(CURDIR)/.tools/bin:$$PATH" $(BIN)/pytest -m 'not slow' -n 2 --dist loadfile $(PYTEST_ARGUMENTS)

test-slow: develop tools ## Run the slow tests
	OMP_NUM_THREADS=1 PATH="$(CURDIR)/.tools/bin:$$PATH" $(BIN)/pytest -m slow $(PYTEST_ARGUMENTS)

lint: develop ## Check style, types, import directions and generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@if grep -q '"resolved"' web/package-lock.json; then echo 'web/package-lock.json names a registry: keep web/.npmrc and lock again' >&2; exit 1; fi
	@$(BIN)/python -m api.openapi | diff -q - web/openapi.json >/dev/null || { echo 'web/openapi.json is not current: python -m api.openapi > web/openapi.json' >&2; exit 1; }
	npm --prefix web run --silent types:check
	npm --prefix web run --silent check
	npm --prefix web run --silent test

format: .venv/.developed ## Format the Python sources
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format .

docs: .venv/.developed ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: develop ## Run the benchmarks; results go to benchmarks/results/
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,bench]'
	for one in job_list overhead measuring snapshots startup recovery node_loss placement_scale simulation; do echo "== $$one"; OMP_NUM_THREADS=1 $(BIN)/python benchmarks/$$one.py; done
	$(BIN)/python -m benchmarks.fabric

RUNS ?= 200
SEED ?= 0
CHAOS_ARGUMENTS ?=
chaos: develop ## Faults by seed against a real cluster, RUNS=200 SEED=0; CHAOS_ARGUMENTS=--continue leaves out what the log has
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.chaos --runs $(RUNS) --seed $(SEED) $(CHAOS_ARGUMENTS)
	$(BIN)/python -m tests.chaos.summary .chaos/runs.jsonl

clean: ## Remove what the targets above made
	rm -rf .venv .tools .chaos site dist web/node_modules web/dist
