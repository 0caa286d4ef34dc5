"""LAPE against the equations in loops, on planted languages and on noise."""

import math

import numpy as np
import pytest

from lib.analysis.neuron_controls import pruned_share_rows, random_neurons
from lib.analysis.neurons import agnostic, lape, limits, neuron_rows, noise, overlap, shift_rows, specific
from lib.errors import InputError

LANGUAGES = ["de", "ru", "sw"]


def firing(seed: int, shape=(3, 4, 200)) -> np.ndarray:
    """p of neurons that know no language, each with a rate of its own."""
    rng = np.random.default_rng(seed)
    return np.clip(rng.beta(1, 4, shape[1:]) + 0.03 * rng.standard_normal(shape), 0.001, 1)


def planted(seed: int = 0) -> np.ndarray:
    """Three neurons of German, two of Russian, one of both, none of Swahili."""
    p = firing(seed)
    for (k, layer, neuron) in [(0, 0, 5), (0, 0, 9), (0, 3, 100), (1, 2, 7), (1, 2, 8)]:
        p[:, layer, neuron] = 0.001
        p[k, layer, neuron] = 0.9
    p[:, 1, 50] = 0.9, 0.8, 0.001
    return p


def reference(p) -> tuple[dict, float, float]:
    """{language: {(layer, neuron)}}, tau and the largest LAPE selected, step by step as the paper says it."""
    count, layers, width = p.shape
    values = sorted(float(p[k, i, j]) for k in range(count) for i in range(layers) for j in range(width))
    tau = values[round(0.95 * len(values)) - 1]
    found = []
    for i in range(layers):
        for j in range(width):
            own = [float(p[k, i, j]) for k in range(count)]
            if max(own) > tau:
                shares = [v / math.fsum(own) for v in own]
                found.append((-math.fsum(s * math.log(s) for s in shares if s > 0), i, j))
    chosen = sorted(found)[:round(0.01 * layers * width)]
    return ({k: {(i, j) for _, i, j in chosen if p[k, i, j] > tau} for k in range(count)}, tau, chosen[-1][0])


def places(owned) -> dict:
    return {k: {(int(i), int(j)) for i, j in zip(*np.nonzero(one), strict=True)} for k, one in enumerate(owned)}


def test_lape_is_the_entropy_in_nats():
    p = np.array([[[0.2, 0.9, 0.0]], [[0.2, 0.0, 0.0]], [[0.2, 0.3, 0.0]]])
    entropy = lape(p)
    assert entropy.shape == (1, 3)
    assert entropy[0, 0] == pytest.approx(math.log(3))
    assert entropy[0, 1] == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert np.isnan(entropy[0, 2])


@pytest.mark.parametrize("p", [planted(0), planted(1), firing(2), firing(3, (7, 2, 333))])
def test_sets_and_limits_equal_the_equations(p):
    sets, tau, cut = reference(p)
    assert places(specific(p)) == sets
    assert limits(p).often == tau and limits(p).low == pytest.approx(cut, rel=1e-12)
    assert specific(p).any(axis=0).sum() == round(0.01 * p[0].size)


def test_planted_neurons_are_found_and_a_language_without_any_keeps_its_place():
    found = places(specific(planted()))
    # round(0.01 * 800) = 8 are taken; the six planted come first.
    assert {(0, 5), (0, 9), (3, 100), (1, 50)} <= found[0]
    assert {(2, 7), (2, 8), (1, 50)} <= found[1]
    p = planted()
    p[2] = np.minimum(p[2], limits(p).often)
    assert places(specific(p))[2] == set()
    rows = neuron_rows(LANGUAGES, p, p)
    assert len(rows) == 3 * 4
    assert [(r["neurons"], r["kept"]) for r in rows if r["language"] == "sw"] == [(0, 0)] * 4
    assert all(np.isnan(r["lape_shift"]) for r in rows if r["language"] == "sw")


def test_the_order_of_neurons_and_languages_does_not_matter_even_with_ties():
    p = planted()
    p[:, :, 60:90] = np.array([0.6, 0.001, 0.001])[:, None, None]  # 120 neurons tie, 8 are to be taken
    rng = np.random.default_rng(0)
    neurons, layers, order = rng.permutation(200), rng.permutation(4), rng.permutation(3)
    owned = specific(p)
    assert owned[0, :, 60:90].all() or not owned[0, :, 60:90].any()
    moved = specific(p[order][:, layers][:, :, neurons])
    assert (moved == owned[order][:, layers][:, :, neurons]).all()


def test_the_same_p_under_the_dense_limits_changes_nothing():
    for p in (planted(), np.round(firing(4), 2)):  # rounded: many ties
        for row in neuron_rows(LANGUAGES, p, p.copy()):
            assert row["neurons"] == row["kept"] == row["neurons_own"] == row["kept_own"]
            assert row["lape_shift"] == 0 or np.isnan(row["lape_shift"])
        assert all(row["dense"] == row["pruned"] == row["kept"] for row in shift_rows(p, p.copy()))


def test_lost_and_new_neurons_are_counted_under_the_dense_limits():
    dense = planted()
    pruned = dense.copy()
    pruned[:, 0, 5] = 0.9  # German's becomes everybody's
    pruned[:, 2, 7] = 0  # Russian's dies
    pruned[:, 3, 11] = 0.001, 0.001, 0.9  # a new one of Swahili
    rows = {(r["language"], r["layer"]): r for r in neuron_rows(LANGUAGES, dense, pruned)}
    before = {(r["language"], r["layer"]): r for r in neuron_rows(LANGUAGES, dense, dense)}
    assert rows["de", 0]["kept"] == before["de", 0]["neurons"] - 1
    assert rows["ru", 2]["kept"] == before["ru", 2]["neurons"] - 1
    assert (rows["sw", 3]["neurons"], rows["sw", 3]["kept"]) == (before["sw", 3]["neurons"] + 1,
                                                                 before["sw", 3]["kept"])
    change = lape(pruned)[0, 5] - lape(dense)[0, 5]
    assert rows["de", 0]["lape_shift"] == pytest.approx(change / before["de", 0]["neurons"])
    assert rows["ru", 2]["lape_shift"] == 0  # the dead one has no LAPE
    by_part = {(r["part"], r["layer"]): r for r in shift_rows(dense, pruned)}
    assert by_part["specific", 0]["kept"] == by_part["specific", 0]["dense"] - 1
    assert by_part["specific", 3]["pruned"] == by_part["specific", 3]["kept"] + 1
    assert by_part["agnostic", 0]["pruned"] == by_part["agnostic", 0]["kept"] + 1
    assert agnostic(pruned, limits(dense))[0, 5] and not agnostic(dense)[0, 5]


def test_limits_estimated_anew_always_find_their_share():
    dense, pruned = planted(), firing(9)
    dense[:, :, 30:33] = np.array([0.9, 0.001, 0.001])[:, None, None]  # so many that no noise is among the lowest
    rows = neuron_rows(LANGUAGES, dense, pruned)
    anew = sum(r["neurons_own"] for r in rows)
    assert anew == specific(pruned).sum() >= round(0.01 * 800)
    assert sum(r["neurons"] for r in rows) == 0


def test_on_noise_the_halves_agree_by_chance_alone():
    """All neurons alike: which are "specific" is sampling, so halves share what random sets share."""
    rng = np.random.default_rng(0)
    shares, expected = [], []
    for _ in range(30):
        halves = [specific(rng.binomial(300, 0.2, (3, 4, 500)) / 300) for _ in range(2)]
        for row in overlap(LANGUAGES, *halves):
            assert row["neurons"] > 0
            shares.append(row["shared"])
            expected.append(row["neurons"] * row["other"] / 2000)
            assert row["chance"] < 0.01
    assert sum(shares) == pytest.approx(sum(expected), abs=4 * math.sqrt(sum(expected)))


def test_neurons_that_fire_at_unlike_rates_overlap_by_more_than_chance_and_noise_shows_it():
    p, tokens = firing(5, (3, 4, 500)), [3000, 2000, 2500]
    draws = [specific(noise(p, tokens, seed)) for seed in range(20)]
    rows = [row for a, b in zip(draws[::2], draws[1::2], strict=True) for row in overlap(LANGUAGES, a, b)]
    assert np.mean([r["jaccard"] for r in rows]) > 3 * np.mean([r["chance"] for r in rows])
    mean = np.average(p, axis=0, weights=tokens)
    drawn = np.mean([noise(p, tokens, seed) for seed in range(200)], axis=0)
    assert np.abs(drawn - mean).max() < 6 * 0.5 / math.sqrt(200 * 2000)
    assert (noise(p, tokens, 3) == noise(p, tokens, 3)).all() and (noise(p, tokens, 3) != noise(p, tokens, 4)).any()


def test_planted_neurons_make_the_halves_agree_far_above_chance():
    halves = [specific(planted(seed)) for seed in (0, 1)]
    de, ru, _ = overlap(LANGUAGES, *halves)
    assert de["jaccard"] > 20 * de["chance"] and ru["jaccard"] > 20 * ru["chance"]


def test_overlap_counts_and_its_chance():
    a, b = np.zeros((2, 2, 10), bool), np.zeros((2, 2, 10), bool)
    a[0, 0, :4], b[0, 0, 2:7], a[0, 1, 0] = True, True, True
    one, none = overlap(["de", "ru"], a, b)
    assert (one["neurons"], one["other"], one["shared"], one["jaccard"]) == (5, 5, 2, 2 / 8)
    assert one["chance"] == pytest.approx(2 / (10 - 2))  # 4 * 5 / 10 = 2 expected, all in layer 0
    assert none["neurons"] == 0 and np.isnan(none["jaccard"])


def test_random_neurons_keep_the_layer_counts_and_avoid():
    like = specific(planted()).any(axis=0)
    drawn = random_neurons(like, like, seed=1)
    assert (drawn.sum(axis=1) == like.sum(axis=1)).all() and not (drawn & like).any()
    assert (random_neurons(like, like, seed=1) == drawn).all()
    assert (random_neurons(like, like, seed=2) != drawn).any()
    often = np.mean([random_neurons(like, like, seed) for seed in range(3000)], axis=0)
    for layer in range(4):
        assert often[layer][~like[layer]] == pytest.approx(like[layer].sum() / (~like[layer]).sum(), abs=0.015)
    with pytest.raises(InputError, match="layer 0"):
        random_neurons(like, np.ones_like(like))


def shares_by_norm(seed: int, layers=4, width=400):
    """(shares, norms, owned): the pruned share falls with the norm, as under Wanda, and specific neurons are those
    of large norm."""
    rng = np.random.default_rng(seed)
    norms = np.exp(rng.standard_normal((layers, width)))
    shares = 0.5 - 0.15 * np.log(norms) + 0.03 * rng.standard_normal((layers, width))
    owned = np.zeros((3, layers, width), bool)
    for layer in range(layers):
        large = rng.permutation(np.argsort(norms[layer])[width // 2:-20])
        owned[0, layer, large[:12]] = owned[1, layer, large[12:24]] = True
    return shares, norms, owned


def test_specific_neurons_pruned_like_those_of_their_norm_are_told_from_those_pruned_more():
    covered = 0
    for seed in range(20):
        shares, norms, owned = shares_by_norm(seed)
        naive = shares[owned[0]].mean() - shares[~owned.any(axis=0)].mean()
        assert naive < -0.05  # what a comparison without matching would report
        plain, _, empty = pruned_share_rows(LANGUAGES, shares, norms, owned, seed)
        assert abs(plain["difference"]) < 0.015 and plain["norm_ratio"] == pytest.approx(1, abs=0.1)
        covered += plain["low"] <= 0 <= plain["high"]
        shares[owned[0]] += 0.05
        more, other, _ = pruned_share_rows(LANGUAGES, shares, norms, owned, seed)
        assert more["difference"] == pytest.approx(plain["difference"] + 0.05) and more["low"] > 0.02
        assert more["difference"] == pytest.approx(more["share"] - more["matched"])
        assert abs(other["difference"]) < 0.015
        assert empty["neurons"] == 0 and np.isnan(empty["difference"])
    assert covered >= 15


def test_matches_are_the_nearest_in_the_layer():
    shares, norms, owned = shares_by_norm(0)
    row = pruned_share_rows(LANGUAGES, shares, norms, owned)[1]
    differences = []
    for layer, neuron in zip(*np.nonzero(owned[1]), strict=True):
        order = sorted((abs(math.log(norms[layer, j] / norms[layer, neuron])), j) for j in range(400)
                       if not owned[:, layer, j].any())
        differences.append(shares[layer, neuron] - np.mean([shares[layer, j] for _, j in order[:10]]))
    assert row["difference"] == pytest.approx(np.mean(differences)) and row["neurons"] == 48


def test_one_neuron_has_no_finite_interval_and_dead_ones_are_left_out():
    shares, norms, owned = shares_by_norm(0)
    owned[2, 1, 3] = True
    owned[0] = owned[1] = False
    assert pruned_share_rows(LANGUAGES, shares, norms, owned)[2]["high"] == np.inf
    norms[1, 4], shares[1, 4] = 0, np.nan
    owned[2, 1, 4] = True
    assert pruned_share_rows(LANGUAGES, shares, norms, owned)[2]["neurons"] == 1
    with pytest.raises(InputError, match="layer 1"):
        pruned_share_rows(LANGUAGES, np.where(owned[2], shares, np.nan), norms, owned)


@pytest.mark.parametrize("p", [np.ones((3, 4)), np.ones((1, 2, 3)), np.full((3, 2, 4), np.nan),
                               np.full((3, 2, 4), 2.0)])
def test_p_that_is_none_is_refused(p):
    with pytest.raises(InputError, match="p "):
        limits(p)
    with pytest.raises(InputError):
        neuron_rows(LANGUAGES, np.full((3, 2, 4), 0.5), p)
