"""Run a decoder block by block, on any architecture.

Blocks of one model take different arguments (Gemma alternates sliding and full attention), some return a
tensor and some a tuple. So nothing is assumed: the model's own forward pass is run with the blocks' `forward`
replaced by a recorder, and each block is later called with exactly what the model gave to it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from lib.errors import InputError

PROBE_TOKENS = 16  # the ordinary forward pass that a replay is compared with is this long


@dataclass(frozen=True)
class Call:
    """The arguments of one call of a block, all but its input."""

    args: tuple
    kwargs: dict
    named: bool  # the input is given as `hidden_states=`


@dataclass(frozen=True)
class Recording:
    """Inputs of the first block, one [batch, tokens, hidden] a batch, and `calls[batch][block]`."""

    hidden: list[Tensor]
    calls: list[list[Call]]


@dataclass
class Step:
    """One block during a walk. `inputs`: what the one before it gave, one [batch, tokens, hidden] a batch."""

    index: int
    name: str
    block: nn.Module
    inputs: list[Tensor]
    calls: list[Call]
    advanced: bool = False

    def forward(self) -> Iterator[Tensor]:
        """The block's outputs on its inputs, batch by batch."""
        for hidden, call in zip(self.inputs, self.calls, strict=True):
            yield _run(self.block, hidden, call)

    def advance(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Run the block as it now is and make its outputs the next block's inputs; yields (input, output)."""
        self.advanced = True
        for k, output in enumerate(self.forward()):
            hidden, self.inputs[k] = self.inputs[k], output
            yield hidden, output


def find_blocks(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """(name, list of decoder blocks): the outermost ModuleList of the decoder that is as long as its
    configuration's num_hidden_layers. Raises InputError when there is none."""
    depth = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    inside = set(model.get_decoder().modules())
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and module in inside and len(module) == depth:
            return name, module
    raise InputError(f"{type(model).__name__} has no list of {depth} decoder blocks; only decoders whose "
                     "blocks stand in one torch ModuleList can be pruned")


def linear_layers(block: nn.Module) -> dict[str, nn.Module]:
    """Linear layers by name inside the block, in the order of definition: nn.Linear, and GPT-2's Conv1D."""
    return {name: module for name, module in block.named_modules() if isinstance(module, nn.Linear | Conv1D)}


def weight_matrix(linear: nn.Module) -> Tensor:
    """The weight as W [out, in], a view: changing it changes the layer. (Conv1D stores it transposed.)"""
    return linear.weight.detach().t() if isinstance(linear, Conv1D) else linear.weight.detach()


@torch.no_grad()
def record_arguments(model: nn.Module, batches: Sequence[Tensor]) -> Recording:
    """Record, for token ids [batch, tokens] a batch, the first block's inputs and every block's arguments.

    One ordinary forward pass on a few tokens tells what each block returns. Then each batch goes through the
    model's own forward with the blocks replaced by identities, so masks and positions are its own. Equal
    tensors are kept once. Replaying the short pass must give what the model gave: if it does not, blocks hand
    on more than hidden states, and InputError is raised.
    """
    blocks = find_blocks(model)[1]
    device = next(model.parameters()).device
    probe = batches[0][:1, :PROBE_TOKENS].to(device)
    with _evaluating(model):
        lengths, expected = _probe(model, blocks, probe)
        recorded = _record(model, blocks, [probe], lengths)
        hidden = recorded.hidden[0]
        for block, call in zip(blocks, recorded.calls[0], strict=True):
            hidden = _run(block, hidden, call)
        # What is not finite is for the statistics to report, which name the layer.
        tolerance = 1e-3 * float(expected.abs().max())
        if expected.isfinite().all() and not torch.allclose(hidden, expected, rtol=0, atol=tolerance):
            raise InputError(f"{type(model).__name__} cannot be run block by block: its blocks depend on "
                             "more than the hidden states before them, so it cannot be pruned here")
        return _record(model, blocks, [batch.to(device) for batch in batches], lengths)


@torch.no_grad()
def walk(model: nn.Module, batches: Sequence[Tensor], visit: Callable[[Step], None]) -> None:
    """Call `visit(step)` for each block in order, on token ids [batch, tokens] a batch.

    A visitor may measure (`step.forward()`), change the block, and run it on to the next one
    (`step.advance()`); if it does not advance, the walk does when it returns. The inputs of one block are in
    memory for all batches. Train mode is restored at the end, also after an error.
    """
    name, blocks = find_blocks(model)
    recording = record_arguments(model, batches)
    with _evaluating(model):
        for index, block in enumerate(blocks):
            calls = [batch[index] for batch in recording.calls]
            step = Step(index, f"{name}.{index}", block, recording.hidden, calls)
            visit(step)
            if not step.advanced:
                for _ in step.advance():
                    pass


@contextmanager
def _evaluating(model: nn.Module):
    """Eval mode, with each module's own mode restored."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def _forward_replaced(blocks: nn.ModuleList, make: Callable[[int, Callable], Callable]):
    """Each block's `forward` replaced by make(index, forward), and put back."""
    own = [block.__dict__.get("forward") for block in blocks]
    try:
        for index, block in enumerate(blocks):
            block.forward = make(index, block.forward)
        yield
    finally:
        for block, forward in zip(blocks, own, strict=True):
            block.__dict__.pop("forward", None)
            if forward is not None:
                block.forward = forward


def _probe(model: nn.Module, blocks: nn.ModuleList, ids: Tensor) -> tuple[dict[int, int], Tensor]:
    """One ordinary forward pass: by block the length of the tuple it returns (0: a tensor), and the last
    block's output."""
    lengths, last = {}, []

    def make(index, forward):
        def observed(*args, **kwargs):
            output = forward(*args, **kwargs)
            lengths[index] = len(output) if isinstance(output, tuple) else 0
            last[:] = [_tensor(output)]
            return output
        return observed

    with _forward_replaced(blocks, make):
        model.base_model(input_ids=ids, use_cache=False)
    if list(lengths) != list(range(len(blocks))):
        raise InputError(f"{type(model).__name__} does not run its {len(blocks)} blocks once each in order, "
                         "so it cannot be pruned block by block")
    return lengths, last[0]


def _record(model: nn.Module, blocks: nn.ModuleList, batches: Sequence[Tensor], lengths: dict[int, int]
            ) -> Recording:
    """The recording of these batches, with the blocks as identities that return what `lengths` says."""
    recording, pool = Recording([], []), {}

    def make(index, forward):
        def recorder(*args, **kwargs):
            hidden = args[0] if args else kwargs["hidden_states"]
            rest = {key: value for key, value in kwargs.items() if args or key != "hidden_states"}
            if index == 0:
                recording.hidden.append(hidden)
                recording.calls.append([])
            recording.calls[-1].append(Call(_kept_once(args[1:], pool), _kept_once(rest, pool), not args))
            return (hidden, *[None] * (lengths[index] - 1)) if lengths[index] else hidden
        return recorder

    with _forward_replaced(blocks, make):
        for ids in batches:
            model.base_model(input_ids=ids, use_cache=False)
    return recording


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


def _run(block: nn.Module, hidden: Tensor, call: Call) -> Tensor:
    """The block's output tensor [batch, tokens, hidden] on an input of the same shape."""
    if call.named:
        return _tensor(block(*call.args, hidden_states=hidden, **call.kwargs))
    return _tensor(block(hidden, *call.args, **call.kwargs))


def _tensor(output) -> Tensor:
    return output[0] if isinstance(output, tuple) else output
