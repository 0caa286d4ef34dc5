"""A model whose blocks are read when they come up computes and is pruned as one that is in memory, bit for bit."""

import threading

import pytest
import torch
from shapes import stored

from lib.errors import InputError
from lib.inputs import models, tiny
from lib.pruning import residency
from lib.pruning.blocks import find_blocks
from lib.pruning.driver import applied, prune

WINDOWS = torch.arange(6 * 32).reshape(6, 32) * 7 % 256
METHODS = {"wanda": "unstructured", "sparsegpt": "2:4", "magnitude": "unstructured", "ria": "unstructured"}


@pytest.fixture(scope="module", params=sorted(tiny.RECIPES))
def folder(request, tmp_path_factory):
    return stored(request.param, tmp_path_factory.mktemp(request.param), max_shard_size="200KB")


@pytest.fixture
def both(folder):
    return models.load(folder)[0], models.load(folder, streamed=True)[0]


def in_memory(model) -> list[int]:
    return [k for k, block in enumerate(find_blocks(model)[1]) if not any(p.is_meta for p in block.parameters())]


@torch.inference_mode()
def test_it_computes_the_same_bits_with_one_block_in_memory(both):
    whole, streamed = both
    assert in_memory(streamed) == [] and streamed.get_input_embeddings().weight.device.type == "cpu"
    assert torch.equal(whole(WINDOWS).logits, streamed(WINDOWS).logits)
    assert in_memory(streamed) == [len(find_blocks(streamed)[1]) - 1]


@pytest.mark.parametrize("method", METHODS)
def test_it_is_pruned_the_same_and_read_again_dense(both, method):
    whole, streamed = both
    ids = None if method == "magnitude" else WINDOWS
    ours, theirs = (prune(model, ids, method, 0.5 if METHODS[method] == "unstructured" else None, METHODS[method])
                    for model in (streamed, whole))
    assert ours.digest() == theirs.digest() and ours.block_errors == theirs.block_errors
    assert ours.layers == theirs.layers
    assert ours.weights.keys() == theirs.weights.keys()
    assert all(torch.equal(ours.weights[k], theirs.weights[k]) for k in ours.weights)
    with torch.inference_mode():
        dense = whole(WINDOWS).logits
        assert torch.equal(streamed(WINDOWS).logits, dense)
        with applied(whole, theirs), applied(streamed, ours):
            assert torch.equal(whole(WINDOWS).logits, streamed(WINDOWS).logits)
            assert not torch.equal(whole(WINDOWS).logits, dense)
        assert torch.equal(streamed(WINDOWS).logits, dense)


def test_each_block_is_read_once_a_pass_the_next_one_in_the_background(monkeypatch):
    reads, main = [], threading.get_ident()

    def read(index):
        reads.append((index, threading.get_ident() == main))
        return {"weight": torch.full((2, 2), float(index))}

    blocks = torch.nn.ModuleList(torch.nn.Linear(2, 2, bias=False, device="meta") for _ in range(4))
    model = torch.nn.Module()
    residency.stream(model, blocks, read)
    for _ in range(2):
        for k, block in enumerate(blocks):
            assert block(torch.ones(1, 2)).tolist() == [[2.0 * k, 2.0 * k]]
    assert reads[0] == (0, True) and not any(here for _, here in reads[1:]), "all but the first in the background"
    assert [k for k, _ in reads[:8]] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_what_is_made_on_the_spot_cannot_be_streamed():
    with pytest.raises(InputError, match="has no files to be streamed from"):
        models.load("tiny-llama", streamed=True)
