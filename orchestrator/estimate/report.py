"""A plan's cost as plain values: what the command line prints and the API answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import prod
from typing import Any

from orchestrator.estimate.hardware import Accelerator
from orchestrator.estimate.interval import LLAMA_3_GPU_HOURS, advise, mean_time_between_failures_s
from orchestrator.estimate.network import Network
from orchestrator.estimate.planner import USABLE, PlanCost, Search, fits
from orchestrator.estimate.share import Stage
from orchestrator.estimate.stages import split_layers, stages_of
from orchestrator.estimate.step import time_to
from orchestrator.estimate.traffic import step_traffic
from orchestrator.estimate.workload import Workload
from orchestrator.placement.explain import plan_label
from orchestrator.spec.job import JobSpec


def cost_report(
    cost: PlanCost,
    device: Accelerator,
    network: Network,
    *,
    tokens: float | None = None,
    stall_s: float | None = None,
    gpu_hours_between_failures: float | None = None,
) -> dict[str, Any]:
    """`tokens`: the budget; None: the job's own steps. `stall_s`: what training waits for each checkpoint; None: no
    advice on its interval. `gpu_hours_between_failures`: measured; None: Llama 3's."""
    spec, step = cost.spec, cost.step
    plan, work = spec.parallelism, Workload.of(spec)
    budget = float(spec.training.steps * work.step_tokens) if tokens is None else tokens
    seconds, gpu_hours = time_to(budget, work, step.total)
    return {
        "plan": plan_label(plan),
        "parallelism": plan.model_dump(mode="json"),
        "recompute": spec.training.recompute.mode,
        "accelerator": device.name,
        "fits": fits(cost.memory, device),
        "memory_bytes": dict(cost.memory.parts),
        "memory_total_bytes": cost.memory.total,
        "memory_limit_bytes": USABLE * device.memory_bytes,
        "step_s": step.total,
        "seconds": {
            "forward": step.forward,
            "backward": step.backward,
            "recompute": step.again,
            "bubble": step.bubble,
            "communication": sum(step.exposed.values()),
            "optimizer": step.optimizer,
        },
        "axes": axes_report(spec, step.exposed, network),
        "tokens_per_s": cost.rate.tokens_per_s,
        "model_flops": cost.rate.model_flops,
        "mfu": cost.rate.mfu,
        "mfu_convention": str(cost.rate.convention),
        "budget_tokens": budget,
        "budget_s": seconds,
        "budget_gpu_hours": gpu_hours,
        "checkpoint": _interval_report(plan.world_size, step.total, stall_s, gpu_hours_between_failures),
    }


def axes_report(spec: JobSpec, exposed: Mapping[str, float], network: Network) -> list[dict[str, Any]]:
    """Of each axis with traffic: bytes that a rank sends in a step, the tier that its groups need and its link."""
    work = Workload.of(spec)
    found = []
    for axis, sent in _busiest(spec).items():
        group = work.group(axis)
        hop = network.hops[network.hop(group)]
        found.append(
            {
                "axis": axis,
                "degree": prod(degree for _, degree in group),
                "sent_bytes": sent,
                "tier": hop.tier.value,
                "link": hop.path.kind,
                "exposed_s": exposed.get(axis, 0.0),
            }
        )
    return found


def search_report(found: Search, reports: list[dict[str, Any]]) -> dict[str, Any]:
    return {"best": reports, "considered": found.considered, "lost": dict(found.lost)}


def _busiest(spec: JobSpec) -> dict[str, float]:
    """Bytes by axis of the pipeline rank that sends most."""
    plan = spec.parallelism
    layers = split_layers(spec.model, plan, vocab_size=spec.data.vocab_size)

    def sent(rank: int) -> dict[str, float]:
        return step_traffic(spec, [Stage(layers[s], s, plan.stages) for s in stages_of(plan, rank)])

    ranks = sorted({0, plan.pp // 2, plan.pp - 1})
    return max((sent(rank) for rank in ranks), key=lambda traffic: sum(traffic.values()))


def _interval_report(
    ranks: int, step_s: float, stall_s: float | None, gpu_hours: float | None
) -> dict[str, Any] | None:
    if stall_s is None:
        return None
    failures_s = mean_time_between_failures_s(gpu_hours or LLAMA_3_GPU_HOURS, ranks)
    advice = advise(stall_s=stall_s, failures_s=failures_s, step_s=step_s)
    return asdict(advice) | {
        "stall_s": stall_s,
        "failures_s": failures_s,
        "failures_measured": gpu_hours is not None,
    }
