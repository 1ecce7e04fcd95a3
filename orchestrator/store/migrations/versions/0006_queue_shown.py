"""What people see of the queue: priorities, what is kept for a job, the leader's policy

Revision: 0006
Before it: 0005

Jobs made before it are shown with priority 0; the controller reads the job file.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql


revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_JSON = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("priority", sa.Integer(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("reservation", _JSON, nullable=True))
    with op.batch_alter_table("leases", schema=None) as batch_op:
        batch_op.add_column(sa.Column("queue", _JSON, nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("leases", schema=None) as batch_op:
        batch_op.drop_column("queue")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_column("reservation")
        batch_op.drop_column("priority")
