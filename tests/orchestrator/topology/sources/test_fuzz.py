"""Broken files: refused with a sentence or read, but never a traceback, a hang or memory without bound."""

from __future__ import annotations

import random
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from atoll.cli.fabric import fabric_json
from orchestrator.topology.read import fabric_of
from orchestrator.topology.sources.content import content_of
from orchestrator.topology.sources.reading import InvalidFabricError
from orchestrator.topology.sources.smi_matrix import heading
from tests.orchestrator.topology.sources.mutations import mutated

LIMIT_S = 10
GROWTH_BYTES = 1 << 30

SEEDS: tuple[bytes, ...] = (
    b"SwitchName=s1 Switches=l[1-2]\nSwitchName=l1 Nodes=n[01-04,7]\nSwitchName=l2 Nodes=m[1-2]x[3-4]\n",
    b"BlockName=b1 Nodes=n[1-18]\nBlockName=b2 Nodes=m[1-18]\nBlockSizes=18,36\nNodeName=n[1-18] Gres=gpu:gb200:4\n",
    b"- topology: t\n  cluster_default: true\n  tree:\n    switches:\n    - {switch: s, children: 'l[1-2]'}\n"
    b"    - {switch: l1, nodes: 'n[1-4]'}\n    - {switch: l2, nodes: 'n[5-8]'}\n",
    b"switches:\n  core: {switches: [s1, s2]}\n  s1: {switches: [l1]}\nblocks:\n- switch: l1\n  nodes: ['n[1-4]']\n"
    b"  annotations: {accelerator.topology.test/domain: nvl1}\n",
    b'{"instances": [{"id": "a", "network_layers": ["l", "s", "c"], "labels": {"nvidia.com/gpu.clique": "u.1"}}]}',
    b"apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\n"
    b"  labels: {fabric.topograph.run/tier-0: l, nvidia.com/gpu.clique: a.1}\n"
    b"status: {capacity: {nvidia.com/gpu: '8'}}\n---\napiVersion: topology.volcano.sh/v1alpha1\nkind: HyperNode\n"
    b"metadata: {name: h}\nspec: {tier: 1, members: [{type: Node, selector: {regexMatch: {pattern: '^n[0-9]+$'}}}]}\n",
    b"\tGPU0\tGPU1\tNIC0\tCPU Affinity\nGPU0\t X \tNV4\tPIX\t0-3\nGPU1\tNV4\t X \tSYS\t\nNIC0\tPIX\tSYS\t X \t\n",
    b'<system version="1"><cpu numaid="0"><pci busid="0:1" class="0x030200"><gpu dev="0" sm="90"><nvlink target="0:2" '
    b'count="18"/></gpu></pci><pci busid="0:2" class="0x030200"><gpu dev="1" sm="90"><nvlink target="0:1" count="18"/>'
    b"</gpu></pci></cpu></system>",
    b'Switch\t36 "S-00a1"\t\t# "MF0;leaf:X/U1" enhanced\n[1]\t"H-00b1"[1](b1) \t# "n1 mlx5_0" lid 4 4xHDR\n'
    b'[2]\t"S-00a2"[1]\t# "spine" lid 5 4xHDR\n\nSwitch\t36 "S-00a2"\t# "spine"\n'
    b'[1]\t"S-00a1"[2]\t# "leaf" lid 1 4xHDR\n',
    b'[{"NodeID": "ab", "Alive": true, "Labels": {"host": "n0", "leaf": "l0"}, "Resources": {"GPU": 8.0, "CPU": 64}}]',
    b"nodes:\n- {name: 'n[0-15]', accelerators: 8, leaf: l0}\n",
)
"""A small file of each format: mutations meet its keys more often than those of large files."""


class TooSlowError(BaseException):
    """Raised by the alarm; no handler of the code under test takes it."""


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Of processor time: other work on the machine must not look like a hang."""

    def ring(_: int, __: FrameType | None) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def take(data: bytes) -> bool:
    """Whether the file is read; a refusal is one sentence that names the file."""
    try:
        combined = fabric_of([(content_of(data, file="broken"), ("node",))])
    except InvalidFabricError as error:
        sentence = str(error)
        if not sentence.startswith("broken: ") or "\n" in sentence:
            raise AssertionError(f"no sentence that names the file: {sentence!r}") from error
        return False
    assert set(fabric_json(combined)) >= {"nodes", "tiers", "problems"}
    return True


def fuzz(files: list[bytes], seed: int, *, duration_s: float, rounds: int) -> tuple[int, int]:
    """Takes mutated files until the time or the rounds are over; how many were read, and how many taken in all."""
    rng = random.Random(seed)
    ends = time.monotonic() + duration_s
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read = 0
    for number in range(rounds):
        if time.monotonic() > ends:
            rounds = number
            break
        state = rng.getstate()
        data = mutated(rng, rng.choice(files))
        try:
            with at_most(LIMIT_S):
                read += take(data)
        except BaseException as error:
            raise AssertionError(
                f"seed {seed}, round {number}: {error!r} on {data[:300]!r}... ({state[1][-1]})"
            ) from error
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < GROWTH_BYTES, f"{grown >> 20} MiB more after {rounds} files"
    return read, rounds


def test_broken_small_files_of_every_format() -> None:
    read, rounds = fuzz(list(SEEDS), seed=20261201, duration_s=5.0, rounds=2_500)
    assert 0 < read < rounds


def test_whole_small_files_are_all_read() -> None:
    assert all(take(data) for data in SEEDS)


def test_broken_shared_files(topology_data: Path) -> None:
    files = [path.read_bytes() for path in sorted(topology_data.rglob("*")) if path.is_file()]
    read, rounds = fuzz(files, seed=7, duration_s=5.0, rounds=1_000)
    assert 0 < read < rounds


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_five_minutes_of_broken_files(topology_data: Path) -> None:
    files = [path.read_bytes() for path in sorted(topology_data.rglob("*")) if path.is_file()]
    read, rounds = fuzz([*files, *SEEDS], seed=1, duration_s=300.0, rounds=10**9)
    assert 0 < read < rounds


@pytest.mark.parametrize(
    "text",
    [
        "SwitchName=s Nodes=n[1-999999999]",
        "SwitchName=s Nodes=" + "[0-9]" * 8,
        "BlockName=b Nodes=n[1-100000]" + "\nBlockName=b Nodes=m[1-150000]" * 10,
        "switches: {s: {}}\nblocks: [{switch: s, nodes: ['n[1-999999999]']}]",
        "- topology: t\n  block: {blocks: [{block: b, nodes: 'n[1-999999999]'}]}",
        "nodes: [{name: 'n[0-9999999]'}]",
    ],
)
def test_a_range_of_a_billion_nodes_is_refused_at_once(text: str) -> None:
    started = time.process_time()
    assert not take(text.encode())
    assert time.process_time() - started < 5


def test_long_lines_that_look_like_a_heading_cost_little() -> None:
    """Found by the five minutes: a slow pattern was tried on every line of 30 MB."""
    lines = ["<pci>" * 3_000 + " GPU0 GPU1"] * 1_100
    started = time.process_time()
    assert not any(heading(line) for line in lines)
    assert time.process_time() - started < 0.2
