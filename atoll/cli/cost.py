"""What a plan costs, for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from atoll.answers import Estimate, PlanSearch
from atoll.cli.output import duration_text, rate_text, size_text, tokens_text

LOST = {
    "memory": "do not fit the memory",
    "refused": "are refused by the rules of job files or find no place",
    "untried": "were not tried: of those before them none found a place",
    "bubble": "lose by their bubble",
    "communication": "lose by communication",
    "recompute": "lose by what they compute again",
    "compute": "lose by slower kernels (smaller products, the busiest stage)",
}


def print_estimate(console: Console, estimate: Estimate) -> None:
    console.print(
        f"estimate on {estimate.accelerator}: {seconds_text(estimate.step_s)} a step, "
        f"{rate_text(estimate.tokens_per_s)}, MFU {estimate.mfu:.1%} ({estimate.mfu_convention} attention); "
        f"{tokens_text(estimate.budget_tokens)} in {seconds_text(estimate.budget_s)}, "
        f"{hours_text(estimate.budget_gpu_hours)}"
    )
    parts = ", ".join(f"{name} {seconds_text(s)}" for name, s in estimate.seconds.items() if s)
    console.print(f"  step: {parts}", style="dim")
    kept = ", ".join(f"{name} {size_text(size)}" for name, size in estimate.memory_bytes.items())
    over = "" if estimate.fits else ": [bold red]does not fit[/]"
    console.print(
        f"  memory of the fullest rank: {kept}; {size_text(estimate.memory_total_bytes)} of "
        f"{size_text(estimate.memory_limit_bytes)}{over}"
    )
    if estimate.axes:
        console.print(table_of_costs(estimate))
    advice = estimate.checkpoint
    if advice is not None:
        rate = "measured" if advice.failures_measured else "Llama 3's rate"
        noun = "step" if advice.steps == 1 else "steps"
        loss = f"{advice.lost:.1%} lost" if advice.lost < 1 else "no progress: failures come too soon"
        console.print(
            f"  checkpoint every {advice.steps} {noun} ({duration_text(advice.seconds)}): a failure every "
            f"{duration_text(advice.failures_s)} ({rate}), {advice.stall_s:g} s a checkpoint, {loss}"
        )


def table_of_costs(estimate: Estimate) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("AXIS", "DEGREE", "SENT", "TIER", "LINK", "EXPOSED"):
        table.add_column(heading, no_wrap=True)
    for axis in estimate.axes:
        table.add_row(
            axis.axis,
            str(axis.degree),
            size_text(axis.sent_bytes),
            axis.tier,
            axis.link,
            seconds_text(axis.exposed_s),
        )
    return table


def print_search(console: Console, search: PlanSearch) -> None:
    if search.best:
        console.print(f"fastest of {search.considered:,} plans:")
        console.print(table_of_plans(search.best))
    else:
        console.print(f"[bold red]none of {search.considered:,} plans fits[/]")
    for reason, count in sorted(search.lost.items(), key=lambda item: -item[1]):
        console.print(f"  {count:,} {LOST.get(reason, reason)}", style="dim")


def table_of_plans(plans: list[Estimate]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    headings = ("PLAN", "SCHEDULE", "MICRO-BATCHES", "RECOMPUTE", "MEMORY", "STEP", "TOKENS", "MFU")
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    for plan in plans:
        table.add_row(
            plan.plan,
            schedule_text(plan),
            str(plan.parallelism["microbatches"]),
            plan.recompute,
            size_text(plan.memory_total_bytes),
            seconds_text(plan.step_s),
            rate_text(plan.tokens_per_s),
            f"{plan.mfu:.1%}",
        )
    return table


def schedule_text(plan: Estimate) -> str:
    given = plan.parallelism
    if given["pp"] == 1:
        return "–"
    virtual = given["virtual_stages"]
    return f"{given['schedule']} x{virtual}" if virtual > 1 else str(given["schedule"])


def seconds_text(seconds: float) -> str:
    """Three figures, and from two minutes on two units: `850 us`, `12.3 ms`, `4.56 s`, `2 h 5 min`."""
    if seconds == 0:
        return "0 s"
    if seconds < 999.5e-6:  # more would be shown as `1e+03 us`
        return f"{seconds * 1e6:.3g} us"
    if seconds < 999.5e-3:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 120 else duration_text(seconds)


def hours_text(gpu_hours: float) -> str:
    """Whole ones from 100 on, three figures below: `0.0129 GPU-hours`."""
    if gpu_hours >= 99.95:
        return f"{gpu_hours:,.0f} GPU-hours"
    return f"{gpu_hours:.3g} GPU-hours" if gpu_hours >= 0.001 else "less than 0.001 GPU-hours"
