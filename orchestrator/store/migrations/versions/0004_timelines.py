"""Timelines of steps

Revision: 0004
Before it: 0003

"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql


revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "timelines",
        sa.Column("job_id", sa.String(36), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("bubble", sa.Double(), nullable=False),
        sa.Column("theory", sa.Double(), nullable=False),
        sa.Column("data", sa.JSON().with_variant(postgresql.JSONB(), "postgresql"), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_timelines_job_id_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "attempt", "step", name="pk_timelines"),
    )


def downgrade() -> None:
    op.drop_table("timelines")
