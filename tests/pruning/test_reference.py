"""lib.pruning against slow references written from the equations, on random and on adversarial weights.

Masks must be the same. A weight whose score is within 1e-6 of the threshold may fall on either side in float32:
such weights are counted, and the seeds here have none unless a test says how many.
"""

import numpy as np
import pytest
import reference
import torch

from lib.pruning.scores import lowest, lowest_of_runs, magnitude_score, ria_score, run_of, wanda_score
from lib.pruning.sparsegpt import factor, sparsegpt
from lib.pruning.statistics import Gram, InputNorm

NEAR = 1e-6
SCORES = {"magnitude": (lambda W, x_norm: magnitude_score(W), lambda W, x_norm: reference.magnitude(W)),
          "wanda": (wanda_score, reference.wanda), "ria": (ria_score, reference.ria)}


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def weights(out: int, width: int, seed: int, kind: str = "normal") -> torch.Tensor:
    """W [out, in] of a kind that makes one thing hard."""
    W = torch.randn(out, width, generator=generator(seed)) / width**0.5
    if kind == "bf16":
        return W.bfloat16()
    if kind == "ties":  # five values, as in 4-bit weights
        return torch.randint(-2, 3, (out, width), generator=generator(seed)) / 8
    if kind == "zeros":  # 60 % zeros: more than are to be removed
        return W * (torch.rand(out, width, generator=generator(seed + 1)) > 0.6)
    if kind == "empty":  # rows and columns without a weight
        W[::3], W[:, ::4] = 0, 0
    if kind == "equal":
        return torch.full((out, width), -0.5)
    return W


def inputs(width: int, seed: int, tokens: int = 600, dead: tuple[int, ...] = ()) -> torch.Tensor:
    """X [tokens, in]: correlated features of unequal scales (a log-normal spread of 1), some of them always 0."""
    draw = generator(seed)
    mix = torch.randn(max(1, width // 4), width, generator=draw)
    X = torch.randn(tokens, len(mix), generator=draw) @ mix / len(mix)**0.5 + torch.randn(tokens, width, generator=draw)
    X = X * torch.randn(width, generator=draw).exp()
    X[:, list(dead)] = 0
    return X


def norm_of(X: torch.Tensor) -> torch.Tensor:
    norm = InputNorm()
    norm.add(X)
    return norm.value()


def gram_of(X: torch.Tensor) -> torch.Tensor:
    gram = Gram()
    for part in X.split(100):
        gram.add(part)
    return gram.value()


def numbers(tensor: torch.Tensor) -> np.ndarray:
    return tensor.double().numpy()


def near_ties(removed: torch.Tensor, expected: reference.Choice | reference.Solution) -> int:
    """How many weights are on the other side than expected; each of them must be near the threshold."""
    differs = removed.numpy() != expected.removed
    assert expected.margins[differs].max(initial=0) <= NEAR
    return int(differs.sum())


def assert_solved(solution, expected: reference.Solution) -> None:
    """The same mask, the same weights to 1e-5 of the largest, and zeros where removed."""
    assert near_ties(solution.removed, expected) == 0
    assert solution.weights.dtype == torch.float32
    off = np.abs(numbers(solution.weights) - expected.weights).max()
    assert off <= 1e-5 * np.abs(expected.weights).max()
    assert not solution.weights[solution.removed].any()


SHAPES = [(1, 1), (1, 40), (40, 1), (3, 2), (16, 24), (9, 130)]
KINDS = ["normal", "bf16", "ties", "zeros", "empty", "equal"]


@pytest.mark.parametrize("group", ["row", "matrix"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", SCORES)
def test_masks_of_the_scores_are_the_references(method, kind, group):
    ours, slow = SCORES[method]
    for seed, shape in enumerate(SHAPES):
        W, x_norm = weights(*shape, seed, kind), norm_of(inputs(shape[1], seed, dead=(0, 2) if shape[1] > 2 else ()))
        score, expected = ours(W, x_norm), slow(numbers(W), numbers(x_norm))
        assert score.dtype == torch.float32
        assert numbers(score) == pytest.approx(expected, rel=NEAR)
        for sparsity in (0, 0.1, 0.5, 0.7, 0.99):
            assert near_ties(lowest(score, sparsity, group), reference.lowest(expected, sparsity, group)) == 0


@pytest.mark.parametrize("pattern", ["2:4", "4:8", "1:2"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", SCORES)
def test_masks_of_runs_are_the_references(method, kind, pattern):
    ours, slow = SCORES[method]
    for seed, shape in enumerate([(1, 8), (7, 24), (5, 136)]):
        W, x_norm = weights(*shape, seed, kind), norm_of(inputs(shape[1], seed, dead=(1, 2, 3)))
        expected = reference.lowest_of_runs(slow(numbers(W), numbers(x_norm)), *run_of(pattern))
        assert near_ties(lowest_of_runs(ours(W, x_norm), *run_of(pattern)), expected) == 0


def test_a_tie_that_only_float32_has_moves_only_weights_at_the_threshold():
    """3 (1 + 2^-23) rounds to 3 + 2^-21 in float32, so the first of the two is removed; in float64 the second."""
    W, x_norm = torch.tensor([[3 + 2**-21, 1 + 2**-23, 1, 5]]), torch.tensor([1.0, 3.0, 1.0, 1.0])
    expected = reference.lowest(reference.wanda(numbers(W), numbers(x_norm)), 0.5, "row")
    assert expected.removed.tolist() == [[False, True, True, False]]
    removed = lowest(wanda_score(W, x_norm), 0.5, "row")
    assert near_ties(removed, expected) == 2
    with pytest.raises(AssertionError):
        near_ties(~removed, expected)


def test_gram_is_the_sum_over_tokens():
    X = inputs(300, 3, tokens=250, dead=(7, 299))
    H = gram_of(X)
    expected = reference.gram(X.numpy())
    assert H.dtype == torch.float32 and torch.equal(H, H.T)
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert np.abs(numbers(H) - expected).max(initial=0, where=scale == 0) == 0
    assert (np.abs(numbers(H) - expected) <= 1e-6 * scale).all()


def test_the_factor_holds_the_inverses_of_the_trailing_hessians():
    H = gram_of(inputs(150, 4, dead=(0, 80)))
    made = factor(H)
    damped, dead = reference.damped(numbers(H))
    assert made.dead.tolist() == dead.tolist() and made.damping == 0.01
    for j, row in enumerate(reference.inverse_rows(damped)):
        assert numbers(made.U[j, j:] * made.U[j, j]) == pytest.approx(row, rel=1e-6, abs=1e-8 * row[0])
    assert not made.U.tril(-1).any()


# out, in, kind of weights, dead inputs, sparsity
SOLVED = {
    "one weight": (1, 1, "normal", (), 0.5), "one row": (1, 300, "normal", (), 0.5),
    "one column": (40, 1, "normal", (), 0.5), "two columns": (3, 2, "normal", (), 0.5),
    "one block": (24, 128, "normal", (), 0.5), "a column more": (24, 129, "normal", (), 0.5),
    "several blocks": (20, 300, "normal", (), 0.5), "sparse": (20, 300, "normal", (), 0.7),
    "nothing": (20, 200, "normal", (), 0), "nearly all": (10, 140, "normal", (), 0.99),
    "bf16": (20, 300, "bf16", (), 0.5), "ties": (20, 300, "ties", (), 0.5), "zeros": (20, 300, "zeros", (), 0.5),
    "empty rows and columns": (20, 300, "empty", (), 0.5), "one value": (8, 140, "equal", (), 0.5),
    "dead": (20, 300, "normal", (0, 5, 130, 299), 0.5), "dead ties": (20, 300, "ties", (0, 5, 130, 299), 0.5),
    "dead among zeros": (20, 300, "zeros", (0, 5, 130, 299), 0.5),
    "more dead than the count": (12, 140, "normal", tuple(range(20, 110)), 0.5),
    "all dead": (6, 40, "normal", tuple(range(40)), 0.5), "dead, nothing asked": (6, 40, "normal", (3, 4), 0),
}


@pytest.mark.parametrize("case", SOLVED)
def test_sparsegpt_is_the_reference(case):
    out, width, kind, dead, sparsity = SOLVED[case]
    W, H = weights(out, width, 5, kind), gram_of(inputs(width, 6, dead=dead))
    expected = reference.sparsegpt(numbers(W), numbers(H), sparsity)
    solution = sparsegpt(W, factor(H), sparsity)
    assert_solved(solution, expected)
    counts = [reference.count(out * min(128, width - a), sparsity) for a in range(0, width, 128)]
    assert solution.dead_zeros == expected.dead_zeros
    assert int(solution.removed.sum()) - solution.dead_zeros == sum(counts)


@pytest.mark.parametrize("pattern", ["2:4", "4:8", "1:4"])
@pytest.mark.parametrize("kind, dead", [("normal", ()), ("bf16", ()), ("ties", ()), ("zeros", ()), ("empty", ()),
                                        ("equal", ()), ("normal", (0, 1, 2, 3, 4, 5, 150, 299))])
def test_sparsegpt_of_runs_is_the_reference(kind, dead, pattern):
    kept, run = run_of(pattern)
    for out, width in ((1, run), (16, 304)):
        dead_here = tuple(j for j in dead if j < width)
        W, H = weights(out, width, 7, kind), gram_of(inputs(width, 8, dead=dead_here))
        expected = reference.sparsegpt(numbers(W), numbers(H), run=(kept, run))
        solution = sparsegpt(W, factor(H), 1 - kept / run, pattern)
        assert_solved(solution, expected)
        assert solution.dead_zeros == expected.dead_zeros
        assert int(solution.removed.sum()) - solution.dead_zeros == out * width // run * (run - kept)


@pytest.mark.parametrize("pattern", ["unstructured", "2:4"])
@pytest.mark.parametrize("kind", ["zeros", "ties"])
@pytest.mark.parametrize("dead", [(), (0, 1, 2, 40, 150)])
def test_frozen_zeros_stay_and_count_first(kind, dead, pattern):
    """60 % zeros are more than the half that is asked for, 20 % are fewer; both stay zero."""
    W, H = weights(16, 200, 9, kind), gram_of(inputs(200, 10, dead=dead))
    frozen = W == 0
    expected = reference.sparsegpt(numbers(W), numbers(H), 0.5, run_of(pattern), frozen.numpy())
    solution = sparsegpt(W, factor(H), 0.5, pattern, frozen)
    assert_solved(solution, expected)
    assert solution.removed[frozen].all()


@pytest.mark.parametrize("pattern", ["unstructured", "2:4"])
def test_frozen_zeros_fill_the_count_before_dead_inputs_do(pattern):
    """So what is removed is the count, or the frozen where they are more, and the dead zeros reported."""
    W, H = weights(16, 200, 9, "zeros"), gram_of(inputs(200, 10, dead=(0, 1, 2, 40, 150)))
    frozen = W == 0
    solution = sparsegpt(W, factor(H), 0.5, pattern, frozen)
    groups = frozen.reshape(-1, 4) if pattern == "2:4" else frozen.split(128, 1)
    asked = sum(max(group.numel() // 2, int(group.sum())) for group in groups)
    expected = reference.sparsegpt(numbers(W), numbers(H), 0.5, run_of(pattern), frozen.numpy())
    assert expected.dead_zeros == int(expected.removed.sum()) - asked > 0
    assert solution.dead_zeros == expected.dead_zeros


@pytest.mark.parametrize("seed", range(5))
def test_the_layer_error_falls_from_magnitude_to_wanda_to_sparsegpt(seed):
    """On correlated inputs of unequal scales, the same share removed by each, on fresh inputs as well."""
    both = inputs(160, seed, tokens=4000)
    X, fresh = both[:2000], both[2000:]
    W, H, x_norm = weights(96, 160, seed), gram_of(X), norm_of(X)
    for pattern in ("unstructured", "2:4"):
        pruned = []
        for score in (magnitude_score(W), wanda_score(W, x_norm)):
            run = run_of(pattern)
            pruned.append(W.masked_fill(lowest_of_runs(score, *run) if run else lowest(score, 0.5, "row"), 0))
        pruned.append(sparsegpt(W, factor(H), 0.5, pattern).weights)
        assert len({int((V == 0).sum()) for V in pruned}) == 1
        for text in (X, fresh):
            magnitude, wanda, solved = (float((text @ (W - V).T).norm()) for V in pruned)
            assert solved < 0.9 * wanda < 0.9 * magnitude


def test_white_inputs_leave_nothing_to_compensate():
    """H = I has no correlation to use: kept weights stay as they were, and the mask is that of magnitude, block by
    block."""
    W = weights(10, 200, 11)
    solution = sparsegpt(W, factor(torch.eye(200)), 0.5)
    expected = [lowest(magnitude_score(block), 0.5, "matrix") for block in W.split(128, 1)]
    assert torch.equal(solution.removed, torch.cat(expected, 1))
    assert torch.equal(solution.weights, W.masked_fill(solution.removed, 0))


def test_a_copied_input_costs_nothing_to_remove():
    """Planted: every input is there twice, so the even one of a pair can go at no cost but the damping's, and its
    weight is found again in its twin."""
    X = inputs(64, 12).repeat_interleave(2, 1)
    W = weights(8, 128, 13)
    W[:, ::2] *= 1e-3
    solution = sparsegpt(W, factor(gram_of(X)), 0.5, "1:2")
    error = ((X @ (W - solution.weights).T).norm() / (X @ W.T).norm()).item()
    naive = ((X @ W.masked_fill(solution.removed, 0).T - X @ W.T).norm() / (X @ W.T).norm()).item()
    assert error < naive / 5


@pytest.mark.parametrize("pattern", ["unstructured", "2:4"])
def test_the_same_inputs_give_the_same_bits(pattern):
    def solve():
        W, H = weights(32, 304, 14), gram_of(inputs(304, 15))
        made = factor(H)
        return H, made.U, *sparsegpt(W, made, 0.5, pattern)[:2]

    for a, b in zip(solve(), solve(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("pattern", ["unstructured", "2:4"])
def test_threads_move_only_weights_at_the_threshold(pattern):
    X, W, threads = inputs(304, 16, tokens=2000), weights(64, 304, 17), torch.get_num_threads()
    solutions = []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            solutions.append(sparsegpt(W, factor(gram_of(X)), 0.5, pattern))
    finally:
        torch.set_num_threads(threads)
    expected = reference.sparsegpt(numbers(W), numbers(gram_of(X)), 0.5, run_of(pattern))
    assert [near_ties(solution.removed, expected) for solution in solutions] == [0, 0]
    assert torch.allclose(solutions[0].weights, solutions[1].weights, rtol=0, atol=1e-5 * float(W.abs().max()))
