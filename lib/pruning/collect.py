"""Statistics of the inputs of a block's linear layers, gathered while the block runs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from lib.errors import InputError
from lib.pruning.blocks import Step, linear_layers, walk
from lib.pruning.experts import running_one_by_one
from lib.pruning.forwards import output_tensor
from lib.pruning.statistics import InputNorm


class Statistics(dict):
    """{linear's name: statistic}, one object for linears that were always fed the same (q, k, v; gate, up).

    A linear that was fed nothing is missing. `tokens`: {name: tokens that were sent to it} of every linear of an
    expert, 0 included; linears that see all tokens are not in it.
    """

    def __init__(self, experts: Iterable[str]):
        super().__init__()
        self.tokens: dict[str, int] = dict.fromkeys(experts, 0)


class _Collector:
    """Takes the inputs of a block's linears as they pass, and adds them to the statistics when the block is done
    with a batch: only then is it known which linears were fed the same tensors."""

    def __init__(self, block: str, make: Callable, experts: Iterable[str]):
        self.block, self.make = block, make
        self.statistics = Statistics(experts)
        self._inputs: dict[str, list[tuple[Tensor, int]]] = {}
        self._checked: set[int] = set()  # by id, unique while `_inputs` holds the tensors
        self._windows = 0

    def see(self, layer: str, module: nn.Module, args: tuple) -> None:
        X = args[0]
        if id(X) not in self._checked and not X.sum(dtype=torch.float32).isfinite():
            self._refuse(layer, X)
        self._checked.add(id(X))
        self._inputs.setdefault(layer, []).append((X, X._version))

    def end_batch(self, module: nn.Module, args: tuple, output) -> None:
        groups: dict[tuple, list[str]] = {}
        for layer in self.statistics | self._inputs:
            fed = tuple(id(X) for X, _ in self._inputs.get(layer, ()))
            groups.setdefault((id(self.statistics.get(layer)), fed), []).append(layer)
        self._part(groups.values())
        for layers in groups.values():
            for X, version in self._inputs.get(layers[0], ()):
                if X._version != version:
                    raise InputError(f"the input of layer {self.block}.{layers[0]} was changed in place while the "
                                     "block ran, so its statistics cannot be collected")
                self.statistics[layers[0]].add(X)
        for layer in self._inputs.keys() & self.statistics.tokens.keys():
            self.statistics.tokens[layer] += sum(X.numel() // X.shape[-1] for X, _ in self._inputs[layer])
        self._windows += len(output_tensor(output))
        self._inputs.clear()
        self._checked.clear()

    def _part(self, groups: Iterable[list[str]]) -> None:
        """One statistic for each group of layers: a new one, the one they had, or a copy of it where other layers
        have it too, which were fed something else in this batch (experts that it did not reach, say)."""
        kept = set()
        for layers in groups:
            statistic = self.statistics.get(layers[0])
            if statistic is None:
                statistic = self.make()
            elif id(statistic) in kept:
                statistic = deepcopy(statistic)
            kept.add(id(statistic))
            self.statistics.update(dict.fromkeys(layers, statistic))

    def _refuse(self, layer: str, X: Tensor) -> None:
        bad = (~X.isfinite()).reshape(len(X), -1).any(1).nonzero()
        where = f"the batch that begins with window {self._windows}"
        if X.ndim == 3 and len(bad):
            where = f"window {self._windows + int(bad[0])}"
        raise InputError(f"the input of layer {self.block}.{layer} is not finite (NaN or infinity) in "
                         f"{where}, counted from 0. Check the model's weights, or load it in float32 if "
                         "its dtype overflows")


@contextmanager
def collecting(name: str, block: nn.Module, make: Callable) -> Iterator[Statistics]:
    """While open, every forward pass of the block feeds the statistic `make()` of each of its linear layers.

    A statistic takes inputs [..., in] by `add(X)`. Stacked experts run one by one meanwhile, each on the tokens
    sent to it, so the block's output is its own up to the order of float sums. Hooks and replaced forwards are
    gone afterwards. Raises InputError on NaN or infinity, naming the layer and the window (for an expert, whose
    tokens come from many, the batch), and on linears whose inputs are changed in place.
    """
    with running_one_by_one(block) as experts:
        linears = linear_layers(block) | experts
        routed = [layer for layer in linears if layer in experts or "experts" in layer.split(".")]
        collector = _Collector(name, make, routed)
        hooks = [block.register_forward_hook(collector.end_batch)]
        hooks += [linear.register_forward_pre_hook(partial(collector.see, layer))
                  for layer, linear in linears.items()]
        try:
            yield collector.statistics
        finally:
            for hook in hooks:
                hook.remove()


def input_norms(model: nn.Module, windows: Tensor, batch_size: int = 8
                ) -> Mapping[tuple[int, str], np.ndarray]:
    """Token ids windows [n, seqlen] -> x_norm [in] of every linear in the unpruned model, in float32, by
    (layer, name inside the block). An expert that no token was sent to is missing."""
    norms: dict[tuple[int, str], np.ndarray] = {}

    def visit(step: Step) -> None:
        with collecting(step.name, step.block, InputNorm) as statistics:
            for _ in step.advance():
                pass
        norms.update({(step.index, layer): s.value().cpu().numpy() for layer, s in statistics.items()})

    walk(model, windows.split(batch_size), visit)
    return norms
