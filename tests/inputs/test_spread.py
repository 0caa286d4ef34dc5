"""A model whose blocks lie on two GPUs gives what it gives on one device, and no tensor of the one meets one of the
other. The cards here are stood in for by `tests.cards`, which computes on the CPU."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from lib.analysis import embeddings, firing, likelihood, mlps, scoring, snr
from lib.errors import InputError
from lib.inputs import models, spread, tiny
from lib.pruning import activations, resumable
from lib.pruning.blocks import find_blocks
from lib.pruning.driver import applied, prune
from lib.run import memory, states
from tests.cards import KIND, cards, placed

IDS = torch.arange(4 * 24).reshape(4, 24) * 5 % 256
TEXTS = ["a few words", "and more words than a few"]
REQUESTS = [(("a context ", answer), [256, *b"a context "], [*answer.encode()]) for answer in ("x", "yes", "no")]


@pytest.fixture
def two_cards(monkeypatch):
    """safetensors takes a tensor's memory, which the stand-in has none of."""
    monkeypatch.setattr(activations, "save_file", lambda tensors, path: save_file(
        {name: tensor.cpu() for name, tensor in tensors.items()}, path))
    monkeypatch.setattr(activations, "load_file", lambda path, device: {
        name: tensor.to(device) for name, tensor in load_file(path).items()})
    with cards():
        yield [torch.device(KIND, k) for k in range(2)]


def on(name: str, devices: list | None):
    """A tiny model, on the CPU or with its blocks on these devices."""
    model, _ = models.load(name, device="cpu")
    if hasattr(model, "set_experts_implementation"):  # the default one asks which type of device it is on
        model.set_experts_implementation("eager")
    return model if devices is None else spread.hand_back(placed(model, spread.device_map(model, devices)))


def results(model, folder) -> dict:
    """Everything that is computed with a model, in numpy and Python values."""
    tokenizer, found = tiny.tokenizer(), {}
    for method in ("magnitude", "wanda", "sparsegpt"):
        made = prune(model, None if method == "magnitude" else IDS, method, 0.5)
        found[method] = [row["mask_digest"] for row in made.layers], made.block_errors
    found["resumable"] = resumable.prune_into(folder, model, IDS, "wanda", 0.5).block_errors
    dense = snr.Dense(model)
    with applied(model, made):
        found["snr"] = snr.layer_error(dense, model, [IDS])
        found["nll"] = likelihood.segment_nll(model, tokenizer, ["a", "b"], TEXTS).to_dict("list")
        found["embeddings"] = embeddings.sentence_embeddings(model, tokenizer, TEXTS).tolist()
        found["answers"] = scoring.ScoredPositions(model, tokenizer, 4)._loglikelihood_tokens(REQUESTS, True)
    try:
        neurons = mlps.find_mlps(model)
    except InputError:  # a mixture of experts has none
        return found
    fired = firing.firing(model, neurons, [IDS])
    found["firing"] = fired.counts().tolist(), fired.norms().tolist()
    with firing.silenced(neurons, np.arange(fired.counts().size).reshape(fired.counts().shape) % 3 == 0):
        found["silenced"] = likelihood.segment_nll(model, tokenizer, ["a", "b"], TEXTS).to_dict("list")
    return found


@pytest.mark.parametrize("name", tiny.RECIPES)
def test_every_result_is_that_of_one_device(name, two_cards, tmp_path):
    model = on(name, two_cards)
    places = {next(block.parameters()).device for block in find_blocks(model)[1]}
    assert two_cards[1] in places and model.device == two_cards[0]
    assert results(model, tmp_path / "two") == results(on(name, None), tmp_path / "one")


def test_the_cards_find_tensors_that_meet_where_they_may_not(two_cards):
    here, there = (torch.ones(3, device=card) for card in two_cards)
    for other in (there, torch.ones(3)):
        with pytest.raises(RuntimeError, match="tensors are on"):
            here + other
    with pytest.raises(RuntimeError, match="tensors are on"):
        here[there > 0]
    with pytest.raises(TypeError, match="copy it to the CPU"):
        here.numpy()
    assert (here + there.to(here.device)).tolist() == [2, 2, 2]


def test_the_first_card_holds_what_is_no_block_and_cards_hold_about_as_much():
    model = tiny.model("tiny-llama")
    found = spread.device_map(model, [0, 1, 2])
    of_blocks = [found.pop(f"model.layers.{k}") for k in range(4)]
    assert of_blocks == sorted(of_blocks) and set(of_blocks) == {0, 1, 2} and set(found.values()) == {0}
    assert {"model.embed_tokens", "model.norm", "lm_head"} <= set(found)


def test_it_is_read_from_files_as_a_model_on_one_device_is(tmp_path):
    """To two names of the CPU: what torch can give out here."""
    tiny.model("tiny-gemma3").save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    model, _ = spread.load(tmp_path, torch.float32, ["cpu", "cpu"])
    whole, _ = models.load(str(tmp_path), device="cpu")
    assert torch.equal(model(IDS, use_cache=False).logits, whole(IDS, use_cache=False).logits)
    assert all(hasattr(block, "_hf_hook") for block in find_blocks(model)[1])
    (tmp_path / "model.safetensors").write_bytes(b"not one")
    with pytest.raises(InputError, match="cannot be read"):
        spread.load(tmp_path, torch.float32, ["cpu", "cpu"])


@pytest.mark.parametrize(("there", "gigabytes", "gpus", "streamed"), [
    (1, 2.0, 1, False), (1, 1.0, 1, True), (2, 1.0, 2, False), (8, 1.0, 2, False), (4, 0.4, 4, True)])
def test_as_few_gpus_as_hold_a_model_or_streaming(monkeypatch, there, gigabytes, gpus, streamed):
    """Gemma 3 270M takes 1.07 GB in float32, and may take 0.6 of a GPU's memory."""
    monkeypatch.delenv("COMPENDIUM_STREAMED", raising=False)
    monkeypatch.setattr(memory, "for_models", lambda: (gigabytes * 1e9, there))
    for decision in (states.gpus, states.streamed):
        decision.cache_clear()
    assert (states.gpus("gemma-3-270m", "float32"), states.streamed("gemma-3-270m", "float32")) == (gpus, streamed)
    for decision in (states.gpus, states.streamed):
        decision.cache_clear()
