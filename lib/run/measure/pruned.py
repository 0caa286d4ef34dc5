"""What models are pruned with, and what was pruned: notebooks 01 and 02."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from lib.analysis.activations import similarity
from lib.arms import ASKED, TABLES
from lib.run import states, store
from lib.run.measure.rows import labelled
from lib.run.store import Visit
from lib.study import Study, Variant


def calibration(study: Study, fresh: bool = False) -> pd.DataFrame:
    """One row a draw of calibration text: windows, segments, tokens, bytes, and how many windows there are. The
    study's own draws come first, then all that its grid asks for, so that text which is too short is refused here,
    before any model is pruned."""
    draws = _draws(study, study.calibration_sets(), study.seeds)
    draws += [states.draw(v) for table in (*TABLES, *ASKED) for v in study.variants(table)
              if v.calibration != "none" and v not in study.released()]
    visits = [states.visit(study, draw, {"calibration": [{}]}) for draw in dict.fromkeys(draws)]

    def compute(visit: Visit, missing: dict) -> Iterator[tuple[str, pd.DataFrame]]:
        model, tokenizer = states.loaded(visit.variant.model, visit.variant.dtype)
        drawn = states.windows(study, visit.variant)
        (cell,) = missing["calibration"]
        yield "calibration", labelled(cell, visit.variant, tokenizer, drawn.digest(), [{
            "windows": len(drawn.ids), "segments": len(drawn.segments), "tokens": drawn.tokens,
            "bytes": drawn.bytes, "available": drawn.available}])

    return store.collect(study, "calibration text", visits, compute, fresh)["calibration"]


def norm_similarity(study: Study, fresh: bool = False) -> pd.DataFrame:
    """Rank correlation between two languages' input norms, for each linear layer of the dense model.

    Each language's windows are halved: its first half is compared with the second half of every language,
    itself included, which is the ceiling."""
    languages = study.calibration_languages()
    visits = [states.visit(study, draw, {"norm_similarity": [{"languages": languages}]})
              for draw in _draws(study, ["all"], study.seeds[:1])]

    def compute(visit: Visit, missing: dict) -> Iterator[tuple[str, pd.DataFrame]]:
        from lib.pruning.collect import input_norms

        model, tokenizer = states.loaded(visit.variant.model, visit.variant.dtype)
        halves, digest = {}, hashlib.sha256()
        for language in languages:
            drawn = states.windows(study, replace(visit.variant, calibration=language))
            middle = len(drawn.ids) // 2
            halves[language] = [input_norms(model, ids) for ids in (drawn.ids[:middle], drawn.ids[middle:])]
            digest.update(drawn.digest().encode())
        (cell,) = missing["norm_similarity"]
        yield "norm_similarity", labelled(cell, visit.variant, tokenizer, digest.hexdigest(), similarity(halves))

    return store.collect(study, "activation norms", visits, compute, fresh)["norm_similarity"]


def pruning(study: Study, fresh: bool = False) -> dict[str, pd.DataFrame]:
    """Two tables: `pruning`, one row a pruned matrix, and `block_error`, one row a block (relative error of its
    update on the calibration text). Columns: lib.pruning.pruned.Pruned."""
    visits = [states.visit(study, v, {"pruning": [{}], "block_error": [{}]}) for v in study.pruned("pruning")]

    def compute(visit: Visit, missing: dict) -> Iterator[tuple[str, pd.DataFrame]]:
        pruned, digest = states.pruned(study, visit.variant)
        _, tokenizer = states.loaded(visit.variant.model, visit.variant.dtype)
        rows = {"pruning": pruned.layers, "block_error": pruned.block_errors}
        for table, cells in missing.items():
            for cell in cells:
                yield table, labelled(cell, visit.variant, tokenizer, digest, rows[table])

    # Without calibration text, or where it is not known, there are no block errors, hence no cell there.
    for visit in visits:
        if not visit.variant.n_samples:
            visit.cells["block_error"].clear()
    return store.collect(study, "pruning", visits, compute, fresh)


def _draws(study: Study, sets, seeds) -> list[Variant]:
    """The dense model beside a draw of calibration text."""
    return [Variant(model, "dense", "none", 0.0, "none", calibration, study.calibration_corpus, study.windows,
                    study.seqlen, study.budget, seed, study.dtype)
            for model in study.models for seed in seeds for calibration in sets]
