"""`atoll fabric`: what the network looks like."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from atoll.cli.connection import Json
from atoll.cli.fabric_probe import probe
from atoll.cli.output import print_json, standard_output
from atoll.errors import AtollError
from orchestrator.spec.sections import Tier
from orchestrator.topology.combine import Combined
from orchestrator.topology.fabric import SWITCH_TIERS, Fabric, Node
from orchestrator.topology.read import FabricFile, read_fabric
from orchestrator.topology.sources.reading import InvalidFabricError, counted

fabric = typer.Typer(
    name="fabric", help="Shows and measures the network that jobs are placed on.", no_args_is_help=True
)

fabric.command("probe")(probe)

SHOWN_NODES = 40
LINK_TIERS = (Tier.ISLAND, Tier.NODE, Tier.LEAF, Tier.SPINE, Tier.CORE)


class FabricError(AtollError):
    """Files that give no fabric."""


@fabric.command("show")
def show(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Topology files; what they hold is told by their content. NODES=FILE says of which nodes a file is "
            "that describes the inside of one (nvidia-smi, NCCL).",
        ),
    ],
    as_json: Json = False,
) -> None:
    """Shows nodes, GPUs and domains that topology files describe, and what is wrong in them. Needs no server."""
    try:
        combined = read_fabric([FabricFile.parse(file) for file in files])
    except InvalidFabricError as error:
        raise FabricError(str(error)) from None
    if as_json:
        print_json(fabric_json(combined))
    else:
        print_fabric(standard_output(), combined)


def fabric_json(combined: Combined) -> dict[str, Any]:
    """What `--json` prints: nodes in natural order, tiers nearest first."""
    return {
        "nodes": [_node_json(node) for node in combined.fabric.nodes],
        "tiers": [_tier_json(combined.fabric, tier) for tier in known_tiers(combined.fabric)],
        "problems": [
            {"file": problem.file, "line": problem.line, "message": problem.message}
            for problem in combined.problems
        ],
        "facts": dict(combined.facts),
    }


def _node_json(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": node.name,
        "gpus": node.accelerators,
        "domains": {tier.value: node.domains[tier] for tier in SWITCH_TIERS if tier in node.domains},
    }
    if node.islands:
        found["islands"] = {str(index): node.islands[index] for index in sorted(node.islands)}
    if node.rails:
        found["rails"] = {str(index): list(node.rails[index]) for index in sorted(node.rails)}
    if node.weak_pairs:
        found["weak_pairs"] = [list(pair) for pair in sorted(node.weak_pairs)]
    if node.partitioned:
        found["partitioned"] = sorted(node.partitioned)
    return found | {"accelerator": node.accelerator, "alive": node.alive, "schedulable": node.schedulable}


def _tier_json(fabric: Fabric, tier: Tier) -> dict[str, Any]:
    link = fabric.links.get(tier)
    return {
        "tier": tier.value,
        "domains": len(domains_at(fabric, tier)),
        "kind": link.kind if link else None,
        "bandwidth_bytes_per_s": link.bandwidth if link else None,
        "latency_s": link.latency_s if link else None,
        "uplink_bytes_per_s": link.uplink if link else None,
    }


def known_tiers(fabric: Fabric) -> list[Tier]:
    """Tiers of which a domain or a link is known, nearest first."""
    return [
        tier
        for tier in LINK_TIERS
        if tier in fabric.links or (tier is not Tier.NODE and domains_at(fabric, tier))
    ]


def domains_at(fabric: Fabric, tier: Tier) -> set[str]:
    """Names of all domains of a tier; at tier `node` the nodes."""
    if tier is Tier.NODE:
        return {node.name for node in fabric.nodes}
    found = {node.domains[tier] for node in fabric.nodes if tier in node.domains}
    if tier is Tier.ISLAND:
        found |= {island for node in fabric.nodes for island in node.islands.values()}
    return found


def print_fabric(console: Console, combined: Combined) -> None:
    fabric = combined.fabric
    gpus = sum(node.accelerators for node in fabric.nodes)
    console.print(f"{counted(len(fabric.nodes), 'node')}, {counted(gpus, 'GPU') if gpus else 'GPUs unknown'}")
    for tier in known_tiers(fabric):
        console.print(f"  {_tier_text(fabric, tier)}")
    for name, count in combined.facts.items():
        console.print(f"  {count} {escape(name)}", style="dim")
    if fabric.nodes:
        console.print(table_of_nodes(fabric))
    for problem in combined.problems:
        where = problem.file if problem.line is None else f"{problem.file}:{problem.line}"
        console.print(f"[yellow]{escape(where)}[/]: {escape(problem.message)}", soft_wrap=True)


def _tier_text(fabric: Fabric, tier: Tier) -> str:
    count = len(domains_at(fabric, tier))
    link = fabric.links.get(tier)
    parts = [f"{tier.value:7}{count:6} domain{'' if count == 1 else 's'}"]
    if link is not None:
        parts.append(link.kind or "link class unknown")
        if link.bandwidth is not None:
            parts.append(f"{link.bandwidth / 1e9:.1f} GB/s a GPU")
        if link.uplink is not None:
            parts.append(f"{link.uplink / 1e9:.1f} GB/s up from each domain below")
    return escape(", ".join(parts))


def table_of_nodes(fabric: Fabric) -> Table:
    """The first nodes with their domains; in a pipe all columns are kept."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("NODE", "STATE", "GPUS", "ISLAND", "LEAF", "SPINE", "CORE", "NICS"):
        table.add_column(heading, no_wrap=True)
    for node in fabric.nodes[:SHOWN_NODES]:
        table.add_row(*(escape(cell) for cell in _cells(node)))
    if len(fabric.nodes) > SHOWN_NODES:
        table.caption = f"{len(fabric.nodes) - SHOWN_NODES} more nodes; --json lists all"
    return table


def _cells(node: Node) -> list[str]:
    islands = [node.domains[Tier.ISLAND]] if Tier.ISLAND in node.domains else []
    for label in sorted(set(node.islands.values())):
        members = [str(index) for index, island in sorted(node.islands.items()) if island == label]
        islands.append(f"{label} [{','.join(members)}]")
    nics = [f"{index}:{'|'.join(node.rails[index])}" for index in sorted(node.rails)]
    return [
        node.name,
        "absent" if not node.alive else "" if node.schedulable else "cordoned",
        str(node.accelerators) if node.accelerators else "?",
        " ".join(islands) or "?",
        *(node.domains.get(tier, "?") for tier in (Tier.LEAF, Tier.SPINE, Tier.CORE)),
        " ".join(nics) or "?",
    ]
