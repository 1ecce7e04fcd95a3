"""Broken copies of topology files, by seed."""

from __future__ import annotations

import random
from collections.abc import Callable

Mutation = Callable[[random.Random, bytes], bytes]

_NUMBERS = (b"0", b"-1", b"4294967296", b"9" * 5000, b"1e999", b"0x7fffffff", b"00000000000000000001")
_RANGES = (
    b"n[1-999999999]",
    b"[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]",
    b"n[" * 400,
    b"a[5-1]",
    b"x[1-2,[3-4,[5]]]",
)
_BOMBS = (
    b"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n"
    b"d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nnodes: [*e,*e,*e,*e,*e,*e,*e,*e]\n",
    b'<!DOCTYPE l [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><system>&b;</system>',
    b"[" * 20_000,
    b"{a: " * 5_000,
    b"<system>" * 5_000,
    b"- " * 5_000 + b"x",
    b"\x1b[" + b"0;" * 5_000,
    b"\xff\xfe" + b"\x00a" * 1_000,
)


def _flip(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        position = rng.randrange(len(changed))
        changed[position] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def _drop(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randint(1, 200) :]


def _swap_lines(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    for _ in range(rng.randint(1, 6)):
        one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def _repeat_line(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    position = rng.randrange(len(lines))
    return b"\n".join([*lines[:position], *[lines[position]] * rng.choice((2, 50, 2_000)), *lines[position:]])


def _number(rng: random.Random, data: bytes) -> bytes:
    digits = [index for index, byte in enumerate(data) if 48 <= byte <= 57]
    if not digits:
        return data
    position = rng.choice(digits)
    return data[:position] + rng.choice(_NUMBERS) + data[position + 1 :]


def _token(rng: random.Random, data: bytes) -> bytes:
    """Puts something hostile in the place of a word."""
    words = data.split(b" ")
    words[rng.randrange(len(words))] = rng.choice(
        (*_RANGES, *_NUMBERS, b"&a *a", b"\t\t", b"\x00", b"!!python/x y", b'"')
    )
    return b" ".join(words)


def _insert(rng: random.Random, data: bytes) -> bytes:
    position = rng.randrange(len(data))
    return data[:position] + rng.choice(_BOMBS) + data[position:]


def _nest(rng: random.Random, data: bytes) -> bytes:
    opening, closing = rng.choice(((b"[", b"]"), (b"{a: ", b"}"), (b"<pci>", b"</pci>")))
    depth = rng.choice((10, 100, 3_000))
    return opening * depth + data + closing * depth


MUTATIONS: tuple[Mutation, ...] = (
    _flip,
    _cut,
    _drop,
    _swap_lines,
    _repeat_line,
    _number,
    _token,
    _insert,
    _nest,
)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """One to three mutations, one after the other; never empty."""
    for _ in range(rng.randint(1, 3)):
        data = rng.choice(MUTATIONS)(rng, data) or b"\n"
    return data
