"""How alike are the activations of two languages? numpy in, rows out."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import rankdata

Norms = Mapping[tuple[int, str], np.ndarray]  # (layer, module) -> norms of the input features [in]


def similarity(halves: Mapping[str, Sequence[Norms]]) -> list[dict]:
    """Spearman correlation of input norms [in] between every two languages, by layer and module.

    `halves[language]` are the norms on two disjoint halves of its text. A language's first half is compared
    with the second half of every language: with its own this is the ceiling that sampling alone allows.
    Rows: `language` (first half), `other` (second half), `layer`, `module`, `spearman`.
    """
    rows = []
    first = next(iter(halves.values()))[0]
    for layer, module in first:
        ranks = {language: [rankdata(half[layer, module]) for half in pair] for language, pair in halves.items()}
        for language, (a, _) in ranks.items():
            for other, (_, b) in ranks.items():
                rows.append({"language": language, "other": other, "layer": layer, "module": module,
                             "spearman": float(np.corrcoef(a, b)[0, 1])})
    return rows
