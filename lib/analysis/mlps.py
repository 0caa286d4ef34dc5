"""The MLP of each decoder block: down(act(gate(x)) * up(x)), or down(act(fc(x))), in any architecture.

The parts are found in one short forward pass by who feeds whom, not by class or name. Their neurons are the
inputs of down.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from lib.errors import InputError
from lib.pruning.blocks import PROBE_TOKENS, find_blocks, linear_layers, weight_matrix
from lib.pruning.forwards import evaluating


@dataclass(frozen=True)
class Mlp:
    """One block's MLP. `gate`: what goes through the activation function (fc where nothing is gated); `name`: the
    full name of `down`."""

    gate: nn.Module
    down: nn.Module
    name: str

    @property
    def neurons(self) -> int:
        return weight_matrix(self.down).shape[1]


@torch.no_grad()
def find_mlps(model: nn.Module) -> list[Mlp]:
    """The MLP of each block [layers], found in one forward pass on a few tokens.

    Raises InputError when a block has none or several (mixtures of experts), when gate and up are one packed
    matrix (Phi-3), when blocks differ in their number of neurons, and when the activation function does not keep
    the sign.
    """
    vocabulary = model.config.get_text_config().vocab_size
    probe = torch.arange(PROBE_TOKENS, device=next(model.parameters()).device)[None] * 7 % vocabulary
    place, blocks = find_blocks(model)
    traces = [_Trace(f"{place}.{k}", block) for k, block in enumerate(blocks)]
    try:
        with evaluating(model):
            model.base_model(input_ids=probe, use_cache=False)
    finally:
        for trace in traces:
            trace.close()
    like = next(model.parameters())
    mlps = [trace.mlp(like) for trace in traces]
    if len({mlp.neurons for mlp in mlps}) > 1:
        raise InputError(f"the blocks of {type(model).__name__} have {sorted({m.neurons for m in mlps})} neurons; only "
                         "decoders with equally many in each block can be compared")
    return mlps


class _Trace:
    """Who feeds whom in a block: hooks that keep the outputs of linears and of what takes these in unchanged."""

    def __init__(self, name: str, block: nn.Module):
        modules = dict(block.named_modules())
        self.name, self.block = name, block
        self.linears = {key: modules[key] for key in linear_layers(block) if key in modules}
        self.outputs: dict[str, Tensor] = {}
        self.acts: list[tuple[str, nn.Module, Tensor]] = []  # (linear before it, activation, its output)
        self.mlps: list[Mlp] = []
        self.functions: list[nn.Module] = []  # the activation function of each
        self.hooks = [module.register_forward_pre_hook(partial(self.see_input, key))
                      for key, module in self.linears.items()]
        self.hooks += [module.register_forward_hook(partial(self.see_output, key))
                       for key, module in modules.items() if not list(module.children())]

    def see_output(self, key: str, module: nn.Module, args: tuple, output) -> None:
        if key in self.linears:
            self.outputs[key] = output
        elif isinstance(output, Tensor) and args:
            self.acts += [(linear, module, output) for linear, seen in self.outputs.items() if args[0] is seen]

    def see_input(self, key: str, module: nn.Module, args: tuple) -> None:
        for linear, act, output in self.acts:
            alike = [seen for seen in self.outputs.values() if seen.shape == output.shape]
            products = [output, *(output * seen for seen in alike)]
            if args[0].shape == output.shape and any(torch.equal(args[0], product) for product in products):
                self.mlps.append(Mlp(self.linears[linear], module, f"{self.name}.{key}"))
                self.functions.append(act)

    def close(self) -> None:
        for hook in self.hooks:
            hook.remove()

    def mlp(self, like: Tensor) -> Mlp:
        if len(self.mlps) != 1 or len(self.linears) < len(linear_layers(self.block)):
            raise InputError(
                f"{self.name} ({type(self.block).__name__}) has {len(self.mlps)} MLPs of the form down(act(gate(x)) * "
                "up(x)) or down(act(fc(x))) with one linear layer each, and must have one and no experts beside it: "
                "packed gate and up (Phi-3) and mixtures of experts are not supported")
        _check_sign(self.functions[0], self.name, like)
        return self.mlps[0]


def _check_sign(act: nn.Module, name: str, like: Tensor) -> None:
    """Raise InputError unless act(x) > 0 exactly where x > 0."""
    x = torch.linspace(-8, 8, 1001).to(like)
    if not torch.equal(act(x) > 0, x > 0):
        raise InputError(f"the activation function {type(act).__name__} of {name} does not keep the sign, so neurons "
                         "that fire cannot be told before it")
