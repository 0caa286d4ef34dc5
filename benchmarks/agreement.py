"""Do lib.pruning and the published algorithms choose the same weights? For benchmarks.pruning."""

import numpy as np
import torch
from torch import Tensor

from benchmarks import published
from benchmarks.measured import BATCH, Setting, loaded
from lib.pruning.blocks import Step, find_blocks, linear_layers, walk, weight_matrix
from lib.pruning.collect import collecting
from lib.pruning.scores import lowest, wanda_score
from lib.pruning.sparsegpt import factor, sparsegpt
from lib.pruning.statistics import Gram, InputNorm

NEAR = 1e-6  # of the threshold: where float32 may decide either way
CHECKED = 6  # blocks whose masks are compared layer by layer


@torch.no_grad()
def check(setting: Setting) -> dict[str, dict]:
    """By method, how the masks of lib.pruning compare with those of the published algorithms on the same weights and
    inputs, in CHECKED blocks of the dense model. Wanda: each with its own statistic. SparseGPT: the published algorithm
    in float64 on the Gram matrix of lib.pruning, as its float32 has errors of its own; a weight on the other side
    changes all that follow it, so only the first block of 128 columns with any can tell why."""
    model, ids = loaded(setting)
    depth, s = len(find_blocks(model)[1]), setting.sparsity
    counts = {method: dict.fromkeys(("checked", "mismatches", "first_mismatches", "near_ties"), 0)
              for method in published.METHODS}

    def visit(step: Step) -> None:
        if step.index not in np.linspace(0, depth - 1, min(depth, CHECKED)).astype(int):
            return
        with (collecting(step.name, step.block, InputNorm) as norms, collecting(step.name, step.block, Gram) as grams,
              published.observing(step.block, "wanda") as observers):
            for _ in step.advance():
                pass
        factors = {id(gram): factor(gram.value()) for gram in grams.values()}
        for layer, linear in linear_layers(step.block).items():
            W = weight_matrix(linear)
            tally(counts["wanda"], [(observers[layer].score(), observers[layer].mask(s))],
                  lowest(wanda_score(W, norms[layer].value()), s, "row"), group=1)
            tally(counts["sparsegpt"], published_choices(W, grams[layer].value(), s),
                  sparsegpt(W, factors[id(grams[layer])], s).removed, group=(0, 1))

    walk(model, ids.split(BATCH), visit)
    return counts


def published_choices(W: Tensor, H: Tensor, sparsity: float) -> list[tuple[Tensor, Tensor]]:
    """(score, removed), both [out, columns], of each block of columns of the published SparseGPT in float64."""
    choices = []

    def choose(score: Tensor, sparsity: float) -> Tensor:
        removed = published.lowest(score, sparsity)
        choices.append((score, removed))
        return removed

    published.sparsegpt(W.double(), H.double(), sparsity, choose)
    return choices


def tally(counts: dict, choices: list[tuple[Tensor, Tensor]], ours: Tensor, group: int | tuple[int, int]) -> None:
    """Add up the weights that `ours` [out, in] decides otherwise than the published choices (score, removed) of its
    blocks of columns [out, columns]. `group`: the axes along which scores were compared with each other."""
    counts["checked"] += ours.numel()
    first = True
    for (score, removed), here in zip(choices, ours.split(choices[0][0].shape[1], 1), strict=True):
        differs = removed != here
        counts["mismatches"] += int(differs.sum())
        if first and differs.any():
            first = False
            counts["first_mismatches"] += int(differs.sum())
            counts["near_ties"] += int((differs & (margins(score, removed, group) <= NEAR)).sum())


def margins(score: Tensor, removed: Tensor, group: int | tuple[int, int]) -> Tensor:
    """|score - threshold| / threshold [out, columns]: the threshold of a removed weight is the lowest score kept in
    its group, that of a kept weight the highest removed."""
    kept = score.masked_fill(removed, torch.inf).amin(group, keepdim=True)
    gone = score.masked_fill(~removed, -torch.inf).amax(group, keepdim=True)
    threshold = torch.where(removed, kept, gone)
    return ((score - threshold).abs() / threshold).nan_to_num(0)  # 0 / 0: a tie
