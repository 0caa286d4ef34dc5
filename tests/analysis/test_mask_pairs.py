"""Where two masks differ, and mixtures of two, on masks whose differences were planted."""

import numpy as np
import pytest

from lib.analysis.mask_pairs import changes, swap, swap_all, take
from lib.errors import InputError

OUT, IN = 60, 200


def lowest(score, count):
    """Kept mask that removes the `count` lowest of each row."""
    return score.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable") >= count


def pair(spread, seed=0, shape=(OUT, IN)):
    """(kept, other, W): Wanda-like masks whose input norms [in] differ by exp(spread * noise)."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal(shape)
    norms = np.exp(np.broadcast_to(spread, shape[1]) * rng.standard_normal((2, shape[1])))
    return *(lowest(np.abs(W) * x, shape[1] // 2) for x in norms), W


def select(rows, by):
    return {row["part"]: (row["share"], row["even"]) for row in rows if row["by"] == by}


def test_counts_equal_a_loop_over_weights():
    kept, other, W = pair(0.3, shape=(12, 40))
    W[0, :9] = W[5, 30:] = 0
    rows = changes(kept, other, W, bins=4)
    hits, places = {}, {}
    for i in range(12):
        for place, j in enumerate(sorted(range(40), key=lambda j: (abs(W[i, j]), j))):
            if W[i, j] != 0:
                for key in (("magnitude", place // 10), ("input", j), ("output", i)):
                    places[key] = places.get(key, 0) + 1
                    hits[key] = hits.get(key, 0) + (kept[i, j] != other[i, j])
    total = sum(n for (by, _), n in hits.items() if by == "input")
    assert {(row["changed"], row["weights"]) for row in rows} == {(total, np.count_nonzero(W))}
    for k in range(4):
        assert select(rows, "magnitude")[(k + 1) / 4] == pytest.approx(
            (hits["magnitude", k] / total, places["magnitude", k] / np.count_nonzero(W)))
    for by, top in (("input", {0.01: 1, 0.05: 2}), ("output", {0.01: 1, 0.05: 1})):
        most = sorted((n for (of, _), n in hits.items() if of == by), reverse=True)
        for part, k in top.items():
            assert select(rows, by)[part][0] == pytest.approx(sum(most[:k]) / total)


def test_a_few_outlier_features_are_found():
    """Two of 200 features differ much between the languages, the others hardly."""
    spread = np.full(IN, 0.01)
    spread[[17, 90]] = 3.0
    rows = changes(*pair(spread), bins=4)
    share, even = select(rows, "input")[0.01]
    assert share > 0.2 and share > 4 * even
    assert select(rows, "output")[0.05][0] < 2 * select(rows, "output")[0.05][1]


def test_changes_that_are_spread_evenly_are_said_to_be():
    rng = np.random.default_rng(3)
    W = rng.standard_normal((300, 400))
    kept = rng.random(W.shape) > 0.5
    rows = changes(kept, kept ^ (rng.random(W.shape) < 0.1), W)
    for by in ("magnitude", "input", "output"):
        for part, (share, even) in select(rows, by).items():
            assert share == pytest.approx(even, rel=0.08), (by, part)
    assert select(rows, "input")[0.05][1] > 0.055, "the most-hit features are hit more than all are"
    assert sum(share for share, _ in select(rows, "magnitude").values()) == pytest.approx(1)


def test_wanda_masks_change_at_middle_magnitudes():
    share = [s for s, _ in select(changes(*pair(0.2)), "magnitude").values()]
    assert sum(share[3:7]) > 0.8 and share[0] == share[9] == 0


def test_equal_masks_have_no_changes_to_share_out():
    kept, _, W = pair(0.2)
    rows = changes(kept, kept, W)
    assert all(np.isnan([row["share"], row["even"]]).all() and row["changed"] == 0 for row in rows)


@pytest.mark.parametrize("share", [0, 0.1, 0.25, 0.5, 0.9, 1])
def test_a_swap_takes_equally_many_of_each_kind_in_every_row(share):
    kept, other, _ = pair(0.5)
    mixed = swap(kept, other, share, seed=4)
    assert (mixed.sum(axis=1) == kept.sum(axis=1)).all()
    assert ((mixed == kept) | (kept != other)).all(), "what both agree on stays"
    for row, (m, a, b) in enumerate(zip(mixed, kept, other, strict=True)):
        each = int((a & ~b).sum())
        taken = int(np.floor(share * each + 0.5))
        assert (m & ~a).sum() == (a & ~m).sum() == taken, row
    assert (share == 0) == (mixed == kept).all() and (share == 1) == (mixed == other).all()


def test_swaps_are_deterministic_nested_and_random():
    kept, other, _ = pair(0.5)
    small, large = (swap(kept, other, share, seed=1) != kept for share in (0.3, 0.6))
    assert (small <= large).all() and small.sum() < large.sum()
    assert (swap(kept, other, 0.3, seed=1) == swap(kept, other, 0.3, seed=1)).all()
    assert (swap(kept, other, 0.3, seed=1) != swap(kept, other, 0.3, seed=2)).any()
    times = np.mean([swap(kept, other, 0.5, seed=s) != kept for s in range(300)], axis=0)[kept != other]
    even = [m for m in (kept & ~other).sum(axis=1) if m]
    assert times.mean() == pytest.approx(sum(2 * np.floor(m / 2 + 0.5) for m in even) / (2 * sum(even)), abs=1e-9)
    assert times.min() > 0.3, "every differing weight has its turn"


def test_masks_of_a_model_are_swapped_matrix_by_matrix():
    names = ("model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj")
    one, two, _ = pair(0.5)
    masks, others = dict.fromkeys(names, one), dict.fromkeys(names, two)
    mixed = swap_all(masks, others, 0.5, seed=0)
    assert not (mixed[names[0]] == mixed[names[1]]).all(), "each matrix has a generator of its own"
    assert (mixed[names[2]] == swap_all({names[2]: one}, {names[2]: two}, 0.5)[names[2]]).all()
    attention = take(masks, others, lambda layer, module: module.startswith("self_attn"))
    assert [attention[name] is two for name in names] == [True, False, False]
    late = take(masks, others, lambda layer, module: layer > 0)
    assert [late[name] is two for name in names] == [False, False, True]


def test_swaps_that_would_change_the_sparsity_are_refused():
    kept, other, _ = pair(0.5)
    other[3, np.flatnonzero(other[3])[0]] = False
    with pytest.raises(InputError, match="in 1 of 60 rows"):
        swap(kept, other, 0.5)
    with pytest.raises(InputError, match="allowed: 0"):
        swap(kept, kept, 1.5)
