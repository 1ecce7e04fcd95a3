#!/usr/bin/env bash
# What needs a GPU, on a machine with one: the plans of one rank are equal on it, then its utilisation.
set -euo pipefail
cd "$(dirname "$0")/.."
make develop
status=0
.venv/bin/python -m pytest -m '' --device accelerator tests/actors/training/test_plan_matrix.py || status=1
.venv/bin/python benchmarks/mfu.py "$@" || status=1
exit "$status"
