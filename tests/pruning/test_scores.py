"""Scores and choices against references written as loops from the equations."""

import math
from fractions import Fraction

import pytest
import torch

from lib.errors import InputError
from lib.pruning.methods import METHODS
from lib.pruning.scores import lowest, magnitude_score, removed_count, wanda_score


def reference_lowest(score: torch.Tensor, sparsity: str, group: str) -> torch.Tensor:
    """Sort (value, place) pairs in Python: stable by construction; the count in exact fractions."""
    rows = [list(range(k * score.shape[1], (k + 1) * score.shape[1])) for k in range(score.shape[0])]
    groups = rows if group == "row" else [sum(rows, [])]
    values = score.flatten().tolist()
    removed = torch.zeros(score.numel(), dtype=torch.bool)
    for places in groups:
        count = math.floor(Fraction(sparsity) * len(places))
        removed[sorted(places, key=lambda k: (values[k], k))[:count]] = True
    return removed.view(score.shape)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


CASES = {
    "random": torch.rand(7, 36, generator=generator(1)),
    "ties": torch.randint(0, 3, (9, 40), generator=generator(2)).float(),
    "all equal": torch.full((3, 10), 0.25),
    "all zero": torch.zeros(2, 9),
    "one row": torch.rand(1, 33, generator=generator(3)),
    "width 1": torch.rand(5, 1, generator=generator(4)),
    "one weight": torch.ones(1, 1),
    "zeros of both signs": torch.tensor([[0.0, -0.0, 0.0, -0.0, 1.0, 0.0]]),
    "infinite": torch.tensor([[math.inf, 1.0, math.inf, 0.0], [math.inf] * 4]),
    "bfloat16 grid": torch.randn(16, 64, generator=generator(5)).bfloat16().float().abs(),
    "columns in memory": torch.randint(0, 5, (12, 6), generator=generator(6)).float().t(),
}


@pytest.mark.parametrize("group", ["row", "matrix"])
@pytest.mark.parametrize("sparsity", ["0", "0.1", "0.3", "0.5", "0.7", "0.99"])
@pytest.mark.parametrize("name", CASES)
def test_lowest_equals_a_stable_sort(name, sparsity, group):
    removed = lowest(CASES[name], float(sparsity), group)
    assert removed.dtype == torch.bool
    assert torch.equal(removed, reference_lowest(CASES[name], sparsity, group))


def test_lowest_leaves_the_score_as_it_was():
    score = CASES["ties"].clone()
    lowest(score, 0.5, "row")
    assert torch.equal(score, CASES["ties"])


def test_bfloat16_weights_lose_exactly_half_of_every_row():
    """Comparing bf16 scores with a threshold gave rows between 0.477 and 0.527 elsewhere."""
    W = torch.randn(64, 512, generator=generator(7)).bfloat16()
    for score in (magnitude_score(W), wanda_score(W, torch.ones(512))):
        assert score.dtype == torch.float32
        assert (lowest(score, 0.5, "row").sum(1) == 256).all()


@pytest.mark.parametrize(("weights", "sparsity", "count"), [
    (360, 0.7, 252), (100, 0.29, 29), (10, 0.3, 3), (1000, 0.001, 1), (3, 0.5, 1), (1, 0.99, 0), (640, 0, 0)])
def test_counts_are_decimal(weights, sparsity, count):
    assert removed_count(weights, sparsity) == count


def test_nan_is_an_error():
    with pytest.raises(InputError, match="NaN"):
        lowest(torch.tensor([[1.0, math.nan]]), 0.5, "row")


def test_unknown_group_names_the_allowed():
    with pytest.raises(InputError, match="row, matrix"):
        lowest(torch.ones(2, 2), 0.5, "column")


def test_scores_equal_the_equations():
    W = torch.randn(5, 11, generator=generator(8))
    x_norm = torch.rand(11, generator=generator(9)) * 100
    wanda = [[abs(w) * x for w, x in zip(row, x_norm.double().tolist(), strict=True)]
             for row in W.double().tolist()]
    wanda = torch.tensor(wanda, dtype=torch.float64)
    assert torch.allclose(wanda_score(W, x_norm).double(), wanda, rtol=1e-6)
    assert torch.equal(magnitude_score(-W), torch.tensor([[abs(w) for w in row] for row in W.tolist()]))


def test_the_published_groups_come_first():
    assert METHODS["magnitude"].groups[0] == "matrix"
    assert METHODS["wanda"].groups[0] == "row"
