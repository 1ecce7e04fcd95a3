"""What this rank's steps cost, as rank 0 puts it into step records.

| phase | what it holds, without waiting for other ranks |
| --- | --- |
| data | the step's sequences, from the corpus to the device |
| forward | the model's forward; what is recomputed counts as backward |
| backward | the rest of the execution: backward, the loss, the pipeline's own work |
| optimizer | sums and norm of gradients, clipping, the update |
| checkpoint | what of a save training waits for |
| evaluation | held-back sequences |

Waiting for other ranks is exposed communication and counted by axis. Phases, exposed communication and what is left
over add up to the time of the step. All are rank 0's own; bytes are the mean over ranks, memory is the largest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from actors.pulse import Pulse
from actors.training.metrics.garbage import GarbageClock
from actors.training.metrics.memory import device_name, peak_bytes
from actors.training.metrics.traffic import Traffic
from actors.training.parallel.mesh import RankMesh
from actors.training.parallel.timeline import DeviceClock, HostClock, Recorder
from orchestrator.estimate.hardware import peak_flops
from orchestrator.health.phases import StepPhases
from orchestrator.lifecycle.reports import TRAFFIC_AXES
from orchestrator.lifecycle.timeline import Work
from orchestrator.spec import JobSpec

SAMPLE_EVERY = 10
"""Steps between two questions for the largest memory of all ranks, and on an accelerator between two readings of its
clock: both make ranks wait."""


class StepMeter:
    def __init__(
        self,
        parts: Sequence[nn.Module],
        mesh: RankMesh,
        spec: JobSpec,
        device: torch.device,
        *,
        flops_per_token: float,
        pulse: Pulse,
        recorder: Recorder,
    ) -> None:
        self.traffic = Traffic(mesh.axis_of, pulse)
        self._pulse = pulse
        self._device = device
        self._on_host = device.type == "cpu"
        self._world = dist.get_world_size()
        training = spec.training
        self._step_flops = flops_per_token * training.global_batch * training.sequence_length
        self._peak_flops = peak_flops(device_name(device), training.precision)
        self._clock: Any = HostClock() if self._on_host else DeviceClock(device)
        self._timed = False
        self._spans: list[tuple[str, Any, Any, float]] = []
        self._host_s: dict[str, float] = {}
        """Phases outside steps, which end when their call returns."""
        self._compute_cpu_s = math.nan
        self._garbage = GarbageClock()
        self._recorder = recorder
        self.measured: StepPhases | None = None
        """Of the step that was recorded last; None: it was not timed."""
        self._sent: dict[str, float] = {}
        self._largest = 0
        self._begun: tuple[Any, float] | None = None
        for part in parts:
            part.register_forward_pre_hook(self._before_forward, prepend=True)
            part.register_forward_hook(self._after_forward)

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        """Around step `step` on every rank."""
        sampled = step % SAMPLE_EVERY == 0
        self._timed = self._on_host or sampled
        if self._timed:
            self._clock.anchor(exact=False)
        with self.traffic.counting(), self._garbage.timing():
            yield
            if sampled:
                self._largest = self._over_ranks(peak_bytes(self._device))
        self._timed = False

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Part `name` of a step: data, execution, optimizer."""
        self._pulse.part(name)
        if not self._timed:
            yield
            return
        start, waited = self._clock.mark(), self.traffic.waited_total_s
        cpu_s = time.thread_time() if name == "execution" else 0.0
        yield
        self._spans.append((name, start, self._clock.mark(), self.traffic.waited_total_s - waited))
        if name == "execution" and self._on_host:
            self._compute_cpu_s = time.thread_time() - cpu_s

    @contextmanager
    def between_steps(self, name: str) -> Iterator[None]:
        """Something between two steps: checkpoint, evaluation."""
        self._pulse.began(name)
        began = time.monotonic()
        yield
        self._host_s[name] = self._host_s.get(name, 0.0) + time.monotonic() - began

    def sent_so_far(self) -> list[float]:
        """Bytes sent since the last record, by axis: to be added up over all ranks."""
        sent = self.traffic.by_axis()
        return [sent.get(axis, 0.0) for axis in TRAFFIC_AXES]

    def sent_by_all(self, totals: Sequence[float]) -> None:
        """What became of `sent_so_far`."""
        self._sent = dict(zip(TRAFFIC_AXES, totals, strict=True))

    def record(self, step_time_s: float) -> dict[str, Any]:
        """Fields of the record of the step that ended, which took `step_time_s`; begins anew."""
        exposed = {
            axis: self.traffic.waited_s[axis] for axis in TRAFFIC_AXES if axis in self.traffic.waited_s
        }
        phases = self._phases()
        self.measured = self._measured(phases) if self._spans else None
        known = sum(phases.values()) + (sum(exposed.values()) if self._on_host else 0.0)
        fields: dict[str, Any] = {
            "sent_bytes": {axis: round(sent / self._world) for axis, sent in self._sent.items() if sent},
            "peak_bytes": self._largest or None,
            "model_flops_per_s": self._step_flops / step_time_s if step_time_s > 0 else None,
        }
        if self._spans or self._on_host:
            fields["phases_s"] = phases | {"other": max(0.0, step_time_s - known)}
        if self._on_host:
            fields["exposed_s"] = exposed
        if self._peak_flops is not None and step_time_s > 0:
            fields["mfu"] = self._step_flops / step_time_s / (self._peak_flops * self._world)
        self._spans, self._host_s, self._sent = [], {}, {}
        self._compute_cpu_s = math.nan
        self.traffic.clear()
        return fields

    def _measured(self, phases: dict[str, float]) -> StepPhases:
        """This rank's own times. On an accelerator what a rank waits for is not known, and of the rest of the execution
        only the backward itself is computing: a pipeline waits between."""
        moved = self.traffic.moved_s
        collective_s = self.traffic.waited_total_s - sum(moved.values())
        backward_s = phases["backward"] if self._on_host else self._recorded_backward_s()
        return StepPhases(
            data_s=phases["data"],
            forward_s=phases["forward"],
            backward_s=backward_s,
            receive_s=moved["receive"] if self._on_host else math.nan,
            send_s=moved["send"] if self._on_host else math.nan,
            collective_s=collective_s if self._on_host else math.nan,
            optimizer_s=phases["optimizer"],
            checkpoint_s=phases["checkpoint"],
            garbage_s=self._garbage.take_s(),
            compute_cpu_s=self._compute_cpu_s,
        )

    def _recorded_backward_s(self) -> float:
        spans = self._recorder.spans()
        return sum(span.end_us - span.start_us for span in spans if span.work is not Work.FORWARD) / 1e6

    def _phases(self) -> dict[str, float]:
        net = {
            "data": 0.0,
            "forward": 0.0,
            "execution": 0.0,
            "optimizer": 0.0,
            "checkpoint": 0.0,
            "evaluation": 0.0,
        }
        for name, start, end, waited in self._spans:
            took = (self._clock.read_us(end) - self._clock.read_us(start)) / 1e6
            net[name] += took - (waited if self._on_host else 0.0)
        net["backward"] = max(0.0, net.pop("execution") - net["forward"])
        return net | self._host_s

    def _before_forward(self, *_: Any) -> None:
        if self._timed and torch.is_grad_enabled():
            self._begun = self._clock.mark(), self.traffic.waited_total_s

    def _after_forward(self, *_: Any) -> None:
        if self._begun is not None:
            start, waited = self._begun
            self._spans.append(("forward", start, self._clock.mark(), self.traffic.waited_total_s - waited))
            self._begun = None

    def _over_ranks(self, own: int) -> int:
        if self._world == 1:
            return own
        largest = torch.tensor(float(own), dtype=torch.float64, device=self._device)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return int(largest)
