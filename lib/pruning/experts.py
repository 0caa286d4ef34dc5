"""Mixtures of experts whose matrices are stacked in 3D parameters, presented as linear layers.

transformers keeps the experts of Mixtral, Qwen3-MoE, OLMoE, DeepSeek and most others in one module with
gate_up_proj [experts, 2 * inner, hidden] and down_proj [experts, hidden, inner], and computes them together. Here
each expert's two matrices are linear layers that share the stack's memory. gate and up stay one matrix, as the
packed q, k, v of other architectures do.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from transformers.pytorch_utils import Conv1D

from lib.errors import InputError
from lib.pruning.forwards import forwards_replaced

STACKS = ("gate_up_proj", "down_proj")


def expert_layers(block: nn.Module) -> dict[str, dict[str, nn.Linear]]:
    """Stacks [experts, out, in] -> linear layers out x in, by their names (`0.gate_up_proj`, `0.down_proj`,
    `1.gate_up_proj`, ...) in each module of stacked experts, by its name inside the block.

    Their weights are views: writing to them changes the model. Modules are known by the shapes of their
    parameters, not by their class. Raises InputError when the block holds matrices in any other form than these
    and linear layers (transposed stacks, stacks with biases, other names): they would stay dense unseen.
    """
    found = {name: module for name, module in block.named_modules() if _is_stacked(module)}
    for name, module in block.named_modules():
        if name not in found and not isinstance(module, nn.Linear | Conv1D | _ConvNd):
            _refuse_matrices(block, name, module)
    return {name: {f"{expert}.{stack}": _linear(getattr(module, stack).detach()[expert])
                   for expert in range(len(module.gate_up_proj)) for stack in STACKS}
            for name, module in found.items()}


@contextmanager
def running_one_by_one(block: nn.Module) -> Iterator[dict[str, nn.Linear]]:
    """While open, stacked experts run as `expert_layers`, so that hooks on these see each expert's inputs.

    Gives the layers by name inside the block. The block's output is the same up to the order of float sums. An
    expert that no token is sent to does not run.
    """
    experts = expert_layers(block)
    modules = [block.get_submodule(name) for name in experts]
    layers = list(experts.values())

    def make(index, forward):
        def one_by_one(hidden_states, top_k_index, top_k_weights):
            return _run(modules[index], layers[index], hidden_states, top_k_index, top_k_weights)
        return one_by_one

    with forwards_replaced(modules, make):
        yield {f"{name}.{layer}": linear for name, its in experts.items() for layer, linear in its.items()}


def _run(module: nn.Module, layers: dict[str, nn.Linear], hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """hidden [tokens, hidden], index and weights [tokens, k] -> [tokens, hidden]: the sum over the k experts e of a
    token of weight * down_e(act(gate_e) * up_e) (Jiang et al. 2024, Mixtral, section 2.1)."""
    # One place for each of a token's k outputs, then a sum: adding rows in place is not deterministic on CUDA.
    outputs = hidden.new_zeros(*index.shape, hidden.shape[-1], dtype=torch.promote_types(hidden.dtype, weights.dtype))
    for expert in range(len(module.gate_up_proj)):
        token, place = torch.where(index == expert)
        if len(token):
            inner = module._apply_gate(layers[f"{expert}.gate_up_proj"](hidden[token]))
            output = layers[f"{expert}.down_proj"](inner)
            outputs[token, place] = (output * weights[token, place, None]).to(outputs.dtype)
    return outputs.sum(1).to(hidden.dtype)


def _is_stacked(module: nn.Module) -> bool:
    """Whether the module has two stacks of the known shapes, no other parameter, and transformers' interface of
    experts, in which `_apply_gate` makes act(gate) * up of gate_up's output."""
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    if set(shapes) != set(STACKS) or len(shapes["gate_up_proj"]) != 3:
        return False
    experts, both, hidden = shapes["gate_up_proj"]
    return (shapes["down_proj"] == (experts, hidden, both // 2) and hasattr(module, "_apply_gate")
            and not getattr(module, "has_post_expert_norm", False))


def _refuse_matrices(block: nn.Module, name: str, module: nn.Module) -> None:
    """Raise InputError when the module itself holds a stack of matrices, or any matrix of experts. Other single
    matrices in a block's modules are routers, embeddings and decay rates, which are not pruned."""
    for key, parameter in module.named_parameters(recurse=False):
        axes = sum(size > 1 for size in parameter.shape)
        if axes > 2 or (axes == 2 and "experts" in name.split(".")):
            raise InputError(
                f"{type(block).__name__} keeps matrices outside linear layers, in a form that is not known: "
                f"{name}.{key} of shape {list(parameter.shape)}. They would stay dense, so it cannot be pruned here. "
                "Known are nn.Linear, GPT-2's Conv1D, and experts as gate_up_proj [experts, 2 * inner, hidden] with "
                "down_proj [experts, hidden, inner], both without biases; give a model built of these")


def _linear(W: Tensor) -> nn.Linear:
    """W [out, in] -> a linear layer that shares its memory."""
    linear = nn.Linear(W.shape[1], W.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(W, requires_grad=False)
    return linear
