"""What a pipeline schedule costs in theory: the bubble, as idle time of a rank over ideal time.

Every stage takes as long as any other, communication takes no time.
"""

from __future__ import annotations

from orchestrator.spec.sections import ParallelismSpec, PipelineSchedule


def bubble(schedule: PipelineSchedule, *, pp: int, microbatches: int, virtual_stages: int = 1) -> float:
    """Idle time of a rank / ideal time of a step, p ranks, m micro-batches, v stages a rank.

    | schedule | bubble | source |
    | --- | --- | --- |
    | gpipe, 1f1b | (p-1)/m | Narayanan et al. 2021, section 2.2.1 |
    | interleaved-1f1b | (p-1)/(v m), m a multiple of p | Narayanan et al. 2021, section 2.2.2 |
    | zero-bubble | (p-1)/(3 v m) | Qi et al. 2024, section 2.3: ZB-H1 idles (p-1)(F+B-W), a third when F = B = W |
    | zbv | 0, m at least p | Qi et al. 2024, section 6, when F = B = W |

    With fewer micro-batches than ranks a rank also waits, in each of its v rounds, for p - m slots of F and as many of
    B: (p-m)/m more for interleaved-1f1b, two thirds of it for the other two, whose W fill the rest (for zbv about). Its
    ramp is then (m-1)/(v m), and a third of that.

    F, B, W: times of forward, backward to the inputs and backward to the weights of one micro-batch. The zero of `zbv`
    counts idle time between a rank's first and last work alone: its ranks neither begin nor end together.
    """
    if pp < 1 or microbatches < 1 or virtual_stages < 1:
        raise ValueError(
            f"pp {pp}, microbatches {microbatches} and virtual_stages {virtual_stages} must each be at least 1"
        )
    missing = max(0, pp - microbatches) / microbatches
    ramp = (min(pp, microbatches) - 1) / microbatches
    match schedule:
        case PipelineSchedule.GPIPE | PipelineSchedule.ONE_F_ONE_B:
            return (pp - 1) / microbatches
        case PipelineSchedule.INTERLEAVED_1F1B:
            return ramp / virtual_stages + missing
        case PipelineSchedule.ZERO_BUBBLE:
            return ramp / (3 * virtual_stages) + missing * 2 / 3
        case PipelineSchedule.ZBV:
            return missing * 2 / 3


def bubble_of(plan: ParallelismSpec) -> float:
    """`bubble` of a job's plan; 0 without a pipeline."""
    return bubble(
        plan.schedule, pp=plan.pp, microbatches=plan.microbatches, virtual_stages=plan.virtual_stages
    )
