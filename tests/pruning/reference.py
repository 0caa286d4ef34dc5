"""The pruning methods written from their equations, slowly, in float64 numpy: what lib.pruning is compared with.

Nothing is shared with lib.pruning. Every choice comes with its margins: how far a weight's score is from the
threshold, so that a test can tell a wrong choice from a rounding at a near-tie.
"""

from decimal import Decimal
from typing import NamedTuple

import numpy as np

BLOCK = 128  # columns of SparseGPT's masks


class Choice(NamedTuple):
    """`removed` [out, in]: bool. `margins` [out, in]: |score - threshold| / threshold, where the threshold of a
    removed weight is the lowest score kept in its group, and that of a kept weight the highest score removed."""

    removed: np.ndarray
    margins: np.ndarray


class Solution(NamedTuple):
    """As Choice, with the compensated `weights` [out, in], and how many weights of dead inputs were removed beyond
    the count (`dead_zeros`)."""

    removed: np.ndarray
    margins: np.ndarray
    weights: np.ndarray
    dead_zeros: int


def magnitude(W: np.ndarray) -> np.ndarray:
    """W [out, in] -> |W_ij| [out, in]."""
    return np.array([[abs(w) for w in row] for row in W], float)


def wanda(W: np.ndarray, x_norm: np.ndarray) -> np.ndarray:
    """W [out, in], x_norm [in] -> |W_ij| ||X_j||_2 [out, in] (Sun et al., ICLR 2024, eq. 1)."""
    return np.array([[abs(w) * x for w, x in zip(row, x_norm, strict=True)] for row in W], float)


def ria(W: np.ndarray, x_norm: np.ndarray) -> np.ndarray:
    """W [out, in], x_norm [in] -> (|W_ij| / sum_i |W_ij| + |W_ij| / sum_j |W_ij|) ||X_j||_2^0.5 [out, in]
    (Zhang et al., ICLR 2024, eq. 4), 0 for a weight that is 0, whatever its sums."""
    A = magnitude(W)
    rows, columns = [sum(row) for row in A], [sum(A[:, j]) for j in range(A.shape[1])]
    score = np.zeros(A.shape)
    for i, j in np.ndindex(A.shape):
        if A[i, j]:
            score[i, j] = (A[i, j] / columns[j] + A[i, j] / rows[i]) * x_norm[j] ** 0.5
    return score


def count(weights: int, sparsity: float) -> int:
    """floor(weights * sparsity), the sparsity read as the decimal number that it is written as."""
    return int(Decimal(weights) * Decimal(str(sparsity)))


def lowest(score: np.ndarray, sparsity: float, group: str) -> Choice:
    """The floor(n * sparsity) lowest of each row's, or of the whole matrix's n scores; ties to the lower index."""
    if group == "matrix":
        choice = _lowest(score.ravel(), count(score.size, sparsity))
        return Choice(*(part.reshape(score.shape) for part in choice))
    return _stacked([_lowest(row, count(len(row), sparsity)) for row in score], score.shape)


def lowest_of_runs(score: np.ndarray, kept: int, run: int) -> Choice:
    """In each run of `run` consecutive inputs of a row the run - kept lowest; ties to the lower column."""
    runs = score.reshape(-1, run)
    return _stacked([_lowest(scores, run - kept) for scores in runs], score.shape)


def gram(X: np.ndarray) -> np.ndarray:
    """X [tokens, in] -> H [in, in] = (2 / tokens) sum_t x_t x_t^T (Frantar & Alistarh, ICML 2023, section 3)."""
    return 2 / len(X) * sum(np.outer(x, x) for x in X.astype(float))


def damped(H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """H [in, in] -> (damped H [in, in], dead [in]): inputs that were always 0 get H_jj = 1, then a hundredth of the
    mean of the diagonal is added to it."""
    H = np.array(H, float)
    dead = np.diag(H) == 0
    H[dead, dead] = 1
    return H + 0.01 * np.mean(np.diag(H)) * np.eye(len(H)), dead


def inverse_rows(H: np.ndarray) -> list[np.ndarray]:
    """Damped H [in, in] -> for each column j the first row of (H_j:,j:)^-1, an inverse of its own: what is solved
    once the columns before j are settled (ibid., eq. 3). That U_jj^2 and U_j,j: U_jj are these without inverting
    so often is the paper's point (ibid., section 3.3), and here what is tested."""
    return [np.linalg.inv(H[j:, j:])[0] for j in range(len(H))]


def sparsegpt(W: np.ndarray, H: np.ndarray, sparsity: float = 0.5, run: tuple[int, int] | None = None,
              frozen: np.ndarray | None = None) -> Solution:
    """W [out, in], H [in, in] -> Solution (ibid., algorithm 1).

    Without a run, the floor(n * sparsity) lowest w^2 / [H^-1]_jj of a block's n weights (all rows, 128 columns), on
    the weights as the blocks before it left them, ties to the lower row, then column; with a run (kept, length) the
    length - kept lowest of a row's run, on the weights as all columns before it left them. Weights that are frozen
    (0 and to stay so) go first, then those of dead inputs: all of them, within the count or beyond it.
    """
    W = np.array(W, float)
    H, dead = damped(H)
    W[:, dead] = 0
    frozen = np.zeros(W.shape, bool) if frozen is None else frozen
    rank = np.where(frozen, 0, np.where(dead, 1, 2))
    rows = inverse_rows(H)
    diagonal = np.array([row[0] for row in rows])
    removed, margins, beyond = np.zeros(W.shape, bool), np.full(W.shape, np.inf), 0
    for j in range(W.shape[1]):
        width = run[1] if run else BLOCK
        if j % width == 0:
            here = slice(j, min(j + width, W.shape[1]))
            score = W[:, here] ** 2 / diagonal[here]
            if run:
                choices = [_lowest(s, run[1] - run[0], r) for s, r in zip(score, rank[:, here], strict=True)]
                choice = _stacked(choices, score.shape)
            else:
                choice = _lowest(score.ravel(), count(score.size, sparsity), rank[:, here].ravel())
            chosen, margins[:, here] = (part.reshape(score.shape) for part in choice)
            chosen |= frozen[:, here]
            beyond += int((dead[here] & ~chosen).sum())
            removed[:, here] = chosen | dead[here]
        for i in np.flatnonzero(removed[:, j]):
            W[i, j:] -= W[i, j] / rows[j][0] * rows[j]
            W[i, j] = 0
    return Solution(removed, margins, W, beyond)


def _lowest(score: np.ndarray, n: int, rank: np.ndarray | None = None) -> Choice:
    """The n lowest of score [k], a lower rank before a higher one; ties to the lower index."""
    rank = np.zeros(len(score), int) if rank is None else rank
    order = sorted(range(len(score)), key=lambda k: (rank[k], score[k], k))
    removed = np.zeros(len(score), bool)
    removed[order[:n]] = True
    margins = np.full(len(score), np.inf)
    # Between ranks nothing is near, and where nothing or everything is removed there is no threshold.
    for r in set(rank):
        taken, kept = removed & (rank == r), ~removed & (rank == r)
        if taken.any() and kept.any():
            for side, threshold in ((taken, score[kept].min()), (kept, score[taken].max())):
                margins[side] = np.abs(score[side] - threshold) / (threshold or 1)
    return Choice(removed, margins)


def _stacked(choices: list[Choice], shape: tuple[int, int]) -> Choice:
    return Choice(*(np.concatenate(parts).reshape(shape) for parts in zip(*choices, strict=True)))
