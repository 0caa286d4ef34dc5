"""Sentence embeddings of dense and pruned models, split into subspaces: notebook 06."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from lib.inputs import corpora
from lib.run import states, store
from lib.run.measure.rows import labelled
from lib.run.store import Visit
from lib.study import Study

MEASURED = ("error", "cosine", "share", "share_pruned", "accuracy")  # good to float32, and kept so


def subspaces(study: Study, fresh: bool = False) -> dict[str, pd.DataFrame]:
    """Three tables on the parallel sentences of all languages: `subspaces` (what pruning does to the language-specific
    and the language-agnostic part, with controls), `retrieval` (how often the nearest sentence of another language is
    the translation, mean over the others) and `identification` (how often the nearest language mean is the right one).
    Columns: lib.analysis.subspaces. The dense model has rows in the last two."""
    text = {"languages": list(study.languages), "text": {c: corpora.fingerprint(c) for c in study.parallel_corpora}}
    visits = [states.visit(study, v, {"subspaces": [text] if v.method != "dense" else [], "retrieval": [text],
                                      "identification": [text]}) for v in study.variants("subspaces")]

    def compute(visit: Visit, missing: dict) -> Iterator[tuple[str, pd.DataFrame]]:
        dense, digest = states.dense_embeddings(study, visit.variant.model)
        with states.entered(study, visit.variant) as (model, tokenizer):
            pruned = dense if visit.variant.method == "dense" else states.embeddings(study, model, tokenizer)
        for table, cells in missing.items():
            for cell in cells:
                frame = labelled(cell, visit.variant, tokenizer, digest, _rows(table, dense, pruned, study.languages))
                yield table, frame.astype({c: np.float32 for c in MEASURED if c in frame})

    return store.collect(study, "subspaces", visits, compute, fresh)


def _rows(table: str, dense: np.ndarray, pruned: np.ndarray, languages: tuple[str, ...]) -> list[dict]:
    from lib.analysis import subspaces as analysis

    if table == "identification":
        return analysis.identification(dense, pruned, languages, variants=["centred"])
    if table == "retrieval":
        frame = pd.DataFrame(analysis.retrieval(dense, pruned, languages, variants=["centred"]))
        by = ["language", "layer", "part", "variant", "control", "chance", "n"]
        return frame.groupby(by, sort=False)["accuracy"].mean().reset_index().to_dict("records")
    return [row for control in analysis.CONTROLS for row in analysis.parts(
        dense, pruned, languages, variants=analysis.VARIANTS if control == "none" else ["centred"], control=control)]
