import math

import pandas as pd
import pytest

from lib.analysis.perplexity import silencing_cost, totals


def test_sums_come_before_the_ratio():
    segments = pd.DataFrame({"language": ["de", "de", "en"], "nll": [2.0, 10.0, 3.0], "tokens": [1, 3, 2],
                             "bytes": [4, 12, 9]})
    table = totals(segments, ["language"]).set_index("language")
    assert table.loc["de", "perplexity"] == pytest.approx(math.exp(12 / 4))
    assert table.loc["de", "bits_per_byte"] == pytest.approx(12 / math.log(2) / 16)
    assert table.loc["en", "tokens"] == 2


def test_the_cost_of_silence_is_against_the_same_text_and_model():
    nats = {("none", "none", "de"): 1, ("none", "none", "en"): 2, ("specific", "de", "de"): 5,
            ("specific", "de", "en"): 4}
    rows = [{"model": model, "control": c, "silenced": s, "language": x, "nll": times * nll * math.log(2), "tokens": 1,
             "bytes": 2} for model, times in (("a", 1), ("b", 10)) for (c, s, x), nll in nats.items()]
    cost = silencing_cost(pd.DataFrame(rows), ["model"]).set_index(["model", "language"])["change"]
    assert cost.to_dict() == pytest.approx({("a", "de"): 2, ("a", "en"): 1, ("b", "de"): 20, ("b", "en"): 10})
