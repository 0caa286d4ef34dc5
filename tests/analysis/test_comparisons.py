"""Planted differences between calibrations and methods are found, and in coin tosses nothing is."""

import numpy as np
import pandas as pd
import pytest

from lib.analysis.comparisons import changes, means, method_gains, shown, stand_ins, target_gains, win_rates

LANGUAGES = ("ar", "de", "en", "sw")


def answers(lead: float = 0.0, items: int = 400, arms=("Wanda",), ahead: str | None = None, seed: int = 0):
    """Answers at 0.5, and `lead` more where the calibration is the evaluation language, or the arm is `ahead`. Each
    item has a luck of its own, the same for all calibrations."""
    rng, rows = np.random.default_rng(seed), []
    for language in LANGUAGES:
        luck = rng.random(items)
        for arm in arms:
            for calibration in LANGUAGES:
                more = lead if arm == ahead or (ahead is None and calibration == language) else 0.0
                noise = rng.random(items)
                right = np.where(noise < 0.3, rng.random(items), luck) < 0.5 + more
                rows += [{"model": "m", "arm": arm, "calibration": calibration, "seed": 0, "task": "t",
                          "language": language, "item": k, "correct": float(r)} for k, r in enumerate(right)]
    return pd.DataFrame(rows)


def test_a_lead_of_the_target_language_is_found():
    items = answers(0.1)
    (rate,) = win_rates(items).to_dict("records")
    assert rate["rate"] == 1 and rate["n"] == 4 and rate["chance"] == 0.25
    for rival in (None, "en"):
        (gain,) = target_gains(items, rival).to_dict("records")
        assert gain["low"] > 0 and gain["low"] < 0.1 < gain["high"] and gain["n"] == 400
    pairs = shown(items)
    assert len(pairs) == 12 and (pairs["verdict"] == "better").sum() >= 10 and not (pairs["verdict"] == "worse").any()


def test_in_coin_tosses_nothing_is_shown():
    found = [target_gains(answers(seed=seed)).iloc[0] for seed in range(20)]
    assert sum(gain["low"] > 0 or gain["high"] < 0 for gain in found) <= 3
    assert all((shown(answers(seed=seed))["verdict"] == "").all() for seed in range(5))
    rates = [win_rates(answers(seed=seed))["rate"].iloc[0] for seed in range(20)]
    assert 0.1 < np.mean(rates) < 0.4


def test_gain_is_the_mean_over_languages_that_both_were_asked_in():
    items = answers(0.2)
    items = items[~((items["language"] == "ar") & (items["calibration"] == "en"))]
    (gain,) = target_gains(items, "en").to_dict("records")
    own, other = (items[c & items["language"].isin(["de", "sw"])]["correct"].mean()
                  for c in (items["calibration"] == items["language"], items["calibration"] == "en"))
    assert gain["difference"] == pytest.approx(own - other)


def test_ties_are_shared_out():
    items = answers()
    items["correct"] = 1.0
    assert win_rates(items)["rate"].iloc[0] == pytest.approx(0.25)


def test_a_language_that_was_no_calibration_has_no_target():
    items = answers(0.1)
    items = items[items["calibration"] != "sw"]
    assert win_rates(items)["n"].iloc[0] == 3 and win_rates(items)["chance"].iloc[0] == pytest.approx(1 / 3)
    assert set(shown(items)["language"]) == {"ar", "de", "en"}


def test_a_method_ahead_is_found_and_its_sign_is_the_firsts():
    items = answers(0.1, arms=("Wanda", "SparseGPT"), ahead="SparseGPT")
    gains = method_gains(items, "SparseGPT", "Wanda").set_index("calibrated")
    assert set(gains.index) == {"target", "other"}
    assert (gains["low"] > 0).all() and method_gains(items, "Wanda", "SparseGPT")["high"].max() < 0


def test_changes_are_against_the_dense_model_on_the_same_items():
    items = answers()
    dense = items[items["calibration"] == "de"].assign(arm="dense", calibration="none", correct=1.0)
    table = changes(items, dense)
    assert len(table) == 16 and (table["dense"] == 1).all() and (table["n"] == 400).all()
    assert np.allclose(table["change"], table["accuracy"] - 1)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_stand_in_that_orders_calibrations_alike_has_correlation_one(sign):
    rank = {language: k for k, language in enumerate(LANGUAGES)}
    items = pd.DataFrame([{"model": "m", "arm": "a", "task": "t", "language": x, "calibration": c, "seed": 0, "item": k,
                           "correct": float(k <= rank[c])} for x in LANGUAGES for c in LANGUAGES for k in range(5)])
    bits = pd.DataFrame([{"model": "m", "arm": "a", "language": x, "calibration": c, "bits_per_byte": -sign * rank[c]}
                         for x in LANGUAGES for c in LANGUAGES])
    table = stand_ins(items, bits)
    assert len(table) == 4 and np.allclose(table["rho"], sign)


def test_means_have_students_interval_and_leave_nan_out():
    frame = pd.DataFrame({"model": ["a", "a", "a", "a", "b"], "value": [1.0, 2.0, 3.0, np.nan, 7.0]})
    a, b = means(frame, ["model"], "value").to_dict("records")
    assert (a["estimate"], a["n"], b["estimate"], b["n"]) == (2.0, 3, 7.0, 1)
    assert a["high"] - 2 == pytest.approx(4.302653 / np.sqrt(3), rel=1e-5) and np.isnan(b["low"])
