"""Which positions of a forward pass are text: neither padding nor the prefix. For measurements that ride along
with passes made for something else."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lib.errors import InputError
from lib.pruning.lockstep import Own


class Positions:
    """Of the pass that is running. `tokens`: text tokens of all passes so far."""

    def __init__(self, skipped: int):
        self.skipped, self.tokens = skipped, 0
        self._texts = Own((torch.zeros(0, dtype=torch.bool), False))  # [batch * tokens], whether all are text

    def rows(self, X: Tensor) -> Tensor:
        """X [batch, tokens, d] or [batch * tokens, d] -> its rows at text positions [text tokens, d]"""
        X = X.reshape(-1, X.shape[-1])
        text, whole = self._texts.get()
        if len(X) != len(text):
            raise InputError(f"a layer was given {len(X)} tokens of {len(text)} in the batch; layers that see "
                             "some of the tokens only, such as experts, cannot be measured")
        return X if whole else X[text.to(X.device)]

    def energy(self, X: Tensor) -> Tensor:
        """X [batch, tokens, d] or [batch * tokens, d] -> ||X||_F^2 over text positions, a float64 scalar.

        A token's norm is taken in float32, sums over tokens are in float64. Rows of padding, which may hold
        anything, do not count.
        """
        return self.rows(torch.linalg.vector_norm(X.float(), dim=-1, keepdim=True)).double().square().sum()

    def _begin(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        ids = args[0] if args else kwargs["input_ids"]
        mask = kwargs.get("attention_mask")
        if mask is None:
            mask = torch.ones_like(ids)
        if mask.shape != ids.shape or not mask[:, 0].all():
            raise InputError(f"the attention mask is {list(mask.shape)} for token ids {list(ids.shape)}; give whole "
                             "sequences (no key-value cache), padded on the right")
        text = mask.bool()
        text[:, :self.skipped] = False
        self._texts.set((text.flatten(), bool(text.all())))
        self.tokens += int(text.sum())


@contextmanager
def text_positions(model: nn.Module, skipped: int = 0) -> Iterator[Positions]:
    """While open, follows the model's forward passes on token ids [batch, tokens], padded on the right by an
    attention_mask or not at all. `skipped`: leading tokens of each sequence that are no text (1: a prefix token,
    whose states are far larger than those of text and the same in every language)."""
    positions = Positions(skipped)
    hook = model.base_model.register_forward_pre_hook(positions._begin, with_kwargs=True)
    try:
        yield positions
    finally:
        hook.remove()
