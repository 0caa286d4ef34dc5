"""Streaming statistics of the inputs of linear layers."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from lib.errors import InputError
from lib.pruning.blocks import Step, linear_layers, walk


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


STATISTICS = {"input_norm": InputNorm}


class _Collector:
    """Takes the inputs of a block's linears as they pass; linears fed the same tensor share a statistic."""

    def __init__(self, block: str, make: Callable):
        self.block, self.make = block, make
        self.statistics: dict[str, object] = {}
        self._leader: dict[str, str] = {}
        self._inputs: dict[str, Tensor] = {}
        self._windows = 0

    def see(self, layer: str, module: nn.Module, args: tuple) -> None:
        X = self._inputs[layer] = args[0]
        first = next(name for name, seen in self._inputs.items() if seen is X)
        if layer not in self._leader:
            self._leader[layer] = first
            self.statistics[layer] = self.make() if first == layer else self.statistics[first]
        if self._leader[layer] != first:
            raise InputError(f"layer {self.block}.{layer} shares its input with {self._leader[layer]} in one "
                             f"batch and with {first} in another, so its statistics cannot be collected")
        if first == layer:
            if not X.sum(dtype=torch.float32).isfinite():
                self._refuse(layer, X)
            self.statistics[layer].add(X)

    def end_batch(self, module: nn.Module, args: tuple, output) -> None:
        self._windows += len(output[0] if isinstance(output, tuple) else output)
        self._inputs.clear()

    def _refuse(self, layer: str, X: Tensor) -> None:
        bad = (~X.isfinite()).reshape(len(X), -1).any(1).nonzero()
        where = f"the batch that begins with window {self._windows}"
        if X.ndim == 3 and len(bad):
            where = f"window {self._windows + int(bad[0])}"
        raise InputError(f"the input of layer {self.block}.{layer} is not finite (NaN or infinity) in "
                         f"{where}, counted from 0. Check the model's weights, or load it in float32 if "
                         "its dtype overflows")


@contextmanager
def collecting(name: str, block: nn.Module, make: Callable) -> Iterator[dict]:
    """While open, every forward pass of the block feeds the statistic `make()` of each of its linear layers.

    Gives {linear's name: statistic}; one object for linears with the same input (q, k, v; gate, up). The
    hooks are gone afterwards. Raises InputError on NaN or infinity, naming layer and window.
    """
    collector = _Collector(name, make)
    hooks = [block.register_forward_hook(collector.end_batch)]
    hooks += [linear.register_forward_pre_hook(partial(collector.see, layer))
              for layer, linear in linear_layers(block).items()]
    try:
        yield collector.statistics
    finally:
        for hook in hooks:
            hook.remove()


def input_norms(model: nn.Module, windows: Tensor, batch_size: int = 8
                ) -> Mapping[tuple[int, str], np.ndarray]:
    """Token ids windows [n, seqlen] -> x_norm [in] of every linear in the unpruned model, in float32, by
    (layer, name inside the block)."""
    norms: dict[tuple[int, str], np.ndarray] = {}

    def visit(step: Step) -> None:
        with collecting(step.name, step.block, InputNorm) as statistics:
            for _ in step.advance():
                pass
        norms.update({(step.index, layer): s.value().cpu().numpy() for layer, s in statistics.items()})

    walk(model, windows.split(batch_size), visit)
    return norms
