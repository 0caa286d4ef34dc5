"""Streaming statistics of the inputs of linear layers."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class InputNorm:
    """x_norm [in]: the L2 norm of each input feature over all tokens.

    Squares are summed in float32 inside a batch and in float64 across batches.
    """

    def __init__(self):
        self.squares: Tensor | float = 0.0

    def add(self, X: Tensor) -> None:
        """Take in X [..., in], one row a token."""
        self.squares = X.reshape(-1, X.shape[-1]).float().square().sum(0).double() + self.squares

    def value(self) -> Tensor:
        """||X_j||_2 [in] in float32."""
        return self.squares.sqrt().float()


class Gram:
    """H [in, in] = (2 / n) sum_t x_t x_t^T over the n tokens: the Hessian of the layer's squared output error
    (Frantar & Alistarh, ICML 2023, eq. 2).

    Summed in float32 at full precision, whatever the process allows for its matrix products. H is symmetric,
    so only tiles on and above the diagonal are multiplied: of k x k tiles, k (k + 1) / 2.
    """

    TILE = 256  # smaller tiles save more of the products and run further below the machine's rate

    def __init__(self):
        self.sums: Tensor | None = None
        self.tokens = 0

    def add(self, X: Tensor) -> None:
        """Take in X [..., in], one row a token."""
        X = X.reshape(-1, X.shape[-1]).float()
        width = X.shape[1]
        if self.sums is None:
            self.sums = X.new_zeros(width, width)
        self.tokens += len(X)
        with full_precision():
            for a in range(0, width, self.TILE):
                self.sums[a:a + self.TILE, a:].addmm_(X[:, a:a + self.TILE].T, X[:, a:])

    def value(self) -> Tensor:
        """H [in, in] in float32, exactly symmetric."""
        upper = self.sums.triu()
        return (upper + upper.triu(1).T) * (2 / self.tokens)


@contextmanager
def full_precision() -> Iterator[None]:
    """float32 matrix products in float32, not in shorter factors (see torch.set_float32_matmul_precision)."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


STATISTICS = {"input_norm": InputNorm, "gram": Gram}
