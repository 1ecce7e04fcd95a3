"""What is trained on what: decoders so small that two cores compute a step in a fraction of what the network takes, and
with few, large messages: every one of them waits until the kernel has woken the process that it is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fabric.network import GOODPUT, Wiring
from orchestrator.spec.job import JobSpec
from orchestrator.spec.parse import parse_spec
from orchestrator.spec.sections import Tier
from orchestrator.topology.links import Link

FREE = {axis: {"tier": "any", "mode": "preferred"} for axis in ("tp", "pp", "dp")}
"""No rule: what a placement costs decides alone."""
MEMORY = Link("memory", 600e6, 50e-6)
"""Inside a node gloo's bytes pass the kernel's loopback, which is not shaped: about 5 Gbit/s, as was seen."""
LATENCY_S = 100e-6
TEXT = "A ring of islands around a lagoon. " * 1200
"""What is trained on: enough for some steps, and little, since every turn sends it to all ranks."""


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    what: str
    plan: Mapping[str, int]
    hidden: int
    tokens: int
    """Of a micro-batch."""
    free_nodes: int
    """Under each leaf; another job holds the others."""
    uplink_mbit: float
    matters: bool = True
    """Whether a good placement is worth much here, and must show it."""

    def spec(self, text: Path) -> JobSpec:
        """`text`: the file that is trained on."""
        plan, hidden = self.plan, self.hidden
        return parse_spec(
            {
                "name": self.name,
                "model": {"layers": 2, "hidden": hidden, "heads": 4, "kv_heads": 4, "ffn_hidden": 3 * hidden},
                "parallelism": {**plan, "schedule": "1f1b"},
                "training": {
                    "steps": 1000,
                    "global_batch": plan["dp"] * plan["microbatches"],
                    "sequence_length": self.tokens,
                    "precision": "fp32",
                    "eval_every": 0,
                },
                "data": {"source": str(text), "tokenizer": "bytes"},
                "placement": FREE,
            }
        )

    def links(self, wiring: Wiring) -> dict[Tier, Link]:
        """What the wiring is declared to carry."""
        node, uplink = (mbit * 1e6 / 8 * GOODPUT for mbit in (wiring.node_mbit, self.uplink_mbit))
        delay = LATENCY_S + 2 * wiring.uplink_delay_s
        return {
            Tier.ISLAND: MEMORY,
            Tier.NODE: MEMORY,
            Tier.LEAF: Link("veth", node, LATENCY_S, node),
            Tier.SPINE: Link("veth", min(node, uplink), delay, uplink),
        }


WIRING = Wiring(leaves=2, nodes=4, node_mbit=50, uplink_mbit=10)
SLOTS = 2
"""Of each node."""

JOBS = (
    Job(
        "activations8",
        "8 ranks; most bytes in tensor groups, as long sequences make them",
        {"tp": 2, "pp": 2, "dp": 2, "microbatches": 2},
        hidden=64,
        tokens=256,
        free_nodes=2,
        uplink_mbit=10,
    ),
    Job(
        "gradients8",
        "8 ranks; most bytes in data groups, as few tokens a step make them",
        {"tp": 2, "pp": 2, "dp": 2, "microbatches": 2},
        hidden=128,
        tokens=32,
        free_nodes=2,
        uplink_mbit=10,
    ),
    Job(
        "activations16",
        "16 ranks; most bytes in tensor groups; data groups of four",
        {"tp": 2, "pp": 2, "dp": 4, "microbatches": 2},
        hidden=64,
        tokens=128,
        free_nodes=4,
        uplink_mbit=10,
    ),
    Job(
        "wide8",
        "8 ranks, uplinks as wide as all nodes below them together",
        {"tp": 2, "pp": 2, "dp": 2, "microbatches": 2},
        hidden=64,
        tokens=256,
        free_nodes=2,
        uplink_mbit=200,
        matters=False,
    ),
)
