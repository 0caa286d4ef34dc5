"""SparseGPT (Frantar & Alistarh, ICML 2023): remove weights and let the kept ones make up for it.

Pure functions of tensors. torch is imported when they are called, so that the table of methods can be read
without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lib.errors import InputError
from lib.pruning.scores import lowest, lowest_of_runs, run_of

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 128  # columns that are compared with each other and solved together
LEAF = 16  # about as many columns are solved one by one before the rest of the block is brought up to date
DAMPING = (0.01, 0.1, 1.0)  # shares of the mean of diag(H) added to it, tried in this order


class Factor(NamedTuple):
    """`U` [in, in]: upper, float64, with H_damped^-1 = U^T U. `dead` [in]: inputs that were always 0.
    `damping`: the share of the mean diagonal that was added."""

    U: Tensor
    dead: Tensor
    damping: float


class Solution(NamedTuple):
    """`removed` [out, in]: bool. `weights` [out, in]: float32, 0 where removed. `dead_zeros`: how many weights
    of dead inputs are removed beyond the count that sparsity or pattern ask for."""

    removed: Tensor
    weights: Tensor
    dead_zeros: int


def factor(H: Tensor) -> Factor:
    """H [in, in] -> the factor of its damped inverse, in float64.

    A dead input (H_jj = 0) gets H_jj = 1. H is damped by 1 % of its mean diagonal, and by ten times more while
    it is not positive definite. Raises torch.linalg.LinAlgError if even its whole mean is not enough.

    U is the Cholesky factor of H^-1, found without inverting H: with H = R R^T, R upper, H^-1 = (R^-1)^T R^-1.
    """
    import torch

    H = H.double()
    diagonal = H.diagonal().clone()
    dead = diagonal == 0
    diagonal[dead] = 1
    for damping in DAMPING:
        damped = H.clone()
        damped.diagonal().copy_(diagonal + damping * diagonal.mean())
        # Turned end for end, R is a lower factor, which is what the library finds.
        L, failed = torch.linalg.cholesky_ex(damped.flip(0, 1))
        if not failed:
            eye = torch.eye(len(H), dtype=H.dtype, device=H.device)
            U = torch.linalg.solve_triangular(L, eye, upper=False).flip(0, 1)
            if U.isfinite().all():
                return Factor(U, dead, damping)
    raise torch.linalg.LinAlgError(f"the Gram matrix of {len(H)} inputs is not positive definite, even with "
                                   f"{DAMPING[-1]:.0%} of its mean diagonal added")


def sparsegpt(W: Tensor, factor: Factor, sparsity: float, pattern: str = "unstructured",
              frozen: Tensor | None = None) -> Solution:
    """W [out, in], Factor of its inputs -> Solution.

    From left to right in blocks of 128 columns. Removed are those with the lowest w^2 / U_jj^2, w as the
    columns before have left it: unstructured, floor(n * sparsity) of the n weights of a block (all rows); n:m,
    in each run of m inputs the m - n lowest, chosen when the run is reached. Ties go to the lower row, then the
    lower column. A removed w changes the weights to its right in its row by -w / U_jj * U_j,: (Algorithm 1).
    `frozen`: bool [out, in], weights that are zero already and stay so: they are removed first. The weights of
    dead inputs come next, and are removed also where the count is full.
    Raises InputError when m does not divide the width and the block.
    """
    import torch

    from lib.pruning.statistics import full_precision

    check_width(pattern, W.shape[1])
    U = factor.U.float()
    dead = factor.dead[:, None]
    # Transposed, so that a column is contiguous in memory.
    W = W.float().t().masked_fill(dead, 0).contiguous()
    frozen = torch.zeros_like(W, dtype=torch.bool) if frozen is None else frozen.t()
    chosen = torch.zeros_like(W, dtype=torch.bool)
    with full_precision():
        for a in range(0, len(W), BLOCK):
            b = min(a + BLOCK, len(W))
            errors = _solve(W[a:b], U[a:b, a:b], chosen[a:b], frozen[a:b], dead[a:b], sparsity, pattern)
            W[b:].addmm_(U[a:b, b:].T, errors, alpha=-1)
    removed = chosen | frozen | dead
    return Solution(removed.t().contiguous(), W.masked_fill_(removed, 0).t().contiguous(),
                    int((dead & ~chosen & ~frozen).sum()))


def check_width(pattern: str, width: int) -> None:
    """Raises InputError when the pattern's m does not divide the width and the block of columns."""
    run = run_of(pattern)
    if run and (width % run[1] or BLOCK % run[1]):
        raise InputError(f"pattern {pattern} does not fit an input width of {width}: for SparseGPT m must divide it "
                         f"and the block of {BLOCK} columns; 2:4 and 4:8 fit most models")


def _solve(W: Tensor, U: Tensor, chosen: Tensor, frozen: Tensor, dead: Tensor, sparsity: float, pattern: str
           ) -> Tensor:
    """One block, W [columns, out] in place -> errors [columns, out], what the later columns make up for.

    Fills `chosen`, the weights that the count asks for; those `frozen` [columns, out] or of `dead` [columns, 1]
    inputs are removed in any case.
    """
    import torch

    scale = U.diagonal()[:, None]
    run = run_of(pattern)
    errors, spared = torch.empty_like(W), torch.empty_like(chosen)

    def choose(a: int, b: int) -> None:
        score = (W[a:b] / scale[a:b]).square().masked_fill(dead[a:b], -1).masked_fill(frozen[a:b], -2)
        score = score.t().contiguous()
        chosen[a:b] = (lowest_of_runs(score, *run) if run else lowest(score, sparsity, "matrix")).t()
        spared[a:b] = ~(chosen[a:b] | frozen[a:b] | dead[a:b])

    if run is None:
        choose(0, len(W))
    leaf = run[1] * max(1, LEAF // run[1]) if run else LEAF  # so that a run is up to date when it is reached
    for a in range(0, len(W), leaf):
        b = min(a + leaf, len(W))
        for j in range(a, b):
            if run and j % run[1] == 0:
                choose(j, j + run[1])
            torch.div(W[j], U[j, j], out=errors[j]).masked_fill_(spared[j], 0)
            W[j + 1:b].addr_(U[j, j + 1:b], errors[j], alpha=-1)
        W[b:].addmm_(U[a:b, b:].T, errors[a:b], alpha=-1)
    return errors
