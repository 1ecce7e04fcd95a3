"""The device meshes of a job, all views of the one numbering of ranks that placement used.

| view | axes, outer to inner | what it is for |
| --- | --- | --- |
| `axes` | dp, pp, cp, tp | data, pipeline, context and tensor parallelism |
| `dense` | pp, replicate, tp, shard | parameters that every token passes |
| `expert` | pp, replicate, ep, shard | parameters of experts |
| `stage` | pp, stage | all ranks of one pipeline stage |
| `sequence` | block, sequence | the cp and tp ranks that share sequences |

`shard` holds the ranks over which ZeRO shards a parameter, `replicate` those that hold copies of its shards. Context
ranks count as data ranks for parameters: each sees other tokens. Experts have no tensor ranks; their `ep` groups lie
inside data x context x tensor ranks, nearest ranks first, and never cross a replica of sharded states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh

from orchestrator.placement.mesh import AXES, Mesh
from orchestrator.spec.sections import ParallelismSpec

CARRYING = {"tp", "cp", "pp", "replicate", "shard", "ep", "stage", "sequence"}
"""Axes whose groups carry traffic, in one view or another."""
FSDP_NEIGHBOURS = "mesh_dim_1"
"""Description of the groups that FSDP2 makes itself, where `reshard_after_forward` is a number."""


def set_default_timeout(timeout: timedelta) -> None:
    """Makes `timeout` the deadline of every group made from now on.

    Sub-groups and mesh axes take c10d's module default (30 minutes) and not the deadline given to
    `init_process_group`; changing it afterwards does not reach point-to-point receives.
    """
    distributed_c10d.default_pg_timeout = timeout
    distributed_c10d.default_pg_nccl_timeout = timeout  # type: ignore[attr-defined]


@dataclass(frozen=True)
class View:
    """One arrangement of the world, and where this rank sits in it."""

    devices: DeviceMesh
    coordinates: dict[str, int]

    def group(self, axis: str) -> dist.ProcessGroup:
        return self.devices.get_group(axis)

    def size(self, axis: str) -> int:
        return self.devices.size(self._names.index(axis))

    def part(self, axes: Sequence[str]) -> DeviceMesh:
        """The mesh of `axes` alone, in this view's order."""
        ordered = tuple(name for name in self._names if name in axes)
        return self.devices[ordered]

    @property
    def _names(self) -> tuple[str, ...]:
        names = self.devices.mesh_dim_names
        assert names is not None
        return names


@dataclass(frozen=True)
class RankMesh:
    """A job's views and where this rank sits on the axes of parallelism."""

    parallelism: ParallelismSpec
    axes: View
    dense: View
    stage: View
    expert: View | None
    """None without experts, as is `sequence`."""
    sequence: View | None

    @property
    def coordinates(self) -> dict[str, int]:
        """Coordinates on tp, cp, pp and dp."""
        return self.axes.coordinates

    def group(self, axis: str) -> dist.ProcessGroup:
        return self.axes.group(axis)

    def view(self, expert: bool) -> View:
        if not expert:
            return self.dense
        assert self.expert is not None, "the model has experts"
        return self.expert

    def axis_of(self, group: dist.ProcessGroup) -> str | None:
        """The axis of parallelism whose traffic `group` carries; None: nothing of a step passes it.

        `dp`: gradients of replicas. `shard`: what ZeRO gathers and scatters. `ep`: rows of experts, and what ranks that
        share sequences tell each other to route them. `control`: norm, loss and loads, a few numbers a step.
        """
        known = self._axes_by_group.get(group)
        if known is None and group.group_desc == FSDP_NEIGHBOURS and self.parallelism.zero == 3:
            return "shard"
        return known

    @cached_property
    def _axes_by_group(self) -> dict[dist.ProcessGroup, str]:
        groups = {self.axes.group(axis): axis for axis in ("tp", "cp", "pp") if self.axes.size(axis) > 1}
        for view in (self.dense, self.expert):
            for name, axis in (("replicate", "dp"), ("shard", "shard"), ("ep", "ep")):
                if view is not None and name in view.coordinates and view.size(name) > 1:
                    groups[view.group(name)] = axis
        if self.sequence is not None and self.sequence.size("sequence") > 1:
            groups[self.sequence.group("sequence")] = "ep"
        if self.stage.size("stage") > 1:
            groups[self.stage.group("stage")] = "control"
        if dist.get_world_size() > 1:
            groups[distributed_c10d._get_default_group()] = "control"
        return groups


def build_mesh(parallelism: ParallelismSpec, device: torch.device, *, rank: int, experts: bool) -> RankMesh:
    """The views over the world. Collective: every rank of the job calls it."""
    mesh = Mesh.of(parallelism)
    if mesh.size != dist.get_world_size():
        raise ValueError(
            f"parallelism: tp x cp x pp x dp = {mesh.size} ranks, but the world has {dist.get_world_size()}; "
            "start as many ranks as the plan has"
        )
    outer_to_inner = tuple(reversed(AXES))
    numbering = torch.arange(mesh.size).view([mesh.degree(axis) for axis in outer_to_inner])
    here = mesh.coordinates(rank)
    assert int(numbering[tuple(here[axis] for axis in outer_to_inner)]) == rank, (
        "placement numbers ranks otherwise"
    )

    def view(arrangement: Tensor, *names: str) -> View:
        place = (arrangement == rank).nonzero()[0].tolist()
        devices = DeviceMesh(
            device.type,
            arrangement.contiguous(),
            mesh_dim_names=names,
            backend_override=tuple(
                (own_group(name, size), None) for name, size in zip(names, arrangement.shape, strict=True)
            ),
        )
        return View(devices, dict(zip(names, place, strict=True)))

    def own_group(axis: str, size: int) -> str | None:
        """An axis over the whole world would get the world's group, and its traffic could not be told from others'."""
        alone = size == mesh.size > 1 and axis in CARRYING
        return dist.get_default_backend_for_device(device) if alone else None

    tp, pp, cp, ep = (getattr(parallelism, axis) for axis in ("tp", "pp", "cp", "ep"))
    shards = parallelism.shards
    stages = numbering.movedim(outer_to_inner.index("pp"), 0)  # pp, dp, cp, tp
    # Without ZeRO every data rank is a replica; with it, context ranks share the shards.
    replicas, sharing = (
        (parallelism.dp // shards, shards * cp) if parallelism.zero else (parallelism.dp * cp, 1)
    )
    dense = stages.reshape(pp, replicas, sharing, tp).transpose(2, 3)
    expert = sequence = None
    if experts:
        copies = replicas if parallelism.zero else replicas * tp // ep
        folded = stages.reshape(pp, copies, -1, ep).transpose(2, 3)
        expert = view(folded, "pp", "replicate", "ep", "shard")
        sequence = view(stages.reshape(-1, cp * tp), "block", "sequence")
    return RankMesh(
        parallelism,
        axes=view(numbering, *outer_to_inner),
        dense=view(dense, "pp", "replicate", "tp", "shard"),
        stage=view(stages.reshape(pp, -1), "pp", "stage"),
        expert=expert,
        sequence=sequence,
    )
