"""Migrations of the store (Alembic). `upgrade(url)` brings any database to the newest revision.

A new revision: change `tables.py`, run `python -m orchestrator.store.migrations "what changes"`, read what it
wrote.
"""

from orchestrator.store.migrations.upgrade import current_revision, differences, newest_revision, upgrade

__all__ = ["current_revision", "differences", "newest_revision", "upgrade"]
