"""lib.analysis.intervals against slow references, known answers and simulated coverage."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from lib.analysis import intervals
from lib.errors import InputError


def segments(offsets: dict[str, float], seeds=3, n=60, noise=0.02, draw=0.0, rng=None) -> pd.DataFrame:
    """One text under calibrations whose true bits per byte differ by `offsets`. Segments are shared, as
    measured: what a calibration does to a segment (`noise`) is mostly the same in every draw."""
    rng = rng or np.random.default_rng(1)
    size = rng.integers(40, 90, n)
    difficulty = rng.normal(1.0, 0.2, n)
    rows = []
    for calibration, offset in offsets.items():
        effect = offset + rng.normal(0, noise, n)
        for seed in range(seeds):
            bits = difficulty + effect + rng.normal(0, draw) + rng.normal(0, noise / 5, n)
            rows.append(pd.DataFrame({
                "calibration": calibration, "seed": seed, "segment": [f"s{k}" for k in range(n)],
                "nll": bits * np.log(2) * size, "bytes": size}))
    return pd.concat(rows, ignore_index=True)


def slow_resamples(frame, target, n_resamples, seed):
    """The bootstrap, one resample, one calibration, one row at a time, from the same random weights."""
    rng = np.random.default_rng(seed)
    seeds, names = sorted(frame["seed"].unique()), sorted(frame["segment"].unique())
    drawn = max(len(seeds) - 1, 1)
    by_seed = rng.multinomial(drawn, [1 / len(seeds)] * len(seeds), n_resamples)
    by_segment = rng.multinomial(len(names), [1 / len(names)] * len(names), n_resamples)
    cell = {(r.calibration, r.seed, r.segment): (r.nll, r.bytes) for r in frame.itertuples()}
    differences, winners = [], []
    for b in range(n_resamples):
        bits = {}
        for calibration in sorted(frame["calibration"].unique()):
            nll = size = 0.0
            for s, seed_count in zip(seeds, by_seed[b], strict=True):
                for g, count in zip(names, by_segment[b], strict=True):
                    nll += seed_count * count * cell[calibration, s, g][0]
                    size += seed_count * count * cell[calibration, s, g][1]
            bits[calibration] = nll / size / np.log(2)
        differences.append(bits[target] - min(v for k, v in bits.items() if k != target))
        winners.append(min(bits, key=bits.get))
    return np.array(differences), winners


def test_bootstrap_equals_the_slow_one():
    frame = segments({"de": 0.0, "en": 0.002, "sw": 0.004}, n=12, noise=0.03)
    best = intervals.best_calibration(frame.sample(frac=1, random_state=0), "en", n_resamples=60, seed=5)
    differences, winners = slow_resamples(frame, "en", 60, 5)
    assert (best.low, best.high) == pytest.approx(tuple(np.quantile(differences, [0.025, 0.975])), abs=1e-12)
    assert best.wins == pytest.approx({c: winners.count(c) / 60 for c in ("de", "en", "sw")})
    pooled = frame.groupby("calibration")[["nll", "bytes"]].sum()
    bits = pooled["nll"] / pooled["bytes"] / np.log(2)
    assert best.best == bits.idxmin() and best.runner_up == bits.drop(bits.idxmin()).idxmin()
    assert best.difference == pytest.approx(bits["en"] - bits.drop("en").min())
    assert (best.seeds, best.segments, best.note) == (3, 12, "")


def test_one_draw_is_said_to_be_one_draw():
    best = intervals.best_calibration(segments({"de": 0.0, "en": 0.1}, seeds=1))
    assert best.note == "conditional on one draw" and best.target == best.best == "de"
    assert best.high < 0 and not best.beaten
    worst = intervals.best_calibration(segments({"de": 0.0, "en": 0.1}, seeds=1), "en")
    assert worst.low > 0 and worst.beaten


def test_same_seed_same_numbers_other_seed_others():
    frame = segments({"de": 0.0, "en": 0.001, "sw": 0.001})
    first, again, other = (intervals.best_calibration(frame, seed=s) for s in (3, 3, 4))
    assert first == again and (first.low, first.high) != (other.low, other.high)


def test_an_exact_tie_is_shared_out():
    frame = segments({"de": 0.0})
    best = intervals.best_calibration(pd.concat([frame, frame.assign(calibration="en")]))
    assert best.wins == {"de": 0.5, "en": 0.5} and best.difference == best.low == best.high == 0


@pytest.mark.parametrize("draw", [0.0, 0.002])
def test_interval_covers_the_truth(draw):
    """Two calibrations, true difference known: nominal 95 %, allowed what 300 simulations can tell from it
    and the little that percentile intervals are too short by."""
    rng = np.random.default_rng(11)
    n, covered = 300, 0
    for _ in range(n):
        frame = segments({"de": 0.0, "en": 0.01}, rng=rng, noise=0.05, draw=draw)
        best = intervals.best_calibration(frame, "de", n_resamples=400)
        covered += best.low <= -0.01 <= best.high
    assert 0.90 <= covered / n <= 0.985


def test_no_winner_among_equals():
    """Seven equal calibrations: the one that happens to be best may be called so in at most 5 % of tables,
    and the target may be called beaten in at most 5 %."""
    rng = np.random.default_rng(12)
    names = dict.fromkeys(["ar", "de", "en", "es", "ru", "sw", "zh"], 0.0)
    frames = [segments(names, rng=rng, noise=0.05, seeds=1, n=50) for _ in range(200)]
    winners = [intervals.best_calibration(f, n_resamples=500) for f in frames]
    assert np.mean([b.high < 0 for b in winners]) <= 0.05
    targets = [intervals.best_calibration(f, "de", n_resamples=500) for f in frames]
    assert np.mean([b.beaten for b in targets]) <= 0.08  # 5 % and two standard errors of 200 tables


def test_incomplete_grids_are_refused():
    frame = segments({"de": 0.0, "en": 0.1})
    for bad in (frame.iloc[1:], pd.concat([frame, frame.iloc[:1]])):
        with pytest.raises(InputError, match="have one each"):
            intervals.best_calibration(bad)
    with pytest.raises(InputError, match="at least two"):
        intervals.best_calibration(frame[frame["calibration"] == "de"])
    with pytest.raises(InputError, match="not among the calibrations: de, en"):
        intervals.best_calibration(frame, "fr")
    shared = frame[(frame["calibration"] == "de") | (frame["seed"] == 0)]
    assert intervals.best_calibration(shared).seeds == 1  # only what all have is compared
    with pytest.raises(InputError, match="0 shared seeds"):
        intervals.best_calibration(frame[(frame["calibration"] == "de") != (frame["seed"] == 0)])


def test_best_by_cell():
    frame = pd.concat([segments({"de": 0.0, "en": 0.1}).assign(language=x) for x in ("de", "en", "fr")])
    cells = intervals.best_by_cell(frame, ["language"]).set_index("language")
    assert list(cells.index) == ["de", "en"]  # nothing was calibrated in French
    assert cells.loc["de", "high"] < 0 < cells.loc["en", "low"] and list(cells["best"]) == ["de", "de"]
    assert list(cells["wins"]) == [1.0, 0.0]


def test_paired_bootstrap_has_the_standard_error_of_the_mean():
    rng = np.random.default_rng(2)
    a, b = rng.random(400) < 0.7, rng.random(400) < 0.6
    found = intervals.paired_bootstrap(a, b, n_resamples=8000)
    difference = a.astype(float) - b
    assert found.estimate == pytest.approx(difference.mean()) and found.n == 400
    assert (found.high - found.low) / 2 / 1.96 == pytest.approx(difference.std() / 20, rel=0.05)


def test_spearman_equals_scipy():
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 5, (20, 7)), rng.normal(size=(20, 7))
    reference = [stats.spearmanr(a, b).statistic for a, b in zip(x, y, strict=True)]
    assert intervals.spearman(x, y) == pytest.approx(reference)
    assert intervals.spearman(np.ones(4), np.arange(4)) == 0


def test_rank_correlation_equals_the_slow_one():
    rng = np.random.default_rng(4)
    x = rng.normal(np.arange(5), 2.0, (30, 5))
    y = x + rng.normal(0, 3.0, x.shape)
    found = intervals.rank_correlation(x, y, n_resamples=50, seed=6)
    slow = []
    for counts in np.random.default_rng(6).multinomial(30, [1 / 30] * 30, 50):
        picked = np.repeat(np.arange(30), counts)
        slow.append(stats.spearmanr(x[picked].mean(0), y[picked].mean(0)).statistic)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(slow, [0.025, 0.975])))


def test_mean_interval_equals_scipy():
    values = np.random.default_rng(5).normal(size=7)
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    found = intervals.mean_interval(values, 0.9)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert intervals.mean_interval(values[:1]).high == np.inf


def test_rate_interval_equals_scipy_and_has_width_at_one():
    for right in range(8):
        found = intervals.rate_interval(right / 7, 7, 0.9)
        reference = stats.binomtest(right, 7).proportion_ci(0.9, "wilson")
        assert (found.low, found.high) == pytest.approx((reference.low, reference.high))
    assert intervals.rate_interval(6 / 7, 7, 0.9).low > 0.5 > intervals.rate_interval(5 / 7, 7, 0.9).low
