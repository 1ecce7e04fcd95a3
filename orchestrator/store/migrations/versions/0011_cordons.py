"""Nodes that no job is placed on

Revision: 0011
Before it: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op



revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "cordons",
        sa.Column("node", sa.String(255), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.String(255), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("node", name="pk_cordons"),
    )


def downgrade() -> None:
    op.drop_table("cordons")
