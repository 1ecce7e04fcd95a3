"""Migrations and tables agree, and several processes may migrate at once."""

from __future__ import annotations

import subprocess
import sys

from sqlalchemy import inspect, text

from orchestrator.store.engine import open_database
from orchestrator.store.migrations import current_revision, differences, newest_revision, upgrade
from orchestrator.store.migrations.upgrade import downgrade
from orchestrator.store.tables import Table


def test_upgrade_makes_exactly_the_tables_of_the_program(empty_database_url: str) -> None:
    upgrade(empty_database_url)
    assert differences(empty_database_url) == []
    assert current_revision(empty_database_url) == newest_revision()


def test_a_difference_would_be_seen(empty_database_url: str) -> None:
    upgrade(empty_database_url)
    database = open_database(empty_database_url)
    with database.write() as session:
        session.execute(text("ALTER TABLE jobs DROP COLUMN plan"))
    database.close()
    found = differences(empty_database_url)
    assert [(change[0], change[2], change[3].name) for change in found] == [("add_column", "jobs", "plan")]


def test_downgrade_leaves_nothing(empty_database_url: str) -> None:
    upgrade(empty_database_url)
    downgrade(empty_database_url, "base")
    database = open_database(empty_database_url)
    assert set(inspect(database.engine).get_table_names()) == {"alembic_version"}
    database.close()
    upgrade(empty_database_url)
    assert differences(empty_database_url) == []


def test_four_processes_upgrade_at_once(empty_database_url: str) -> None:
    program = "import sys; from orchestrator.store.migrations import upgrade; upgrade(sys.argv[1])"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, empty_database_url],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        for _ in range(4)
    ]
    ended = [(process.communicate(timeout=240)[1], process.returncode) for process in running]
    assert [code for _, code in ended] == [0] * 4, ended
    database = open_database(empty_database_url)
    assert set(Table.metadata.tables) <= set(inspect(database.engine).get_table_names())
    with database.read() as session:
        assert session.execute(text("SELECT count(*) FROM alembic_version")).scalar_one() == 1
    database.close()
