"""Projects of jobs, and placements that were told to end

Revision: 0005
Before it: 0004

Jobs made before it belong to the project `default`.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op


revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("project", sa.String(63), server_default="default", nullable=False))
    with op.batch_alter_table("placements", schema=None) as batch_op:
        batch_op.add_column(sa.Column("vacate_reason", sa.String(40), nullable=True))
        batch_op.add_column(sa.Column("vacate_message", sa.Text(), server_default="", nullable=False))


def downgrade() -> None:
    with op.batch_alter_table("placements", schema=None) as batch_op:
        batch_op.drop_column("vacate_message")
        batch_op.drop_column("vacate_reason")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_column("project")
