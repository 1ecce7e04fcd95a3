"""first tables

Revision: 0001
Before it: none
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql


revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('jobs',
    sa.Column('id', sa.String(length=36), nullable=False),
    sa.Column('name', sa.String(length=63), nullable=False),
    sa.Column('state', sa.String(length=16), nullable=False),
    sa.Column('reason', sa.String(length=40), nullable=False),
    sa.Column('message', sa.Text(), nullable=False),
    sa.Column('cancel_requested_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('incarnation', sa.Integer(), nullable=False),
    sa.Column('world_size', sa.Integer(), nullable=False),
    sa.Column('plan', sa.String(length=120), nullable=False),
    sa.Column('total_steps', sa.Integer(), nullable=False),
    sa.Column('step', sa.Integer(), nullable=False),
    sa.Column('loss', sa.Double(), nullable=True),
    sa.Column('tokens_per_s', sa.Double(), nullable=True),
    sa.Column('restarts', sa.Integer(), nullable=False),
    sa.Column('deaths_step', sa.Integer(), nullable=False),
    sa.Column('deaths_count', sa.Integer(), nullable=False),
    sa.Column('evaluation', sa.JSON().with_variant(postgresql.JSONB(), "postgresql"), nullable=True),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('started_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('finished_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('last_event_id', sa.Integer(), nullable=False),
    sa.Column('last_metric_id', sa.BigInteger(), nullable=False),
    sa.Column('idempotency_key', sa.String(length=255), nullable=True),
    sa.Column('fingerprint', sa.String(length=64), nullable=False),
    sa.Column('spec', sa.JSON().with_variant(postgresql.JSONB(), "postgresql"), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_jobs')),
    sa.UniqueConstraint('idempotency_key', name=op.f('uq_jobs_idempotency_key'))
    )
    with op.batch_alter_table('jobs', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_jobs_state_id'), ['state', 'id'], unique=False)

    op.create_table('leases',
    sa.Column('name', sa.String(length=64), nullable=False),
    sa.Column('token', sa.BigInteger(), nullable=False),
    sa.Column('holder', sa.String(length=255), nullable=True),
    sa.Column('expires_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('endpoint', sa.String(length=255), nullable=True),
    sa.Column('cluster_reachable', sa.Boolean(), nullable=True),
    sa.Column('cluster_message', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_leases'))
    )
    op.create_table('nodes',
    sa.Column('name', sa.String(length=255), nullable=False),
    sa.Column('accelerators', sa.Integer(), nullable=False),
    sa.Column('domains', sa.JSON().with_variant(postgresql.JSONB(), "postgresql"), nullable=False),
    sa.Column('islands', sa.JSON().with_variant(postgresql.JSONB(), "postgresql"), nullable=False),
    sa.Column('accelerator', sa.String(length=255), nullable=True),
    sa.Column('alive', sa.Boolean(), nullable=False),
    sa.Column('schedulable', sa.Boolean(), nullable=False),
    sa.Column('first_seen', sa.DateTime(timezone=True), nullable=False),
    sa.Column('last_seen', sa.DateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_nodes'))
    )
    op.create_table('attempts',
    sa.Column('job_id', sa.String(length=36), nullable=False),
    sa.Column('number', sa.Integer(), nullable=False),
    sa.Column('incarnation', sa.Integer(), nullable=False),
    sa.Column('started_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('ended_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('outcome', sa.String(length=40), nullable=True),
    sa.Column('start_step', sa.Integer(), nullable=False),
    sa.Column('end_step', sa.Integer(), nullable=True),
    sa.Column('message', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_attempts_job_id_jobs'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('job_id', 'number', name=op.f('pk_attempts'))
    )
    op.create_table('checkpoints',
    sa.Column('job_id', sa.String(length=36), nullable=False),
    sa.Column('step', sa.Integer(), nullable=False),
    sa.Column('attempt', sa.Integer(), nullable=False),
    sa.Column('state', sa.String(length=16), nullable=False),
    sa.Column('path', sa.Text(), nullable=False),
    sa.Column('bytes', sa.BigInteger(), nullable=False),
    sa.Column('message', sa.Text(), nullable=False),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_checkpoints_job_id_jobs'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('job_id', 'step', 'attempt', name=op.f('pk_checkpoints'))
    )
    op.create_table('events',
    sa.Column('job_id', sa.String(length=36), nullable=False),
    sa.Column('id', sa.Integer(), autoincrement=False, nullable=False),
    sa.Column('at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('kind', sa.String(length=40), nullable=False),
    sa.Column('attempt', sa.Integer(), nullable=True),
    sa.Column('incarnation', sa.Integer(), nullable=True),
    sa.Column('seq', sa.BigInteger(), nullable=True),
    sa.Column('message', sa.Text(), nullable=False),
    sa.Column('data', sa.JSON().with_variant(postgresql.JSONB(), "postgresql"), nullable=False),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_events_job_id_jobs'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('job_id', 'id', name=op.f('pk_events')),
    sa.UniqueConstraint('job_id', 'incarnation', 'seq', name=op.f('uq_events_job_id_incarnation_seq'))
    )
    op.create_table('metrics',
    sa.Column('job_id', sa.String(length=36), nullable=False),
    sa.Column('id', sa.BigInteger(), autoincrement=False, nullable=False),
    sa.Column('at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('incarnation', sa.Integer(), nullable=False),
    sa.Column('seq', sa.BigInteger(), nullable=False),
    sa.Column('attempt', sa.Integer(), nullable=False),
    sa.Column('step', sa.Integer(), nullable=False),
    sa.Column('loss', sa.Double(), nullable=True),
    sa.Column('grad_norm', sa.Double(), nullable=True),
    sa.Column('learning_rate', sa.Double(), nullable=True),
    sa.Column('tokens', sa.BigInteger(), nullable=False),
    sa.Column('step_time_s', sa.Double(), nullable=True),
    sa.Column('tokens_per_s', sa.Double(), nullable=True),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_metrics_job_id_jobs'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('job_id', 'id', name=op.f('pk_metrics')),
    sa.UniqueConstraint('job_id', 'incarnation', 'seq', name=op.f('uq_metrics_job_id_incarnation_seq'))
    )
    op.create_table('placements',
    sa.Column('job_id', sa.String(length=36), nullable=False),
    sa.Column('incarnation', sa.Integer(), nullable=False),
    sa.Column('slots', sa.JSON().with_variant(postgresql.JSONB(), "postgresql"), nullable=False),
    sa.Column('nodes', sa.JSON().with_variant(postgresql.JSONB(), "postgresql"), nullable=False),
    sa.Column('axes', sa.JSON().with_variant(postgresql.JSONB(), "postgresql"), nullable=False),
    sa.Column('explanation', sa.JSON().with_variant(postgresql.JSONB(), "postgresql"), nullable=False),
    sa.Column('ranks', sa.JSON().with_variant(postgresql.JSONB(), "postgresql"), nullable=False),
    sa.Column('certified', sa.Boolean(), nullable=False),
    sa.Column('first_attempt', sa.Integer(), nullable=False),
    sa.Column('restarts_used', sa.Integer(), nullable=False),
    sa.Column('deaths_step', sa.Integer(), nullable=False),
    sa.Column('deaths_count', sa.Integer(), nullable=False),
    sa.Column('event_cursor', sa.BigInteger(), nullable=False),
    sa.Column('step_cursor', sa.BigInteger(), nullable=False),
    sa.Column('placed_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('started_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('ended_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('released_at', sa.DateTime(timezone=True), nullable=True),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_placements_job_id_jobs'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('job_id', 'incarnation', name=op.f('pk_placements'))
    )
    with op.batch_alter_table('placements', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_placements_released_at'), ['released_at'], unique=False)

    op.create_table('rank_logs',
    sa.Column('job_id', sa.String(length=36), nullable=False),
    sa.Column('attempt', sa.Integer(), nullable=False),
    sa.Column('rank', sa.Integer(), nullable=False),
    sa.Column('text', sa.Text(), nullable=False),
    sa.Column('size_bytes', sa.BigInteger(), nullable=False),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_rank_logs_job_id_jobs'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('job_id', 'attempt', 'rank', name=op.f('pk_rank_logs'))
    )


def downgrade() -> None:
    op.drop_table('rank_logs')
    with op.batch_alter_table('placements', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_placements_released_at'))

    op.drop_table('placements')
    op.drop_table('metrics')
    op.drop_table('events')
    op.drop_table('checkpoints')
    op.drop_table('attempts')
    op.drop_table('nodes')
    op.drop_table('leases')
    with op.batch_alter_table('jobs', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_jobs_state_id'))

    op.drop_table('jobs')
