"""lib.analysis.significance by hand, against slow references, and on noise."""

from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from lib.analysis import significance


def test_mcnemar_by_hand():
    a, b = np.array([1, 1, 1, 1, 1, 0, 0, 1]), np.array([0, 0, 0, 0, 1, 0, 1, 0])
    assert significance.mcnemar(a, b) == pytest.approx(2 * (6 + 1) / 64)  # five for a, one for b
    assert significance.mcnemar(a, b, "greater") == pytest.approx((6 + 1) / 64)
    assert significance.mcnemar(a, a) == 1.0


def test_holm_by_hand():
    assert significance.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert significance.holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])


def test_tost():
    rng = np.random.default_rng(6)
    same, far, vague = rng.normal(0, 0.01, 7), rng.normal(0.3, 0.01, 7), rng.normal(0, 1.0, 7)
    assert significance.tost(same, 0.1) < 0.001
    assert significance.tost(far, 0.1) > 0.99
    assert significance.tost(vague, 0.1) > 0.05
    low, high = stats.ttest_1samp(same, 0).confidence_interval(0.9)
    edge = max(abs(low), abs(high))  # the 90 % interval just fits
    assert significance.tost(same, edge) == pytest.approx(0.05)
    assert significance.tost(np.zeros(5), 0.1) == 0.0 and significance.tost(np.full(5, 0.2), 0.1) == 1.0
    assert significance.tost(np.zeros(1), 0.1) == 1.0  # one unit shows nothing


def test_matching():
    assert significance.matching_test(np.eye(5)) == (1.0, pytest.approx(1 / 5), pytest.approx(1 / 120))
    for_all = np.zeros((5, 5))
    for_all[:, 2] = 1  # one language best for everybody matches once under every relabelling
    assert significance.matching_test(for_all) == (pytest.approx(1 / 5), pytest.approx(1 / 5), 1.0)
    wins = np.random.default_rng(7).dirichlet(np.ones(4), 4)
    count = [np.mean([wins[e, c] for e, c in enumerate(p)]) for p in permutations(range(4))]
    rate, _, p = significance.matching_test(wins)
    assert rate == pytest.approx(np.trace(wins) / 4) and p == np.mean([c >= rate - 1e-9 for c in count])
    assert significance.matching_test(np.eye(9))[2] < 0.001  # sampled relabellings


def test_matching_finds_nothing_in_noise():
    rng = np.random.default_rng(8)
    p = [significance.matching_test(np.eye(6)[rng.integers(0, 6, 6)])[2] for _ in range(300)]
    assert np.mean(np.array(p) < 0.05) <= 0.075
