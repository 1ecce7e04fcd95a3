"""`atoll fabric probe`: measures the network between the nodes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from atoll.cli.connection import Json
from atoll.cli.messages import standard_error
from atoll.cli.output import print_json, standard_output
from atoll.errors import AtollError, ServerUnreachableError
from orchestrator.settings import InvalidSettingsError, read_settings
from orchestrator.topology.fabric import Fabric
from orchestrator.topology.links import Link
from orchestrator.topology.merge import merge
from orchestrator.topology.probe.findings import Findings, Measurement, findings, rate_text
from orchestrator.topology.read import FabricFile, read_fabric
from orchestrator.topology.sources.ray_labels import fabric_from_ray_nodes
from orchestrator.topology.sources.reading import InvalidFabricError, counted
from orchestrator.topology.write import fabric_to_yaml

if TYPE_CHECKING:
    from actors.probe import Probed


class ProbeError(AtollError):
    """A probe that cannot be made."""


def probe(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE...]",
            help="Topology files that say what Ray's labels do not, as for `atoll fabric show`.",
        ),
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Ray cluster to measure. (default: RAY_ADDRESS)"),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, max=10_000, help="Most rounds of a tier, single and loaded ones each.")
    ] = 8,
    seconds: Annotated[
        float, typer.Option(min=0.05, max=60.0, help="How long a pair sends each way, about.")
    ] = 0.5,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the fabric with measured numbers, as a fabric file."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measures bandwidth and latency between nodes, tier by tier, each accelerator in one pair a round.

    Takes accelerators that nobody holds; nodes without one are left out. Says what confirms, contradicts or completes
    what labels and files declare, and which links are bad. Needs no server; exit code 3 when no cluster answers.
    """
    declared = _declared(files or [])
    address = ray_address or _address_of_settings()
    console = standard_error()
    probed = _measured(address, declared, rounds, seconds, lambda line: console.print(escape(line)))
    found = findings(probed.fabric, probed.measurements)
    if not found.tiers and not found.bad:
        why = "; ".join(f"{node}: {reason}" for node, reason in probed.skipped.items())
        raise ProbeError(
            f"nothing could be measured: a pair needs two free accelerators ({why or 'no nodes'})"
        )
    if out is not None:
        _write(out, found)
    if as_json:
        print_json(probe_json(found, probed))
    else:
        _print(standard_output(), found, probed)
        if out is not None:
            console.print(f"written to {escape(str(out))}")


def _declared(files: list[str]) -> Fabric | None:
    if not files:
        return None
    try:
        return read_fabric([FabricFile.parse(file) for file in files]).fabric
    except InvalidFabricError as error:
        raise ProbeError(str(error)) from None


def _address_of_settings() -> str:
    try:
        address = read_settings().ray_address
    except InvalidSettingsError as error:
        raise ProbeError(str(error)) from None
    if address is None:
        raise ProbeError("say which cluster to measure: --ray-address HOST:PORT, or RAY_ADDRESS")
    return address


def _measured(
    address: str, declared: Fabric | None, rounds: int, seconds: float, told: Callable[[str], None]
) -> Probed:
    from actors import ray_environment  # Ray: seconds that other verbs need not wait for

    try:
        ray_environment.connect(address)
    except ValueError:
        raise ProbeError(f"--ray-address {address}: expected HOST:PORT") from None
    except (OSError, RuntimeError) as error:
        raise ServerUnreachableError(f"no Ray cluster answers at {address}: {error}") from None
    from actors import ray_nodes
    from actors.probe import probe as run

    seen = fabric_from_ray_nodes(ray_nodes.nodes())
    fabric = seen if declared is None else merge(declared, seen).fabric
    return run(fabric, most=rounds, seconds=seconds, told=told)


def _write(path: Path, found: Findings) -> None:
    notes = ["Measured by `atoll fabric probe`.", *found.messages, *(link.message for link in found.bad)]
    try:
        path.write_text(fabric_to_yaml(found.fabric, notes=notes), encoding="utf-8")
    except OSError as error:
        raise ProbeError(f"--out {path}: cannot be written: {error.strerror or error}") from None


def probe_json(found: Findings, probed: Probed) -> dict[str, Any]:
    """What `--json` prints: tiers nearest first, rates in bytes per second."""
    return {
        "tiers": [
            {
                "tier": tier.tier.value,
                "pairs": tier.pairs,
                **_link_json(tier.measured),
                "declared": _link_json(tier.declared),
            }
            for tier in found.tiers
        ],
        "messages": list(found.messages),
        "bad": [
            {
                "tier": link.tier.value,
                "where": link.where,
                "nodes": list(link.nodes),
                "share": link.share,
                "message": link.message,
            }
            for link in found.bad
        ],
        "skipped": dict(probed.skipped),
        "measurements": [_measurement_json(one) for one in probed.measurements],
    }


def _link_json(link: Link) -> dict[str, Any]:
    return {
        "kind": link.kind,
        "bandwidth_bytes_per_s": link.bandwidth,
        "latency_s": link.latency_s,
        "uplink_bytes_per_s": link.uplink,
    }


def _measurement_json(one: Measurement) -> dict[str, Any]:
    return {
        "a": {"node": one.pair.a.node, "index": one.pair.a.index},
        "b": {"node": one.pair.b.node, "index": one.pair.b.index},
        "tier": one.tier.value,
        "round": one.number,
        "loaded": one.loaded,
        "a_to_b_bytes_per_s": one.out,
        "b_to_a_bytes_per_s": one.back,
        "latency_s": one.latency_s,
        "error": one.error,
    }


def _print(console: Console, found: Findings, probed: Probed) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("TIER", "PAIRS", "A PAIR ALONE", "LATENCY", "UPLINK, ALL AT ONCE"):
        table.add_column(heading, no_wrap=True)
    for tier in found.tiers:
        link = tier.measured
        assert link.bandwidth is not None
        assert link.latency_s is not None
        uplink = "not the bottleneck" if link.uplink is None else rate_text(link.uplink)
        table.add_row(
            tier.tier.value,
            str(tier.pairs),
            rate_text(link.bandwidth),
            f"{link.latency_s * 1e6:.3g} us",
            uplink if any(m.loaded and m.tier is tier.tier for m in probed.measurements) else "not measured",
        )
    console.print(table)
    for message in found.messages:
        console.print(escape(message))
    for bad in found.bad:
        console.print(f"[bold red]bad[/] {escape(bad.message)}", soft_wrap=True)
    if probed.skipped:
        console.print(f"[yellow]{counted(len(probed.skipped), 'node')} not measured[/]:")
        for node, reason in probed.skipped.items():
            console.print(f"  {escape(node)}: {escape(reason)}")
