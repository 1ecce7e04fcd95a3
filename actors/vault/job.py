"""The vaults of a job on a Ray cluster: one detached actor a node, which outlives ranks, agents and supervisor.

A node's memory is gone with the node, so is its vault. A vault ends with its job, which its last supervisor sees to, or
the controller when that died; else by itself, once no rank of the job has been connected for `VAULT_HOLD_S`. Its memory
has no name and goes with its process, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from actors import naming
from actors.ray_environment import NAMESPACE
from actors.reaper import named_actors
from actors.vault import EXTRA
from actors.vault.actor import VaultActor
from actors.vault.server import Address
from orchestrator.lifecycle.reports import GangOrder
from orchestrator.recovery.partners import partners
from orchestrator.recovery.snapshots import Copy, Fence, plan_digest, restorable
from orchestrator.recovery.timeouts import VAULT_CALL_S, VAULT_HOLD_S, VAULT_START_S
from orchestrator.spec.job import JobSpec
from orchestrator.topology.fabric import Fabric, Slot


class Vaults:
    """The vaults as a supervisor sees them. Nothing here raises: a job without snapshots trains as well."""

    def __init__(self, order: GangOrder, spec: JobSpec) -> None:
        self._order = order
        self._spec = spec
        self._wanted = spec.checkpoint.memory
        self._met: set[str] = set()
        """Nodes whose vaults have answered."""
        self._serving: set[str] = set()
        """Nodes of the newest attempt."""
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Has the vaults started, and does not wait for them: agents start meanwhile."""
        if self._wanted.every:
            await self._handles(slot.node for slot in self._order.slots)

    async def open(self, attempt: int, slots: Sequence[Slot], fabric: Fabric) -> Mapping[str, Any]:
        """What the ranks of an attempt have to know of vaults, for their extras; empty when none are kept."""
        if not self._wanted.every:
            return {}
        nodes = dict.fromkeys(slot.node for slot in slots)
        handles = await self._handles(nodes)
        fence = (self._order.incarnation, attempt)
        answers = await asyncio.gather(
            *(self._ask(node, handle, fence, node in nodes) for node, handle in handles.items())
        )
        addresses = {answer[0].node: answer[0] for answer in answers if answer is not None}
        copies = [copy for answer in answers if answer is not None for copy in answer[1]]
        self._met |= addresses.keys()
        self._serving = set(nodes)
        homes = [slot.node for slot in slots]
        plan = plan_digest(self._spec.parallelism.model_dump(mode="json"), len(homes))
        found = restorable(copies, homes, plan)
        return {
            EXTRA: {
                "addresses": {node: asdict(address) for node, address in addresses.items()},
                "homes": homes,
                "partners": partners(slots, fabric, replicas=self._wanted.replicas),
                "plan": plan,
                "restorable": [
                    {"generation": r.generation.key, "sources": r.sources} for r in found.restorable
                ],
                "refused": found.refused,
            }
        }

    def renewed(self) -> None:
        """The attempt has a complete snapshot of its own: vaults on nodes that it has left are needed no more."""
        if self._wanted.every:
            job_id, serving = self._order.job_id, frozenset(self._serving)
            task = asyncio.get_running_loop().create_task(_quietly(lambda: end(job_id, but=serving)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """The job is over: all memory is given back."""
        if self._wanted.every:
            await _quietly(lambda: end(self._order.job_id))

    async def _handles(self, nodes: Iterable[str]) -> dict[str, Any]:
        """By node every vault of the job, those of `nodes` started where there is none."""

        def find() -> dict[str, Any]:
            import ray

            handles = {node: self._vault(node) for node in nodes}
            for node, name in _vaults_of(self._order.job_id).items():
                with contextlib.suppress(ValueError):  # gone meanwhile
                    handles.setdefault(node, ray.get_actor(name, NAMESPACE))
            return handles

        return await _quietly(find, VAULT_START_S) or {}

    def _vault(self, node: str) -> Any:
        import ray

        options = ray.remote(VaultActor).options(
            name=naming.vault_name(self._order.job_id, node),
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=0,
            num_cpus=0,
            label_selector={"host": node},
        )
        return options.remote(node, self._wanted.limit_bytes, VAULT_HOLD_S)

    async def _ask(
        self, node: str, handle: Any, fence: Fence, needed: bool
    ) -> tuple[Address, tuple[Copy, ...]] | None:
        """What a vault answers; None for one that is gone, too slow, or serves a newer attempt."""
        deadline_s = VAULT_START_S if needed and node not in self._met else VAULT_CALL_S
        try:
            answer: tuple[Address, tuple[Copy, ...]] = await asyncio.wait_for(
                _answer(handle.open.remote(fence)), deadline_s
            )
            return answer
        except Exception:  # Ray's errors, the vault's, or no answer: all of them mean that it is of no use
            return None


def jobs() -> set[str]:
    """Ids of the jobs of which a vault lives."""
    return {vault[0] for name in named_actors() if (vault := naming.vault_of(name)) is not None}


def end(job_id: str, but: Collection[str] = ()) -> None:
    """Ends the vaults of a job on all nodes but these."""
    import ray

    for node, name in _vaults_of(job_id).items():
        if node not in but:
            with contextlib.suppress(ValueError):  # gone meanwhile
                ray.kill(ray.get_actor(name, NAMESPACE), no_restart=True)


def _vaults_of(job_id: str) -> dict[str, str]:
    """By node the names of a job's living vaults."""
    found = {}
    for name in named_actors():
        vault = naming.vault_of(name)
        if vault is not None and vault[0] == job_id:
            found[vault[1]] = name
    return found


async def _answer(question: Any) -> Any:
    return await question


async def _quietly(work: Callable[[], Any], deadline_s: float = VAULT_CALL_S) -> Any:
    """The answer of a call of Ray, which may ask a head that never answers; None then."""
    try:
        return await asyncio.wait_for(asyncio.to_thread(work), deadline_s)
    except Exception:
        return None
