"""Running block by block is the model's own forward pass, bit for bit, and leaves nothing behind."""

import pytest
import torch
from shapes import OTHERS, make
from torch import nn
from transformers import LlamaForCausalLM, LlamaModel
from transformers.pytorch_utils import Conv1D

from lib.errors import InputError
from lib.inputs import tiny
from lib.pruning.blocks import find_blocks, linear_layers, record_arguments, walk, weight_matrix

TOKENS = torch.randint(0, 256, (7, 40), generator=torch.Generator().manual_seed(0))
BATCHES = TOKENS.split(3)  # 3, 3 and a left-over of 1


@torch.no_grad()
def ordinary_outputs(model, batches) -> list[list[torch.Tensor]]:
    """What each block gives in the model's own forward pass: [batch][block]."""
    seen = []

    def see(_, __, output):
        seen[-1].append(output[0] if isinstance(output, tuple) else output)

    hooks = [block.register_forward_hook(see) for block in find_blocks(model)[1]]
    for ids in batches:
        seen.append([])
        model(input_ids=ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", [*tiny.RECIPES, *OTHERS])
def test_replay_equals_the_model_bit_for_bit(name, dtype):
    model = make(name, dtype)
    expected = ordinary_outputs(model, BATCHES)
    visited = []

    def visit(step):
        for batch, output in enumerate(step.forward()):
            assert torch.equal(output, expected[batch][step.index]), (step.index, batch)
        visited.append(step.name)

    walk(model, BATCHES, visit)
    name, blocks = find_blocks(model)
    assert visited == [f"{name}.{k}" for k in range(len(blocks))]


def test_the_window_of_gemma_matters_in_these_tests():
    """Guards the test above: with block 0's arguments everywhere, Gemma's later blocks differ."""
    model = make("tiny-gemma3")
    recording = record_arguments(model, BATCHES)
    hidden, (first, second) = recording.hidden[0], recording.calls[0][:2]
    block = find_blocks(model)[1][1]
    assert not torch.equal(block(hidden, **first.kwargs), block(hidden, **second.kwargs))


def test_what_the_visitor_changes_feeds_the_next_block():
    model = make("tiny-llama")
    blocks = find_blocks(model)[1]
    dense = ordinary_outputs(model, BATCHES)
    weight = blocks[0].mlp.down_proj.weight
    kept = weight.detach().clone()
    with torch.no_grad():
        weight.zero_()
    changed = ordinary_outputs(model, BATCHES)
    with torch.no_grad():
        weight.copy_(kept)
    assert not torch.equal(changed[0][1], dense[0][1])

    def visit(step):
        if step.index == 0:
            with torch.no_grad():
                weight.zero_()
            pairs = list(step.advance())
            assert all(torch.equal(output, changed[k][0]) for k, (_, output) in enumerate(pairs))
            with torch.no_grad():
                weight.copy_(kept)
        else:
            assert all(torch.equal(out, changed[k][step.index]) for k, out in enumerate(step.forward()))

    walk(model, BATCHES, visit)


def test_equal_arguments_are_kept_once():
    calls = record_arguments(make("tiny-gemma3"), BATCHES).calls
    masks = [[call.kwargs["attention_mask"] for call in batch] for batch in calls]
    assert masks[0][0] is masks[1][0] is masks[0][2]
    assert masks[0][0] is not masks[0][1]
    assert masks[2][0].shape[0] == 1 and masks[0][0].shape[0] == 3


@pytest.mark.parametrize("name", tiny.RECIPES)
def test_modes_and_forwards_are_restored_when_a_visitor_raises(name):
    model = make(name).train()
    blocks = find_blocks(model)[1]
    blocks[1].eval()
    cached = model.config.use_cache = True
    modes = [module.training for module in model.modules()]

    def visit(step):
        assert not model.training
        if step.index == 1:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        walk(model, BATCHES, visit)
    assert [module.training for module in model.modules()] == modes
    assert not any("forward" in block.__dict__ for block in blocks)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert model.config.use_cache == cached


def test_forwards_are_restored_when_the_model_raises():
    model = make("gpt2")
    with pytest.raises(IndexError):
        record_arguments(model, [torch.zeros(1, 100, dtype=torch.long)])  # more tokens than positions
    assert not any("forward" in block.__dict__ for block in find_blocks(model)[1])


def test_a_forward_set_on_the_instance_is_put_back():
    model = make("tiny-llama")
    block = find_blocks(model)[1][0]
    own = block.forward
    block.forward = own
    walk(model, BATCHES, lambda step: None)
    assert block.__dict__["forward"] is own


@pytest.mark.parametrize(("name", "place", "linears"), [
    ("tiny-llama", "model.layers", 7), ("tiny-gemma3", "model.layers", 7), ("tiny-qwen2", "model.layers", 7),
    ("tiny-cohere", "model.layers", 7), ("tiny-bloom", "transformer.h", 4),
    ("tiny-gpt-neox", "gpt_neox.layers", 4),
    ("gpt2", "transformer.h", 4), ("opt", "model.decoder.layers", 6)])
def test_blocks_and_linears_are_found(name, place, linears):
    model = make(name)
    found, blocks = find_blocks(model)
    assert found == place and model.get_submodule(place) is blocks
    assert [len(linear_layers(block)) for block in blocks] == [linears] * len(blocks)
    assert all(model.get_output_embeddings() is not m for b in blocks for m in linear_layers(b).values())


def test_weights_are_views_out_by_in():
    linear, conv = nn.Linear(3, 5), Conv1D(5, 3)
    for layer in (linear, conv):
        W = weight_matrix(layer)
        assert W.shape == (5, 3) and W.data_ptr() == layer.weight.data_ptr()
        x = torch.randn(2, 3)
        assert torch.allclose(layer(x) - layer.bias, x @ W.T, atol=1e-6)


class Doubling(LlamaModel):
    """Doubles the hidden states between blocks, where no block sees it."""

    order = slice(None)

    def forward(self, input_ids, **_):
        hidden = self.embed_tokens(input_ids)
        places = self.rotary_emb(hidden, torch.arange(input_ids.shape[1])[None])
        for block in list(self.layers)[self.order]:
            hidden = 2 * block(hidden, position_embeddings=places)
        return hidden


class Backwards(Doubling):
    order = slice(None, None, -1)


@pytest.mark.parametrize(("kind", "message"), [
    (Doubling, "more than the hidden states"), (Backwards, "in order")])
def test_decoders_that_cannot_be_run_block_by_block_are_refused(kind, message):
    model = make("tiny-llama")
    assert isinstance(model, LlamaForCausalLM)
    model.model.__class__ = kind
    with pytest.raises(InputError, match=message):
        walk(model, BATCHES, lambda step: None)


def test_a_model_without_a_list_of_blocks_is_refused():
    model = make("tiny-llama")
    model.model.layers = nn.Sequential(*model.model.layers)
    with pytest.raises(InputError, match="no list of 4 decoder blocks"):
        find_blocks(model)
