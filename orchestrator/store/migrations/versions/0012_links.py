"""Links per tier: class, bandwidth, latency and uplink, as declared or measured

Revision: 0012
Before it: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op


revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "links",
        sa.Column("tier", sa.String(16), nullable=False),
        sa.Column("kind", sa.String(255), nullable=True),
        sa.Column("bandwidth", sa.Double(), nullable=True),
        sa.Column("latency_s", sa.Double(), nullable=True),
        sa.Column("uplink", sa.Double(), nullable=True),
        sa.Column("measured", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("tier", name="pk_links"),
    )


def downgrade() -> None:
    op.drop_table("links")
