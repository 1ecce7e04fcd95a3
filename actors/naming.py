"""Names of actors and placement groups. Each carries job and incarnation, so nothing stale is ever taken for new."""

from __future__ import annotations

import re

from orchestrator.lifecycle.ports import GangRef

_NAME = re.compile(r"atoll/(?P<job>[^/]+)/(?P<incarnation>[1-9]\d*)(?:(?P<agent>/agent/.+)|/slots/.+)?")
_VAULT = re.compile(r"atoll/(?P<job>[^/]+)/vault/(?P<node>.+)")


def gang_name(gang: GangRef) -> str:
    """Name of the supervisor."""
    return f"atoll/{gang.job_id}/{gang.incarnation}"


def slots_name(gang: GangRef, node: str, generation: int) -> str:
    """Name of the placement group that reserves a gang's slots of one node; `generation` as in `agent_name`."""
    return f"{gang_name(gang)}/slots/{node}/{generation}"


def agent_name(gang: GangRef, node: str, generation: int) -> str:
    """Name of a node's agent; `generation` counts the agents this gang has had on that node."""
    return f"{gang_name(gang)}/agent/{node}/{generation}"


def gang_of(name: str) -> GangRef | None:
    """The gang a name belongs to; None for a name that is not ours."""
    match = _NAME.fullmatch(name)
    return GangRef(match["job"], int(match["incarnation"])) if match else None


def is_agent(name: str) -> bool:
    match = _NAME.fullmatch(name)
    return match is not None and match["agent"] is not None


def vault_name(job_id: str, node: str) -> str:
    """Name of a node's vault. It is the job's, not a gang's: it outlives them."""
    return f"atoll/{job_id}/vault/{node}"


def vault_of(name: str) -> tuple[str, str] | None:
    """(job id, node) of a vault's name; None for any other."""
    match = _VAULT.fullmatch(name)
    return (match["job"], match["node"]) if match else None
