"""Pruning error and signal-to-noise ratio of every linear layer, every block and the final hidden state.

With X the dense model's inputs of a layer, X' the pruned model's, W and W' its weights:
    error = ||X W^T - X' W'^T||_F^2 / ||X W^T||_F^2,   SNR = -10 log10(error) dB
(Kuzmin et al. 2023, arXiv 2307.02973, measure networks by it). "local": X' = X, what pruning this layer does on
its own; "propagated": X' as it arrives through the pruned layers before. Biases are in neither. Of a block and
of the final hidden state the whole output takes the place of X W^T, residual stream included.

The measurement rides along with the pruned model's own forward passes, whatever they are made for: before each
block runs, its dense copy runs on the dense hidden states with the same arguments. One block's outputs of one
batch are held at a time.
"""

import copy
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from math import inf, log10

import torch
from torch import Tensor, nn
from transformers import Cache

from lib.analysis.positions import Positions, text_positions
from lib.errors import InputError
from lib.pruning import lockstep, residency
from lib.pruning.blocks import PROBE_TOKENS, find_blocks, linear_layers, record_arguments, weight_matrix
from lib.pruning.forwards import Call, evaluating, output_tensor
from lib.pruning.lockstep import Own
from lib.pruning.statistics import full_precision

UNCHANGED = 1e-12  # errors up to here (120 dB) are float32 rounding between two runs of the same arithmetic


class Dense:
    """A copy of a model's blocks and of what follows them, made while the model is dense; the model itself may
    then be pruned. Takes the memory of the blocks, or of one where the model is streamed.

    Raises InputError when the model's blocks cannot be run one by one, or when what follows them is not a chain
    of modules.
    """

    @torch.no_grad()
    def __init__(self, model: nn.Module):
        vocabulary = model.config.get_text_config().vocab_size
        probe = torch.arange(PROBE_TOKENS, device=next(model.parameters()).device)[None] * 7 % vocabulary
        record_arguments(model, [probe])
        self.tail = copy.deepcopy(_tail(model, probe)).eval()
        self.blocks = residency.copied(model, find_blocks(model)[1]).eval()
        self.layers = [_own_linears(block) for block in self.blocks]


class LayerErrors:
    """Sums over all forward passes since it was opened (see `measuring`)."""

    def __init__(self, dense: Dense, blocks: nn.ModuleList, positions: Positions):
        self._dense, self._positions = dense, positions
        self._pruned = [_own_linears(block) for block in blocks]
        self._sums: dict[tuple, Tensor] = {}  # by (signal | local | propagated, layer, module): float64 scalars
        self._hidden = Own()  # of the dense model in this pass, after the block that ran last
        self._outputs: dict[str, Tensor] = {}  # of the dense linears of the block that runs
        self._experts = sum(len(linear_layers(block)) for block in blocks) - sum(map(len, self._pruned))

    def rows(self) -> list[dict]:
        """One row a layer, module and kind (local, propagated): signal and noise (sums of squares over tokens,
        then their ratio `error`), snr_db, tokens. Module "block" is a block's output, "final" the hidden state
        after the last norm, in the layer after the last block. What pruning did not change, whose ratio is
        infinite, is left out."""
        return [row for row in self._rows() if row["error"] > UNCHANGED]

    def left_out(self) -> dict[str, int]:
        """How many have no row: "local" and "propagated", unchanged by pruning; "expert", matrices of a mixture,
        which see other tokens in the pruned model than in the dense one."""
        rows = [row for row in self._rows() if row["error"] <= UNCHANGED]
        counts = {kind: sum(row["kind"] == kind for row in rows) for kind in ("local", "propagated")}
        return counts | {"expert": self._experts}

    def _rows(self) -> Iterator[dict]:
        for (kind, layer, module), total in self._sums.items():
            if kind != "signal":
                signal, noise = self._sums["signal", layer, module].item(), total.item()
                error = noise / signal if signal else inf if noise else 0.0
                yield {"layer": layer, "module": module, "kind": kind, "signal": signal, "noise": noise,
                       "error": error, "snr_db": -10 * log10(error) if 0 < error < inf else inf if error == 0 else -inf,
                       "tokens": self._positions.tokens}

    def _add(self, kind: str, layer: int, module: str, X: Tensor) -> None:
        key = kind, layer, module
        self._sums[key] = self._positions.energy(X) + self._sums.get(key, 0.0)

    def _before_block(self, layer: int, block: nn.Module, args: tuple, kwargs: dict) -> None:
        if any(isinstance(value, Cache) for value in (*args, *kwargs.values())):
            raise InputError("a forward pass with a key-value cache cannot be measured; pass use_cache=False")
        hidden, call = Call.of(args, kwargs, {})
        self._hidden.set(call.run(self._dense.blocks[layer], hidden if layer == 0 else self._hidden.get()))

    def _after_dense(self, layer: int, module: str, linear: nn.Module, args: tuple, output: Tensor) -> None:
        self._add("signal", layer, module, output if linear.bias is None else output - linear.bias)
        # (W - W') first: two products at the precision the process allows would differ by more than rounding.
        change = weight_matrix(linear).float() - weight_matrix(self._pruned[layer][module]).float()
        with full_precision():
            self._add("local", layer, module, args[0].float() @ change.T)
        self._outputs[module] = output

    def _after_pruned(self, layer: int, module: str, linear: nn.Module, args: tuple, output: Tensor) -> None:
        self._add("propagated", layer, module, output.float() - self._outputs.pop(module).float())

    def _after_block(self, layer: int, block: nn.Module, args: tuple, output) -> None:
        self._compare_states(layer, "block", self._hidden.get(), output_tensor(output))

    def _after_model(self, model: nn.Module, args: tuple, output) -> None:
        self._compare_states(len(self._pruned), "final", self._dense.tail(self._hidden.get()), output[0])

    def _compare_states(self, layer: int, module: str, dense: Tensor, pruned: Tensor) -> None:
        self._add("signal", layer, module, dense)
        self._add("propagated", layer, module, pruned.float() - dense.float())


@contextmanager
def measuring(dense: Dense, model: nn.Module, skipped: int = 0) -> Iterator[LayerErrors]:
    """While open, every forward pass of the pruned model (in eval mode, without cache) is measured against
    `dense`, made of the same model before it was pruned.

    Passes may be right-padded with an attention_mask; padding and the first `skipped` tokens of a sequence (1: a
    prefix token) are not counted. Weights must not change while it is open. Propagated outputs are compared as
    the model computes them: in bfloat16, or with matrix products that round to it, an SNR above about 50 dB is
    rounding. Raises InputError when the two models differ in shape.
    """
    name, blocks = find_blocks(model)
    shapes = [[{layer: weight_matrix(linear).shape for layer, linear in _own_linears(block).items()}
               for block in side] for side in (blocks, dense.blocks)]
    if shapes[0] != shapes[1]:
        raise InputError(f"the dense blocks do not fit this {type(model).__name__}, whose {len(blocks)} blocks in "
                         f"{name} hold other layers; make Dense from the same model before it is pruned")
    with ExitStack() as stack, text_positions(model, skipped) as positions:
        errors = LayerErrors(dense, blocks, positions)
        hooks = [model.base_model.register_forward_hook(errors._after_model)]
        for k, block in enumerate(blocks):
            hooks.append(block.register_forward_pre_hook(partial(errors._before_block, k), with_kwargs=True))
            hooks.append(block.register_forward_hook(partial(errors._after_block, k)))
            for side, see in ((dense.layers, errors._after_dense), (errors._pruned, errors._after_pruned)):
                hooks += [linear.register_forward_hook(partial(see, k, layer)) for layer, linear in side[k].items()]
        for hook in hooks:
            stack.callback(hook.remove)
        yield errors


@torch.inference_mode()
def layer_error(dense: Dense, model: nn.Module, batches: Iterable[Tensor]) -> tuple[list[dict], dict[str, int]]:
    """Token ids [batch, tokens] a batch, without padding -> (rows, counts of what is left out) of LayerErrors, for
    the model with its pruned weights in place (`lib.pruning.driver.applied`)."""
    with evaluating(model), measuring(dense, model) as errors:
        lockstep.look(model, (lockstep.forward(model, ids) for ids in batches))
    return errors.rows(), errors.left_out()


def _own_linears(block: nn.Module) -> dict[str, nn.Module]:
    """`linear_layers` that are modules of the block, which run as such; the rest are experts in stacks."""
    modules = dict(block.named_modules())
    return {name: modules[name] for name in linear_layers(block) if name in modules}


def _tail(model: nn.Module, probe: Tensor) -> nn.Sequential:
    """What the decoder applies to the last block's output: its final norm, as a rule."""
    blocks, called, states = find_blocks(model)[1], [], []

    def after_blocks(_, __, output):
        called.clear()
        states[:] = [output_tensor(output)]

    hooks = [blocks[-1].register_forward_hook(after_blocks)]
    hooks += [child.register_forward_hook(lambda module, _, __: called.append(module))
              for child in model.get_decoder().children() if child is not blocks]
    try:
        with evaluating(model):
            expected = model.base_model(input_ids=probe, use_cache=False)[0]
    finally:
        for hook in hooks:
            hook.remove()
    tail = nn.Sequential(*called).eval()
    if not torch.equal(tail(states[0]), expected):
        raise InputError(f"{type(model).__name__} does more to the hidden states after its last block than the "
                         f"modules {[type(m).__name__ for m in tail]} do, so its final states cannot be compared")
    return tail
