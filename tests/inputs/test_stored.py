"""Stored parameters are those that transformers loads, whatever the files call them."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from shapes import make

from lib.errors import InputError
from lib.inputs import tiny
from lib.inputs.stored import INDEX, Stored

OTHERS = ("mixtral", "olmoe", "gpt2")  # files differ from the model: experts apart, other names; Conv1D


@pytest.mark.parametrize("shard", ["5GB", "60KB"])
@pytest.mark.parametrize("name", [*tiny.RECIPES, *OTHERS])
def test_every_parameter_is_the_models(name, shard, tmp_path):
    model = make(name)
    model.save_pretrained(tmp_path, max_shard_size=shard)
    assert (tmp_path / INDEX).is_file() == (shard == "60KB")
    stored = Stored(tmp_path, model)
    for key, parameter in model.named_parameters():
        assert key in stored and torch.equal(stored[key], parameter), key
    assert len(stored) == len(list(stored)) and "nothing" not in stored
    with pytest.raises(KeyError):
        stored["nothing"]


def test_files_are_opened_when_asked_for(tmp_path):
    model = make("tiny-llama")
    model.save_pretrained(tmp_path, max_shard_size="60KB")
    stored = Stored(tmp_path, model)
    files = json.loads((tmp_path / INDEX).read_text())["weight_map"]
    gone = tmp_path / files["lm_head.weight"]
    gone.unlink()
    assert stored["model.layers.0.mlp.up_proj.weight"].shape == (128, 64)
    assert files["model.layers.0.mlp.up_proj.weight"] != gone.name
    with pytest.raises(InputError, match=gone.name):
        stored["lm_head.weight"]


def test_files_outside_the_index_are_not_the_models(tmp_path):
    model = make("tiny-llama")
    model.save_pretrained(tmp_path, max_shard_size="60KB")
    save_file({"tok_embeddings.weight": torch.zeros(2, 2)}, tmp_path / "consolidated.safetensors")
    assert "tok_embeddings.weight" not in Stored(tmp_path, model)


def rewrite(folder, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(change(tensors), folder / "model.safetensors")


def test_names_of_older_versions_are_understood(tmp_path):
    model = make("gpt2")
    model.save_pretrained(tmp_path)
    rewrite(tmp_path, lambda t: {k.removeprefix("transformer."): v for k, v in t.items()}
            | {"h.0.attn.bias": torch.ones(1, 1, 64, 64)})
    stored = Stored(tmp_path, model)
    for key, parameter in model.named_parameters():
        assert torch.equal(stored[key], parameter), key
    llama = make("tiny-llama")
    llama.save_pretrained(tmp_path)
    rewrite(tmp_path, lambda t: t | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)})
    assert torch.equal(Stored(tmp_path, llama)["lm_head.weight"], llama.lm_head.weight)


@pytest.mark.parametrize(("change", "message"), [
    (lambda t: {k: v for k, v in t.items() if "layers.3.mlp.up" not in k}, r"lacks model\.layers\.3\.mlp\.up_proj"),
    (lambda t: t | {"model.layers.4.mlp.up_proj.weight": torch.ones(2, 2)}, r"holds model\.layers\.4\.mlp\.up_proj"),
    (lambda t: {f"other.{k}": v for k, v in t.items()}, "holds other.lm_head"),
])
def test_another_models_names_are_refused(change, message, tmp_path):
    model = make("tiny-llama")
    model.save_pretrained(tmp_path)
    rewrite(tmp_path, change)
    with pytest.raises(InputError, match=f"does not belong to this LlamaForCausalLM: it {message}"):
        Stored(tmp_path, model)


def test_an_expert_that_is_missing_is_noticed(tmp_path):
    model = make("mixtral")
    model.save_pretrained(tmp_path)
    rewrite(tmp_path, lambda t: {k: v for k, v in t.items() if ".0.block_sparse_moe.experts.1.w1" not in k})
    with pytest.raises(InputError, match=r"all parts of model\.layers\.0\.mlp\.experts\.gate_up_proj"):
        Stored(tmp_path, model)["model.layers.0.mlp.experts.gate_up_proj"]


@pytest.mark.parametrize("damage", ["cut", "other", "index", "shard"])
def test_damaged_files_are_named(damage, tmp_path):
    model = make("tiny-llama")
    model.save_pretrained(tmp_path, max_shard_size="60KB")
    shard = sorted(tmp_path.glob("model-*.safetensors"))[1]
    data = shard.read_bytes()
    match damage:
        case "cut":
            shard.write_bytes(data[:-50])
        case "other":
            shard.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
        case "index":
            (tmp_path / INDEX).write_text("[1, 2")
        case "shard":
            shard.unlink()
    with pytest.raises(InputError, match=INDEX if damage == "index" else shard.name) as told:
        Stored(tmp_path, model)
    assert "download the checkpoint again" in str(told.value)
