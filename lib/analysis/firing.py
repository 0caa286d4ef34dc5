"""Which MLP neurons fire on text, and what a model does without some of them.

A neuron fires on a token when its activation is above zero (Tang et al., ACL 2024, arXiv 2402.16438). That is
counted before the activation function, at gate or fc, where the sign is the same but for what underflows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from lib.analysis.mlps import Mlp
from lib.analysis.positions import Positions, text_positions
from lib.errors import InputError
from lib.pruning import lockstep, residency
from lib.pruning.blocks import weight_matrix
from lib.pruning.forwards import evaluating
from lib.pruning.statistics import InputNorm


class Firing:
    """What was counted since it was opened (see `counting`). All arrays are [layers, neurons]."""

    def __init__(self, mlps: Sequence[Mlp], positions: Positions):
        self._positions = positions
        self._counts = [torch.zeros(mlp.neurons, dtype=torch.int64) for mlp in mlps]
        self._norms = [InputNorm() for _ in mlps]

    @property
    def tokens(self) -> int:
        return self._positions.tokens

    def counts(self) -> np.ndarray:
        """Tokens on which each neuron fired, int64."""
        return torch.stack([counts.cpu() for counts in self._counts]).numpy()

    def probabilities(self) -> np.ndarray:
        """p: share of tokens on which each neuron fired, float64. Raises InputError when no token passed."""
        if not self.tokens:
            raise InputError("no text token has passed through the model; run it on text while counting is open")
        return self.counts() / self.tokens

    def norms(self) -> np.ndarray:
        """L2 norm over tokens of each neuron's activation, which is the input of down, float32."""
        return torch.stack([norm.value().cpu() for norm in self._norms]).numpy()

    def _see_gate(self, layer: int, gate: nn.Module, args: tuple, output: Tensor) -> None:
        self._counts[layer] = self._counts[layer].to(output.device) + self._positions.rows(output > 0).sum(0)

    def _see_down(self, layer: int, down: nn.Module, args: tuple) -> None:
        self._norms[layer].add(self._positions.rows(args[0]))


@contextmanager
def counting(model: nn.Module, mlps: Sequence[Mlp], skipped: int = 0) -> Iterator[Firing]:
    """While open, every forward pass of the model, with whatever weights it holds, is counted. Passes may be
    right-padded with an attention_mask; padding and the first `skipped` tokens of a sequence are left out."""
    with ExitStack() as stack, text_positions(model, skipped) as positions:
        firing = Firing(mlps, positions)
        for layer, mlp in enumerate(mlps):
            stack.callback(mlp.gate.register_forward_hook(partial(firing._see_gate, layer)).remove)
            stack.callback(mlp.down.register_forward_pre_hook(partial(firing._see_down, layer)).remove)
        yield firing


@torch.inference_mode()
def firing(model: nn.Module, mlps: Sequence[Mlp], batches: Iterable[Tensor]) -> Firing:
    """Token ids [batch, tokens] a batch, without padding -> counts and norms over all of them."""
    with evaluating(model), counting(model, mlps) as counted:
        lockstep.look(model, (lockstep.forward(model, ids) for ids in batches))
    return counted


@contextmanager
def silenced(mlps: Sequence[Mlp], neurons: np.ndarray) -> Iterator[None]:
    """While open, the activations of `neurons` (bool [layers, neurons]) are zero where down takes them in, which
    is as if their columns of down were zero. Weights are not touched, so it may be opened before or after a pruned
    model is applied. Raises InputError for another shape or type."""
    shape = len(mlps), mlps[0].neurons
    if neurons.shape != shape or neurons.dtype != bool:
        raise InputError(f"neurons are {neurons.dtype} {list(neurons.shape)}; this model takes bool {list(shape)}, one "
                         "row a layer")

    def silence(off: Tensor, down: nn.Module, args: tuple) -> tuple:
        return (args[0].masked_fill(off.to(args[0].device), 0), *args[1:])

    with ExitStack() as stack:
        for mlp, row in zip(mlps, neurons, strict=True):
            if row.any():
                off = torch.from_numpy(row.copy())
                stack.callback(mlp.down.register_forward_pre_hook(partial(silence, off)).remove)
        yield


def pruned_shares(model: nn.Module, mlps: Sequence[Mlp], masks: Mapping[str, Tensor]) -> np.ndarray:
    """Masks by full layer name, bool [out, in], True = kept -> [layers, neurons]: the share of each neuron's
    outgoing weights (its column of down) that is pruned, float64.

    The model must hold its dense weights: those that are zero before pruning do not count, and a neuron with no
    other has NaN. Raises InputError when a down has no mask.
    """
    shares = []
    for k, mlp in enumerate(mlps):
        residency.bring(model, k)
        if mlp.name not in masks:
            raise InputError(f"layer {mlp.name} has no mask, so its neurons' outgoing weights cannot be compared")
        weights = weight_matrix(mlp.down).cpu() != 0
        pruned = (weights & ~masks[mlp.name]).sum(0)
        shares.append((pruned.double() / weights.sum(0)).numpy())
    return np.stack(shares)
