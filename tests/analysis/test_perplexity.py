import math

import pandas as pd
import pytest

from lib.analysis.perplexity import totals


def test_sums_come_before_the_ratio():
    segments = pd.DataFrame({"language": ["de", "de", "en"], "nll": [2.0, 10.0, 3.0], "tokens": [1, 3, 2],
                             "bytes": [4, 12, 9]})
    table = totals(segments, ["language"]).set_index("language")
    assert table.loc["de", "perplexity"] == pytest.approx(math.exp(12 / 4))
    assert table.loc["de", "bits_per_byte"] == pytest.approx(12 / math.log(2) / 16)
    assert table.loc["en", "tokens"] == 2
