"""Health: which ranks, nodes and links of a job are slow, and the heat map of rank and step."""

from __future__ import annotations

from api.schemas.jobs import Body
from orchestrator.health.finding import Category, Clock
from orchestrator.spec.sections import Stragglers


class FindingView(Body):
    attempt: int
    category: Category | str
    """`straggler`: a rank, node or link is slow. `imbalance`: work is not evenly spread, which is no machine's fault.
    `watch`: too little or too short to be called slow."""
    kind: str
    """Of a straggler `constant`, `onset`, `transient`, `periodic`, `node`, `data_loader`, `gc`, `link`; of an imbalance
    `stage`, `replica`, `rotating`; else `trend`, `spike`."""
    subject: str
    """`rank 5`, `node n3`, `link 2-6`."""
    ranks: list[int]
    nodes: list[str]
    from_step: int
    to_step: int
    factor: float
    """Its time over its peers'."""
    cost_s: float
    """What the job lost to it so far, seconds by `clock`."""
    step_cost_s: float
    confidence: float
    """0 to 1."""
    ongoing: bool
    clock: Clock | str
    """By which time computing was judged: `wall`; `cpu` where ranks share cores; `device`, the accelerator's own."""
    sentence: str


class HealthView(Body):
    policy: Stragglers | str
    """`health.stragglers` of the job file."""
    healthy: bool
    """No rank, node or link is slow now. True as well while nothing is known."""
    heatmap_attempts: list[int]
    """Attempts of which a heat map is kept, newest first."""
    findings: list[FindingView]
    """Newest attempt first, then by first step."""


class HeatMapBlockView(Body):
    columns: list[tuple[int, int, int]]
    """First step, last step and number of measured steps of each."""
    scale_s: dict[str, float]
    """Seconds of one unit, by plane."""
    cells: dict[str, str]
    """By plane, base64 of little-endian 16-bit numbers, row by row; 65535: not measured. `compute`: mean over the
    steps of the column; `slowest`: the longest of them; `wait`: mean time of waiting for other ranks."""


class HeatMapView(Body):
    attempt: int | None
    """Null: nothing is kept yet."""
    ranks: int
    ranks_a_row: int
    """Of several ranks in a row the one that computes longest and the one that waits least are shown."""
    blocks: list[HeatMapBlockView]
    """Oldest first."""


class NodeBlame(Body):
    node: str
    attempts: int
    """Attempts of any job in which it was slow."""
    jobs: int
    cost_s: float
    newest: str
    """The newest sentence said of it."""


class BlameView(Body):
    items: list[NodeBlame]
    """The most blamed first."""
