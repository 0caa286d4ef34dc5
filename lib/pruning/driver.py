"""Prune a model: walk its blocks, score, choose what to remove. The model itself stays as it was."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from lib.errors import InputError
from lib.pruning.blocks import Step, find_blocks, linear_layers, walk, weight_matrix
from lib.pruning.scores import METHODS, lowest
from lib.pruning.statistics import STATISTICS, collecting

PATTERNS = ("unstructured",)


@dataclass(frozen=True)
class Pruned:
    """Which weights are kept.

    `masks`: by full module name, bool [out, in] on the CPU, True = kept.
    `layers`, one row a matrix: layer, module (name inside the block), weights, removed, zero_before (exactly
    zero in the dense model), mask_digest.
    `block_errors`, one row a block: layer, error = ||B'(h) - B(h)||_F^2 / ||B(h) - h||_F^2 over the
    calibration tokens, with B the dense block, B' the pruned one, and h what the pruned blocks before it
    give: the relative error of what the block adds. Empty when there were no windows.
    """

    masks: dict[str, Tensor]
    method: str
    sparsity: float
    pattern: str
    group: str
    layers: list[dict]
    block_errors: list[dict]

    def digest(self) -> str:
        """SHA-256 (hex) of all masks with their names."""
        parts = (f"{name}\0{_mask_digest(mask)}\n" for name, mask in sorted(self.masks.items()))
        return hashlib.sha256("".join(parts).encode()).hexdigest()


@torch.no_grad()
def prune(model: nn.Module, windows: Tensor | None, method: str, sparsity: float,
          pattern: str = "unstructured", group: str | None = None, batch_size: int = 8) -> Pruned:
    """Token ids windows [n, seqlen] -> the weights to remove from all linear layers of the decoder's blocks.

    All linears of a block see the dense block's inputs behind a pruned prefix; the pruned block then feeds
    the next one (as in the reference implementations of SparseGPT and Wanda). Output layer, embeddings, norms
    and biases are not touched. `sparsity`: share removed in each comparison group; `group`: None takes the
    method's published one. A method that scores weights alone takes windows=None and then runs nothing.
    In memory: two hidden states a calibration token, and one block's dense weights.

    Raises InputError before any work on what cannot be done; during it when activations are not finite.
    """
    group = group or (METHODS[method].groups[0] if method in METHODS else None)
    _check_request(method, sparsity, pattern, group)
    _check_model(model)
    _check_windows(model, windows, method, batch_size)
    masks: dict[str, Tensor] = {}
    layers: list[dict] = []
    errors: list[dict] = []
    statistic = METHODS[method].statistic

    def choose(index: int, name: str, block: nn.Module, statistics: dict) -> list[tuple[Tensor, Tensor]]:
        """(weight, removed) of each linear of a block; fills the result."""
        pairs = []
        for layer, linear in linear_layers(block).items():
            W = weight_matrix(linear)
            removed = _removed(f"{name}.{layer}", W, method, statistics.get(layer), sparsity, group)
            mask = (~removed).cpu()
            masks[f"{name}.{layer}"] = mask
            layers.append({"layer": index, "module": layer, "weights": W.numel(),
                           "removed": int(removed.count_nonzero()),
                           "zero_before": W.numel() - int(W.count_nonzero()),
                           "mask_digest": _mask_digest(mask)[:16]})
            pairs.append((W, removed))
        return pairs

    def visit(step: Step) -> None:
        observed = collecting(step.name, step.block, STATISTICS[statistic]) if statistic else nullcontext({})
        with observed as statistics:
            dense = list(step.forward())
        with _zeroed(choose(step.index, step.name, step.block, statistics)):
            errors.append({"layer": step.index, "error": _update_error(dense, step.advance())})

    if windows is None:
        name, blocks = find_blocks(model)
        for index, block in enumerate(blocks):
            choose(index, f"{name}.{index}", block, {})
    else:
        walk(model, windows.split(batch_size), visit)
    return Pruned(masks, method, sparsity, pattern, group, layers, errors)


@contextmanager
def applied(model: nn.Module, pruned: Pruned) -> Iterator[nn.Module]:
    """The model with the removed weights set to zero; on leaving, the dense weights are back bit for bit."""
    modules = dict(model.named_modules())
    pairs = []
    for name, mask in pruned.masks.items():
        W = weight_matrix(modules[name]) if name in modules else None
        if W is None or W.shape != mask.shape:
            raise InputError(f"the masks do not belong to this model: {type(model).__name__} has no {name} "
                             f"of shape {list(mask.shape)}; load the model that was pruned")
        pairs.append((W, ~mask.to(W.device)))
    with _zeroed(pairs):
        yield model


@contextmanager
def _zeroed(pairs: Iterable[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Each W [out, in] with its `removed` weights zero, put back at the end."""
    dense: list[tuple[Tensor, Tensor]] = []
    try:
        for W, removed in pairs:
            dense.append((W, W.clone()))
            W.masked_fill_(removed, 0)
        yield
    finally:
        for W, values in dense:
            W.copy_(values)


def _removed(layer: str, W: Tensor, method: str, statistic, sparsity: float, group: str) -> Tensor:
    """bool [out, in] of one linear layer."""
    if not W.isfinite().all():
        raise InputError(f"the weights of layer {layer} are not finite (NaN or infinity): the model is "
                         "damaged; load it anew, or in float32 if its dtype overflows")
    score, needs, _ = METHODS[method]
    if needs and statistic is None:
        raise InputError(f"layer {layer} saw no calibration token, so {method} cannot score it; give more "
                         "windows")
    return lowest(score(W, statistic.value()) if needs else score(W), sparsity, group)


def _update_error(dense: list[Tensor], pruned: Iterable[tuple[Tensor, Tensor]]) -> float:
    """||B'(h) - B(h)||^2 / ||B(h) - h||^2 over batches; `dense` holds B(h), `pruned` gives (h, B'(h))."""
    change = update = 0.0
    for before, (hidden, after) in zip(dense, pruned, strict=True):
        before = before.float()
        change += (after.float() - before).square().sum(dtype=torch.float64).item()
        update += (before - hidden.float()).square().sum(dtype=torch.float64).item()
    if update == 0:  # a block that adds nothing
        return float("inf") if change else 0.0
    return change / update


def _mask_digest(mask: Tensor) -> str:
    """SHA-256 (hex) of a mask's shape and bits."""
    return hashlib.sha256(str(tuple(mask.shape)).encode() + np.packbits(mask.numpy()).tobytes()).hexdigest()


def _check_request(method: str, sparsity: float, pattern: str, group: str | None) -> None:
    if method not in METHODS:
        raise InputError(f"method is {method!r}; allowed: {', '.join(METHODS)}")
    if not 0 <= sparsity < 1:
        raise InputError(f"sparsity is {sparsity}; allowed: from 0 to below 1, the share of weights removed")
    if pattern not in PATTERNS:
        raise InputError(f"pattern is {pattern!r}; allowed: {', '.join(PATTERNS)}")
    if group not in METHODS[method].groups:
        raise InputError(f"comparison group is {group!r}; {method} allows: "
                         f"{', '.join(METHODS[method].groups)}")


def _check_model(model: nn.Module) -> None:
    """All linears of the blocks must hold floating-point weights, and there must be some."""
    name, blocks = find_blocks(model)
    linears = {f"{name}.{k}.{layer}": linear for k, block in enumerate(blocks)
               for layer, linear in linear_layers(block).items()}
    if not linears:
        raise InputError(f"{type(model).__name__} has no linear layers in its blocks: nothing to prune")
    for layer, linear in linears.items():
        if not linear.weight.is_floating_point():
            raise InputError(f"layer {layer} has weights of dtype {linear.weight.dtype}, and integer or "
                             "quantized weights cannot be compared by size; load the model in float32, "
                             "bfloat16 or float16")


def _check_windows(model: nn.Module, windows: Tensor | None, method: str, batch_size: int) -> None:
    if windows is None:
        if METHODS[method].statistic:
            raise InputError(f"{method} needs calibration windows, and none were given; allowed without: "
                             f"{', '.join(m for m, it in METHODS.items() if it.statistic is None)}")
        return
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}; allowed: 1 or more")
    if windows.ndim != 2 or windows.is_floating_point() or not windows.numel():
        raise InputError(f"windows have shape {list(windows.shape)} and dtype {windows.dtype}; token ids are "
                         "integers of shape [windows, tokens], at least one of each")
    vocabulary = model.get_input_embeddings().weight.shape[0]
    low, high = int(windows.min()), int(windows.max())
    if low < 0 or high >= vocabulary:
        raise InputError(f"windows hold token ids from {low} to {high}, but the model knows 0 to "
                         f"{vocabulary - 1}; tokenize the calibration text with the model's own tokenizer")
