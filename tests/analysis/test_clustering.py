"""Clusterings by their definition, and a permutation test tried on planted groups and on noise."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from scipy.cluster.hierarchy import fcluster

from lib.analysis.clustering import FAMILIES, SCRIPTS, cluster, cophenetic_correlation, distances, kinship, mantel
from lib.errors import InputError
from lib.inputs.languages import PAPER


def noise(count, seed):
    upper = np.triu(np.random.default_rng(seed).random((count, count)), 1)
    return upper + upper.T


def planted(groups, seed=0):
    """Distances of 0.1 within and 0.4 between groups, and noise."""
    groups = np.array(groups)
    between = groups[:, None] != groups
    made = 0.1 + 0.3 * between + 0.02 * noise(len(groups), seed)
    return made * (1 - np.eye(len(groups)))


def average_linkage_heights(table):
    """Heights at which pairs join, by the definition: the mean distance between the members of two clusters."""
    clusters = [{k} for k in range(len(table))]
    heights = np.zeros_like(table)
    while len(clusters) > 1:
        pairs = [(np.mean([table[i, j] for i in a for j in b]), x, y)
                 for x, a in enumerate(clusters) for y, b in enumerate(clusters) if x < y]
        height, x, y = min(pairs)
        for i in clusters[x]:
            for j in clusters[y]:
                heights[i, j] = heights[j, i] = height
        clusters[x] |= clusters.pop(y)
    return heights


def test_planted_groups_are_found():
    groups = [0, 0, 1, 1, 1, 2, 2]
    found = fcluster(cluster(planted(groups)), 3, "maxclust")
    assert len(set(zip(groups, found, strict=True))) == len(set(found)) == 3


def test_cophenetic_correlation_equals_the_definition():
    a, b = planted([0, 0, 1, 1, 2, 2]), noise(6, 3)
    upper = np.triu_indices(6, 1)
    expected = np.corrcoef(average_linkage_heights(a)[upper], average_linkage_heights(b)[upper])[0, 1]
    assert cophenetic_correlation(a, b) == pytest.approx(expected)
    assert cophenetic_correlation(a, planted([0, 0, 1, 1, 2, 2], seed=1)) > 0.95
    assert cophenetic_correlation(a, a * 7) == pytest.approx(1)


def test_mantel_equals_a_loop_over_all_orders():
    a, b = noise(5, 1), noise(5, 2)
    upper = np.triu_indices(5, 1)
    observed = np.corrcoef(a[upper], b[upper])[0, 1]
    as_much = [np.corrcoef(a[upper], b[np.ix_(order, order)][upper])[0, 1] >= observed - 1e-9
               for order in map(list, permutations(range(5)))]
    found = mantel(a, b)
    assert found.exact and found.correlation == pytest.approx(observed) and found.p == np.mean(as_much)
    assert found.lowest == 1 / 120


def test_mantel_finds_families_and_knows_what_it_could_find():
    related = kinship(PAPER)
    found = mantel(related + 0.1 * noise(7, 4) * (1 - np.eye(7)), related)
    # Orders that change nothing: de and en, es and ru, and the three without relatives: 2 * 2 * 3! of 7!.
    assert found.lowest == pytest.approx(24 / 5040)
    assert found.p == found.lowest and found.correlation > 0.9
    assert mantel(related, kinship(PAPER, SCRIPTS)).lowest == pytest.approx(24 * 6 / 5040)


def test_mantel_on_noise_rejects_as_often_as_it_says():
    related = kinship(PAPER)
    p = np.array([mantel(noise(7, seed), related).p for seed in range(200)])
    assert 0.01 <= (p <= 0.05).mean() <= 0.10 and 0.4 < p.mean() < 0.6


def test_many_languages_are_permuted_at_random():
    groups = np.repeat(np.arange(4), 3)
    found = mantel(planted(groups), planted(groups, seed=1), draws=499)
    assert not found.exact and found.p == pytest.approx(1 / 500)
    assert found == mantel(planted(groups), planted(groups, seed=1), draws=499)
    p = np.array([mantel(noise(12, seed), planted(groups), draws=199).p for seed in range(100)])
    assert 0.4 < p.mean() < 0.6 and (p <= 0.05).mean() <= 0.12


def test_distances_average_the_rows_of_a_pair_in_both_orders():
    rows = pd.DataFrame([("a", "b", 0.9), ("b", "a", 0.7), ("a", "a", 0.99), ("a", "c", 0.5), ("c", "b", 0.4)],
                        columns=["one", "other", "jaccard"])
    found = distances(rows, "one", "other", "jaccard", ["a", "b", "c"])
    np.testing.assert_allclose(found, [[0, 0.2, 0.5], [0.2, 0, 0.6], [0.5, 0.6, 0]])
    with pytest.raises(InputError, match="no rows of d and a"):
        distances(rows, "one", "other", "jaccard", ["a", "d"])


def test_kinship_of_the_papers_languages():
    assert set(FAMILIES) == set(SCRIPTS) == set(PAPER)
    related = pd.DataFrame(kinship(PAPER), PAPER, PAPER)
    assert related.loc["de", "en"] == 0 and related.loc["de", "ru"] == 0.5 and related.loc["sw", "en"] == 1
    script = pd.DataFrame(kinship(PAPER, SCRIPTS), PAPER, PAPER)
    assert script.loc["sw", "en"] == 0 and script.loc["ru", "en"] == 1
    with pytest.raises(InputError, match="fi.*known: ar, de"):
        kinship(["de", "fi"])


def test_equal_distances_are_refused():
    with pytest.raises(InputError, match="all distances"):
        mantel(noise(3, 0), 1 - np.eye(3))
