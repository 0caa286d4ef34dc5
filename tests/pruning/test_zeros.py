"""Masks that went out as zeros come back from them, and what is not a mask is not taken for one."""

import warnings

import pytest
import torch
from shapes import make
from torch import nn
from transformers import AutoModelForCausalLM

from lib.errors import InputError
from lib.inputs import models
from lib.inputs.stored import Stored
from lib.pruning import files
from lib.pruning.blocks import find_blocks, linear_layers, weight_matrix
from lib.pruning.driver import applied, prune
from lib.pruning.zeros import contradictions, masks_from_zeros, pattern_of, totals

WINDOWS = torch.randint(0, 256, (6, 32), generator=torch.Generator().manual_seed(0))
TIED = ("tiny-gemma3", "tiny-bloom", "gpt2")


def linears(model) -> dict[str, nn.Module]:
    name, blocks = find_blocks(model)
    return {f"{name}.{k}.{layer}": linear for k, block in enumerate(blocks)
            for layer, linear in linear_layers(block).items()}


def parameters(model, pruned=None, dtype=torch.float32) -> dict[str, torch.Tensor]:
    """A copy of all parameters, pruned when there are masks."""
    if pruned is None:
        return {name: p.detach().clone().to(dtype) for name, p in model.named_parameters()}
    with applied(model, pruned):
        return parameters(model, dtype=dtype)


def plant_zeros(model, share: float) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for linear in linears(model).values():
            W = weight_matrix(linear)
            W[torch.rand(W.shape, generator=generator) < share] = 0


@torch.no_grad()
@pytest.mark.parametrize("method", ["wanda", "sparsegpt"])
@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gemma3", "tiny-bloom", "gpt2", "mixtral"])
def test_the_round_trip_gives_back_masks_weights_and_logits(name, method, tmp_path):
    model = make(name)
    assert name not in TIED or model.get_output_embeddings().weight is model.get_input_embeddings().weight
    pruned = prune(model, WINDOWS, method, 0.5)
    with applied(model, pruned):
        model.save_pretrained(tmp_path)
        expected = model(WINDOWS).logits
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(WINDOWS).logits, expected)
    found = masks_from_zeros(Stored(tmp_path, model), model, method)
    assert list(found.masks) == list(pruned.masks) and found.digest() == pruned.digest()
    assert found.weights.keys() == pruned.weights.keys()
    assert all(torch.equal(found.weights[layer], values) for layer, values in pruned.weights.items())
    for row, its in zip(found.layers, pruned.layers, strict=True):
        assert {key: row[key] for key in row if key in its} == {key: its[key] for key in its if key in row}
    assert (found.method, found.pattern, found.group) == (pruned.method, "unstructured", pruned.group)
    assert found.sparsity == sum(r["removed"] for r in pruned.layers) / sum(r["weights"] for r in pruned.layers)
    with applied(model, found):
        assert torch.equal(model(WINDOWS).logits, expected)
    assert totals(found.layers)["undetermined"] == 0
    assert contradictions(found, method, 0.5, "unstructured") == []


def test_a_file_keeps_what_was_found(tmp_path):
    model = make("tiny-llama")
    found = masks_from_zeros(parameters(model, prune(model, WINDOWS, "wanda", 0.5)), model)
    files.save(found, tmp_path / "found.safetensors")
    loaded = files.load(tmp_path / "found.safetensors")
    assert loaded.digest() == found.digest() and loaded.layers == found.layers
    assert (loaded.method, loaded.group, loaded.sparsity) == ("unknown", "unknown", 0.5)


@pytest.mark.parametrize("pattern", ["2:4", "4:8", "1:4"])
@pytest.mark.parametrize("method", ["wanda", "sparsegpt"])
def test_a_pattern_is_found(pattern, method):
    model = make("tiny-gemma3")
    pruned = prune(model, WINDOWS, method, pattern=pattern)
    found = masks_from_zeros(parameters(model, pruned), model, method)
    assert (found.pattern, found.group, found.sparsity) == (pattern, "run", pruned.sparsity)
    assert contradictions(found, method, pruned.sparsity, pattern) == []


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75, 0.95, 0.99])
def test_in_noise_there_is_no_pattern(share):
    masks = [torch.rand(64, 128, generator=torch.Generator().manual_seed(k)) >= share for k in range(4)]
    assert pattern_of(masks) == "unstructured"


def test_one_run_with_a_weight_too_many_is_no_pattern():
    mask = torch.tensor([True, False, False, True]).repeat(64, 32)
    assert pattern_of([mask]) == "2:4"
    assert pattern_of([mask, torch.ones(8, 6, dtype=torch.bool)]) == "2:4", "a layer that was not pruned"
    mask[5, 41] = True
    assert pattern_of([mask]) == "unstructured"
    assert pattern_of([torch.ones(8, 8, dtype=torch.bool)]) == pattern_of([]) == "unstructured"


def test_zeros_of_the_dense_model_are_undetermined():
    """Some rows have more zeros than are removed of them: the masks differ where kept weights are zero, nowhere
    else."""
    model = make("tiny-llama")
    plant_zeros(model, 0.15)
    pruned = prune(model, WINDOWS, "wanda", 0.15)
    found = masks_from_zeros(parameters(model, pruned), model)
    for layer, linear in linears(model).items():
        zero = weight_matrix(linear) == 0
        assert torch.equal(found.masks[layer], pruned.masks[layer] & ~zero)
        assert (pruned.masks[layer] & zero).any()
    for row, its in zip(found.layers, pruned.layers, strict=True):
        assert row["undetermined"] == row["zero_before"] == its["zero_before"] < row["removed"]
    assert 0.16 < found.sparsity < 0.2 and found.weights == {}
    (told,) = contradictions(found, "wanda", 0.15, "unstructured")
    assert f"{totals(found.layers)['undetermined']:,} of them in the dense model too" in told


@pytest.mark.filterwarnings("ignore:this LlamaForCausalLM was pruned before")
def test_a_pattern_is_found_among_zeros_of_the_dense_model():
    model = make("tiny-llama")
    plant_zeros(model, 0.3)
    found = masks_from_zeros(parameters(model, prune(model, WINDOWS, "wanda", pattern="2:4")), model)
    assert found.pattern == "2:4" and found.sparsity > 0.5 + 0.01


@pytest.mark.parametrize("zeros", [0, 0.3])
def test_without_zeros_of_its_own_a_checkpoint_holds_no_mask(zeros):
    model = make("tiny-llama")
    plant_zeros(model, zeros)
    with pytest.raises(InputError, match="holds no mask"):
        masks_from_zeros(parameters(model), model)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounding_to_another_dtype_is_no_change(dtype):
    model = make("tiny-llama")
    with torch.no_grad():  # too small for float16, not for bfloat16
        model.model.layers[1].mlp.up_proj.weight[3] = 1e-9
    pruned = prune(model, None, "magnitude", 0.01, group="row")
    found = masks_from_zeros(parameters(model, pruned, dtype), model, "magnitude")
    assert found.weights == {} and totals(found.layers)["changed"] == 0
    differ = {layer: (found.masks[layer] != mask).sum(1) for layer, mask in pruned.masks.items()
              if not torch.equal(found.masks[layer], mask)}
    if dtype == torch.bfloat16:
        assert differ == {} and totals(found.layers)["undetermined"] == 0
    else:
        ((layer, rows),) = differ.items()
        assert layer == "model.layers.1.mlp.up_proj" and rows.nonzero().tolist() == [[3]] and rows[3] == 64
        assert totals(found.layers)["undetermined"] == 64


@torch.no_grad()
def test_one_changed_weight_is_found_and_kept():
    model = make("tiny-llama")
    pruned = prune(model, WINDOWS, "wanda", 0.5)
    stored, layer = parameters(model, pruned), "model.layers.2.mlp.down_proj"
    row, column = pruned.masks[layer].nonzero()[100].tolist()
    stored[f"{layer}.weight"][row, column] *= 1 + 1e-6
    found = masks_from_zeros(stored, model, "wanda")
    assert found.digest() == pruned.digest() and list(found.weights) == [layer]
    assert totals(found.layers)["changed"] == 1
    assert torch.equal(found.weights[layer], stored[f"{layer}.weight"][pruned.masks[layer]])
    with applied(model, found):
        assert torch.equal(model.get_submodule(layer).weight, stored[f"{layer}.weight"])
    (told,) = contradictions(found, "wanda", 0.5, "unstructured")
    assert "1 of 73,728 are not the dense model's" in told


def test_a_name_that_states_something_else_is_contradicted():
    model = make("tiny-llama")
    found = masks_from_zeros(parameters(model, prune(model, WINDOWS, "wanda", 0.3)), model, "sparsegpt")
    sparsity, pattern, method = contradictions(found, "sparsegpt", 0.5, "2:4")
    assert "states 50.0% sparsity, but" in sparsity and "of 147,456 weights are zero (29." in sparsity
    assert pattern == "the name states the pattern 2:4, but the zeros are unstructured"
    assert method == "sparsegpt changes kept weights, but all of them are the dense model's"


def test_other_parameters_that_differ_are_said():
    model = make("tiny-llama")
    stored = parameters(model, prune(model, WINDOWS, "wanda", 0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        masks_from_zeros(stored, model)
    stored["model.norm.weight"] += 1
    with pytest.warns(UserWarning, match=r"1 parameters outside the linear layers .* model\.norm\.weight"):
        masks_from_zeros(stored, model)


def quantized(stored, layer):
    stored[layer] = stored[layer].to(torch.int8)


def wide(stored, layer):
    stored[layer] = stored[layer][:, :-1]


def damaged(stored, layer):
    stored[layer][0, 0] = torch.nan


@pytest.mark.parametrize(("change", "message"), [
    (lambda stored, layer: stored.pop(layer), r"no weights of model\.layers\.1\.mlp\.up_proj"),
    (wide, r"model\.layers\.1\.mlp\.up_proj is of shape \[128, 63\] in the checkpoint and of \[128, 64\]"),
    (quantized, "dtype torch.int8 in the checkpoint: quantized"), (damaged, "not finite")])
def test_what_does_not_belong_to_the_dense_model_is_refused(change, message):
    model = make("tiny-llama")
    stored = parameters(model, prune(model, WINDOWS, "wanda", 0.5))
    change(stored, "model.layers.1.mlp.up_proj.weight")
    with pytest.raises(InputError, match=message):
        masks_from_zeros(stored, model)


def test_another_number_of_experts_is_refused():
    model = make("mixtral")
    stored = parameters(model)
    stored["model.layers.1.mlp.experts.down_proj"] = stored["model.layers.1.mlp.experts.down_proj"][:2]
    with pytest.raises(InputError, match=r"experts\.2\.down_proj is of shape \[0, 32, 64\]"):
        masks_from_zeros(stored, model)


def test_another_models_checkpoint_is_refused(tmp_path):
    model = make("tiny-qwen2")
    with applied(model, prune(model, WINDOWS, "wanda", 0.5)):
        model.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="does not belong to this LlamaForCausalLM"):
        Stored(tmp_path, make("tiny-llama"))


def test_masks_are_those_of_the_models_file_in_bfloat16(tmp_path):
    model, _ = models.load("tiny-llama", "bfloat16")
    pruned = prune(model, WINDOWS, "sparsegpt", 0.5)
    with applied(model, pruned):
        model.save_pretrained(tmp_path)
    found = masks_from_zeros(Stored(tmp_path, model), model, "sparsegpt")
    zero = {layer: (values == 0).sum() for layer, values in pruned.weights.items()}
    assert sum(zero.values()) == 0 and found.digest() == pruned.digest()
    assert all(values.dtype == torch.bfloat16 for values in found.weights.values())
