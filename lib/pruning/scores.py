"""Pruning scores and the choice of weights to remove: pure functions of tensors.

Nothing here knows models or files, and nothing here imports torch.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from lib.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

GROUPS = ("row", "matrix")
TOGETHER = 1_000_000  # scores that are selected from at a time


def magnitude_score(W: Tensor) -> Tensor:
    """W [out, in] -> |W| [out, in] in float32."""
    return W.float().abs()


def wanda_score(W: Tensor, x_norm: Tensor) -> Tensor:
    """W [out, in], x_norm [in] -> |W_ij| * ||X_j||_2 [out, in] in float32 (Sun et al., ICLR 2024, eq. 1)."""
    return W.float().abs().mul_(x_norm.float())


def ria_score(W: Tensor, x_norm: Tensor) -> Tensor:
    """W [out, in], x_norm [in] -> relative importance and activations [out, in] in float32.

    (|W_ij| / sum_i |W_ij| + |W_ij| / sum_j |W_ij|) * ||X_j||_2^0.5 (Zhang et al., ICLR 2024, eq. 2 and 3, with
    a = 0.5). In a column or row of zeros the weight's share is 0.
    """
    W = W.float().abs()
    column, row = (W.sum(dim, keepdim=True).clamp_min(1e-38) for dim in (0, 1))
    return (W / column + W / row) * x_norm.float().sqrt()


def run_of(pattern: str) -> tuple[int, int] | None:
    """"2:4" -> (2, 4): in each run of 4 consecutive inputs 2 weights are kept; "unstructured" -> None.

    Raises InputError for anything else.
    """
    if pattern == "unstructured":
        return None
    kept, _, run = pattern.partition(":")
    if kept.isdecimal() and run.isdecimal() and 0 < int(kept) < int(run):
        return int(kept), int(run)
    raise InputError(f"pattern is {pattern!r}; allowed: unstructured, or n:m with 0 < n < m, which keeps n of "
                     "each m consecutive inputs, such as 2:4 and 4:8")


def removed_count(weights: int, sparsity: float) -> int:
    """floor(weights * sparsity) in decimal arithmetic: 360 * 0.7 is 252, where floats floor to 251."""
    return int(Decimal(str(sparsity)) * weights)


def lowest(score: Tensor, sparsity: float, group: str) -> Tensor:
    """score [out, in] -> bool [out, in], True for the floor(n * sparsity) lowest of each group's n weights.

    `group`: "row" compares a row's weights, "matrix" all of them. Ties go to the lower column, in a matrix to
    the lower row first, as a stable sort would have it. Raises InputError on NaN.
    """
    if group not in GROUPS:
        raise InputError(f"comparison group is {group!r}; allowed: {', '.join(GROUPS)}")
    rows = score if group == "row" else score.reshape(1, -1)
    count, some = removed_count(rows.shape[1], sparsity), max(1, TOGETHER // rows.shape[1])
    removed = rows.new_empty(rows.shape, dtype=bool)
    for k in range(0, len(rows), some):  # selecting takes several times the memory of what it is given
        removed[k:k + some] = _lowest(rows[k:k + some], count)
    return removed.view(score.shape)


def _lowest(rows: Tensor, count: int) -> Tensor:
    """rows [r, n] -> bool [r, n] with exactly `count` lowest of each row, ties to the lower column.

    Selecting the count-th value is several times faster than a stable sort; what ties with it is counted out.
    """
    _refuse_nan(rows)
    if count == 0:
        return rows.isnan()
    threshold = rows.kthvalue(count, dim=1, keepdim=True).values
    removed, tied = rows < threshold, rows == threshold
    room = count - removed.sum(1, keepdim=True)
    crowded = (tied.sum(1, keepdim=True) > room).squeeze(1)
    if crowded.any():
        tied[crowded] &= tied[crowded].cumsum(1) <= room[crowded]
    return removed | tied


def lowest_of_runs(score: Tensor, kept: int, run: int) -> Tensor:
    """score [out, in] -> bool [out, in], True for the run - kept lowest of each `run` consecutive inputs.

    Ties go to the lower column. Raises InputError on NaN, and when `run` does not divide the width.
    """
    if score.shape[1] % run:
        raise InputError(f"runs of {run} consecutive inputs do not fill a width of {score.shape[1]}; choose a "
                         "pattern n:m whose m divides it")
    _refuse_nan(score)
    # A weight's rank is how many of its run come before it. Comparing all pairs of so few is several times
    # faster than sorting.
    runs = score.reshape(-1, run)
    rank = runs.new_zeros(runs.shape)
    for j in range(run):
        for k in range(run):
            if k != j:
                rank[:, j] += runs[:, k] <= runs[:, j] if k < j else runs[:, k] < runs[:, j]
    return (rank < run - kept).view(score.shape)


def _refuse_nan(score: Tensor) -> None:
    if score.isnan().any():
        raise InputError("a score is not a number (NaN): the weights or the activations hold NaN or infinity; "
                         "check the model and its dtype")
