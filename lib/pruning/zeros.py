"""The way back: the masks of a pruned checkpoint, read from its zeros."""

import warnings
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from lib.errors import InputError
from lib.pruning.blocks import find_blocks, linear_layers, weight_matrix
from lib.pruning.methods import METHODS, group_of
from lib.pruning.pruned import Pruned, mask_digest

RUNS = (4, 8)  # lengths of the runs in which an n:m pattern is looked for
TOLERANCE = 0.01  # share of the weights by which zeros may miss a pattern's or a name's sparsity


class Place(NamedTuple):
    """Where a linear layer of the dense model stands, and which stored parameter holds its matrix."""

    block: int
    module: str  # name inside the block
    layer: str  # full name
    linear: nn.Module
    parameter: str
    expert: int | None  # index into a parameter that stacks the experts of a mixture


@torch.no_grad()
def masks_from_zeros(parameters: Mapping[str, Tensor], model: nn.Module, method: str = "unknown") -> Pruned:
    """A pruned checkpoint's parameters by name, and the dense model -> the masks: W [out, in] == 0 is removed.

    `parameters` is looked up one name at a time: a `lib.inputs.stored.Stored`, or a dictionary of tensors. The
    dtypes may differ. A kept weight counts as changed when it is neither the dense one rounded to the
    checkpoint's dtype nor, rounded to the model's, the dense one; a layer with any has all its kept weights in
    `weights`, in the checkpoint's dtype. Under `applied` the linear layers of the dense model thus compute what
    the checkpoint's do.

    A zero of the checkpoint where the dense weight is zero too, as stored or when rounded to the checkpoint's
    dtype, is undetermined: no one can tell whether it was removed. The mask counts it as removed, as every
    method here does with zeros (their scores are the lowest). The rows have, beside those of Pruned,
    `undetermined` and `changed` (kept weights); `sparsity` is the share that is zero and `pattern` the one found;
    `group` is the published one of `method`. Warns when embeddings, norms or biases are not the dense model's.

    Raises InputError when a layer is missing, of another shape, quantized or not finite, or when there are no
    zeros but undetermined ones.
    """
    places = _places(model)
    absent = [place.layer for place in places if place.parameter not in parameters]
    if absent:
        raise InputError(f"the checkpoint has no weights of {absent[0]} (of such layers there are {len(absent)}), so "
                         f"it is not one of this {type(model).__name__}; give the dense model that was pruned")
    found = {}
    for parameter in dict.fromkeys(place.parameter for place in places):  # a stack of experts is read once
        tensor = parameters[parameter]
        found |= {place.layer: _read(tensor, place) for place in places if place.parameter == parameter}
    masks, weights, rows = ({place.layer: found[place.layer][k] for place in places} for k in range(3))
    total = totals(list(rows.values()))
    if total["removed"] == total["undetermined"]:
        raise InputError(f"the checkpoint has no zeros in its linear layers that the dense {type(model).__name__} "
                         "has not, so it holds no mask; give a checkpoint that was pruned and not retrained densely")
    _warn_of_others(parameters, model, {place.parameter for place in places})
    pattern = pattern_of(masks.values(), total["undetermined"])
    return Pruned(masks, method, total["removed"] / total["weights"], pattern,
                  group_of(method, pattern, None) if method in METHODS else "unknown", list(rows.values()), [],
                  {layer: values for layer, values in weights.items() if values is not None})


def totals(rows: list[dict]) -> dict[str, int]:
    """Sums over the layers' rows: weights, removed, undetermined, changed."""
    return {key: sum(row[key] for row in rows) for key in ("weights", "removed", "undetermined", "changed")}


def pattern_of(masks: Iterable[Tensor], undetermined: int = 0) -> str:
    """bool [out, in] masks, True = kept -> "n:m" when each run of m inputs in every pruned layer keeps at most n
    and hardly any keeps fewer, else "unstructured".

    Fewer are left where the dense model has zeros by itself (`undetermined` in all), and where an input is dead
    (TOLERANCE). A pattern is thus the share of zeros as well as their place: when 95 % are zeros at random, most
    runs of 4 keep none, and that is no 2:4.
    """
    pruned = [mask for mask in masks if not mask.all()]
    spare = undetermined + TOLERANCE * sum(mask.numel() for mask in pruned)
    for run in RUNS:
        if not pruned or any(mask.shape[1] % run for mask in pruned):
            continue
        kept = max(int(mask.reshape(-1, run).sum(1).max()) for mask in pruned)
        if 0 < kept < run and sum(mask.numel() * kept / run - int(mask.count_nonzero()) for mask in pruned) <= spare:
            return f"{kept}:{run}"
    return "unstructured"


def contradictions(pruned: Pruned, method: str, sparsity: float, pattern: str) -> list[str]:
    """Sentences on what a checkpoint's name states and its weights, as `masks_from_zeros` found them, deny."""
    total = totals(pruned.layers)
    dense = sum(row["removed"] == row["undetermined"] for row in pruned.layers)
    found = []
    if abs(pruned.sparsity - sparsity) > TOLERANCE:
        found.append(f"the name states {sparsity:.1%} sparsity, but {total['removed']:,} of {total['weights']:,} "
                     f"weights are zero ({pruned.sparsity:.1%}; {total['undetermined']:,} of them in the dense model "
                     f"too, {dense} of {len(pruned.layers)} layers without zeros of their own)")
    if pruned.pattern != pattern:
        found.append(f"the name states the pattern {pattern}, but the zeros are {pruned.pattern}")
    kept = total["weights"] - total["removed"]
    if total["changed"] and not METHODS[method].compensates:
        found.append(f"{method} leaves kept weights as they are, but {total['changed']:,} of {kept:,} are not the "
                     "dense model's; give the dense model that was pruned")
    if METHODS[method].compensates and not total["changed"]:
        found.append(f"{method} changes kept weights, but all of them are the dense model's")
    return found


def _places(model: nn.Module) -> list[Place]:
    """Every linear layer of the blocks, in order."""
    known = {name for name, _ in model.named_parameters()}
    start, blocks = find_blocks(model)
    places = []
    for index, block in enumerate(blocks):
        for module, linear in linear_layers(block).items():
            layer, expert = f"{start}.{index}.{module}", None
            parameter = f"{layer}.weight"
            if parameter not in known:  # a stack's name and an index in it, as lib.pruning.experts names them
                place, expert, stack = layer.rsplit(".", 2)
                parameter, expert = f"{place}.{stack}", int(expert)
            places.append(Place(index, module, layer, linear, parameter, expert))
    return places


def _read(tensor: Tensor, place: Place) -> tuple[Tensor, Tensor | None, dict]:
    """The stored parameter -> the layer's mask bool [out, in], its kept weights [kept] when any of them was
    changed, and its row."""
    stored, W = _matrix(tensor, place), weight_matrix(place.linear)
    there = stored.to(W.device)
    removed = there == 0
    mask, changed = (~removed).cpu(), int((~removed & ~_same(there, W)).count_nonzero())
    return mask, stored.cpu()[mask] if changed else None, {
        "layer": place.block, "module": place.module, "weights": removed.numel(),
        "removed": int(removed.count_nonzero()), "zero_before": removed.numel() - int(W.count_nonzero()),
        "undetermined": int((removed & (W.to(there.dtype) == 0)).count_nonzero()), "changed": changed,
        "mask_digest": mask_digest(mask)[:16]}


def _matrix(tensor: Tensor, place: Place) -> Tensor:
    """The stored parameter -> the layer's W [out, in]."""
    stored = tensor if place.expert is None else tensor[place.expert] if place.expert < len(tensor) else tensor[:0]
    if stored.shape != place.linear.weight.shape:
        raise InputError(f"{place.layer} is of shape {list(stored.shape)} in the checkpoint and of "
                         f"{list(place.linear.weight.shape)} in the dense model; give the dense model that was pruned")
    if not stored.is_floating_point():
        raise InputError(f"{place.layer} has weights of dtype {stored.dtype} in the checkpoint: quantized weights do "
                         "not tell which were removed; give the checkpoint in float32, bfloat16 or float16")
    if not stored.isfinite().all():
        raise InputError(f"the checkpoint's weights of {place.layer} are not finite (NaN or infinity): it is damaged")
    return stored.t() if isinstance(place.linear, Conv1D) else stored


def _same(stored: Tensor, dense: Tensor) -> Tensor:
    """Where two tensors of one shape, and of dtypes that may differ, are equal up to the rounding of either."""
    return (stored == dense.to(stored.dtype)) | (stored.to(dense.dtype) == dense)


def _warn_of_others(parameters: Mapping[str, Tensor], model: nn.Module, pruned: set[str]) -> None:
    """Say so when parameters outside the linear layers differ: `applied` does not bring these."""
    others = [(name, dense.detach()) for name, dense in model.named_parameters()
              if name not in pruned and name in parameters]
    differ = [name for name, dense in others
              if (stored := parameters[name]).shape != dense.shape or not _same(stored.to(dense.device), dense).all()]
    if differ:
        warnings.warn(f"{len(differ)} parameters outside the linear layers are not those of the dense model, the first "
                      f"is {differ[0]}: the checkpoint was trained on, or is another model's. Its masks and linear "
                      "layers are taken, the rest stays the dense model's", stacklevel=3)
