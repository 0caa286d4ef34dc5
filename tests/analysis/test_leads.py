"""The lead of the target language: against a plain loop, on a planted lead, and on noise."""

from math import log

import numpy as np
import pandas as pd
import pytest

from lib.analysis.leads import leads
from lib.errors import InputError

LANGUAGES = ["de", "en", "sw"]


def segments(lead: float, n: int = 60, seed: int = 0) -> pd.DataFrame:
    """Noise, and `lead` nats a segment less where calibration and language are the same."""
    rng, rows = np.random.default_rng(seed), []
    for language in LANGUAGES:
        size = rng.integers(20, 60, n)
        rows += [{"setting": "main", "language": language, "calibration": calibration, "segment": f"s{k}",
                  "nll": 50 + rng.normal() - lead * (calibration == language), "bytes": size[k]}
                 for calibration in LANGUAGES for k in range(n)]
    return pd.DataFrame(rows)


def test_the_difference_is_that_of_a_plain_loop():
    rows, expected = segments(0.5), []
    for language in LANGUAGES:
        bits = {}
        for calibration in LANGUAGES:
            cell = rows[(rows["language"] == language) & (rows["calibration"] == calibration)]
            bits[calibration] = sum(cell["nll"]) / sum(cell["bytes"]) / log(2)
        expected.append(bits.pop(language) - min(bits.values()))
    (found,) = leads(rows, ["setting"]).itertuples()
    assert found.difference == pytest.approx(np.mean(expected))
    assert found.lowest == sum(d < 0 for d in expected) and (found.languages, found.segments) == (3, 60)


def test_a_planted_lead_is_shown_and_noise_is_not():
    (found,) = leads(segments(3), ["setting"]).itertuples()
    assert found.high < 0 and found.lowest == 3
    ahead = [leads(segments(0, seed=seed), ["setting"]).iloc[0] for seed in range(20)]
    assert sum(row["high"] < 0 for row in ahead) <= 1, "the best other is chosen anew, so errors are on the safe side"


def test_languages_that_are_no_calibration_are_left_out_and_holes_are_refused():
    rows = segments(3)
    more = rows[rows["language"] == "de"].assign(language="fr")
    assert leads(pd.concat([rows, more]), ["setting"]).equals(leads(rows, ["setting"]))
    with pytest.raises(InputError, match="179 rows were given in de where 3 calibrations x 60 segments"):
        leads(rows.iloc[1:], ["setting"])
    with pytest.raises(InputError, match="at least two languages"):
        leads(rows[rows["calibration"] == "de"], ["setting"])
    assert leads(rows.iloc[:0], ["setting"]).empty


def test_segments_of_parallel_text_are_drawn_together_and_others_apart():
    """A segment that is hard for one pair of calibrations in every language moves all differences at once; where each
    language has segments of its own their errors are independent, and the interval is narrower by about sqrt(3)."""
    rng, rows = np.random.default_rng(0), []
    for k, hard in enumerate(rng.normal(scale=5, size=200)):
        rows += [{"setting": "main", "language": language, "calibration": calibration, "segment": f"s{k}",
                  "nll": 50 + hard * (calibration == language), "bytes": 40}
                 for language in LANGUAGES for calibration in LANGUAGES]
    together = pd.DataFrame(rows)
    apart = together.assign(segment=together["language"] + together["segment"])
    (one,), (other,) = (leads(x, ["setting"]).itertuples() for x in (together, apart))
    assert one.difference == pytest.approx(other.difference) and one.segments == other.segments == 200
    assert (one.high - one.low) / (other.high - other.low) == pytest.approx(3**0.5, rel=0.1)
