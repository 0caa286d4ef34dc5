"""Mixtures of experts: each expert is pruned by the tokens that were sent to it, and not at all without any."""

import pytest
import torch
from torch.nn.functional import silu
from transformers import AutoConfig, AutoModelForCausalLM

from lib.errors import InputError
from lib.inputs import models
from lib.pruning.blocks import find_blocks, linear_layers, weight_matrix
from lib.pruning.collect import collecting, input_norms
from lib.pruning.driver import applied, prune
from lib.pruning.experts import expert_layers, running_one_by_one
from lib.pruning.methods import METHODS
from lib.pruning.statistics import InputNorm

WINDOWS = torch.randint(0, 256, (5, 32), generator=torch.Generator().manual_seed(0))
EXPERTS = 6


@pytest.fixture
def model():
    return models.load("tiny-mixtral")[0]


@torch.no_grad()
def routed(model, windows) -> list[dict[str, torch.Tensor]]:
    """By block the inputs [tokens, in] of each expert's matrices, from the model's own forward pass."""
    seen = []
    hooks = [block.mlp.experts.register_forward_pre_hook(lambda _, args: seen.append(args))
             for block in find_blocks(model)[1]]
    model(input_ids=windows, use_cache=False)
    for hook in hooks:
        hook.remove()
    inputs = []
    for block, (hidden, index, _) in zip(find_blocks(model)[1], seen, strict=True):
        inputs.append({})
        for expert in range(EXPERTS):
            X = hidden[(index == expert).any(-1)]
            gate, up = (X @ block.mlp.experts.gate_up_proj[expert].T).chunk(2, dim=-1)
            inputs[-1] |= {f"mlp.experts.{expert}.gate_up_proj": X,
                           f"mlp.experts.{expert}.down_proj": silu(gate) * up}
    return inputs


def test_an_experts_layers_share_the_stacks_memory(model):
    block = find_blocks(model)[1][0]
    layers = linear_layers(block)
    assert [name for name in layers if "experts" in name][:3] == [
        "mlp.experts.0.gate_up_proj", "mlp.experts.0.down_proj", "mlp.experts.1.gate_up_proj"]
    assert len(layers) == 4 + 2 * EXPERTS
    weight_matrix(layers["mlp.experts.3.down_proj"])[2, 5] = 77
    assert block.mlp.experts.down_proj[3, 2, 5] == 77


def test_one_by_one_the_block_gives_what_it_gave(model):
    block = find_blocks(model)[1][0]
    hidden = torch.randn(40, 64, generator=torch.Generator().manual_seed(1))
    index = torch.stack([torch.randperm(EXPERTS - 1, generator=torch.Generator().manual_seed(k))[:2]
                         for k in range(40)])  # the last expert gets none
    weights = torch.rand(40, 2, generator=torch.Generator().manual_seed(2))
    expected = block.mlp.experts(hidden, index, weights)
    with running_one_by_one(block):
        assert torch.allclose(block.mlp.experts(hidden, index, weights), expected, rtol=1e-5, atol=1e-6)
    assert "forward" not in block.mlp.experts.__dict__


def test_an_experts_norms_are_those_of_the_tokens_sent_to_it(model):
    expected = routed(model, WINDOWS)
    norms = input_norms(model, WINDOWS, batch_size=2)
    for index, layers in enumerate(expected):
        for layer, X in layers.items():
            if len(X):
                assert norms[index, layer].tolist() == pytest.approx(X.norm(dim=0).tolist(), rel=1e-4, abs=1e-6)
            else:
                assert (index, layer) not in norms


def test_tokens_are_counted(model):
    block, hidden = find_blocks(model)[1][0], torch.randn(2, 10, 64, generator=torch.Generator().manual_seed(3))
    positions = model.model.rotary_emb(hidden, torch.arange(10)[None])
    with collecting("block", block, InputNorm) as statistics:
        block(hidden, position_embeddings=positions)
    assert statistics.tokens.keys() == {name for name in linear_layers(block) if "experts" in name}
    assert sum(n for name, n in statistics.tokens.items() if name.endswith("down_proj")) == 2 * 20


@pytest.mark.parametrize("method", METHODS)
def test_experts_are_pruned_exactly(model, method):
    pruned = prune(model, WINDOWS, method, 0.5)
    assert len(pruned.masks) == 2 * (4 + 2 * EXPERTS)
    for row in pruned.layers:
        assert row["removed"] - row.get("dead_zeros", 0) == row["weights"] // 2, row
        assert (row.get("tokens", 0) > 0) == (METHODS[method].statistic is not None and "experts" in row["module"])
    dense = {key: value.clone() for key, value in model.state_dict().items()}
    with applied(model, pruned):
        zeros = int((model.model.layers[1].mlp.experts.down_proj == 0).sum())
        down = [row for row in pruned.layers if row["layer"] == 1 and row["module"].endswith("down_proj")]
        assert zeros == sum(row["removed"] for row in down)
    assert all(torch.equal(value, dense[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("method", ["wanda", "sparsegpt"])
def test_an_expert_that_saw_no_token_stays_dense_and_is_reported(model, method):
    two_tokens = WINDOWS[:1, :2]  # of six experts they reach four at most
    with pytest.warns(UserWarning, match=r"of 32 linear layers saw no calibration token and stay dense"):
        pruned = prune(model, two_tokens, method, 0.5)
    unseen = [row for row in pruned.layers if row.get("tokens") == 0]
    assert len(unseen) >= 2 * 2 * (EXPERTS - 4)
    before = model.model.layers[0].mlp.experts.down_proj.clone()
    with applied(model, pruned):
        for row in pruned.layers:
            mask = pruned.masks[f"model.layers.{row['layer']}.{row['module']}"]
            assert (row["removed"] == 0) == mask.all().item() == (row in unseen)
        for row in unseen:
            if row["layer"] == 0 and row["module"].endswith("down_proj"):
                expert = int(row["module"].split(".")[2])
                assert torch.equal(model.model.layers[0].mlp.experts.down_proj[expert], before[expert])


@pytest.mark.parametrize("kind", ["gpt_oss", "llama4_text", "jetmoe"])
def test_matrices_in_a_form_that_is_not_known_are_refused(kind):
    config = AutoConfig.for_model(kind, vocab_size=258, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
                                  num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_local_experts=4,
                                  num_experts_per_tok=2, pad_token_id=None)
    model = AutoModelForCausalLM.from_config(config).eval()
    with pytest.raises(InputError, match="keeps matrices outside linear layers"):
        expert_layers(find_blocks(model)[1][0])
    with pytest.raises(InputError, match="They would stay dense"):
        prune(model, WINDOWS, "wanda", 0.5)
