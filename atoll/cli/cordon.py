"""`atoll cordon` and `atoll uncordon`: nodes that no job is placed on."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from atoll.cli.connection import Json, TokenFile, Url, connect
from atoll.cli.output import print_json, standard_output

Node = Annotated[str, typer.Argument(help="Name of the node, as the cluster page shows it.")]


def cordon(
    node: Node,
    reason: Annotated[str, typer.Option("--reason", help="Why: shown with the node.")],
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Places no job on a node any more; ranks that run there stay."""
    with connect(url, token_file) as client:
        made = client.cordon(node, reason)
    if as_json:
        print_json(made)
        return
    standard_output().print(f"{escape(node)} takes no work ({escape(made.who)}: {escape(made.reason)})")


def uncordon(node: Node, url: Url = None, token_file: TokenFile = None) -> None:
    """Lets a node take work again, such as one that a job has left because it was slow."""
    with connect(url, token_file) as client:
        client.uncordon(node)
    standard_output().print(f"{escape(node)} takes work again, where nothing else forbids it")
