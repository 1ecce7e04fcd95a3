"""What the demo shows: a live picture on a terminal, plain lines anywhere else."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from atoll.answers import Event, JobDetail, Metric, Placement, Rank
from atoll.cli.events import EVENT_STYLES
from atoll.cli.output import loss_text, rate_text, state_text
from atoll.cli.status import axes_text

PLAIN_LINES = 10
"""Progress lines a job gets where nothing can be redrawn."""
STAGE_STYLES = ("cyan", "magenta", "yellow", "green")


class DemoView:
    """Use as a context manager: the live picture is taken away on leaving."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
        )
        self._task = self._bar.add_task("waiting", total=1, numbers="", visible=False)
        self._picture: RenderableType = ""
        self._drawn: int | None = None
        """Incarnation whose placement is on the screen."""
        self._told = 0
        """Progress lines told so far."""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(Group(self._bar), console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, sentence: str) -> None:
        self._console.print(escape(sentence), soft_wrap=True)

    def show_event(self, event: Event) -> None:
        style = EVENT_STYLES.get(event.kind, "cyan")
        attempt = "" if event.attempt is None else f" [dim]attempt {event.attempt}[/]"
        at = event.at.strftime("%H:%M:%S")
        message = escape(event.message.partition("\n")[0])
        self._console.print(f"[dim]{at}[/] [{style}]{event.kind}[/]{attempt} {message}", soft_wrap=True)

    def show_step(self, metric: Metric, total_steps: int) -> None:
        numbers = f"loss {loss_text(metric.loss)}  {rate_text(metric.tokens_per_s)}"
        self._bar.update(
            self._task,
            completed=metric.step,
            total=total_steps,
            numbers=numbers,
            description="step",
            visible=True,
        )
        if self._live is None and metric.step * PLAIN_LINES // total_steps > self._told:
            self._told = metric.step * PLAIN_LINES // total_steps
            self._console.print(f"step {metric.step}/{total_steps}  {numbers}")

    def show_job(self, job: JobDetail) -> None:
        """The placement, once it is known and again whenever it changes."""
        if job.placement is None or job.placement.incarnation == self._drawn:
            return
        self._drawn = job.placement.incarnation
        picture = placement_picture(job.placement)
        if self._live is None:
            self._console.print(picture)
        else:
            self._live.update(Group(picture, self._bar))

    def show_kill(self, victim: Rank, step: int) -> None:
        where = f"{axes_text(victim)} on {victim.node} slot {victim.index}"
        self._console.print(
            f"[bold red]Killing rank {victim.rank}[/] ({where}, process {victim.pid}) with SIGKILL at step {step}",
            soft_wrap=True,
        )
        self._told = 0  # steps after the last checkpoint are trained, and told, again

    def show_end(self, job: JobDetail) -> None:
        self._console.print(Text.assemble("Job ", (job.name, "bold"), " ", state_text(job.state)))
        self._console.print(
            f"final training loss {loss_text(job.loss)} nats a token at step {job.step}, {job.restarts} restart(s)"
        )
        if job.evaluation is not None:
            self._console.print(
                f"held-back loss {loss_text(job.evaluation.loss)}, "
                f"unigram model {loss_text(job.evaluation.unigram_loss)} nats a token"
            )


def placement_picture(placement: Placement) -> Table:
    """Leaf by leaf, node by node: which rank sits in which slot, coloured by pipeline stage."""
    table = Table(
        title="Where the ranks sit", title_justify="left", box=None, pad_edge=False, header_style="dim"
    )
    slots = sorted({rank.index for rank in placement.ranks})
    table.add_column("LEAF", no_wrap=True)
    table.add_column("NODE", no_wrap=True)
    for slot in slots:
        table.add_column(f"SLOT {slot}", no_wrap=True)
    seats = {(rank.node, rank.index): rank for rank in placement.ranks}
    nodes = sorted({(rank.leaf or "unknown", rank.node) for rank in placement.ranks})
    last_leaf = None
    for leaf, node in nodes:
        cells = [seat_text(seats.get((node, slot))) for slot in slots]
        table.add_row("" if leaf == last_leaf else escape(leaf), escape(node), *cells)
        last_leaf = leaf
    return table


def seat_text(rank: Rank | None) -> Text:
    if rank is None:
        return Text("free", style="dim")
    style = STAGE_STYLES[rank.coordinates.get("pp", 0) % len(STAGE_STYLES)]
    return Text.assemble((f"rank {rank.rank}", style), f" {axes_text(rank)}")
