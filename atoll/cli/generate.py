"""`atoll generate`: a few tokens from a job's model, so that a person sees that it learned."""

from __future__ import annotations

import math
import sys
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from atoll.cli.connection import JobReference, Json, TokenFile, Url, connect
from atoll.cli.export import Step, warn_of_skipped
from atoll.cli.output import print_json
from atoll.errors import CheckpointError, StorageUnreachableError
from atoll.job_checkpoint import JobCheckpoint, job_checkpoint

if TYPE_CHECKING:
    from actors.training.data.tokenizer import Tokenizer

UNFINISHED = "\ufffd"
"""What a decoder makes of bytes that are no whole character yet."""


def generate(
    job_id: JobReference,
    prompt: Annotated[str, typer.Option("--prompt", metavar="TEXT", help="Text to go on from.")],
    tokens: Annotated[int, typer.Option("--tokens", min=1, max=10_000, help="Tokens to sample.")] = 100,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**63 - 1, help="Seed of the sampling.")] = 0,
    temperature: Annotated[
        float,
        typer.Option("--temperature", min=0.0, max=100.0, help="0 takes the likeliest token each time."),
    ] = 0.8,
    step: Step = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Goes on from a text with the model of a job's newest good checkpoint.

    Reads the checkpoint from shared storage, so it runs where that is mounted. Stops early at the end of a document.
    """
    check_prompt(prompt)
    if not math.isfinite(temperature):
        raise typer.BadParameter("must be a number from 0 to 100", param_hint="--temperature")
    with connect(url, token_file) as client:
        found = job_checkpoint(client, job_id, step)
    warn_of_skipped(found)
    tokenizer = load_tokenizer(found)
    ids = sampled(found, tokenizer, prompt, tokens=tokens, seed=seed, temperature=temperature)
    if as_json:
        chosen = list(ids)
        answer = {"job": found.job.id, "step": found.step, "prompt": prompt, "tokens": chosen, "seed": seed}
        print_json(answer | {"text": decoded(tokenizer, chosen), "temperature": temperature})
        return
    sys.stdout.write(shown(prompt))
    for piece in pieces(tokenizer, ids):
        sys.stdout.write(shown(piece))
        sys.stdout.flush()
    sys.stdout.write("\n")


def check_prompt(prompt: str) -> None:
    if not prompt:
        raise typer.BadParameter("must not be empty: a model goes on from something", param_hint="--prompt")
    try:
        prompt.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("is no UTF-8 text", param_hint="--prompt") from None


def shown(text: str) -> str:
    """Without the control characters with which a text could drive the terminal; --json has them all."""
    return "".join(c if c in "\n\t" or unicodedata.category(c) != "Cc" else UNFINISHED for c in text)


def load_tokenizer(found: JobCheckpoint) -> Tokenizer:
    from actors.training.interchange.tokenizer import job_tokenizer

    try:
        return job_tokenizer(found.spec.data, identity=found.tokenizer)
    except ValueError as error:
        raise StorageUnreachableError(f"the job's tokenizer cannot be had on this machine: {error}") from None


def sampled(
    found: JobCheckpoint,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    tokens: int,
    seed: int,
    temperature: float,
) -> Iterator[int]:
    """Token ids until the end of a document."""
    from actors.training import device as devices
    from actors.training.generation import sample
    from actors.training.trained import NoGoodCheckpointError, load_trained

    device = devices.bind()
    try:
        decoder = load_trained(found.spec, found.path, device)
    except NoGoodCheckpointError as error:
        raise CheckpointError(str(error)) from None
    ids = tokenizer.encode(prompt).tolist()
    for token in sample(decoder, ids, tokens=tokens, temperature=temperature, seed=seed, device=device):
        if token == tokenizer.end_of_document:
            return
        yield token


def pieces(tokenizer: Tokenizer, ids: Iterator[int]) -> Iterator[str]:
    """Text as it grows; a character whose bytes are not all there yet waits for them."""
    chosen: list[int] = []
    told = ""
    for token in ids:
        chosen.append(token)
        text = decoded(tokenizer, chosen)
        if not text.endswith(UNFINISHED) and text.startswith(told):
            yield text[len(told) :]
            told = text
    text = decoded(tokenizer, chosen)
    if len(text) > len(told):
        yield text[len(told) :]


def decoded(tokenizer: Tokenizer, ids: list[int]) -> str:
    import numpy as np

    return tokenizer.decode(np.asarray(ids, np.int32))
