"""Seconds of one layer for one micro-batch, from its products, its memory traffic and its collectives."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil

from orchestrator.estimate.communication import (
    all_reduce_s,
    all_to_all_s,
    exposed_s,
    gather_s,
    send_s,
)
from orchestrator.estimate.compute import flash_s, product_s, scores_s, stream_s
from orchestrator.estimate.hardware import Accelerator, Path
from orchestrator.estimate.workload import Again, Architecture, Stack
from orchestrator.spec.sections import ContextMethod

EAGER_KERNELS, FUSED_KERNELS = 40, 12
"""Kernels of a layer's forward besides products and attention: of eager torch as the engine's layer calls it, and of a
compiled or hand-fused layer."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A layer as one rank sees it."""

    architecture: Architecture
    stack: Stack
    precision: str
    sequences: float
    positions: int
    tp: int
    cp: int
    ep: int
    sequence: bool
    """Norms and the residual stream are split over tp."""
    experts: bool
    again: Again
    context: ContextMethod

    @property
    def tokens(self) -> float:
        """In tensor regions."""
        return self.sequences * self.positions / self.cp

    @property
    def own_tokens(self) -> float:
        """Outside of tensor regions."""
        return self.tokens / (self.tp if self.sequence else 1)


@dataclass(frozen=True, slots=True)
class Paths:
    tp: Path
    cp: Path
    ep: Path


@dataclass(frozen=True)
class LayerSeconds:
    forward: float
    backward: float
    again: float
    """Computed again before backward."""
    exposed: dict[str, float] = field(default_factory=dict)
    """Communication that nothing hides, by axis: forward, backward and what is computed again."""

    @property
    def total(self) -> float:
        return self.forward + self.backward + self.again + sum(self.exposed.values())


@dataclass(frozen=True, slots=True)
class _Product:
    rows: int
    columns: int
    inner: int
    batch: int = 1


@lru_cache(maxsize=65_536)
def layer_seconds(device: Accelerator, piece: Piece, paths: Paths) -> LayerSeconds:
    products = _products(piece)
    forward_products = sum(_product(device, p, piece) for p in products)
    data = sum(_product(device, _Product(p.rows, p.inner, p.columns, p.batch), piece) for p in products)
    weights = sum(_product(device, _Product(p.inner, p.columns, p.rows, p.batch), piece) for p in products)
    attend, attend_back = (_attention(device, piece, backward=back) for back in (False, True))
    streams, streams_back = _streams(device, piece)
    forward = forward_products + attend + streams
    backward = data + weights + attend_back + streams_back
    again = {
        Again.NOTHING: 0.0,
        Again.ATTENTION: attend,
        Again.ELEMENTWISE: streams,
        Again.LAYER: forward,
        Again.HALF: forward_products / 2 + streams,
    }[piece.again]
    exposed = {
        "tp": _tensor(device, piece, paths.tp, forward_products, weights, data),
        "cp": _context(piece, paths.cp),
        "ep": _expert(piece, paths.ep),
    }
    return LayerSeconds(forward, backward, again, {axis: s for axis, s in exposed.items() if s})


def _products(piece: Piece) -> list[_Product]:
    """Products of forward: (tokens, inputs) x (inputs, outputs)."""
    model, tp, stack = piece.architecture, piece.tp, piece.stack
    rows, hidden = ceil(piece.tokens), model.hidden
    queries, keys = model.queries // tp, model.keys // tp
    split = [queries + keys] if stack.joined else [queries, keys // 2, keys // 2]
    found = [_Product(rows, columns, hidden) for columns in split]
    found.append(_Product(rows, hidden, queries))

    def feed_forward(rows: int, inner: int, batch: int = 1) -> list[_Product]:
        ways = model.matrices - 1
        into = [inner * ways] if stack.joined else [inner] * ways
        return [
            *(_Product(rows, columns, hidden, batch) for columns in into),
            _Product(rows, hidden, inner, batch),
        ]

    if not piece.experts:
        return found + feed_forward(rows, model.ffn_hidden // tp)
    moe = model.moe
    assert moe is not None
    inner = moe.ffn_hidden or model.ffn_hidden
    found.append(_Product(ceil(piece.own_tokens), moe.experts, hidden))
    if moe.shared_experts:
        found += feed_forward(rows, inner * moe.shared_experts // tp)
    # Each rank routes its own tokens and computes its own experts; on average as many rows come as go.
    held = moe.experts // piece.ep
    return found + feed_forward(ceil(piece.own_tokens * moe.top_k / held), inner, held)


def _product(device: Accelerator, product: _Product, piece: Piece) -> float:
    """With the copies into a shorter format that come before it."""
    stack, precision = piece.stack, piece.stack.products or piece.precision
    size = 1.5 if stack.products else _bytes(piece.precision)
    seconds = product_s(
        device,
        product.rows,
        product.columns,
        product.inner,
        batch=product.batch,
        precision=precision,
        size=size,
    )
    operands = float(product.batch) * product.inner * (product.rows + product.columns)
    if stack.products:
        # Each operand is read for its largest value, read again and written in one byte (3 + 2 with rows of their own).
        seconds += stream_s(device, operands * (8 if stack.casts_rows else 5))
    if stack.casts:
        seconds += stream_s(device, 6.0 * product.batch * product.inner * product.columns)
    return seconds


def _bytes(precision: str) -> int:
    return {"fp64": 8, "fp32": 4}.get(precision, 2)


def _attention(device: Accelerator, piece: Piece, *, backward: bool) -> float:
    model, stack = piece.architecture, piece.stack
    heads, queries = model.heads / piece.tp, ceil(piece.positions / piece.cp)
    if piece.cp > 1 and piece.context is ContextMethod.ULYSSES:
        heads, queries = heads / piece.cp, piece.positions
    masked = stack.masked_context and piece.cp > 1 and piece.context is not ContextMethod.ULYSSES
    if stack.flash and not (masked and piece.context is ContextMethod.RING):
        seconds = flash_s(
            device,
            batch=ceil(piece.sequences),
            queries=queries,
            keys=piece.positions,
            heads=heads,
            head_size=model.head_size,
            precision=piece.precision,
            backward=backward,
        )
        return 2 * seconds if masked else seconds
    return scores_s(
        device,
        batch=ceil(piece.sequences),
        queries=queries,
        keys=piece.positions,
        heads=ceil(heads),
        head_size=model.head_size,
        dropout=model.dropout,
        precision=piece.precision,
        backward=backward,
    )


def _streams(device: Accelerator, piece: Piece) -> tuple[float, float]:
    """Forward and backward of all that is neither product nor attention, by the bytes it reads and writes.

    Of r bytes an element of the residual stream and c of a product's. Norm: reads r, writes c; backward reads both and
    r, writes r. Addition: reads c and r, writes r. Dropout: a mask of one byte, written, then read. Activation of f:
    reads its inputs, writes one result; backward reads inputs and gradient, writes a gradient for each input. Rotation
    of queries and keys: reads and writes. Without fusion, what is one kernel here is several that write in between:
    norms and additions take twice the traffic, the activation half as much again.
    """
    model, stack = piece.architecture, piece.stack
    c, r = _bytes(piece.precision), stack.residual
    own, tokens, hidden = piece.own_tokens, piece.tokens, model.hidden
    loose = 1.0 if stack.fused else 2.0
    mask = 1 if model.dropout else 0
    norms, norms_back = 2 * (r + c) * loose, 2 * (2 * r + 2 * c) * loose
    adds, adds_back = 2 * (c + 2 * r + mask), 2 * (c + r + mask)
    ways = model.matrices - 1
    inner, rows = model.ffn_hidden / piece.tp, tokens
    if piece.experts:
        moe = model.moe
        assert moe is not None
        inner = (moe.ffn_hidden or model.ffn_hidden) * moe.top_k
        inner += (moe.ffn_hidden or model.ffn_hidden) * moe.shared_experts * (tokens / own) / piece.tp
        rows = own
        # Rows are gathered by expert and put back, weighted.
        adds, adds_back = adds + 4 * c * moe.top_k, adds_back + 4 * c * moe.top_k
    active = (ways + 1) * c * (1.0 if stack.fused else 1.5)
    active_back = (2 * ways + 1) * c * (1.0 if stack.fused else 1.5)
    turned = 2 * c * (2 * model.queries + model.keys) / piece.tp
    forward = own * hidden * (norms + adds) + rows * inner * active + tokens * turned
    backward = own * hidden * (norms_back + adds_back) + rows * inner * active_back + tokens * turned
    kernels = FUSED_KERNELS if stack.fused else EAGER_KERNELS
    return stream_s(device, forward, kernels), stream_s(device, backward, kernels)


def _tensor(
    device: Accelerator, piece: Piece, path: Path, products: float, weights: float, data: float
) -> float:
    """Exposed seconds of tensor collectives (Shoeybi et al. 2019; Korthikanti et al. 2022, section 4.2.2)."""
    if piece.tp == 1:
        return 0.0
    model, stack, tp = piece.architecture, piece.stack, piece.tp
    elements = piece.tokens * model.hidden
    entry = elements * (stack.entry or stack.residual)
    leave = elements * _bytes(piece.precision)
    if piece.sequence:
        forward = gather_s(path, entry, tp) + gather_s(path, leave, tp)
        back_open, back_hidden = gather_s(path, leave, tp), gather_s(path, entry, tp)
        regather = gather_s(path, entry, tp) if stack.gathers_again else 0.0
    else:
        forward = all_reduce_s(path, leave, tp)
        back_open, back_hidden, regather = 0.0, all_reduce_s(path, entry, tp), 0.0
    regions = 2
    if piece.experts:
        assert model.moe is not None
        regions = 2 if model.moe.shared_experts else 1
    times = 2 if piece.again in (Again.LAYER, Again.ELEMENTWISE) else 1
    if stack.async_tp:
        every = regions * (times * forward + back_open + back_hidden + regather)
        return exposed_s(device, every, times * products + weights + data)
    found = regions * (times * forward + back_open)
    if stack.hides_tp:
        # Half the weights of a layer stand at the entries of its two regions, and half their gradients' time.
        found += exposed_s(device, regions * back_hidden, weights / 2)
        return found + exposed_s(device, regions * regather, data / 2)
    return found + regions * (back_hidden + regather)


def _context(piece: Piece, path: Path) -> float:
    """All-gather and ring: keys and values of the other ranks, and their gradients back, which a ring carries along in
    fp32. Ulysses: queries, keys, values and results traded, each way (`traffic.context_traffic`)."""
    if piece.cp == 1:
        return 0.0
    model, size, cp = piece.architecture, piece.stack.residual, piece.cp
    again = 1 if piece.again in (Again.NOTHING, Again.HALF) else 2
    if piece.context is ContextMethod.ULYSSES:
        traded = piece.tokens * (2 * model.queries + model.keys) / piece.tp * size
        return (again + 1) * all_to_all_s(path, traded, cp)
    forward = gather_s(path, piece.tokens * cp * model.keys / piece.tp * size, cp)
    if piece.context is ContextMethod.RING:
        block = piece.tokens * model.keys / piece.tp
        return again * forward + cp * send_s(path, 2 * block * max(4, size))
    return (again + 1) * forward


def _expert(piece: Piece, path: Path) -> float:
    """Rows to the experts and back, forward and backward (Lepikhin et al. 2021)."""
    if not piece.experts or piece.ep == 1:
        return 0.0
    model = piece.architecture
    assert model.moe is not None
    rows = piece.own_tokens * model.moe.top_k * model.hidden
    there, back = (
        all_to_all_s(path, rows * size, piece.ep) for size in (piece.stack.residual, _bytes(piece.precision))
    )
    return (there + back) * (3 if piece.again in (Again.LAYER, Again.ELEMENTWISE) else 2)
