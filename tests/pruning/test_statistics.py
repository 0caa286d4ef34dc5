"""Input statistics against loops in float64 and against hooks on the whole model."""

import math

import numpy as np
import pytest
import torch

from lib.errors import InputError
from lib.inputs import models, tiny
from lib.pruning.blocks import find_blocks, linear_layers, walk
from lib.pruning.collect import collecting, input_norms
from lib.pruning.statistics import InputNorm

TOKENS = torch.randint(0, 256, (5, 24), generator=torch.Generator().manual_seed(0))


def reference_norm(X: torch.Tensor) -> list[float]:
    rows = X.reshape(-1, X.shape[-1]).double().tolist()
    return [math.sqrt(math.fsum(row[j] ** 2 for row in rows)) for j in range(X.shape[-1])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_norm_equals_the_sum_over_tokens(dtype, scale):
    X = (torch.randn(6, 50, 13, generator=torch.Generator().manual_seed(1)) * scale).to(dtype)
    X[..., 3] = 0
    norm = InputNorm()
    for part in X.split([1, 2, 3]):
        norm.add(part)
    assert norm.value().dtype == torch.float32
    assert norm.value().tolist() == pytest.approx(reference_norm(X), rel=1e-6)
    assert norm.value()[3] == 0


def test_a_small_batch_after_many_large_ones_still_counts():
    """Sums across batches are in float64: in float32 the ones would vanish beside 2^24."""
    norm = InputNorm()
    norm.add(torch.full((1, 1), 4096.0))
    for _ in range(100):
        norm.add(torch.ones(1, 1))
    assert norm.squares.item() == 2**24 + 100


def test_layers_with_one_input_share_one_statistic():
    model = models.load("tiny-llama")[0]
    groups = []

    def visit(step):
        with collecting(step.name, step.block, InputNorm) as statistics:
            for _ in step.forward():
                pass
        distinct = dict.fromkeys(statistics.values())
        groups.append([[name for name, s in statistics.items() if s is one] for one in distinct])

    walk(model, TOKENS.split(2), visit)
    assert groups == [[["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], ["self_attn.o_proj"],
                       ["mlp.gate_proj", "mlp.up_proj"], ["mlp.down_proj"]]] * 4


@pytest.mark.parametrize("name", [name for name in tiny.RECIPES if name != "tiny-mixtral"])  # see test_experts
def test_input_norms_equal_those_of_the_ordinary_forward_pass(name):
    model = models.load(name)[0]
    seen: dict[tuple[int, str], list] = {}
    linears = {(index, name): linear for index, block in enumerate(find_blocks(model)[1])
               for name, linear in linear_layers(block).items()}

    def see(key):
        return lambda _, args: seen.setdefault(key, []).append(args[0])

    hooks = [linear.register_forward_pre_hook(see(key)) for key, linear in linears.items()]
    model(input_ids=TOKENS)
    for hook in hooks:
        hook.remove()
    norms = input_norms(model, TOKENS, batch_size=2)
    assert norms.keys() == seen.keys()
    for key, parts in seen.items():
        assert norms[key].dtype == np.float32
        assert norms[key].tolist() == pytest.approx(reference_norm(torch.cat(parts)), rel=1e-5)


def test_unlike_text_has_unlike_norms():
    model, tokenizer = models.load("tiny-llama")
    texts = ["the quick brown fox jumps over it", "быстрая лиса прыг"]
    a, b = (input_norms(model, torch.tensor([tokenizer(t)["input_ids"][:30]])) for t in texts)
    assert max(np.abs(a[key] / b[key] - 1).max() for key in a) > 0.2


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_activations_that_are_not_finite_name_layer_and_window(bad):
    model = models.load("tiny-llama")[0]
    tokens = TOKENS.clone()
    tokens[3, 5] = 255
    clean = [k for k in range(5) if k != 3]
    tokens[clean] = tokens[clean].clamp(max=254)
    with torch.no_grad():
        model.get_input_embeddings().weight[255] = bad
    with pytest.raises(InputError, match=r"layer model\.layers\.0\.self_attn\.q_proj .* window 3,"):
        input_norms(model, tokens, batch_size=2)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_hooks_are_gone_after_an_error():
    block = find_blocks(models.load("tiny-bloom")[0])[1][0]
    with pytest.raises(RuntimeError, match="stop"), collecting("transformer.h.0", block, InputNorm):
        raise RuntimeError("stop")
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in block.modules())
