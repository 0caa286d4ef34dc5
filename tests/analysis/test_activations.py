import numpy as np
from scipy.stats import spearmanr

from lib.analysis.activations import similarity


def halves(*profiles, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    return {name: [{(0, "q"): profile * np.exp(noise * rng.standard_normal(len(profile)))} for _ in range(2)]
            for name, profile in zip("abc", profiles, strict=False)}


def test_equals_scipys_spearman():
    rng = np.random.default_rng(1)
    made = halves(*rng.lognormal(size=(3, 50)), noise=0.5)
    for row in similarity(made):
        a, b = made[row["language"]][0][0, "q"], made[row["other"]][1][0, "q"]
        np.testing.assert_allclose(row["spearman"], spearmanr(a, b).statistic, atol=1e-12)


def test_planted_difference_is_found_and_noise_is_not():
    rng = np.random.default_rng(2)
    shared = rng.lognormal(size=4000)
    other = rng.lognormal(size=4000)
    found = {(r["language"], r["other"]): r["spearman"] for r in similarity(halves(shared, shared, other, noise=0.3))}
    assert abs(found["a", "b"] - found["a", "a"]) < 0.02, "two draws of one profile are as alike as its halves"
    assert found["a", "a"] - found["a", "c"] > 0.8
