"""`python -m orchestrator.store.migrations "what changes"`: writes the next revision from `tables.py`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from orchestrator.store.migrations.upgrade import upgrade, write_revision

if len(sys.argv) != 2:
    raise SystemExit('usage: python -m orchestrator.store.migrations "what changes"')
with tempfile.TemporaryDirectory() as folder:
    url = f"sqlite:///{Path(folder) / 'newest.db'}"
    upgrade(url)
    write_revision(url, sys.argv[1])
