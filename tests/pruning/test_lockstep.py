"""Passes of a streamed model side by side: each block is read once for all, and nothing else is different."""

import pytest
import torch
from shapes import stored

from lib.errors import InputError
from lib.inputs import models
from lib.pruning import residency
from lib.pruning.lockstep import Job, Own, forward, look, together

IDS = [torch.arange(n * 16).reshape(n, 16) * 7 % 256 for n in (1, 3, 2, 1)]
BLOCKS = 4


@pytest.fixture
def counted():
    """(model of four blocks that multiply by 2, 3, 5, 7; the numbers of those that were read)"""
    reads = []

    def read(index):
        reads.append(index)
        return {"weight": torch.full((1, 1), float([2, 3, 5, 7][index]))}

    model = torch.nn.Module()
    model.blocks = torch.nn.ModuleList(torch.nn.Linear(1, 1, bias=False, device="meta") for _ in range(BLOCKS))
    residency.stream(model, model.blocks, read, ahead=False)
    return model, reads


def through(blocks, x):
    for block in blocks:
        x = block(x)
    return x


def jobs(model, seen, count=5):
    def run(k):
        y = through(model.blocks, torch.full((1, 1), float(k)))
        seen.append(k)
        return float(y)

    return [Job(10, lambda k=k: run(k)) for k in range(count)]


def test_a_block_is_read_once_for_as_many_jobs_as_the_budget_holds(counted):
    model, reads = counted
    seen = []
    assert list(together(model, jobs(model, seen), budget=39)) == [210.0 * k for k in range(5)]
    assert reads == [0, 1, 2, 3] * 2 and seen == list(range(5)), "three jobs, then two"
    reads.clear()
    list(together(model, jobs(model, seen), budget=1))
    assert len(reads) == 4 * 5, "one at least"


def test_a_job_may_call_the_model_again_or_not_at_all(counted):
    model, reads = counted
    twice = Job(1, lambda: through(model.blocks, through(model.blocks, torch.ones(1, 1))).item())
    none = Job(1, lambda: "nothing")
    part = Job(1, lambda: model.blocks[2](torch.ones(1, 1)).item())
    assert list(together(model, [twice, none, part, twice])) == [210.0**2, "nothing", 5.0, 210.0**2]
    assert reads == [0, 1, 2, 3] * 2
    assert through(model.blocks, torch.ones(1, 1)).item() == 210, "outside of jobs as ever"


def test_an_error_in_a_job_comes_out_and_the_others_are_ended(counted):
    model, _ = counted
    ended = []

    def broken():
        through(model.blocks[:2], torch.ones(1, 1))
        raise InputError("it broke")

    def waits():
        try:
            return through(model.blocks, torch.ones(1, 1))
        finally:
            ended.append(True)

    with pytest.raises(InputError, match="it broke"):
        list(together(model, [Job(1, waits), Job(1, broken), Job(1, waits)]))
    assert len(ended) == 2
    assert through(model.blocks, torch.ones(1, 1)).item() == 210


def test_each_job_has_its_own_value(counted):
    model, _ = counted
    own, found = Own("none"), []
    model.blocks[3].register_forward_hook(lambda *_: found.append(own.get()))

    def run(k):
        if k != 1:
            own.set(k)
        return through(model.blocks, torch.ones(1, 1))

    list(together(model, [Job(1, lambda k=k: run(k)) for k in range(3)]))
    assert found == [0, "none", 2] and own.get() == "none"


@pytest.mark.parametrize("name", ["tiny-gemma3", "tiny-llama"])
@torch.inference_mode()
def test_passes_give_the_same_bits_as_one_after_the_other(name, tmp_path):
    whole, streamed = models.load(name)[0], models.load(stored(name, tmp_path), streamed=True)[0]
    expected = [whole.base_model(input_ids=ids, use_cache=False)[0] for ids in IDS]
    for model in (whole, streamed):
        found = list(together(model, (forward(model, ids, after=torch.clone) for ids in IDS)))
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert look(streamed, [forward(streamed, ids) for ids in IDS]) is None
