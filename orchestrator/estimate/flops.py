"""Model FLOPs: what the mathematics of a training step needs, whatever the plan recomputes.

Convention, named because published figures differ: forward and backward of every matrix product count once, 2 FLOPs
for each multiply-add, backward twice the forward; of attention's score and value products the causal half counts, as in
Megatron-LM (Narayanan et al. 2021 count all of it, torchtitan too). Looking a token up in the embedding is no product;
the head is one. Of experts those count that a token is sent to. Model FLOP utilisation (Chowdhery et al. 2022, PaLM,
appendix B) divides by the peak of the devices; recomputed products are not work done, so it never counts them.
"""

from __future__ import annotations

from orchestrator.spec.sections import ModelSpec


def flops_per_token(model: ModelSpec, *, vocab_size: int, positions: int) -> float:
    """FLOPs of a training step for each token, in sequences of `positions`: 6N + 6 x layers x heads x head size x
    positions.

    N: weights of the products that a token passes. The second term is 12 (Chowdhery et al. 2022, appendix B), halved
    because a position sees half of the others on average.
    """
    attended = model.layers * model.heads * model.size_of_head * positions
    return 6.0 * weights_passed(model, vocab_size=vocab_size) + 6.0 * attended


def weights_passed(model: ModelSpec, *, vocab_size: int) -> int:
    """Weights of the matrix products that one token passes, the head's among them."""
    hidden = model.hidden
    attention = hidden * model.size_of_head * (2 * model.heads + 2 * model.kv_heads)
    total = hidden * vocab_size
    for layer in range(model.layers):
        total += attention
        if model.is_moe(layer):
            assert model.moe is not None
            inner = model.moe.ffn_hidden or model.ffn_hidden
            total += 3 * hidden * inner * (model.moe.top_k + model.moe.shared_experts)
            total += hidden * model.moe.experts
        else:
            total += 3 * hidden * model.ffn_hidden
    return total
