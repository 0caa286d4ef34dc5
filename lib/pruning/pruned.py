"""A pruned model as a value: which weights are kept, and what became of them."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from lib.errors import InputError
from lib.pruning import residency
from lib.pruning.blocks import find_blocks, linear_layers, named_linears, weight_matrix


@dataclass(frozen=True)
class Pruned:
    """Which weights are kept.

    `masks`: by full name of the linear layer, bool [out, in] on the CPU, True = kept.
    `weights`: by the same names, the kept weights [kept], row by row, where the method changed them; empty for
    methods that leave them as they were.
    `layers`, one row a matrix: layer, module (name inside the block), weights, removed, zero_before (exactly
    zero in the dense model), mask_digest; of methods that compensate also damping (share of the mean of
    diag(H) added to it), dead_inputs, dead_zeros (weights of dead inputs that are removed beyond the count); of
    a mixture's experts also tokens, the calibration tokens that reached them.
    `block_errors`, one row a block: layer, error = ||B'(h) - B(h)||_F^2 / ||B(h) - h||_F^2 over the
    calibration tokens, with B the dense block, B' the pruned one, and h what the pruned blocks before it
    give: the relative error of what the block adds. Empty when there were no windows.
    """

    masks: Mapping[str, Tensor]
    method: str
    sparsity: float
    pattern: str
    group: str
    layers: list[dict]
    block_errors: list[dict]
    weights: Mapping[str, Tensor] = field(default_factory=dict)

    def extend(self, part: "Pruned") -> None:
        """Add what another one, of the same request, says of other layers."""
        self.masks.update(part.masks)
        self.weights.update(part.weights)
        self.layers.extend(part.layers)
        self.block_errors.extend(part.block_errors)

    def digest(self) -> str:
        """SHA-256 (hex) of all masks with their names."""
        parts = (f"{name}\0{mask_digest(mask)}\n" for name, mask in sorted(self.masks.items()))
        return hashlib.sha256("".join(parts).encode()).hexdigest()


def mask_digest(mask: Tensor) -> str:
    """SHA-256 (hex) of a mask's shape and bits."""
    return hashlib.sha256(str(tuple(mask.shape)).encode() + np.packbits(mask.numpy()).tobytes()).hexdigest()


@torch.no_grad()
@contextmanager
def applied(model: nn.Module, pruned: Pruned) -> Iterator[nn.Module]:
    """The model as it was pruned; on leaving, the dense weights are back bit for bit.

    Raises InputError when the masks are another model's: where a shape tells that of a streamed model, when its block
    is read.
    """
    strange = set(pruned.masks) - set(named_linears(model))
    if strange:
        raise InputError(f"the masks do not belong to this model: {type(model).__name__} has no {min(strange)}; load "
                         "the model that was pruned")
    place, blocks = find_blocks(model)
    if residency.stream_of(model):
        with residency.changed(model, lambda k, block: _prune(pruned, f"{place}.{k}", block, Tensor.copy_)):
            yield model
        return
    with residency.changing(model) as put:
        for k, block in enumerate(blocks):
            _prune(pruned, f"{place}.{k}", block, put)
        yield model


def _prune(pruned: Pruned, name: str, block: nn.Module, put: Callable[[Tensor, Tensor], object]) -> None:
    """Put the pruned weights into the linear layers of a block."""
    for layer, linear in linear_layers(block).items():
        full = f"{name}.{layer}"
        if full in pruned.masks:
            W, mask = weight_matrix(linear), pruned.masks[full]
            if W.shape != mask.shape:
                raise InputError(f"the masks do not belong to this model: its {full} is {list(W.shape)}, and the mask "
                                 f"{list(mask.shape)}; load the model that was pruned")
            put(W, _values(W, mask, pruned.weights.get(full)))


def _values(W: Tensor, mask: Tensor, weights: Tensor | None) -> Tensor:
    mask = mask.to(W.device)
    if weights is None:
        return W.masked_fill(~mask, 0)
    return torch.zeros_like(W, memory_format=torch.contiguous_format).masked_scatter_(mask, weights.to(W))
