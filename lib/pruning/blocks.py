"""Run a decoder block by block, on any architecture.

Blocks of one model take different arguments (Gemma alternates sliding and full attention), some return a
tensor and some a tuple. So nothing is assumed: the model's own forward pass is run with the blocks' `forward`
replaced by a recorder, and each block is later called with exactly what the model gave to it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from lib.errors import InputError
from lib.pruning import residency
from lib.pruning.activations import Activations
from lib.pruning.experts import expert_layers
from lib.pruning.forwards import Call, evaluating, forwards_replaced, output_tensor

PROBE_TOKENS = 16  # the ordinary forward pass that a replay is compared with is this long


@dataclass(frozen=True)
class Recording:
    """Inputs of the first block, one [batch, tokens, hidden] a batch, and `calls[batch][block]`."""

    hidden: list[Tensor] | Activations
    calls: list[list[Call]]


@dataclass
class Step:
    """One block during a walk. `inputs`: what the one before it gave, one [batch, tokens, hidden] a batch; `outputs`:
    the next block's, once it has advanced. Lists, or Activations where they need not fit into memory."""

    index: int
    name: str
    block: nn.Module
    inputs: list[Tensor] | Activations
    calls: list[Call]
    outputs: list[Tensor] | Activations
    go_ahead: Callable[[], None]  # begins to read the next block where the model is streamed
    advanced: bool = False

    def forward(self) -> Iterator[Tensor]:
        """The block's outputs on its inputs, batch by batch."""
        for hidden, call in zip(self.inputs, self.calls, strict=True):
            yield call.run(self.block, hidden)

    def advance(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Run the block as it now is, for the next block's inputs; yields (input, output). Its own inputs are given up
        one by one."""
        self.advanced = True
        self.go_ahead()  # not before: a visitor needs memory for what it makes of the block
        for k, (hidden, call) in enumerate(zip(self.inputs, self.calls, strict=True)):
            output = call.run(self.block, hidden)
            if isinstance(self.inputs, Activations):
                self.inputs.free(k)
            else:
                self.inputs[k] = None
            self.outputs.append(output)
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
    """Linear layers by name inside the block, in the order of definition: what is pruned.

    They are nn.Linear, GPT-2's Conv1D, and each expert's matrices where a mixture stacks them in 3D parameters
    (`mlp.experts.0.gate_up_proj`; see `lib.pruning.experts`), made anew at each call with the model's memory as
    their weights. Packed matrices (q, k, v; gate, up) are one layer. A router is among them where it is an
    nn.Linear, and is not where it keeps a parameter of its own, as in Mixtral. Raises InputError when the block
    holds matrices in another form.
    """
    experts, layers = expert_layers(block), {}
    for name, module in block.named_modules():
        if isinstance(module, nn.Linear | Conv1D):
            layers[name] = module
        layers.update({f"{name}.{layer}": linear for layer, linear in experts.get(name, {}).items()})
    return layers


def named_linears(model: nn.Module) -> dict[str, nn.Module]:
    """Every linear layer of the blocks by its full name ("model.layers.0.mlp.up_proj"), in order."""
    place, blocks = find_blocks(model)
    return {f"{place}.{k}.{layer}": linear for k, block in enumerate(blocks)
            for layer, linear in linear_layers(block).items()}


def weight_matrix(linear: nn.Module) -> Tensor:
    """The weight as W [out, in], a view: changing it changes the layer. (Conv1D stores it transposed.)"""
    return linear.weight.detach().t() if isinstance(linear, Conv1D) else linear.weight.detach()


@torch.no_grad()
def record_arguments(model: nn.Module, batches: Sequence[Tensor], hidden: Activations | None = None) -> Recording:
    """Record, for token ids [batch, tokens] a batch, the first block's inputs, into `hidden` if it is given, and every
    block's arguments.

    One ordinary forward pass on a few tokens tells what each block returns. Then each batch goes through the
    model's own forward with the blocks replaced by identities, so masks and positions are its own. Equal
    tensors are kept once. Replaying the short pass must give what the model gave: if it does not, blocks hand
    on more than hidden states, and InputError is raised.
    """
    blocks = find_blocks(model)[1]
    device = next(model.parameters()).device
    probe = batches[0][:1, :PROBE_TOKENS].to(device)
    with evaluating(model):
        lengths, expected = _probe(model, blocks, probe)
        recorded = _record(model, blocks, [probe], lengths, [])
        replayed = recorded.hidden[0]
        for block, call in zip(blocks, recorded.calls[0], strict=True):
            replayed = call.run(block, replayed)
        # What is not finite is for the statistics to report, which name the layer.
        tolerance = 1e-3 * float(expected.abs().max())
        if expected.isfinite().all() and not torch.allclose(replayed, expected, rtol=0, atol=tolerance):
            raise InputError(f"{type(model).__name__} cannot be run block by block: its blocks depend on "
                             "more than the hidden states before them, so it cannot be pruned here")
        return _record(model, blocks, [batch.to(device) for batch in batches], lengths,
                       [] if hidden is None else hidden)


def walk(model: nn.Module, batches: Sequence[Tensor], visit: Callable[[Step], None]) -> None:
    """Call `visit(step)` for each block in order, on token ids [batch, tokens] a batch (see `replay`)."""
    replay(model, record_arguments(model, batches), visit)


@torch.no_grad()
def replay(model: nn.Module, recording: Recording, visit: Callable[[Step], None], first: int = 0,
           hidden: Activations | None = None, room: Callable[[int], list[Tensor] | Activations] = lambda index: []
           ) -> None:
    """Call `visit(step)` for each block in order, on what was recorded; the recording can be used again, if
    its hidden states are a list.

    `first`, `hidden`: begin at that block, with these inputs of it. `room(index)` gives the empty list that the inputs
    of a block are put into.

    A visitor may measure (`step.forward()`), change the block, and run it on to the next one
    (`step.advance()`); if it does not advance, the walk does when it returns. The inputs of one block are in
    memory for all batches. Train mode is restored at the end, also after an error.
    """
    name, blocks = find_blocks(model)
    if hidden is None:
        hidden = recording.hidden if isinstance(recording.hidden, Activations) else list(recording.hidden)
    with evaluating(model):
        for index, block in list(enumerate(blocks))[first:]:
            residency.bring(model, index, alone=True)
            calls = [batch[index] for batch in recording.calls]
            step = Step(index, f"{name}.{index}", block, hidden, calls, room(index + 1),
                        partial(residency.go_ahead, model))
            visit(step)
            if not step.advanced:
                for _ in step.advance():
                    pass
            hidden = step.outputs


def _probe(model: nn.Module, blocks: nn.ModuleList, ids: Tensor) -> tuple[dict[int, int], Tensor]:
    """One ordinary forward pass: by block the length of the tuple it returns (0: a tensor), and the last
    block's output."""
    lengths, last = {}, []

    def make(index, forward):
        def observed(*args, **kwargs):
            output = forward(*args, **kwargs)
            lengths[index] = len(output) if isinstance(output, tuple) else 0
            last[:] = [output_tensor(output)]
            return output
        return observed

    with forwards_replaced(blocks, make):
        model.base_model(input_ids=ids, use_cache=False)
    if list(lengths) != list(range(len(blocks))):
        raise InputError(f"{type(model).__name__} does not run its {len(blocks)} blocks once each in order, "
                         "so it cannot be pruned block by block")
    return lengths, last[0]


def _record(model: nn.Module, blocks: nn.ModuleList, batches: Sequence[Tensor], lengths: dict[int, int],
            states: list[Tensor] | Activations) -> Recording:
    """The recording of these batches, with the blocks as identities that return what `lengths` says."""
    recording, pool = Recording(states, []), {}

    def make(index, forward):
        def recorder(*args, **kwargs):
            hidden, call = Call.of(args, kwargs, pool)
            if index == 0:
                recording.hidden.append(hidden)
                recording.calls.append([])
            recording.calls[-1].append(call)
            return (hidden, *[None] * (lengths[index] - 1)) if lengths[index] else hidden
        return recorder

    with forwards_replaced(blocks, make), residency.asleep(model):
        for ids in batches:
            model.base_model(input_ids=ids, use_cache=False)
    return recording
