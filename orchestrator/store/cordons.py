"""Cordons: nodes that no job is placed on, by whom and why. They outlive the node's absence; people lift them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from orchestrator.store.tables import NodeCordon


def put(session: Session, node: str, *, at: datetime, who: str, reason: str) -> NodeCordon:
    """Cordons the node; one that is cordoned stays so, as it was first said."""
    row = session.get(NodeCordon, node)
    if row is None:
        row = NodeCordon(node=node, at=at, who=who, reason=reason)
        session.add(row)
        session.flush()
    return row


def lift(session: Session, node: str) -> None:
    """The node takes work again; lifting what is not there changes nothing."""
    row = session.get(NodeCordon, node)
    if row is not None:
        session.delete(row)
        session.flush()


def by_node(session: Session) -> Mapping[str, NodeCordon]:
    return {row.node: row for row in session.scalars(select(NodeCordon))}
