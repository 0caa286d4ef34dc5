"""Sentence embeddings at every block of a decoder: pooled while a forward pass runs, so that nothing but the
pooled vectors is kept."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from lib.analysis.likelihood import BATCH_TOKENS, padded
from lib.errors import InputError
from lib.inputs.models import prefix_token
from lib.pruning.blocks import find_blocks
from lib.pruning.lockstep import Own, forward, look

POOLINGS = ("mean", "last")


@torch.inference_mode()
def sentence_embeddings(model: nn.Module, tokenizer, texts: Sequence[str], pooling: str = "mean",
                        batch_tokens: int = BATCH_TOKENS) -> np.ndarray:
    """texts [n] -> float32 [n, layers, d], the outputs of every block pooled over a sentence's tokens.

    "mean": over all tokens but the prefix (BOS), whose states are far larger than the others'; "last": the last
    token. Each sentence stands on its own after the prefix token, as where perplexity is measured. The model is
    run as it is, with whatever weights it holds.

    Raises InputError when a text is empty or longer than the model's context.
    """
    prefix = 0 if prefix_token(tokenizer) is None else 1
    with pooled(model, len(texts), prefix, pooling) as pool:
        batches = padded(model, tokenizer, [text[:40] for text in texts], texts, batch_tokens, least=prefix + 1)
        look(model, (forward(model, ids, real, before=partial(pool.expect, rows, real)) for rows, ids, real in batches))
    return pool.values


class Pool:
    """`values` float32 [sentences, layers, d]: NaN until a batch brings the sentence."""

    def __init__(self, shape: tuple[int, int, int], skipped: int, pooling: str):
        self.values = np.full(shape, np.nan, dtype=np.float32)
        self._skipped, self._pooling = skipped, pooling
        self._expected = Own()  # (rows, bool [batch, tokens]) of this pass

    def expect(self, rows: Sequence[int], real: Tensor) -> None:
        """The next forward pass holds the sentences `rows`; real [batch, tokens] is 1 for tokens, 0 for padding,
        which stands on the right. A pass that was not announced is not pooled."""
        self._expected.set((list(rows), real.bool()))

    def _see(self, layer: int, hidden: Tensor) -> None:
        """Pool hidden [batch, tokens, d]."""
        if self._expected.get() is None:
            return
        rows, real = self._expected.get()
        if self._pooling == "last":
            each = torch.arange(len(hidden), device=hidden.device)
            vectors = hidden[each, real.sum(1) - 1].float()
        else:
            taken = real.clone()
            taken[:, :self._skipped] = False
            # Not multiplied by 0: states of padding may be NaN.
            vectors = hidden.float().masked_fill(~taken[:, :, None], 0).sum(1) / taken.sum(1, keepdim=True)
        self.values[rows, layer] = vectors.cpu().numpy()
        if layer == self.values.shape[1] - 1:
            self._expected.set(None)


@contextmanager
def pooled(model: nn.Module, sentences: int, skipped: int, pooling: str = "mean") -> Iterator[Pool]:
    """While open, the outputs of all blocks are pooled by sentence, in whatever passes `Pool.expect` announces.

    `skipped`: leading tokens that a mean leaves out (1: the prefix). Raises InputError for an unknown pooling.
    """
    if pooling not in POOLINGS:
        raise InputError(f"pooling is {pooling!r}; allowed: {', '.join(POOLINGS)}")
    _, blocks = find_blocks(model)
    pool = Pool((sentences, len(blocks), model.config.get_text_config().hidden_size), skipped, pooling)

    def hook(layer: int):
        return lambda block, inputs, output: pool._see(layer, output[0] if isinstance(output, tuple) else output)

    hooks = [block.register_forward_hook(hook(layer)) for layer, block in enumerate(blocks)]
    try:
        yield pool
    finally:
        for handle in hooks:
            handle.remove()
