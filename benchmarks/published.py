"""Wanda and SparseGPT as their authors' code runs them: the baseline of benchmarks.pruning.

Sample by sample through each block, one statistic for each linear layer (q, k, v, gate and up each their own), a full
stable sort of every row, SparseGPT's columns one by one; the pruned block is run sample by sample again. Weights are
changed in place. Written anew after github.com/locuslab/wanda and github.com/IST-DASLab/sparsegpt, with three
changes, without which the results could not be compared or would be wrong:

- Each block gets its own recorded arguments. The published code gives block 0's to all, which is wrong on Gemma.
- SparseGPT removes exactly floor(n * sparsity) weights of a block of columns, ties to the lower row, then column. The
  published `score <= threshold` removes one more than that, and all that tie with it. The sort is the same.
- A Gram matrix is multiplied and solved at full float32 precision even where the forward pass is not.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from lib.pruning.blocks import find_blocks, record_arguments
from lib.pruning.statistics import full_precision

BLOCK = 128


class Wanda:
    """Of one linear layer: the mean square of each input feature over samples, then its pruned weights."""

    def __init__(self, linear: nn.Linear):
        self.linear, self.samples = linear, 0
        self.squares = torch.zeros(linear.in_features, device=linear.weight.device)

    def add(self, X: Tensor) -> None:
        """X [1, tokens, in]"""
        X = X[0].t().float()
        self.squares *= self.samples / (self.samples + 1)
        self.samples += 1
        self.squares += torch.norm(X, p=2, dim=1) ** 2 / self.samples

    def score(self) -> Tensor:
        return self.linear.weight.abs() * self.squares.reshape(1, -1).sqrt()

    def mask(self, sparsity: float) -> Tensor:
        """bool [out, in], True = removed"""
        score = self.score()
        removed = torch.zeros_like(score) == 1
        indices = torch.sort(score, dim=-1, stable=True)[1][:, :int(score.shape[1] * sparsity)]
        return removed.scatter_(1, indices, True)

    def prune(self, sparsity: float) -> None:
        self.linear.weight[self.mask(sparsity)] = 0


class SparseGPT:
    """Of one linear layer: the Gram matrix of its inputs, then its compensated weights."""

    def __init__(self, linear: nn.Linear):
        self.linear, self.samples = linear, 0
        self.H = torch.zeros(linear.in_features, linear.in_features, device=linear.weight.device)

    def add(self, X: Tensor) -> None:
        """X [1, tokens, in]"""
        self.H *= self.samples / (self.samples + 1)
        self.samples += 1
        X = math.sqrt(2 / self.samples) * X[0].t().float()
        with full_precision():
            self.H += X.matmul(X.t())

    def prune(self, sparsity: float) -> None:
        weight = self.linear.weight
        with full_precision():
            weight.copy_(sparsegpt(weight.clone().float(), self._take(), sparsity))

    def _take(self) -> Tensor:
        """H, let go of, so that its memory is free once it is factored."""
        H, self.H = self.H, None
        return H


def lowest(score: Tensor, sparsity: float) -> Tensor:
    """score [out, columns] -> bool, True for the floor(n * sparsity) lowest of all, ties to the lower index."""
    order = torch.sort(score.flatten(), stable=True)[1]
    removed = torch.zeros(score.numel(), dtype=torch.bool, device=score.device)
    removed[order[:int(score.numel() * sparsity)]] = True
    return removed.reshape(score.shape)


def sparsegpt(W: Tensor, H: Tensor, sparsity: float, choose: Callable[[Tensor, float], Tensor] = lowest) -> Tensor:
    """W [out, in], H [in, in], both changed in place -> compensated weights [out, in], 0 where `choose` removed."""
    dead = torch.diag(H) == 0
    H[dead, dead] = 1
    W[:, dead] = 0
    H.diagonal().add_(0.01 * torch.mean(torch.diag(H)))
    H = torch.linalg.cholesky(H)
    H = torch.cholesky_inverse(H)
    inverse = H = torch.linalg.cholesky(H, upper=True)
    losses = torch.zeros_like(W)
    for a in range(0, W.shape[1], BLOCK):
        b = min(a + BLOCK, W.shape[1])
        W1, inverse1 = W[:, a:b].clone(), inverse[a:b, a:b]
        Q1, errors = torch.zeros_like(W1), torch.zeros_like(W1)
        removed = choose(W1**2 / torch.diag(inverse1).reshape(1, -1) ** 2, sparsity)
        for j in range(b - a):
            w, d = W1[:, j], inverse1[j, j]
            q = w.clone()
            q[removed[:, j]] = 0
            Q1[:, j] = q
            losses[:, a + j] = (w - q) ** 2 / d**2 / 2
            error = (w - q) / d
            W1[:, j:] -= error.unsqueeze(1).matmul(inverse1[j, j:].unsqueeze(0))
            errors[:, j] = error
        W[:, a:b] = Q1
        W[:, b:] -= errors.matmul(inverse[a:b, b:])
    return W


METHODS = {"wanda": Wanda, "sparsegpt": SparseGPT}


@torch.no_grad()
def prune(model: nn.Module, windows: Tensor, method: str, sparsity: float) -> None:
    """Prune the model in place on token ids windows [n, seqlen]."""
    recording = record_arguments(model, windows.split(1))
    inputs = torch.cat(recording.hidden)
    recording.hidden.clear()
    outputs = torch.zeros_like(inputs)
    for index, block in enumerate(find_blocks(model)[1]):
        with observing(block, method) as observers:
            for j, calls in enumerate(recording.calls):
                outputs[j] = calls[index].run(block, inputs[j:j + 1])[0]
        while observers:
            observers.popitem()[1].prune(sparsity)
        for j, calls in enumerate(recording.calls):
            outputs[j] = calls[index].run(block, inputs[j:j + 1])[0]
        inputs, outputs = outputs, inputs


@contextmanager
def observing(block: nn.Module, method: str) -> Iterator[dict[str, Wanda | SparseGPT]]:
    """While open, each linear layer of the block adds what it is fed, sample by sample, to its observer."""
    observers = {name: METHODS[method](m) for name, m in block.named_modules() if isinstance(m, nn.Linear)}
    hooks = [o.linear.register_forward_hook(partial(_see, o)) for o in observers.values()]
    try:
        yield observers
    finally:
        for hook in hooks:
            hook.remove()


def _see(observer: Wanda | SparseGPT, linear: nn.Linear, args: tuple, output: Tensor) -> None:
    for X in args[0].split(1):
        observer.add(X)
