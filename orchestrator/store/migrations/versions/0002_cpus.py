"""CPUs of nodes and placements

Revision: 0002
Before it: 0001

Placements made before it count as reserving no CPUs until they are released.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op


revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.add_column(sa.Column("cpus", sa.Double(), nullable=True))
    with op.batch_alter_table("placements", schema=None) as batch_op:
        batch_op.add_column(sa.Column("cpus_per_rank", sa.Double(), server_default="0", nullable=False))


def downgrade() -> None:
    with op.batch_alter_table("placements", schema=None) as batch_op:
        batch_op.drop_column("cpus_per_rank")
    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.drop_column("cpus")
