"""Sampling from a model: the next token again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from actors.training.model.decoder import Decoder


@torch.no_grad()
def sample(
    decoder: Decoder,
    prompt: Sequence[int],
    *,
    tokens: int,
    temperature: float,
    seed: int,
    device: torch.device,
) -> Iterator[int]:
    """Up to `tokens` ids that follow `prompt`, one at a time; equal for equal seeds on one kind of device.

    The model sees as many of the last tokens as it was trained on. Each token is a whole forward pass: for looking at
    a model, not for serving it. `temperature` 0 takes the likeliest token.
    """
    if not prompt:
        raise ValueError("a prompt needs at least one token")
    generator = torch.Generator("cpu").manual_seed(seed)
    context = list(prompt)
    for _ in range(tokens):
        window = torch.tensor([context[-decoder.positions :]], device=device)
        # Positions begin at 0 in every window, as in training; the table is cut to a shorter one.
        table = decoder.rotary
        decoder.rotary = table[:, : window.shape[1]]
        try:
            logits = decoder(window)[0, -1].double().cpu()
        finally:
            decoder.rotary = table
        if temperature == 0:
            chosen = int(logits.argmax())
        else:
            # The largest is 0 then: divided by however small a temperature, it stays a number.
            scaled = (logits - logits.max()) / temperature
            chosen = int(torch.multinomial(scaled.softmax(-1), 1, generator=generator))
        context.append(chosen)
        yield chosen
