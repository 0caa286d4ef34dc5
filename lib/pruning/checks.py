"""What is refused, or said, before a model is pruned."""

import warnings

from torch import Tensor, nn

from lib.errors import InputError
from lib.pruning import residency
from lib.pruning.blocks import find_blocks, linear_layers, named_linears, weight_matrix
from lib.pruning.methods import METHODS, group_of
from lib.pruning.scores import run_of
from lib.pruning.sparsegpt import check_width

ZEROS_OF_PRUNING = 0.2  # from this share of zeros on a matrix counts as pruned before; 4-bit weights have fewer


def check_request(method: str, sparsity: float | None, pattern: str, group: str | None) -> tuple[float, str]:
    """(sparsity, comparison group), those left open filled in: of n:m the sparsity is 1 - n / m."""
    group = group_of(method, pattern, group)
    run = run_of(pattern)
    if run:
        implied = (run[1] - run[0]) / run[1]
        if sparsity not in (None, implied):
            raise InputError(f"sparsity is {sparsity}, but pattern {pattern} removes {implied}; leave it out")
        return implied, group
    if sparsity is None or not 0 <= sparsity < 1:
        raise InputError(f"sparsity is {sparsity}; allowed: from 0 to below 1, the share of weights removed")
    return sparsity, group


def check_model(model: nn.Module, method: str, pattern: str) -> None:
    """All linear layers of the blocks must hold floating-point weights, of widths that fit the pattern."""
    linears = named_linears(model)
    if not linears:
        raise InputError(f"{type(model).__name__} has no linear layers in its blocks: nothing to prune")
    run = run_of(pattern)
    for layer, linear in linears.items():
        W = weight_matrix(linear)
        if not W.is_floating_point():
            raise InputError(f"layer {layer} has weights of dtype {W.dtype}, and integer or quantized weights "
                             "cannot be compared by size; load the model in float32, bfloat16 or float16")
        if run and W.shape[1] % run[1]:
            raise InputError(f"layer {layer} has {W.shape[1]} inputs, which runs of {run[1]} do not fill; choose a "
                             "pattern n:m whose m divides them, or unstructured")
        if METHODS[method].compensates:
            check_width(pattern, W.shape[1])


def check_windows(model: nn.Module, windows: Tensor | None, method: str, batch_size: int) -> None:
    """Token ids must be integers that the model knows; a method that needs them must have some."""
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


def pruned_before(model: nn.Module) -> set[str]:
    """Names of linear layers that were pruned before: a fifth of their weights or more is zero, or they have
    an n:m pattern. Their zeros stay. What was found is said in a warning."""
    found = {}
    place, blocks = find_blocks(model)
    for index, block in enumerate(blocks):
        residency.bring(model, index)
        for layer, linear in linear_layers(block).items():
            W = weight_matrix(linear)
            share = 1 - int(W.count_nonzero()) / W.numel()
            if share >= ZEROS_OF_PRUNING:
                found[f"{place}.{index}.{layer}"] = (share, _pattern_of(W))
    if found:
        shares = [share for share, _ in found.values()]
        patterns = sorted({pattern for _, pattern in found.values()} - {""})
        warnings.warn(f"this {type(model).__name__} was pruned before: {len(found)} linear layers (the first is "
                      f"{next(iter(found))}) have {min(shares):.1%} to {max(shares):.1%} zeros"
                      f"{', in the pattern ' + ', '.join(patterns) if patterns else ''}. Their zeros are kept; for "
                      "results about one pruning, start from the dense model", stacklevel=4)
    return set(found)


def _pattern_of(W: Tensor) -> str:
    """"2:4" or "4:8" when every run of W [out, in] has that many zeros, else ""."""
    for pattern in ("2:4", "4:8"):
        kept, run = run_of(pattern)
        if W.shape[1] % run == 0 and int((W.reshape(-1, run) == 0).sum(1).min()) >= run - kept:
            return pattern
    return ""
