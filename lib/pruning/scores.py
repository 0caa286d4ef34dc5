"""Pruning scores and the choice of weights to remove: pure functions of tensors.

Nothing here knows models or files, and torch need not be imported to read `METHODS`.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

from lib.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

GROUPS = ("row", "matrix")


def magnitude_score(W: Tensor) -> Tensor:
    """W [out, in] -> |W| [out, in] in float32."""
    return W.float().abs()


def wanda_score(W: Tensor, x_norm: Tensor) -> Tensor:
    """W [out, in], x_norm [in] -> |W_ij| * ||X_j||_2 [out, in] in float32 (Sun et al., ICLR 2024, eq. 1)."""
    return W.float().abs() * x_norm.float()


class Method(NamedTuple):
    """How a method scores weights.

    `score(W)`, or `score(W, value)` with the value of the named statistic of `lib.pruning.statistics`.
    `groups`: which weights may be compared with each other, the published choice first.
    """

    score: Callable[..., Tensor]
    statistic: str | None
    groups: tuple[str, ...]


METHODS = {
    "magnitude": Method(magnitude_score, None, ("matrix", "row")),
    "wanda": Method(wanda_score, "input_norm", ("row", "matrix")),
}


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
    return _lowest(rows, removed_count(rows.shape[1], sparsity)).view(score.shape)


def _lowest(rows: Tensor, count: int) -> Tensor:
    """rows [r, n] -> bool [r, n] with exactly `count` lowest of each row, ties to the lower column.

    Selecting the count-th value is several times faster than a stable sort; what ties with it is counted out.
    """
    removed = rows.isnan()
    if removed.any():
        raise InputError("a score is not a number (NaN): the weights or the activations hold NaN or "
                         "infinity; check the model and its dtype")
    if count == 0:
        return removed
    threshold = rows.kthvalue(count, dim=1, keepdim=True).values
    removed, tied = rows < threshold, rows == threshold
    room = count - removed.sum(1, keepdim=True)
    crowded = (tied.sum(1, keepdim=True) > room).squeeze(1)
    if crowded.any():
        tied[crowded] &= tied[crowded].cumsum(1) <= room[crowded]
    return removed | tied
