"""Links of the cluster, one a tier, as the controller last knew them: what costs of plans and placements rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from orchestrator.spec.sections import Tier
from orchestrator.store.tables import ClusterLink
from orchestrator.topology.links import Link


def replace(session: Session, links: Mapping[Tier, Link]) -> None:
    """Stores `links` in the place of those known before; writes nothing where they are the same."""
    if links == known(session):
        return
    session.execute(delete(ClusterLink))
    session.add_all(ClusterLink(tier=tier.value, **asdict(link)) for tier, link in links.items())


def known(session: Session) -> dict[Tier, Link]:
    """By tier, nearest first. A tier that a newer version wrote is left out."""
    rows = {row.tier: row for row in session.scalars(select(ClusterLink))}
    return {tier: _link(rows[tier.value]) for tier in Tier if tier.value in rows}


def _link(row: ClusterLink) -> Link:
    return Link(row.kind, row.bandwidth, row.latency_s, row.uplink, row.measured)
