"""Negative log-likelihood of text under a causal LM, segment by segment.

Each segment is scored on its own after the prefix token (BOS where the model has one), so a segment's
value does not depend on its neighbours and segments are the units from which intervals are drawn.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd
import torch
from torch import nn

from lib.errors import InputError
from lib.inputs.models import prefix_token
from lib.pruning.lockstep import forward, together

# Batches are formed inside fixed stretches of this many segments: the first 50 segments give the same
# batches, and so the same bits, whether 50 or 100 of them are asked for.
STRETCH = 50
BATCH_TOKENS = 512  # padding included; texts of a batch are of nearly one length, larger batches pad more
LOGIT_BYTES = 240_000_000
LOSS_ROWS = 16  # of the logits, at a time


@torch.inference_mode()
def segment_nll(model, tokenizer, segments: Sequence[str], texts: Sequence[str], batch_tokens: int = BATCH_TOKENS,
                head: "Head | None" = None) -> pd.DataFrame:
    """One row a segment: `segment`, `nll` (nats, summed over its tokens), `tokens`, `bytes` (UTF-8).

    nll = -sum_t ln p(x_t | prefix, x_<t). Without a prefix token the first token cannot be scored: it is
    left out of `nll`, `tokens` and `bytes` alike. Logits are computed in float32 for a chunk of positions at a
    time and never for all: they and their log-softmax take at most twice LOGIT_BYTES, whatever the vocabulary.

    `head`: the model's Head, when the caller scores several texts and has made it before.

    Raises InputError when a segment is empty or longer than the model's context.
    """
    head, bare = head or Head(model), prefix_token(tokenizer) is None
    nll, tokens = np.zeros(len(texts)), np.zeros(len(texts), dtype=np.int64)
    unscored = np.zeros(len(texts), dtype=np.int64)  # bytes of first tokens that nothing stands before
    passes = (forward(model, ids, real, partial(_scored, head, rows, ids, real))
              for rows, ids, real in padded(model, tokenizer, segments, texts, batch_tokens))
    for rows, ids, real, losses in together(model, passes):
        nll[rows] = losses
        tokens[rows] = real[:, 1:].sum(1).cpu()
        if bare:
            unscored[rows] = [len(tokenizer.decode(first).encode()) for first in ids[:, :1]]
    size = np.array([len(text.encode()) for text in texts], dtype=np.int64)
    return pd.DataFrame({"segment": list(segments), "nll": nll, "tokens": tokens, "bytes": size - unscored})


def padded(model, tokenizer, segments: Sequence[str], texts: Sequence[str], batch_tokens: int = BATCH_TOKENS,
           least: int = 2) -> Iterator[tuple[list[int], torch.Tensor, torch.Tensor]]:
    """(row numbers, token ids, which are real), both [batch, tokens], of batches that hold all texts, each after the
    prefix token. Padding stands on the right, where a causal model does not see it.

    Raises InputError, naming the segment, when one has fewer than `least` tokens, the prefix included (2: one that can
    be scored), or more than the model's context.
    """
    prefix = prefix_token(tokenizer)
    start = [] if prefix is None else [prefix]
    every = [start + tokens for tokens in tokenizer(list(texts), add_special_tokens=False)["input_ids"]]
    limit = getattr(model.config, "max_position_embeddings", None)
    for segment, tokens in zip(segments, every, strict=True):
        if len(tokens) < least:
            raise InputError(f"segment {segment!r} has {len(tokens) - len(start)} tokens; {least - len(start)} or more "
                             "are needed")
        if limit and len(tokens) > limit:
            raise InputError(f"segment {segment!r} has {len(tokens)} tokens with its prefix and the model takes "
                             f"{limit}; split the text into shorter segments")
    device = next(model.parameters()).device
    for rows in batches([len(tokens) - len(start) for tokens in every], batch_tokens):
        longest = max(len(every[r]) for r in rows)
        ids = [every[r] + [0] * (longest - len(every[r])) for r in rows]
        real = [[1] * len(every[r]) + [0] * (longest - len(every[r])) for r in rows]
        yield rows, torch.tensor(ids, device=device), torch.tensor(real, device=device)


def batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Row numbers batch by batch: inside each stretch sorted by length, so that little is padded, and cut
    where rows x longest would exceed `batch_tokens`."""
    for first in range(0, len(lengths), STRETCH):
        stretch = sorted(range(first, min(first + STRETCH, len(lengths))), key=lambda r: (lengths[r], r))
        rows: list[int] = []
        for row in stretch:
            if rows and (len(rows) + 1) * (lengths[row] + 1) > batch_tokens:
                yield rows
                rows = []
            rows.append(row)
        yield rows


def _scored(head: "Head", rows: list[int], ids: torch.Tensor, real: torch.Tensor, hidden: torch.Tensor) -> tuple:
    """ids, real [batch, tokens], final hidden states -> (rows, ids, real, summed nll [batch]); padding is never
    scored."""
    row, position = torch.nonzero(real[:, 1:], as_tuple=True)
    states, targets = hidden[row, position], ids[row, position + 1]
    losses = torch.cat([head.nll(s, t) for s, t in zip(states.split(head.chunk), targets.split(head.chunk),
                                                       strict=True)])
    total = torch.zeros(len(ids), dtype=torch.float64, device=ids.device)
    return rows, ids, real, total.index_add_(0, row, losses.double()).cpu().numpy()


class Head:
    """From final hidden states [n, hidden] to losses [n], the model's own scaling of the logits included.

    Architectures scale or cap their logits after the output layer (Cohere's `logit_scale`, Gemma 2's
    `final_logit_softcapping`, Granite's `logits_scaling`). The constructor compares with the model's own
    forward on a few tokens and raises InputError when the two differ, so that an architecture with another
    rule is refused and not scored wrongly.
    """

    def __init__(self, model):
        self.output = model.get_output_embeddings()
        config = model.config.get_text_config()
        self.factor = (getattr(config, "logit_scale", None) or 1.0) / (getattr(config, "logits_scaling", None) or 1.0)
        self.cap = getattr(config, "final_logit_softcapping", None)
        self.chunk = max(1, LOGIT_BYTES // (4 * config.vocab_size))
        weight, self._space = self.output.weight, None
        plain = type(self.output) is nn.Linear and self.output.bias is None and weight.dtype == torch.float32
        if plain and weight.device.type == "cpu":
            self._space = weight.new_empty(self.chunk, len(weight))
        self._compare(model, config.vocab_size)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """States [n, hidden], n at most `chunk` -> logits [n, vocabulary] in float32, good until the next call."""
        if self._space is None:
            logits = self.output(states).float()
        else:
            # The same product, written where the last one was: memory of this size would come fresh from the system
            # each time, and clearing it costs as much as the product.
            logits = torch.mm(states, self.output.weight.T, out=self._space[:len(states)])
        if self.factor != 1.0:
            logits *= self.factor
        if self.cap is not None:
            logits.div_(self.cap).tanh_().mul_(self.cap)
        return logits

    def nll(self, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """-ln p(target) [n] in float32 for states [n, hidden], n at most `chunk`, and target ids [n]."""
        logits, losses = self.logits(states), []
        chosen = logits.gather(1, targets[:, None])[:, 0]
        for rows in logits.split(LOSS_ROWS):
            highest = rows.amax(1)
            losses.append(rows.sub_(highest[:, None]).exp_().sum(1).log_() + highest)  # in place, in the cache
        return torch.cat(losses) - chosen

    @torch.inference_mode()
    def _compare(self, model, vocabulary: int) -> None:
        ids = (torch.arange(6, device=next(model.parameters()).device) * 7 % vocabulary)[None]
        ours = self.logits(model.base_model(input_ids=ids, use_cache=False).last_hidden_state[0])
        theirs = model(input_ids=ids, use_cache=False).logits[0].float()
        scale = theirs.abs().max()
        if not torch.allclose(ours, theirs, rtol=0, atol=0.02 * float(scale)):
            raise InputError(
                f"{type(model).__name__} turns hidden states into logits in a way this code does not know (largest "
                f"difference {float((ours - theirs).abs().max()):.3g} on a scale of {float(scale):.3g}); perplexity "
                "for this architecture needs its rule in lib.analysis.likelihood.Head")
