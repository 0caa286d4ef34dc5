"""Pruning a model against a slow reference: ordinary forward passes with hooks, float64, stable sorts."""

import copy
import math
import re

import numpy as np
import pytest
import reference
import torch
from shapes import OTHERS, make

from lib.errors import InputError
from lib.inputs import models, tiny
from lib.inputs.models import KNOWN
from lib.paths import CACHE
from lib.pruning.blocks import find_blocks, linear_layers, weight_matrix
from lib.pruning.driver import Start, applied, prune
from lib.pruning.methods import METHODS
from lib.pruning.statistics import Gram

WINDOWS = torch.randint(0, 256, (5, 32), generator=torch.Generator().manual_seed(0))


def state(model) -> dict[str, bytes]:
    """Every parameter and buffer, byte for byte."""
    return {name: value.contiguous().view(torch.uint8).numpy().tobytes() if value.ndim else
            value.numpy().tobytes() for name, value in model.state_dict(keep_vars=False).items()}


def parameter(layer: str) -> str:
    """The parameter that holds a layer's weights."""
    return re.sub(r"experts\.\d+\.(\w+)$", r"experts.\1", layer) if ".experts." in layer else f"{layer}.weight"


@torch.no_grad()
def observe(model, modules: dict) -> tuple[dict, dict]:
    """Inputs and outputs in float64 of modules during the model's own forward pass, one window at a time."""
    inputs, outputs = {name: [] for name in modules}, {name: [] for name in modules}

    def hook(name):
        def see(_, args, output):
            inputs[name].append(args[0].double())
            outputs[name].append((output[0] if isinstance(output, tuple) else output).double())
        return see

    hooks = [module.register_forward_hook(hook(name)) for name, module in modules.items()]
    for window in WINDOWS:
        model(input_ids=window[None], use_cache=False)
    for handle in hooks:
        handle.remove()
    return ({name: torch.cat(parts) for name, parts in inputs.items()},
            {name: torch.cat(parts) for name, parts in outputs.items()})


def reference_wanda(model, sparsity: float) -> tuple[dict, dict, list[float]]:
    """(scores, kept masks, block errors): the model is pruned in place, a block at a time, each time running
    the whole model."""
    scores, masks, errors = {}, {}, []
    place, blocks = find_blocks(model)
    for index, block in enumerate(blocks):
        linears = linear_layers(block)
        inputs, outputs = observe(model, linears | {"block": block})
        hidden, dense = inputs.pop("block"), outputs.pop("block")
        for name, linear in linears.items():
            W = weight_matrix(linear)
            columns = inputs[name].flatten(0, -2).t().tolist()
            x_norm = [math.sqrt(sum(v * v for v in column)) for column in columns]
            score = W.double().abs() * torch.tensor(x_norm, dtype=torch.float64)
            removed = torch.zeros_like(score, dtype=torch.bool)
            for row, values in enumerate(score.tolist()):
                order = sorted(range(len(values)), key=lambda j: (values[j], j))
                removed[row, order[:int(len(values) * sparsity)]] = True
            W[removed] = 0
            scores[f"{place}.{index}.{name}"], masks[f"{place}.{index}.{name}"] = score, ~removed
        pruned = observe(model, {"block": block})[1]["block"]
        errors.append(float((pruned - dense).square().sum() / (dense - hidden).square().sum()))
    return scores, masks, errors


@pytest.mark.parametrize("name", [name for name in tiny.RECIPES if name != "tiny-mixtral"])  # see test_experts
def test_wanda_equals_the_reference(name):
    model = make(name)
    pruned = prune(model, WINDOWS, "wanda", 0.5, batch_size=2)
    scores, masks, errors = reference_wanda(copy.deepcopy(model), 0.5)
    assert pruned.masks.keys() == masks.keys()
    for layer, mask in masks.items():
        # Where the masks differ, the two weights stand within 1e-6 relative of the row's threshold.
        for row in (pruned.masks[layer] != mask).any(1).nonzero().flatten():
            threshold = scores[layer][row][~mask[row]].max()
            swapped = scores[layer][row][pruned.masks[layer][row] != mask[row]]
            assert ((swapped - threshold).abs() <= 1e-6 * threshold).all()
        assert (~pruned.masks[layer]).sum(1).eq(mask.shape[1] // 2).all()
    assert [row["error"] for row in pruned.block_errors] == pytest.approx(errors, rel=1e-4)
    assert [row["layer"] for row in pruned.block_errors] == list(range(len(errors)))


@pytest.mark.parametrize("group", ["row", "matrix"])
def test_magnitude_needs_no_text_and_gives_the_same_with_it(group):
    model = make("tiny-llama")
    without = prune(model, None, "magnitude", 0.3, group=group)
    with_text = prune(model, WINDOWS, "magnitude", 0.3, group=group)
    assert without.digest() == with_text.digest()
    assert without.block_errors == [] and len(with_text.block_errors) == 4
    for layer, mask in without.masks.items():
        size = model.get_submodule(layer).weight.detach().abs()
        pairs = [(size, mask)] if group == "matrix" else zip(size, mask, strict=True)
        for values, kept in pairs:
            assert int((~kept).sum()) == values.numel() * 3 // 10
            assert values[~kept].max() <= values[kept].min()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", [*tiny.RECIPES, *OTHERS])
def test_the_model_stays_as_it_was(name, dtype):
    model = make(name, dtype)
    before = state(model)
    pruned = prune(model, WINDOWS, "wanda", 0.5)
    assert state(model) == before
    with applied(model, pruned):
        changed = {key for key, value in state(model).items() if value != before[key]}
        assert {parameter(layer) for layer in pruned.masks} == changed
    assert state(model) == before
    assert all(math.isfinite(row["error"]) and row["error"] > 0 for row in pruned.block_errors)


def test_the_model_stays_as_it_was_when_pruning_fails_midway():
    model = make("tiny-llama")
    with torch.no_grad():
        model.model.layers[2].mlp.down_proj.weight[0, 0] = math.nan
    before = state(model)
    with pytest.raises(InputError, match=r"model\.layers\.2\.mlp\.down_proj are not finite"):
        prune(model, WINDOWS, "magnitude", 0.5)
    assert state(model) == before
    with pytest.raises(InputError, match=r"model\.layers\.2\.mlp\.down_proj are not finite"):
        prune(model, WINDOWS, "wanda", 0.5)
    assert state(model) == before
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_applying_changes_exactly_the_masked_weights_and_undoes_it_after_an_error():
    model = make("tiny-gemma3")
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[0] = -0.0
    dense = {layer: model.get_submodule(layer).weight.detach().clone() for layer in prune(
        model, None, "magnitude", 0.5).masks}
    before = state(model)
    pruned = prune(model, WINDOWS, "wanda", 0.5)
    with pytest.raises(RuntimeError, match="stop"), applied(model, pruned) as same:
        assert same is model
        for layer, mask in pruned.masks.items():
            assert torch.equal(model.get_submodule(layer).weight, dense[layer] * mask)
        assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
        raise RuntimeError("stop")
    assert state(model) == before
    assert torch.signbit(model.model.layers[0].mlp.up_proj.weight[0]).all()


def test_the_output_changes_and_differs_by_calibration_text():
    model, tokenizer = models.load("tiny-llama")
    texts = ["der schnelle braune Fuchs springt", "быстрая бурая лиса прыгает"]
    ids = [torch.tensor([tokenizer(text)["input_ids"][:30]]) for text in texts]
    german, russian = (prune(model, x, "wanda", 0.5) for x in ids)
    assert german.digest() != russian.digest()
    dense = model(ids[0]).logits
    with applied(model, german):
        assert (model(ids[0]).logits - dense).std() > 0.1 * dense.std()


def test_rows_count_what_they_say():
    model = make("tiny-qwen2")
    with torch.no_grad():
        model.model.layers[1].self_attn.o_proj.weight[:3] = 0
    pruned = prune(model, WINDOWS, "wanda", 0.7)
    assert len(pruned.layers) == 14 == len({row["mask_digest"] for row in pruned.layers})
    for row in pruned.layers:
        layer = f"model.layers.{row['layer']}.{row['module']}"
        mask, weight = pruned.masks[layer], model.get_submodule(layer).weight
        assert (row["weights"], row["removed"]) == (mask.numel(), int((~mask).sum()))
        assert row["zero_before"] == int((weight == 0).sum())
        assert row["removed"] == mask.shape[0] * (mask.shape[1] * 7 // 10)
    assert sum(row["zero_before"] for row in pruned.layers) == 3 * 32
    assert (pruned.method, pruned.sparsity) == ("wanda", 0.7)
    assert (pruned.pattern, pruned.group) == ("unstructured", "row")


def test_sparsity_zero_removes_nothing():
    pruned = prune(make("tiny-bloom"), WINDOWS, "wanda", 0)
    assert all(mask.all() for mask in pruned.masks.values())
    assert [row["error"] for row in pruned.block_errors] == [0.0, 0.0]


def test_same_inputs_same_digest_and_another_text_another():
    model = make("tiny-gpt-neox")
    first, second = (prune(model, WINDOWS, "wanda", 0.5) for _ in range(2))
    assert first.digest() == second.digest() and first.layers == second.layers
    assert first.block_errors == second.block_errors
    assert first.digest() != prune(model, WINDOWS[:1], "wanda", 0.5).digest()


def test_the_published_group_is_the_default():
    model = make("tiny-qwen2")
    assert prune(model, None, "magnitude", 0.5).group == "matrix"
    assert prune(model, WINDOWS, "wanda", 0.5).group == "row"


REFUSED = [
    ({"sparsity": -0.1}, "sparsity is -0.1"), ({"sparsity": 1.0}, "sparsity is 1.0"),
    ({"sparsity": math.nan}, "sparsity is nan"), ({"method": "gradient"}, "magnitude, wanda, ria, sparsegpt"),
    ({"pattern": "half"}, "allowed: unstructured"), ({"pattern": "2:3", "sparsity": None}, "runs of 3 do not fill"),
    ({"pattern": "2:4", "sparsity": 0.4}, "removes 0.5"), ({"pattern": "2:4", "group": "row"}, "allows: run"),
    ({"sparsity": None}, "sparsity is None"), ({"group": "column"}, "row, matrix"),
    ({"method": "sparsegpt", "group": "matrix"}, "allows: block"),
    ({"windows": None}, "needs calibration windows"), ({"windows": WINDOWS[0]}, r"shape \[32\]"),
    ({"windows": WINDOWS.float()}, "float32"), ({"windows": WINDOWS[:0]}, "at least one"),
    ({"windows": WINDOWS + 100}, "0 to 257"), ({"windows": WINDOWS - 300}, "own tokenizer"),
    ({"batch_size": 0}, "batch_size is 0"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_what_cannot_be_done_is_refused_before_any_work(change, message):
    model = make("tiny-llama")
    ran = []
    model.model.embed_tokens.register_forward_hook(lambda *_: ran.append(1))
    arguments = {"windows": WINDOWS, "method": "wanda", "sparsity": 0.5} | change
    with pytest.raises(InputError, match=message):
        prune(model, **arguments)
    assert not ran


@pytest.mark.parametrize("pattern", ["2:4", "4:8"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_keeps_n_of_each_m(method, pattern):
    pruned = prune(make("tiny-gemma3"), WINDOWS, method, pattern=pattern)
    run = int(pattern[2:])
    assert (pruned.sparsity, pruned.group) == (0.5, "run")
    for layer, mask in pruned.masks.items():
        assert mask.reshape(-1, run).sum(1).eq(run // 2).all(), layer


@pytest.mark.parametrize("pattern", ["unstructured", "2:4"])
@pytest.mark.parametrize("name", ["tiny-llama", "tiny-cohere", "tiny-gpt2"])
def test_sparsegpt_equals_a_walk_of_the_whole_model(name, pattern):
    """Gram matrices from ordinary forward passes, block after block; the solution from the slow reference."""
    model = make(name)
    pruned = prune(model, WINDOWS, "sparsegpt", 0.5, pattern, batch_size=2)
    place, blocks = find_blocks(model)
    for index, block in enumerate(blocks):
        linears, results = linear_layers(block), []
        for layer, X in observe(model, linears)[0].items():
            full, W = f"{place}.{index}.{layer}", weight_matrix(linears[layer])
            H = reference.gram(X.flatten(0, -2).numpy())
            solution = reference.sparsegpt(W.double().numpy(), H, 0.5, None if pattern == "unstructured" else (2, 4))
            removed = ~pruned.masks[full].numpy()
            # Sums of float32 activations come in another order here, hence more than 1e-6.
            assert solution.margins[removed != solution.removed].max(initial=0) < 1e-4, full
            both = ~removed & ~solution.removed
            ours = torch.zeros(W.shape).masked_scatter_(pruned.masks[full], pruned.weights[full])
            off = np.abs(ours.double().numpy() - solution.weights)[both].max()
            assert off < 1e-3 * float(W.abs().max()), full
            results.append((W, ours))
        for W, values in results:
            W.copy_(values)


def test_sparsegpt_rows_say_what_was_done():
    model = make("tiny-llama")
    with torch.no_grad():
        model.model.layers[1].input_layernorm.weight[:5] = 0  # five inputs of q, k, v that are always zero
        model.model.layers[2].post_attention_layernorm.weight[:40] = 0  # more than half of gate's and up's
    pruned = prune(model, WINDOWS, "sparsegpt", 0.5)
    rows = {(row["layer"], row["module"]): row for row in pruned.layers}
    assert pruned.group == "block" and {row["damping"] for row in pruned.layers} == {0.01}
    assert rows[1, "self_attn.q_proj"]["dead_inputs"] == rows[1, "self_attn.v_proj"]["dead_inputs"] == 5
    assert rows[0, "self_attn.q_proj"]["dead_inputs"] == rows[1, "self_attn.o_proj"]["dead_inputs"] == 0
    gate = rows[2, "mlp.gate_proj"]
    assert (gate["dead_inputs"], gate["dead_zeros"]) == (40, (40 - 32) * 128)
    for row in pruned.layers:
        assert row["removed"] - row["dead_zeros"] == row["weights"] // 2
    mask = pruned.masks["model.layers.2.mlp.gate_proj"]
    assert not mask[:, :40].any() and mask[:, 40:].all()


def test_a_gram_matrix_that_cannot_be_factored_names_the_layer(monkeypatch):
    """Rounding can make a Gram matrix indefinite; here its value is spoilt by hand."""
    model = make("tiny-llama")

    def spoilt(self, value=Gram.value):
        H = value(self)
        return H - H.diagonal().mean() * torch.eye(len(H)) * (4 if len(H) == 128 else 0)

    monkeypatch.setattr(Gram, "value", spoilt)
    before = state(model)
    with pytest.raises(InputError, match=r"model\.layers\.0\.mlp\.down_proj: .* not positive definite.* more calib"):
        prune(model, WINDOWS, "sparsegpt", 0.5)
    assert state(model) == before


def test_kept_weights_are_applied_and_undone():
    model = make("tiny-gemma3")
    before = state(model)
    pruned = prune(model, WINDOWS, "sparsegpt", 0.5)
    assert state(model) == before and pruned.weights.keys() == pruned.masks.keys()
    with applied(model, pruned):
        for layer, mask in pruned.masks.items():
            W = model.get_submodule(layer).weight
            assert torch.equal(W[mask], pruned.weights[layer]) and not W[~mask].any()
    assert state(model) == before


@pytest.mark.parametrize("name", ["tiny-gemma3", "gpt2", "tiny-cohere"])
def test_a_shared_start_changes_nothing(name):
    model = make(name)
    start, forwards = Start(model, WINDOWS, batch_size=2), []
    handle = find_blocks(model)[1][0].register_forward_hook(lambda *_: forwards.append(1))
    asked = [("wanda", "unstructured"), ("sparsegpt", "unstructured"), ("ria", "unstructured"),
             ("magnitude", "unstructured"), ("sparsegpt", "2:4"), ("wanda", "2:4")]
    shared = [prune(model, start, method, 0.5, pattern) for method, pattern in asked]
    handle.remove()
    batches = len(start.recording.hidden)
    assert len(forwards) == batches * (3 + len(asked))  # dense once a statistic (and once without), pruned each time
    for (method, pattern), one in zip(asked, shared, strict=True):
        alone = prune(model, WINDOWS, method, 0.5, pattern, batch_size=2)
        assert (one.digest(), one.layers, one.block_errors) == (alone.digest(), alone.layers, alone.block_errors)
        assert all(torch.equal(one.weights[layer], alone.weights[layer]) for layer in alone.weights)


def test_a_model_pruned_before_is_told_and_keeps_its_zeros():
    model = make("tiny-llama")
    first = prune(model, WINDOWS, "wanda", pattern="2:4")
    with applied(model, first):
        for method in METHODS:
            with pytest.warns(UserWarning, match=r"28 linear layers .*50\.0% to 50\.0% zeros, in the pattern 2:4"):
                again = prune(model, WINDOWS, method, 0.25)
            with applied(model, again):
                for layer, mask in first.masks.items():
                    assert not model.get_submodule(layer).weight[~mask].any(), method


def test_a_few_zeros_of_quantization_are_reported_and_no_reason_to_warn(recwarn):
    model = make("tiny-llama")
    weight = model.model.layers[0].mlp.up_proj.weight
    with torch.no_grad():
        weight[weight.abs() < weight.abs().flatten().kthvalue(weight.numel() // 10).values] = 0
    pruned = prune(model, WINDOWS, "sparsegpt", 0.5)
    assert not recwarn.list
    (row,) = [r for r in pruned.layers if (r["layer"], r["module"]) == (0, "mlp.up_proj")]
    assert row["zero_before"] == int((weight == 0).sum()) > 0.09 * weight.numel()


def test_integer_weights_are_refused():
    model = make("tiny-llama")
    linear = model.model.layers[3].mlp.up_proj
    linear.weight = torch.nn.Parameter(torch.zeros(128, 64, dtype=torch.int8), requires_grad=False)
    with pytest.raises(InputError, match=r"model\.layers\.3\.mlp\.up_proj has weights of dtype torch\.int8"):
        prune(model, WINDOWS, "wanda", 0.5)


def test_masks_of_another_model_are_refused():
    pruned = prune(make("tiny-llama"), None, "magnitude", 0.5)
    for other in ("tiny-bloom", "tiny-qwen2"):
        with pytest.raises(InputError, match="do not belong to this model"), applied(make(other), pruned):
            pass


def test_a_mask_of_another_shape_is_refused_and_the_weights_are_back():
    model = make("tiny-llama")
    pruned, before = prune(model, None, "magnitude", 0.5), copy.deepcopy(model.state_dict())
    last = list(pruned.masks)[-1]
    pruned.masks[last] = pruned.masks[last].T
    with pytest.raises(InputError, match=re.escape(f"its {last} is [64, 128]")), applied(model, pruned):
        pass
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())


@pytest.mark.real
@pytest.mark.parametrize("name", KNOWN)
def test_a_real_model_is_pruned_exactly_and_restored(name):
    if not (CACHE / "assets" / name).is_dir():
        pytest.skip(f"asset {name} is not in data/cache; fetch it with: python -m lib.inputs.assets {name}")
    model, _ = models.load(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    windows = torch.randint(0, model.config.vocab_size, (2, 64), generator=torch.Generator().manual_seed(0))
    pruned = prune(model, windows, "wanda", 0.5)
    assert len(pruned.masks) == 7 * model.config.num_hidden_layers
    assert all((~mask).sum(1).eq(mask.shape[1] // 2).all() for mask in pruned.masks.values())
    with applied(model, pruned):
        zeros = sum(int((model.get_submodule(layer).weight == 0).sum()) for layer in pruned.masks)
        assert zeros >= sum(row["removed"] for row in pruned.layers)
        assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
