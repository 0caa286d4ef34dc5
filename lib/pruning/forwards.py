"""Forward passes of single modules: recorded as calls, run again, and replaced for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Call:
    """The arguments of one call of a block, all but its input."""

    args: tuple
    kwargs: dict
    named: bool  # the input is given as `hidden_states=`

    @classmethod
    def of(cls, args: tuple, kwargs: dict, pool: dict) -> tuple[Tensor, Call]:
        """(input [batch, tokens, hidden], the rest). Tensors that equal one in the `pool` are kept once."""
        hidden = args[0] if args else kwargs["hidden_states"]
        rest = {key: value for key, value in kwargs.items() if args or key != "hidden_states"}
        return hidden, cls(_kept_once(args[1:], pool), _kept_once(rest, pool), not args)

    def run(self, block: nn.Module, hidden: Tensor) -> Tensor:
        """The block's output tensor [batch, tokens, hidden] on an input of the same shape."""
        if self.named:
            return output_tensor(block(*self.args, hidden_states=hidden, **self.kwargs))
        return output_tensor(block(hidden, *self.args, **self.kwargs))


def output_tensor(output) -> Tensor:
    """What a block returns -> its hidden states, the first of a tuple."""
    return output[0] if isinstance(output, tuple) else output


def _kept_once(value, pool: dict):
    """The same nest of arguments, each tensor replaced by an equal one recorded before if there is one."""
    if isinstance(value, Tensor):
        alike = pool.setdefault((value.dtype, value.device, value.shape, value.stride()), [])
        for kept in alike:
            if kept is value or torch.equal(kept, value):
                return kept
        alike.append(value)
        return value
    if isinstance(value, dict):
        return {key: _kept_once(item, pool) for key, item in value.items()}
    return type(value)(_kept_once(item, pool) for item in value) if type(value) in (tuple, list) else value


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode, with each module's own mode restored."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def forwards_replaced(modules: Sequence[nn.Module], make: Callable[[int, Callable], Callable]) -> Iterator[None]:
    """Each module's `forward` replaced by make(index, forward), and put back."""
    own = [module.__dict__.get("forward") for module in modules]
    try:
        for index, module in enumerate(modules):
            module.forward = make(index, module.forward)
        yield
    finally:
        for module, forward in zip(modules, own, strict=True):
            module.__dict__.pop("forward", None)
            if forward is not None:
                module.forward = forward
