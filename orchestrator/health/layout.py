"""What the ranks of a recording are, and which of them do equal work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PHASES = ("fwd_s", "bwd_s", "recv_s", "send_s", "coll_s", "gc_s", "wall_s")
"""What a step is made of where phases are measured: seconds of computing forward and backward, of waiting to
receive and to send along the pipeline, of waiting in collectives, of garbage collection, and of the whole step."""
WHOLE = ("step_time",)
"""What is measured where ranks do not wait for each other (parameter server): one time a rank and step, in any
unit."""
RANKS_A_NODE = 8
"""Ranks numbered side by side that are taken for one node where nodes are not named."""


@dataclass(frozen=True)
class Layout:
    """Ranks in rising order and what each does. Sequences have one entry a rank."""

    ranks: tuple[int, ...]
    stage: tuple[int, ...]
    replica: tuple[int, ...]
    """dp_rank: which pipeline the rank is part of."""
    node: tuple[str, ...]
    role: tuple[str, ...]
    columns: tuple[str, ...] = PHASES
    nodes_named: bool = field(default=False)

    @classmethod
    def of(
        cls,
        ranks: tuple[int, ...],
        *,
        stage: Mapping[int, int] | None = None,
        replica: Mapping[int, int] | None = None,
        node: Mapping[int, str] | None = None,
        role: Mapping[int, str] | None = None,
        columns: tuple[str, ...] = PHASES,
        ranks_a_node: int = RANKS_A_NODE,
    ) -> Layout:
        """What is left out: one stage, one replica a rank, nodes of `ranks_a_node`, one role."""
        ranks = tuple(sorted(ranks))
        return cls(
            ranks=ranks,
            stage=tuple((stage or {}).get(rank, 0) for rank in ranks),
            replica=tuple((replica or {}).get(rank, i) for i, rank in enumerate(ranks)),
            node=tuple(node[rank] if node else str(rank // ranks_a_node) for rank in ranks),
            role=tuple((role or {}).get(rank, "") for rank in ranks),
            columns=columns,
            nodes_named=node is not None,
        )

    def __len__(self) -> int:
        return len(self.ranks)

    @property
    def phased(self) -> bool:
        return self.columns == PHASES

    @cached_property
    def groups(self) -> tuple[NDArray[np.intp], ...]:
        """Peer groups: places (not rank numbers) of the ranks with one stage and role, by stage."""
        members: dict[tuple[int, str], list[int]] = {}
        for place, key in enumerate(zip(self.stage, self.role, strict=True)):
            members.setdefault(key, []).append(place)
        return tuple(np.array(members[key]) for key in sorted(members))

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Places of neighbours in a pipeline, sender forward first; none where a stage has several ranks a
        replica."""
        at: dict[tuple[int, int], list[int]] = {}
        for place, key in enumerate(zip(self.replica, self.stage, strict=True)):
            at.setdefault(key, []).append(place)
        if any(len(places) > 1 for places in at.values()):
            return ()
        nexts = {key: (key[0], key[1] + 1) for key in at}
        return tuple((at[key][0], at[after][0]) for key, after in sorted(nexts.items()) if after in at)

    @cached_property
    def pair_groups(self) -> tuple[NDArray[np.intp], ...]:
        """Places in `pairs` of the links between the same two stages."""
        members: dict[int, list[int]] = {}
        for i, (sender, _) in enumerate(self.pairs):
            members.setdefault(self.stage[sender], []).append(i)
        return tuple(np.array(members[stage]) for stage in sorted(members))
