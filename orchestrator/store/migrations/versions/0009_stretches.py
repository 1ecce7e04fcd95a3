"""Stretches of finished steps

Revision: 0009
Before it: 0008

Metrics made before it have none: their sums are made when they are asked for.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op


revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_TIMES = (
    "first_end_us",
    "first_us",
    "end_us",
    "steps_us",
    "communication_us",
    "bubble_us",
    "data_us",
    "checkpoint_us",
    "waits_known_us",
    "phases_known_us",
)


def upgrade() -> None:
    op.create_table(
        "stretches",
        sa.Column("job_id", sa.String(36), nullable=False),
        sa.Column("first_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_id", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("first_step", sa.Integer(), nullable=False),
        sa.Column("last_step", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _TIMES),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_stretches_job_id_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "first_id", name="pk_stretches"),
    )


def downgrade() -> None:
    op.drop_table("stretches")
