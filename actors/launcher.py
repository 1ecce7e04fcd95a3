"""RayLauncher: the control plane's hands on a Ray cluster. Implements `orchestrator.lifecycle.ports.Launcher`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from actors import naming, ray_environment, reaper
from actors.ray_environment import NAMESPACE
from orchestrator.lifecycle.ports import (
    ClusterUnreachableError,
    FencedError,
    GangRef,
    LogChunk,
    SupervisorGoneError,
)
from orchestrator.lifecycle.reports import GangOrder, GangReport, Move, NoMove
from orchestrator.recovery.timeouts import CONTROL_CALL_S as CALL_S
from orchestrator.recovery.timeouts import LONGEST_ACT_S, SUPERVISOR_START_S, BaseTimes
from orchestrator.topology.fabric import Fabric
from orchestrator.topology.sources.ray_labels import fabric_from_ray_nodes

Answer = TypeVar("Answer")


class RayLauncher:
    """Every call returns or raises within its deadline, also when Ray itself hangs. Safe to call from several threads.

    `local`: the cluster is one of `actors.local_cluster`. `base`: the times that supervisors derive theirs from.
    """

    def __init__(self, address: str, *, local: bool = False, base: BaseTimes | None = None) -> None:
        self._base = base or BaseTimes()
        self._supervisors: dict[GangRef, Any] = {}
        self._connect(address, local)

    def fabric(self) -> Fabric:
        from actors import ray_nodes

        return fabric_from_ray_nodes(_within(CALL_S, ray_nodes.nodes))

    def gangs(self) -> Sequence[GangRef]:
        found = {naming.gang_of(name) for name in _within(CALL_S, reaper.named_actors)}
        found |= {naming.gang_of(group["name"]) for group in _within(CALL_S, reaper.placement_groups)}
        return sorted((gang for gang in found if gang), key=lambda gang: (gang.job_id, gang.incarnation))

    def remembered(self) -> Sequence[str]:
        from actors.vault import job

        return sorted(_within(CALL_S, job.jobs))

    def forget(self, job_id: str) -> None:
        from actors.vault import job

        _within(CALL_S, lambda: job.end(job_id))

    def start(self, order: GangOrder) -> None:
        gang = GangRef(order.job_id, order.incarnation)

        def create() -> Any:
            import ray

            from actors.supervisor import Supervisor

            actor: Any = (
                ray.remote(Supervisor)
                .options(
                    name=naming.gang_name(gang),
                    namespace=NAMESPACE,
                    lifetime="detached",
                    get_if_exists=True,
                    max_restarts=0,
                    num_cpus=0,
                    **_away_from({slot.node for slot in order.slots}),
                )
                .remote(order, self._base)
            )
            actor.begin.remote()
            return actor

        self._supervisors[gang] = _within(SUPERVISOR_START_S, create)

    def poll(self, gang: GangRef, *, event_cursor: int, step_cursor: int, fencing_token: int) -> GangReport:
        question = ("poll", event_cursor, step_cursor, fencing_token)
        report: GangReport = self._ask(gang, *question)
        return report

    def cancel(self, gang: GangRef, *, fencing_token: int) -> None:
        self._ask(gang, "cancel", fencing_token)

    def vacate(self, gang: GangRef, *, grace_s: float, fencing_token: int) -> None:
        self._ask(gang, "vacate", grace_s, fencing_token)

    def move(self, gang: GangRef, answer: Move | NoMove, *, fencing_token: int) -> None:
        self._ask(gang, "move", answer, fencing_token)

    def read_log(self, gang: GangRef, *, rank: int, attempt: int | None, offset: int, limit: int) -> LogChunk:
        chunk: LogChunk = self._ask(gang, "read_log", rank, attempt, offset, limit)
        return chunk

    def reap(self, gang: GangRef) -> bool:
        """The supervisor goes first, so that it starts nothing more; agents end their ranks before they go."""
        self._supervisors.pop(gang, None)
        return _within(LONGEST_ACT_S, lambda: reaper.reap(gang))

    def _connect(self, address: str, local: bool) -> None:
        # In the calling thread: Ray wants the main one where there is a choice.
        try:
            ray_environment.connect(address, local=local)
        except (OSError, RuntimeError) as error:
            raise ClusterUnreachableError(f"no Ray cluster answers at {address}: {error}") from error

    def _ask(self, gang: GangRef, method: str, *arguments: Any) -> Any:
        import ray
        from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError, RayError

        def ask() -> Any:
            if gang not in self._supervisors:
                self._supervisors[gang] = ray.get_actor(naming.gang_name(gang), NAMESPACE)
            return ray.get(getattr(self._supervisors[gang], method).remote(*arguments), timeout=CALL_S)

        try:
            return _within(CALL_S + 1.0, ask)
        except (ActorDiedError, ValueError) as error:  # ValueError: no actor of that name
            self._supervisors.pop(gang, None)
            why = " ".join(str(error).split())
            raise SupervisorGoneError(
                f"the supervisor of {gang.job_id}/{gang.incarnation} is gone: {why}"
            ) from error
        except FencedError as error:
            raise FencedError(str(getattr(error, "cause", error))) from None
        except (GetTimeoutError, RayActorError) as error:
            raise ClusterUnreachableError(
                f"no answer of {gang.job_id}/{gang.incarnation} to {method}"
            ) from error
        except RayError as error:
            raise ClusterUnreachableError(f"{method} of {gang.job_id}/{gang.incarnation}: {error}") from error


def _within(deadline_s: float, work: Callable[[], Answer]) -> Answer:
    """Runs `work` in a thread that may hang for ever; ClusterUnreachableError after `deadline_s`."""
    answer: list[Answer] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            answer.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="ray call", daemon=True)
    thread.start()
    thread.join(deadline_s)
    if failed:
        raise failed[0]
    if not answer:
        raise ClusterUnreachableError(f"the cluster gave no answer within {deadline_s:.0f} s")
    return answer[0]


def _away_from(nodes: Iterable[str]) -> dict[str, Any]:
    """Where a supervisor lives: off the nodes of its job, first of all on one without accelerators; never strictly.

    By label: Ray 2.60 was seen to put actors without resources anywhere despite a soft node affinity.
    """
    from actors import ray_nodes

    taken = set(nodes)
    others = [n for n in ray_nodes.nodes() if n["Alive"] and ray_nodes.host_of(n) not in taken]
    if not others:
        return {}
    best = min(
        others, key=lambda n: (any(r == "GPU" or r.startswith("gpu") for r in n["Resources"]), n["NodeID"])
    )
    return {
        "label_selector": {"ray.io/node-id": best["NodeID"]},
        "fallback_strategy": [{"label_selector": {}}],
    }
