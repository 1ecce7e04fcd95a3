"""Placements that change while their job runs, and budgets of repair by cause

Revision: 0007
Before it: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql


revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    with op.batch_alter_table("placements", schema=None) as batch_op:
        batch_op.add_column(sa.Column("revision", sa.Integer(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("leaving", _JSON, server_default="[]", nullable=False))
        batch_op.add_column(sa.Column("replicas", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("spent", _JSON, server_default="{}", nullable=False))
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("spent", _JSON, server_default="{}", nullable=False))


def downgrade() -> None:
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_column("spent")
    with op.batch_alter_table("placements", schema=None) as batch_op:
        batch_op.drop_column("spent")
        batch_op.drop_column("replicas")
        batch_op.drop_column("leaving")
        batch_op.drop_column("revision")
