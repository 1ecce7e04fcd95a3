"""From the files that a user names to a simulation. Formats are told by their content."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.simulate.discipline import Discipline
from orchestrator.simulate.faults import NodeChange, nodes_of, read_faults
from orchestrator.simulate.jobs import Assumptions
from orchestrator.simulate.outages import read_outages
from orchestrator.simulate.philly import HEADER, InvalidTraceError, read_philly
from orchestrator.simulate.report import Report
from orchestrator.simulate.simulation import Simulation
from orchestrator.simulate.snapshot import fabric_of, is_snapshot, jobs_of, read_snapshot
from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Slot
from orchestrator.topology.read import FabricFile, read_fabric
from orchestrator.topology.sources.reading import InvalidFabricError

MAX_CHARACTERS = 1 << 28
"""Of a trace; ten million jobs have fewer."""


@dataclass(frozen=True, slots=True)
class Scenario:
    trace: Path
    """A Philly trace or a snapshot."""
    fabric: Path | None = None
    """None: that of the snapshot."""
    faults: Path | None = None
    policy: str = "atoll"
    """A name of `discipline.NAMES` or a policy file."""
    without: tuple[str, ...] = ()
    """Parts of the fabric that die when the simulation begins: `leaf=l3`."""
    seed: int = 0
    limit_factor: float | None = None
    """Time limits for a trace that has none: see `philly.read_philly`."""
    faster: float = 1.0
    step_s: float = 1.0
    """Time of a step of jobs of a snapshot that have made none."""
    given: Assumptions = field(default_factory=Assumptions)


def run(scenario: Scenario) -> Report:
    """InvalidTraceError, InvalidFabricError or InvalidPolicyError for a file that cannot be taken."""
    discipline = Discipline.of(scenario.policy)
    text, origin = read_text(scenario.trace), str(scenario.trace)
    begin_s: float | None = None
    if is_snapshot(text):
        snapshot = read_snapshot(text, origin=origin)
        fabric = fabric_of(snapshot) if scenario.fabric is None else fabric_in(scenario.fabric)
        jobs = jobs_of(snapshot, origin=origin, step_s=scenario.step_s)
        begin_s = snapshot.at.timestamp()
    elif text.lstrip("\ufeff").startswith(HEADER):
        if scenario.fabric is None:
            raise InvalidTraceError(f"{origin} says nothing of a fabric: give one (--fabric FILE)")
        fabric = fabric_in(scenario.fabric)
        jobs = read_philly(
            text,
            origin=origin,
            island=largest_island(fabric),
            limit_factor=scenario.limit_factor,
            faster=scenario.faster,
            seed=scenario.seed,
        )
    else:
        known = f"a Philly trace begins with {HEADER!r}, a snapshot is a JSON object with a format"
        raise InvalidTraceError(f"{origin} is no trace that is known: {known}")
    simulation = Simulation(
        fabric,
        jobs,
        discipline,
        begin_s=begin_s,
        changes=changes_of(scenario, fabric),
        given=scenario.given,
        seed=scenario.seed,
    )
    return simulation.run()


def fabric_in(path: Path) -> Fabric:
    """The fabric in a topology file of any known format."""
    fabric = read_fabric([FabricFile.parse(str(path))]).fabric
    if not any(node.accelerators for node in fabric.nodes):
        what = "says of no node how many accelerators it has: no job can be placed on it"
        raise InvalidFabricError(str(path), [what])
    return fabric


def changes_of(scenario: Scenario, fabric: Fabric) -> list[NodeChange]:
    try:
        gone = [NodeChange(0.0, node, False) for part in scenario.without for node in nodes_of(fabric, part)]
    except ValueError as error:
        raise InvalidTraceError(f"--without {error}") from None
    if scenario.faults is None:
        return gone
    found = faults_of(scenario.faults, fabric, seed=scenario.seed)
    dead = {change.node for change in gone}
    return gone + [change for change in found if change.node not in dead]


def faults_of(path: Path, fabric: Fabric, *, seed: int) -> list[NodeChange]:
    """A fault trace of other nodes, or outages that name parts of this fabric."""
    text, origin = read_text(path), str(path)
    if '"event_type"' in text:
        return read_faults(text, fabric, origin=origin, seed=seed)
    return read_outages(text, fabric, origin=origin)


def largest_island(fabric: Fabric) -> int:
    """Accelerators of the largest known island; of the largest node where no island is known."""
    sizes = Counter[tuple[Tier, str]]()
    for node in fabric.nodes:
        for index in range(node.accelerators):
            island = fabric.domain(Slot(node.name, index), Tier.ISLAND)
            sizes[(Tier.ISLAND, island) if island is not None else (Tier.NODE, node.name)] += 1
    return max(sizes.values(), default=1)


def read_text(path: Path) -> str:
    """InvalidTraceError for a file that cannot be read, is no text, or too long."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except OSError as error:
        raise InvalidTraceError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InvalidTraceError(f"{path} is no UTF-8 text") from None
    if len(text) > MAX_CHARACTERS:
        raise InvalidTraceError(f"{path} has more than {MAX_CHARACTERS} characters")
    return text
