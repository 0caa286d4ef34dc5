"""Pooling against one sentence at a time, all states in float64."""

import numpy as np
import pytest
import torch

from lib.analysis.embeddings import pooled, sentence_embeddings
from lib.analysis.likelihood import Head
from lib.errors import InputError
from lib.inputs import models, tiny
from lib.pruning.blocks import find_blocks

TEXTS = ["The lamp stands on the table.", "Ein Brief.", "Mvua inanyesha leo asubuhi na mapema sana.", "x" * 90, "y"]


def naive(model, tokenizer, text, pooling):
    """[layers, d] from one sentence alone, without padding, in a forward pass of the whole model."""
    ids = [models.prefix_token(tokenizer), *tokenizer(text, add_special_tokens=False)["input_ids"]]
    states = []
    blocks = find_blocks(model)[1]
    forwards = [block.forward for block in blocks]
    try:
        for block, forward in zip(blocks, forwards, strict=True):
            def kept(*args, forward=forward, **kwargs):
                output = forward(*args, **kwargs)
                states.append((output[0] if isinstance(output, tuple) else output)[0].double())
                return output
            block.forward = kept
        with torch.no_grad():
            model(torch.tensor([ids]))
    finally:
        for block in blocks:
            del block.forward
    if pooling == "last":
        return np.array([s[-1].numpy() for s in states])
    return np.array([sum(s[t] for t in range(1, len(ids))).numpy() / (len(ids) - 1) for s in states])


@pytest.mark.parametrize("pooling", ["mean", "last"])
@pytest.mark.parametrize("name", sorted(tiny.RECIPES))
def test_equals_one_sentence_at_a_time_on_every_architecture(name, pooling):
    model, tokenizer = models.load(name)
    found = sentence_embeddings(model, tokenizer, TEXTS, pooling)
    expected = np.array([naive(model, tokenizer, text, pooling) for text in TEXTS])
    assert found.dtype == np.float32 and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    assert np.abs(found[:, 0] - found[:, -1]).max() > 0.1, "blocks differ"


def test_small_batches_give_the_same_and_hooks_are_gone():
    model, tokenizer = models.load("tiny-gemma3")
    whole = sentence_embeddings(model, tokenizer, TEXTS)
    single = sentence_embeddings(model, tokenizer, TEXTS, batch_tokens=1)
    np.testing.assert_allclose(single, whole, rtol=1e-4, atol=1e-5)
    assert not any(block._forward_hooks for block in find_blocks(model)[1])


def test_the_prefix_is_a_state_that_would_change_the_mean():
    model, tokenizer = models.load("tiny-llama")
    with_prefix = sentence_embeddings(model, tokenizer, ["y"], "mean")
    with pooled(model, 1, 0) as pool, torch.inference_mode():
        ids = torch.tensor([[tiny.BOS, ord("y")]])
        pool.expect([0], torch.ones_like(ids))
        model.base_model(input_ids=ids)
    assert np.abs(pool.values - with_prefix).max() > 0.1


def test_the_weights_are_those_the_model_holds():
    model, tokenizer = models.load("tiny-llama")
    dense = sentence_embeddings(model, tokenizer, TEXTS)
    with torch.no_grad():
        find_blocks(model)[1][2].mlp.down_proj.weight.zero_()
    pruned = sentence_embeddings(model, tokenizer, TEXTS)
    assert (pruned[:, :2] == dense[:, :2]).all()
    assert (np.abs(pruned[:, 2:] - dense[:, 2:]).max(axis=(0, 2)) > 0).all()


def test_rides_on_a_pass_that_others_run():
    model, tokenizer = models.load("tiny-gemma3")
    rows = [2, 0]
    ids = [[tiny.BOS, *tokenizer(TEXTS[r], add_special_tokens=False)["input_ids"]] for r in rows]
    longest = max(map(len, ids))
    real = torch.tensor([[1] * len(r) + [0] * (longest - len(r)) for r in ids])
    with pooled(model, 3, 1) as pool, torch.inference_mode():
        Head(model)  # runs the model on tokens of its own, which must not be pooled
        assert np.isnan(pool.values).all()
        pool.expect(rows, real)
        padded = torch.tensor([r + [0] * (longest - len(r)) for r in ids])
        model.base_model(input_ids=padded, attention_mask=real, use_cache=False)
        values = pool.values.copy()
        Head(model)
    np.testing.assert_array_equal(pool.values, values)
    np.testing.assert_allclose(values[rows], sentence_embeddings(model, tokenizer, TEXTS)[rows], rtol=1e-4, atol=1e-5)
    assert np.isnan(values[1]).all(), "a sentence that no batch brought"


def test_padding_that_is_not_a_number_does_not_reach_the_mean():
    model, _ = models.load("tiny-llama")
    with pooled(model, 1, 1) as pool:
        hidden = torch.ones(1, 4, 64)
        hidden[0, 3] = torch.nan
        pool.expect([0], torch.tensor([[1, 1, 1, 0]]))
        for layer, block in enumerate(find_blocks(model)[1]):
            for hook in block._forward_hooks.values():
                hook(block, (), hidden * (layer + 1))
    np.testing.assert_array_equal(pool.values[0], np.arange(1, 5)[:, None] * np.ones(64))


def test_what_cannot_be_pooled_is_refused():
    model, tokenizer = models.load("tiny-llama")
    with pytest.raises(InputError, match="allowed: mean, last"):
        sentence_embeddings(model, tokenizer, TEXTS, "max")
    with pytest.raises(InputError, match="0 tokens; 1 or more are needed"):
        sentence_embeddings(model, tokenizer, ["a", ""])
    with pytest.raises(InputError, match="512"):
        sentence_embeddings(model, tokenizer, ["x" * 512])


def test_without_a_prefix_every_token_is_pooled():
    model, tokenizer = models.load("tiny-llama")
    tokenizer.bos_token = tokenizer.eos_token = None
    found = sentence_embeddings(model, tokenizer, ["a"])
    assert (found == sentence_embeddings(model, tokenizer, ["a"], "last")).all()
