"""Firing neurons counted on every architecture against loops, found where they were planted, and silenced."""

import copy
import math

import numpy as np
import pytest
import torch
from shapes import make

from lib.analysis.firing import counting, firing, pruned_shares, silenced
from lib.analysis.likelihood import Head, segment_nll
from lib.analysis.mlps import find_mlps
from lib.analysis.neurons import specific
from lib.errors import InputError
from lib.inputs import models, tiny
from lib.pruning.blocks import find_blocks, weight_matrix
from lib.pruning.driver import applied, prune

WINDOWS = torch.randint(0, 256, (5, 32), generator=torch.Generator().manual_seed(0))
# (what goes through the activation function, down) and its formula, by hand.
PARTS = {
    "tiny-llama": ("mlp.gate_proj", "mlp.down_proj"), "tiny-gemma3": ("mlp.gate_proj", "mlp.down_proj"),
    "tiny-qwen2": ("mlp.gate_proj", "mlp.down_proj"), "tiny-cohere": ("mlp.gate_proj", "mlp.down_proj"),
    "gemma2": ("mlp.gate_proj", "mlp.down_proj"), "olmo2": ("mlp.gate_proj", "mlp.down_proj"),
    "tiny-bloom": ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), "falcon": ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    "tiny-gpt-neox": ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), "gpt2": ("mlp.c_fc", "mlp.c_proj"),
    "opt": ("fc1", "fc2"), "phi": ("mlp.fc1", "mlp.fc2"),
}


@torch.no_grad()
def reference(model, parts, windows) -> tuple[list, list]:
    """Counts of act > 0 and L2 norms [layers][neurons], from explicit hooks, token by token. The activation is
    computed from the gate's output with the model's own function."""
    gates, inputs, hooks = {}, {}, []
    for k, block in enumerate(find_blocks(model)[1]):
        gate, down = (block.get_submodule(part) for part in parts)
        hooks.append(gate.register_forward_hook(lambda _, __, out, k=k: gates.setdefault(k, []).append(out)))
        hooks.append(down.register_forward_pre_hook(lambda _, args, k=k: inputs.setdefault(k, []).append(args[0])))
    for window in windows:
        model(input_ids=window[None], use_cache=False)
    for hook in hooks:
        hook.remove()
    counts, norms = [], []
    for k, block in enumerate(find_blocks(model)[1]):
        act, = (m for name, m in block.named_modules() if name.split(".")[-1] in
                ("act", "act_fn", "activation_fn", "gelu_impl"))
        fired = [act(out.flatten(0, -2)) > 0 for out in gates[k]]
        counts.append([sum(int(token[j]) for one in fired for token in one) for j in range(fired[0].shape[1])])
        values = torch.cat([x.flatten(0, -2) for x in inputs[k]]).double()
        norms.append([math.sqrt(math.fsum(v * v for v in column)) for column in values.t().tolist()])
    return counts, norms


@pytest.mark.parametrize("name", PARTS)
def test_counts_and_norms_equal_loops_on_every_architecture(name):
    model = make(name)
    mlps = find_mlps(model)
    blocks = find_blocks(model)[1]
    assert [(mlp.gate, mlp.down) for mlp in mlps] == [tuple(b.get_submodule(p) for p in PARTS[name]) for b in blocks]
    counted = firing(model, mlps, WINDOWS.split([1, 3, 1]))
    counts, norms = reference(model, PARTS[name], WINDOWS)
    assert counted.counts().dtype == np.int64 and counted.counts().tolist() == counts
    assert counted.tokens == WINDOWS.numel()
    assert (counted.probabilities() == counted.counts() / WINDOWS.numel()).all()
    assert 0.02 < counted.probabilities().mean() < 0.98
    np.testing.assert_allclose(counted.norms(), norms, rtol=1e-5)


def test_a_pruned_model_is_counted_with_its_own_weights():
    model = make("tiny-llama")
    mlps = find_mlps(model)
    dense = firing(model, mlps, [WINDOWS]).counts()
    with applied(model, prune(model, WINDOWS, "wanda", 0.5)):
        pruned = firing(model, mlps, [WINDOWS]).counts()
        assert pruned.tolist() == reference(model, PARTS["tiny-llama"], WINDOWS)[0]
    assert (pruned != dense).any()
    assert (firing(model, mlps, [WINDOWS]).counts() == dense).all()


def test_padding_and_the_prefix_do_not_count_while_perplexity_is_measured():
    model, tokenizer = models.load("tiny-llama")
    mlps, texts, head = find_mlps(model), ["kurz", "a longer sentence", "x" * 40], Head(model)
    with counting(model, mlps, skipped=1) as counted:
        scored = segment_nll(model, tokenizer, range(3), texts, head=head)
    assert scored.equals(segment_nll(model, tokenizer, range(3), texts, head=head))
    with counting(model, mlps, skipped=1) as single:
        for text in texts:
            model(input_ids=torch.tensor([[tiny.BOS, *tokenizer(text)["input_ids"]]]))
    assert counted.tokens == single.tokens == len("".join(texts))
    assert (counted.counts() == single.counts()).mean() > 0.99  # a value at zero may fall to either side
    assert np.abs(counted.counts() - single.counts()).max() <= 1
    np.testing.assert_allclose(counted.norms(), single.norms(), rtol=1e-4)


TEXTS = {"en": "the lamp stands on the table and the door is open ",
         "sw": "mvua inanyesha leo asubuhi na mapema sana tena ",
         "ru": "лампа стоит на столе и дверь открыта весь день "}


def wired(language_bytes: range):
    """A Llama in which neuron 17 of block 0 fires on these bytes alone and neuron 40 of block 0 on all others; the
    rest fire on about one byte in six, whichever it is."""
    model = make("tiny-llama")
    marked = torch.zeros(tiny.VOCABULARY, dtype=torch.bool)
    marked[language_bytes.start:language_bytes.stop] = True
    embeddings = model.model.embed_tokens.weight
    embeddings *= 8
    embeddings[:, 0], embeddings[:, 1] = torch.where(marked, 1, -1), 1
    for block in model.model.layers:
        block.self_attn.o_proj.weight.zero_()  # each token by itself
        block.mlp.down_proj.weight[:2] = 0  # the two features that were set stay as they are
        block.post_attention_layernorm.weight.fill_(1)
        block.mlp.gate_proj.weight[:, 0], block.mlp.gate_proj.weight[:, 1] = 0, -1
    gate = model.model.layers[0].mlp.gate_proj.weight
    gate[[17, 40]] = 0
    gate[17, 0], gate[40, 0] = 1, -1
    return model


def probabilities(model, texts) -> np.ndarray:
    mlps = find_mlps(model)
    ids = [torch.tensor([list(text.encode())]) for text in texts]
    return np.stack([firing(model, mlps, [one]).probabilities() for one in ids])


def test_a_neuron_wired_to_a_languages_characters_is_found_as_that_languages():
    p = probabilities(wired(range(128, 256)), TEXTS.values())
    share = sum(byte >= 128 for byte in TEXTS["ru"].encode()) / len(TEXTS["ru"].encode())
    assert p[:, 0, 17].tolist() == [0, 0, share] and p[:, 0, 40] == pytest.approx([1, 1, 1 - share])
    owned = specific(p)
    assert owned[:, 0, 17].tolist() == [False, False, True]
    assert not owned[2, 0, 40]
    assert owned.shape == (3, 4, 128) and owned[:2].sum() == 0  # English and Swahili have none, and their places
    other = specific(probabilities(wired(range(256, 256)), TEXTS.values()))  # wired to nothing
    assert not other[:, 0, 17].any()


def test_silenced_neurons_change_what_their_columns_give_and_nothing_else():
    model = make("tiny-gpt-neox")
    mlps, neurons = find_mlps(model), np.zeros((2, 128), bool)
    neurons[0, [3, 77]] = neurons[1, 5] = True
    before, weights = model(input_ids=WINDOWS).logits, copy.deepcopy(model.state_dict())
    by_hand = copy.deepcopy(model)
    for block, row in zip(by_hand.gpt_neox.layers, neurons, strict=True):
        block.mlp.dense_4h_to_h.weight[:, torch.from_numpy(row)] = 0
    with silenced(mlps, neurons):
        off = model(input_ids=WINDOWS).logits
        counts = firing(model, mlps, [WINDOWS]).counts()
    assert torch.equal(off, by_hand(input_ids=WINDOWS).logits) and not torch.equal(off, before)
    assert torch.equal(model(input_ids=WINDOWS).logits, before)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    # What fires in the first block is decided before its neurons are silenced.
    plain = firing(model, mlps, [WINDOWS]).counts()
    assert (counts[0] == plain[0]).all() and (counts[1] != plain[1]).any()
    with silenced(mlps, np.zeros((2, 128), bool)):
        assert torch.equal(model(input_ids=WINDOWS).logits, before)


@pytest.mark.parametrize("method", ["wanda", "sparsegpt"])
def test_silencing_and_a_pruned_model_go_together_in_either_order(method):
    model = make("tiny-llama")
    mlps, neurons = find_mlps(model), np.zeros((4, 128), bool)
    neurons[2, :9] = True
    pruned = prune(model, WINDOWS, method, 0.5)
    before = model(input_ids=WINDOWS).logits
    with applied(model, pruned), silenced(mlps, neurons):
        inner = model(input_ids=WINDOWS).logits
    with silenced(mlps, neurons), applied(model, pruned):
        outer = model(input_ids=WINDOWS).logits
    assert torch.equal(model(input_ids=WINDOWS).logits, before)
    with applied(model, pruned):
        model.model.layers[2].mlp.down_proj.weight[:, :9] = 0
        by_hand = model(input_ids=WINDOWS).logits
    assert torch.equal(inner, by_hand) and torch.equal(outer, by_hand)


def test_silencing_is_undone_after_an_error_and_wrong_sets_are_refused():
    model = make("tiny-llama")
    mlps = find_mlps(model)
    with pytest.raises(RuntimeError, match="stop"), silenced(mlps, np.ones((4, 128), bool)):
        raise RuntimeError("stop")
    for wrong in (np.ones((4, 127), bool), np.ones((4, 128))):
        with pytest.raises(InputError, match=r"\[4, 128\]"), silenced(mlps, wrong):
            pass
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("name", ["tiny-llama", "gpt2"])
def test_pruned_shares_are_those_of_the_columns_that_hold_weights(name):
    model = make(name)
    mlps = find_mlps(model)
    W = weight_matrix(mlps[1].down)
    W[:10, 4] = 0
    W[:, 6] = 0
    masks = prune(model, WINDOWS, "wanda", 0.5).masks
    shares = pruned_shares(model, mlps, masks)
    assert shares.shape == (len(mlps), mlps[0].neurons)
    for layer, mlp in enumerate(mlps):
        W, kept = weight_matrix(mlp.down).tolist(), masks[mlp.name].tolist()
        for j in range(mlp.neurons):
            held = [i for i in range(len(W)) if W[i][j] != 0]
            pruned = sum(not kept[i][j] for i in held)
            assert math.isnan(shares[layer, j]) if not held else shares[layer, j] == pruned / len(held)
    assert np.isnan(shares[1, 6]) and np.isnan(shares).sum() == 1
    del masks[mlps[0].name]
    with pytest.raises(InputError, match="no mask"):
        pruned_shares(model, mlps, masks)


@pytest.mark.parametrize("name", ["phi3", "mixtral", "qwen2_moe"])
def test_packed_gates_and_mixtures_are_refused(name):
    model = make(name)
    with pytest.raises(InputError, match="packed gate and up"):
        find_mlps(model)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_an_activation_function_that_does_not_keep_the_sign_is_refused():
    model = make("tiny-llama")
    for block in model.model.layers:
        block.mlp.act_fn = torch.nn.Sigmoid()
    with pytest.raises(InputError, match="Sigmoid"):
        find_mlps(model)


def test_probabilities_of_no_text_are_refused():
    model = make("tiny-llama")
    with pytest.raises(InputError, match="no text token"):
        firing(model, find_mlps(model), []).probabilities()
