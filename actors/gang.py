"""The agents of one gang: reserving their nodes, starting them, asking all of them at once, ending them.

Knows Ray and nothing of training or repair: the supervisor decides, a gang carries out and tells.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import ray
from ray.exceptions import ActorDiedError, RayActorError, RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors import naming, rank_logs, ray_nodes
from actors.messages import AgentFacts, Note, NoteKind, Notes, RankOrder
from actors.node_agent import NodeAgent, order_for
from actors.node_watch import NodeWatch
from actors.ray_environment import NAMESPACE
from actors.reservations import Reservations
from orchestrator.health.standing import Standing
from orchestrator.lifecycle.clocks import ahead_s
from orchestrator.lifecycle.ports import GangRef, LogChunk
from orchestrator.lifecycle.reports import GangOrder, LogTail
from orchestrator.recovery.failure import NodeLoss
from orchestrator.recovery.timeouts import Timeouts
from orchestrator.topology.fabric import Slot

VERDICT_POLL_S = 0.25

Answer = TypeVar("Answer")


class StartFailedError(RuntimeError):
    """The gang could not be started: nobody died, but something it needs did not come in time."""


class RanksNotStartedError(RuntimeError):
    """Agents that did not fork their ranks: why, by node."""

    def __init__(self, nodes: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"the agent of node {node} {why}" for node, why in nodes.items()))
        self.nodes = nodes


@dataclass
class Agent:
    """One node's agent as the gang sees it."""

    node: str
    actor: Any
    cursor: int = 0
    facts: AgentFacts | None = None
    watch: asyncio.Task[None] | None = None
    lost: bool = False
    """It answers no more; whether its node is lost too may still be open."""


class Gang:
    """`told` is called with every note of an agent, and with every loss of an agent or node, in the event loop."""

    def __init__(self, order: GangOrder, times: Timeouts, told: Callable[[Note | NodeLoss], None]) -> None:
        self._order = order
        self._times = times
        self._told = told
        self._ref = GangRef(order.job_id, order.incarnation)
        cpus = float(order.spec.get("resources", {}).get("cpus_per_rank", 0.0))
        self._reservations = Reservations(self._ref, cpus)
        self._slots = order.slots
        self._generations: dict[str, int] = {}
        """Agents that each node has had so far: no name is used twice."""
        self._agents: dict[str, Agent] = {}
        self._noted = asyncio.Condition()
        self._nodes = NodeWatch(lambda: _in_thread(ray_nodes.resources_by_host, times.call_s))

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes that it is to have agents on, by their first rank."""
        return tuple(dict.fromkeys(slot.node for slot in self._slots))

    async def open(self) -> None:
        """Reserves the nodes, starts an agent on each and listens to them. StartFailedError when that takes too long;
        NodeTooSmallError.

        Agents are created at once; Ray keeps them waiting for their bundles, so nothing here waits for anything twice.
        """
        await self._take_nodes(self.nodes, self._slots)

    async def prepare(self, slots: Sequence[Slot]) -> None:
        """Agents on the nodes of `slots` that have none, while the ranks go on: a `move` there is then short. Raises
        as `open`."""
        nodes = dict.fromkeys(slot.node for slot in slots)
        await self._take_nodes([node for node in nodes if node not in self._agents], slots)

    async def move(self, slots: Sequence[Slot]) -> None:
        """The gang on `slots` from now on: nodes that have none of them are given back, new ones are taken as by
        `open`; the agents of the others stay, with all that they hold. Call while no rank lives."""
        self._slots = tuple(slots)
        wanted = set(self.nodes)
        await self._leave_nodes([node for node in self._agents if node not in wanted])
        await self._take_nodes([node for node in self.nodes if node not in self._agents], self._slots)

    async def _take_nodes(self, nodes: Sequence[str], slots: Sequence[Slot]) -> None:
        try:
            resources = await _in_thread(ray_nodes.resources_by_host, self._times.agents_start_s)
            await _in_thread(
                lambda: self._reservations.take(nodes, slots, resources), self._times.agents_start_s
            )
        except TimeoutError as error:
            raise StartFailedError(
                f"Ray's head gave no answer for {self._times.agents_start_s:.0f} s"
            ) from error
        started = await asyncio.gather(*(self._start_agent(node) for node in nodes), return_exceptions=True)
        for failed in started:
            if failed is not None:
                raise failed

    async def _leave_nodes(self, nodes: Sequence[str]) -> None:
        """Ends the agents of `nodes` and gives their reservations back. Never raises, as `close`."""
        for node in nodes:
            if (watch := self._agents[node].watch) is not None:
                watch.cancel()
        await self._ask_all(
            lambda a: a.actor.shutdown.remote(), [node for node in nodes if not self._agents[node].lost]
        )
        for node in nodes:
            _kill(self._agents.pop(node).actor)
        with contextlib.suppress(TimeoutError, RayError):
            await _in_thread(lambda: self._reservations.give_back(nodes), self._times.call_s)

    async def replace_agents(self, hanging: Collection[str]) -> None:
        """New agents wherever one is gone, and on the nodes `hanging`; each takes over the same bundle."""
        watched, own = self._watched(), self.nodes
        lost = [
            agent
            for node, agent in self._agents.items()
            if node in own and (node not in watched or node in hanging)
        ]
        for agent in lost:
            _kill(agent.actor)
            if agent.watch is not None:
                agent.watch.cancel()
        await asyncio.gather(*(self._start_agent(agent.node) for agent in lost))

    async def start_ranks(self, order: RankOrder) -> RankOrder:
        """Forks the ranks of an attempt on every node; returns the order with the rendezvous it was given.

        RanksNotStartedError names the agents that gave no answer, or said why they cannot.
        """
        first = self._agents[order.slots[0].node]
        try:
            rendezvous = await self._ask(first.actor.open_rendezvous.remote(), self._times.ranks_start_s)
        except (RayError, TimeoutError) as error:
            raise RanksNotStartedError({first.node: _refusal(error, self._times.ranks_start_s)}) from error
        order = RankOrder(**{**_fields(order), "rendezvous": tuple(rendezvous)})
        answers = await self._ask_each(lambda a: a.actor.start.remote(order_for(a.node, order)), self.nodes)
        failed = {n: answer for n, answer in answers.items() if isinstance(answer, BaseException)}
        if failed:
            raise RanksNotStartedError({n: _refusal(e, self._times.call_s) for n, e in failed.items()})
        return order

    async def go(self, attempt: int) -> None:
        """Lets the ranks begin. An agent that is gone is told of by its watch, here as everywhere."""
        await self._ask_all(lambda a: a.actor.go.remote(attempt), self.nodes)

    async def ask_to_stop(self, attempt: int) -> None:
        await self._ask_all(lambda a: a.actor.ask_to_stop.remote(attempt), self.nodes)

    async def standings(self, attempt: int) -> dict[int, Standing]:
        """By rank what it was last known to do. Ranks of agents that do not answer are left out."""
        answers = await self._ask_all(lambda a: a.actor.standings.remote(attempt), self._watched())
        return {standing.rank: standing for found in answers.values() for standing in found}

    async def stacks(self, attempt: int) -> dict[int, str]:
        """By rank its Python stacks; ranks that give none in time are left out."""
        answers = await self._ask_all(
            lambda a: a.actor.stacks.remote(self._order.job_directory, attempt), self._watched()
        )
        return {rank: stack for found in answers.values() for rank, stack in found.items()}

    async def kill_ranks(self, attempt: int, lost: Iterable[str]) -> None:
        """Ends the ranks on all nodes but `lost`, and returns when every note of them has been passed on."""
        living = [node for node in self._watched() if node not in set(lost)]
        cursors = await self._ask_all(lambda a: a.actor.kill.remote(attempt), living)

        def caught_up() -> bool:
            return all(self._agents[node].cursor >= cursor for node, cursor in cursors.items())

        async with self._noted:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._noted.wait_for(caught_up), self._times.call_s)

    async def tails(self, attempt: int) -> tuple[LogTail, ...]:
        """Ends of all ranks' logs. Those of a lost node are asked of another one, which sees them on the storage."""
        ranks: dict[str, list[int]] = {}
        living = self._watched()
        for rank, slot in enumerate(self._slots):
            if living:
                ranks.setdefault(slot.node if slot.node in living else living[0], []).append(rank)
        limit = rank_logs.tail_bytes(len(self._slots))
        answers = await self._ask_all(
            lambda a: a.actor.tails.remote(self._order.job_directory, attempt, tuple(ranks[a.node]), limit),
            ranks,
        )
        return tuple(
            sorted((tail for tails in answers.values() for tail in tails), key=lambda tail: tail.rank)
        )

    async def read_log(self, *, rank: int, attempt: int, offset: int, limit: int) -> LogChunk:
        agent = self._agents.get(self._slots[rank].node)
        if agent is None:
            return LogChunk(attempt, rank, 0, b"", 0)
        question = agent.actor.read_log.remote(self._order.job_directory, attempt, rank, offset, limit)
        chunk: LogChunk = await self._ask(question, self._times.call_s)
        return chunk

    async def close(self) -> None:
        """Ends all ranks and agents and gives the nodes back. Never raises; what is unreachable ends by its lease, and
        what Ray could not be told to give back is the reaper's."""
        for agent in self._agents.values():
            if agent.watch is not None:
                agent.watch.cancel()
        await self._ask_all(lambda a: a.actor.shutdown.remote(), self._agents)
        for agent in self._agents.values():
            _kill(agent.actor)
        self._agents = {}
        with contextlib.suppress(TimeoutError, RayError):
            await _in_thread(self._reservations.give_back, self._times.call_s)

    def watches(self, node: str) -> bool:
        """Whether the agent of `node` is there, as far as is known."""
        return node in self._watched()

    def _watched(self) -> list[str]:
        """Nodes whose agents are there, as far as is known."""
        return [
            node
            for node, agent in self._agents.items()
            if agent.watch and not agent.watch.done() and not agent.lost
        ]

    async def _start_agent(self, node: str) -> None:
        generation = self._generations.get(node, 0)
        self._generations[node] = generation + 1
        threads = max(1, int(self._order.spec.get("resources", {}).get("cpus_per_rank", 0.0)))
        actor: Any = (
            ray.remote(NodeAgent)
            .options(
                name=naming.agent_name(self._ref, node, generation),
                namespace=NAMESPACE,
                lifetime="detached",
                max_restarts=0,
                num_cpus=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._reservations.group(node), 0),
            )
            .remote(node, self._order.program, threads, self._times)
        )
        agent = self._agents[node] = Agent(node, actor)
        opened = asyncio.ensure_future(self._ask(actor.open.remote(), self._times.agents_start_s))
        lost = asyncio.ensure_future(self._nodes.gone(node))
        try:
            await asyncio.wait({opened, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not opened.done():
                agent.lost = True
                self._told(NodeLoss(node, time.time()))
                return
            agent.facts = opened.result()
        except (TimeoutError, RayError) as error:
            if isinstance(error, RayActorError) and await self._node_lost_soon(node):
                agent.lost = True
                self._told(NodeLoss(node, time.time()))
                return
            raise StartFailedError(await asyncio.to_thread(self._why_not, node, error)) from error
        finally:
            opened.cancel()
            lost.cancel()
        agent.watch = asyncio.create_task(self._watch(agent))

    def _why_not(self, node: str, error: BaseException) -> str:
        """A sentence on an agent that did not start."""
        if isinstance(error, TimeoutError):
            state = self._reservations.state(node)
            return (
                f"the agent of node {node} was not up after {self._times.agents_start_s:.0f} s "
                f"(state of the reservation in Ray: {state})"
            )
        return f"the agent of node {node} did not start: {error}"

    async def _watch(self, agent: Agent) -> None:
        """Passes an agent's notes on until the agent is lost, and says so then."""
        silent_since: float | None = None
        while True:
            try:
                told: Notes = await self._ask(agent.actor.watch.remote(agent.cursor), self._times.call_s)
                notes = by_our_clock(told, time.time())
            except ActorDiedError:
                break
            except (RayActorError, TimeoutError):
                # Unreachable: it may come back, but not beyond the time after which it ends itself.
                silent_since = silent_since or time.monotonic()
                gone = not await self._lives(agent.node)
                if gone or time.monotonic() - silent_since > self._times.agent_lease_s:
                    break
                await asyncio.sleep(VERDICT_POLL_S)
                continue
            except RayError:
                break  # an agent that answers with an error of its own is of no use either
            silent_since = None
            await self._pass_on(agent, notes)
            if any(note.kind is NoteKind.ZYGOTE_LOST for note in notes):
                self._told(NodeLoss(agent.node, time.time(), agent_only=True))
                return
        agent.lost = True
        self._told(NodeLoss(agent.node, time.time(), agent_only=not await self._node_lost_soon(agent.node)))

    async def _pass_on(self, agent: Agent, notes: tuple[Note, ...]) -> None:
        for note in notes:
            agent.cursor = note.seq
            self._told(note)
        async with self._noted:
            self._noted.notify_all()

    async def _node_lost_soon(self, node: str) -> bool:
        """Whether the node of a dead agent is dead too: Ray learns of a dead agent before it learns of a dead node."""
        deadline = time.monotonic() + self._times.verdict_s
        while await self._lives(node):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(VERDICT_POLL_S)
        return True

    async def _lives(self, node: str) -> bool:
        """Whether the node is part of the cluster. While Ray's head gives no answer nothing is known to be lost."""
        try:
            return await _in_thread(lambda: ray_nodes.lives(node), self._times.call_s)
        except (OSError, RayError):
            return True

    async def _ask(self, question: Awaitable[Any], deadline_s: float) -> Any:
        return await asyncio.wait_for(_answer(question), deadline_s)

    async def _ask_all(
        self, question: Callable[[Agent], Awaitable[Any]], nodes: Iterable[str]
    ) -> dict[str, Any]:
        """Asks several agents at once; answers by node. Agents that give none are left out."""
        answers = await self._ask_each(question, nodes)
        return {node: answer for node, answer in answers.items() if not isinstance(answer, BaseException)}

    async def _ask_each(
        self, question: Callable[[Agent], Awaitable[Any]], nodes: Iterable[str]
    ) -> dict[str, Any]:
        """Asks several agents at once; by node the answer, or the exception for want of one."""
        names = list(nodes)
        asked = (self._ask(question(self._agents[node]), self._times.call_s) for node in names)
        return dict(zip(names, await asyncio.gather(*asked, return_exceptions=True), strict=True))


def by_our_clock(told: Notes, heard_at: float) -> tuple[Note, ...]:
    """The notes with the times of this clock: which of two nodes' ranks died first is read off them."""
    shift_s = ahead_s(told.at, heard_at)
    return tuple(replace(note, at=note.at - shift_s) if shift_s else note for note in told.notes)


async def _answer(question: Awaitable[Any]) -> Any:
    return await question


async def _in_thread(work: Callable[[], Answer], deadline_s: float) -> Answer:
    """A call of Ray that asks the head, which may never answer: TimeoutError then."""
    return await asyncio.wait_for(asyncio.to_thread(work), deadline_s)


def _refusal(error: BaseException, waited_s: float) -> str:
    """Why an agent did not do what it was asked to, to stand behind its name."""
    if isinstance(error, TimeoutError):
        return f"gave no answer for {waited_s:.0f} s"
    cause = getattr(error, "cause", None) or error
    return f"could not start its ranks: {type(cause).__name__}: {' '.join(str(cause).split())[:300]}"


def _fields(order: RankOrder) -> dict[str, Any]:
    return {name: getattr(order, name) for name in order.__slots__}


def _kill(actor: Any) -> None:
    try:
        ray.kill(actor, no_restart=True)
    except (RayError, ValueError):
        return
