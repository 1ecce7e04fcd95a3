"""Health of a job: findings about its ranks, blocks of the heat map

Revision: 0008
Before it: 0007

"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql


revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "health_findings",
        sa.Column("job_id", sa.String(36), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("category", sa.String(16), nullable=False),
        sa.Column("subject", sa.String(300), nullable=False),
        sa.Column("from_step", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(255), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("data", _JSON, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_health_findings_job_id_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "attempt", "category", "subject", "from_step", name="pk_health_findings"),
    )
    op.create_index("ix_health_findings_category_at", "health_findings", ["category", "at"])
    op.create_table(
        "heat_blocks",
        sa.Column("job_id", sa.String(36), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("data", _JSON, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_heat_blocks_job_id_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "attempt", "number", name="pk_heat_blocks"),
    )


def downgrade() -> None:
    op.drop_table("heat_blocks")
    op.drop_index("ix_health_findings_category_at", table_name="health_findings")
    op.drop_table("health_findings")
