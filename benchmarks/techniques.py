"""What each technique costs and that it changes nothing: the example jobs of `examples/techniques`, four steps each.

For every example: bytes a rank sends a step, by axis (counted in the process groups), bytes of parameters and optimizer
states on the fullest rank, activations kept for backward in one step there, and the largest relative difference of a
loss from one process's. The verdict is the worst of those differences; fp32, so the bar is 1e-5.
"""

from __future__ import annotations

import argparse
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from report import Verdict, conclude
from rich.console import Console
from rich.table import Table

from actors.training.engine import Engine
from actors.training.local_gang import run_ranks
from actors.training.parallel.layout import local
from actors.training.parallel.mesh import set_default_timeout
from orchestrator.spec import JobSpec
from orchestrator.spec.parse import read_spec
from orchestrator.spec.sections import OffloadSpec, ParallelismSpec

EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "techniques"
BAR = 1e-5
DEADLINE_S = 600.0


def run(spec: JobSpec, steps: int) -> dict[str, Any]:
    """The job's first steps on this machine."""
    world = spec.parallelism.world_size

    def program(rank: int, store: Any) -> dict[str, Any]:
        timeout = timedelta(seconds=DEADLINE_S)
        set_default_timeout(timeout)
        dist.init_process_group("gloo", store=store(), rank=rank, world_size=world, timeout=timeout)
        engine = Engine(spec, torch.device("cpu"), rank=rank)
        losses, kept = [], SavedBytes(p for _, p in engine.named)
        for step in range(steps):
            with kept if step == steps - 1 else _plain():
                losses.append(engine.train_step(step, stop=False).loss)
            cost = engine.meter.record(1.0)
        states = sum(
            value.element_size() * local(value).numel()
            for _, parameter in engine.named
            for value in (parameter, *engine.optimizer.state(parameter).values())
        )
        dist.barrier()
        return {
            "losses": losses,
            "sent_bytes": cost["sent_bytes"],
            "state_bytes": states,
            "kept_bytes": kept.largest_bytes,
        }

    ranks = run_ranks(world, program, deadline_s=DEADLINE_S)
    return ranks[0] | {
        "state_bytes": max(rank["state_bytes"] for rank in ranks),
        "kept_bytes": max(rank["kept_bytes"] for rank in ranks),
    }


class SavedBytes(torch.autograd.graph.saved_tensors_hooks):
    """Counts what backward will need, each storage once, parameters left out: the most at any time."""

    def __init__(self, parameters: Any) -> None:
        self._parameters = {local(p).untyped_storage().data_ptr() for p in parameters}
        self._held: dict[int, int] = {}
        self._bytes = 0
        self.largest_bytes = 0
        super().__init__(self._pack, self._unpack)

    def _pack(self, tensor: torch.Tensor) -> _Held:
        return _Held(tensor, self)

    def _unpack(self, held: _Held) -> torch.Tensor:
        return held.tensor

    def take(self, tensor: torch.Tensor) -> int | None:
        storage = tensor.untyped_storage()
        pointer = storage.data_ptr()
        if pointer in self._parameters:
            return None
        if pointer not in self._held:
            self._held[pointer] = 0
            self._bytes += storage.nbytes()
            self.largest_bytes = max(self.largest_bytes, self._bytes)
        self._held[pointer] += 1
        return pointer

    def give_back(self, pointer: int, size: int) -> None:
        self._held[pointer] -= 1
        if not self._held[pointer]:
            del self._held[pointer]
            self._bytes -= size


class _Held:
    """A saved tensor, counted until backward has let go of it."""

    def __init__(self, tensor: torch.Tensor, counter: SavedBytes) -> None:
        self.tensor, self._counter = tensor, counter
        self._pointer = counter.take(tensor)

    def __del__(self) -> None:
        if self._pointer is not None:
            self._counter.give_back(self._pointer, self.tensor.untyped_storage().nbytes())


def _plain() -> Any:
    import contextlib

    return contextlib.nullcontext()


def alone(spec: JobSpec) -> JobSpec:
    """The same job in one process, with nothing that only saves memory."""
    plan = ParallelismSpec(microbatches=spec.parallelism.dp * spec.parallelism.microbatches)
    training = spec.training.model_copy(update={"offload": OffloadSpec()})
    return spec.model_copy(update={"parallelism": plan, "training": training})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    samples, references = {}, {}
    for path in sorted(EXAMPLES.glob("*.yaml")):
        spec = read_spec(path.read_text(), origin=path.name)
        with tempfile.TemporaryDirectory() as directory:
            if spec.training.offload.directory is not None:
                offload = spec.training.offload.model_copy(update={"directory": directory})
                training = spec.training.model_copy(update={"offload": offload})
                spec = spec.model_copy(update={"training": training})
            single = alone(spec)
            key = single.model_copy(update={"name": "alone"}).model_dump_json()
            if key not in references:
                references[key] = run(single, options.steps)
            found, wanted = run(spec, options.steps), references[key]
        differences = [abs(a - b) / b for a, b in zip(found["losses"], wanted["losses"], strict=True)]
        samples[path.stem] = found | {
            "plan": spec.parallelism.model_dump(mode="json", exclude_defaults=True),
            "difference": max(differences),
            "one_process": wanted,
        }
        print(f"{path.stem}: loss differs by {max(differences):.1e}", flush=True)
    Console(width=150).print(table(samples))
    worst = max(sample["difference"] for sample in samples.values())
    verdict = Verdict("techniques", "relative difference of loss", worst, BAR, at_least=False)
    return conclude(verdict, setting={"steps": options.steps}, samples=samples)


def table(samples: dict[str, Any]) -> Table:
    made = Table(box=None, header_style="dim")
    for heading in ("EXAMPLE", "RANKS' STATES kB", "KEPT FOR BACKWARD kB", "SENT A STEP kB", "LOSS DIFFERS"):
        made.add_column(heading, no_wrap=True)
    for name, sample in samples.items():
        sent = ", ".join(f"{axis} {count / 1e3:.0f}" for axis, count in sample["sent_bytes"].items())
        made.add_row(
            name,
            f"{sample['state_bytes'] / 1e3:.0f} of {sample['one_process']['state_bytes'] / 1e3:.0f}",
            f"{sample['kept_bytes'] / 1e3:.0f} of {sample['one_process']['kept_bytes'] / 1e3:.0f}",
            sent,
            f"{sample['difference']:.0e}",
        )
    return made


if __name__ == "__main__":
    raise SystemExit(main())
