"""How well a pruned model predicts text, and how far its layers are off on it: notebooks 03 and 05."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from lib.analysis.perplexity import totals
from lib.inputs import models
from lib.run import states, store
from lib.run.measure.rows import COMMON, labelled, read, texts
from lib.run.store import Visit
from lib.study import Study, Variant

RATIOS = ("signal", "error", "snr_db")  # kept in float32, which they are good to
FEW = 25  # segments of a corpus on which the many settings of the robustness grid are compared
SEGMENTS = 50  # that errors of layers are pooled over; they vary far less from segment to segment than losses do


def segment_nll(study: Study, fresh: bool = False) -> pd.DataFrame:
    """One row an evaluation segment and variant: nll (nats), tokens, bytes."""
    cells = texts(study, study.evaluation_corpora, study.segments)
    return _scores(study, "segment_nll", "perplexity", study.variants("perplexity"), cells, fresh)


def mixture_nll(study: Study, fresh: bool = False) -> pd.DataFrame:
    """As `segment_nll`, of models that were calibrated on mixtures of languages."""
    cells = texts(study, study.evaluation_corpora, study.segments)
    return _scores(study, "mixture_nll", "perplexity of mixtures", study.pruned("mixtures"), cells, fresh)


def robustness(study: Study, fresh: bool = False) -> pd.DataFrame:
    """As `segment_nll`, of models that were pruned in other ways than the study's main one, on the first FEW segments
    of the languages that they are calibrated in."""
    languages = study.robustness_languages()
    cells = [cell for cell in texts(study, study.evaluation_corpora, min(study.segments, FEW))
             if cell["language"] in languages]
    return _scores(study, "robustness", "robustness", study.pruned("robustness"), cells, fresh)


def _scores(study: Study, table: str, what: str, variants: list[Variant], cells: list[dict], fresh: bool
            ) -> pd.DataFrame:
    """The variants' losses on the text of each cell; no rows where there is no variant or cell."""
    def compute(visit: Visit, missing: dict) -> Iterator[tuple[str, pd.DataFrame]]:
        from lib.analysis import likelihood

        with states.entered(study, visit.variant) as (model, tokenizer):
            frames, head = [], likelihood.Head(model)
            for cell, text in missing[table].items():
                data, digest = read(text)
                scores = likelihood.segment_nll(model, tokenizer, data["id"], data["text"], head=head)
                rows = [{"corpus": text["corpus"], "language": text["language"]} | row
                        for row in scores.to_dict("records")]
                frames.append(labelled(cell, visit.variant, tokenizer, digest, rows))
        yield table, pd.concat(frames, ignore_index=True)

    if not variants or not cells:
        return pd.DataFrame(columns=[*COMMON, "corpus", "language", "segment", "nll", "tokens", "bytes"])
    visits = [states.visit(study, v, {table: cells}) for v in variants]
    return store.collect(study, what, visits, compute, fresh)[table]


def perplexity(study: Study, fresh: bool = False) -> pd.DataFrame:
    """One row a variant, corpus and language: nll, tokens, bytes, perplexity, bits_per_byte (sums of
    segment_nll, so that nothing is measured twice)."""
    return totals(segment_nll(study, fresh), [*COMMON, "corpus", "language"])


def layer_error(study: Study, fresh: bool = False) -> pd.DataFrame:
    """One row a layer, module and kind (local, propagated) of a pruned model on the evaluation text of a language:
    signal, error (noise over signal), snr_db, tokens (see lib.analysis.snr). Text: the first SEGMENTS of the first
    evaluation corpus, whose tokens are pooled."""
    cells = texts(study, study.evaluation_corpora[:1], min(study.segments, SEGMENTS))
    visits = [states.visit(study, v, {"layer_error": cells}) for v in study.pruned("layer_error")]

    def compute(visit: Visit, missing: dict) -> Iterator[tuple[str, pd.DataFrame]]:
        from lib.analysis import likelihood, snr
        from lib.pruning import lockstep

        dense = states.dense(visit.variant.model, visit.variant.dtype)
        with states.entered(study, visit.variant) as (model, tokenizer):
            frames = []
            for cell, text in missing["layer_error"].items():
                data, digest = read(text)
                with snr.measuring(dense, model, skipped=0 if models.prefix_token(tokenizer) is None else 1) as errors:
                    batches = likelihood.padded(model, tokenizer, data["id"], data["text"])
                    lockstep.look(model, (lockstep.forward(model, ids, real) for _, ids, real in batches))
                rows = [{"corpus": text["corpus"], "language": text["language"]} | row for row in errors.rows()]
                frames.append(labelled(cell, visit.variant, tokenizer, digest, rows).drop(columns="noise"))
        yield "layer_error", pd.concat(frames, ignore_index=True).astype(dict.fromkeys(RATIOS, np.float32))

    return store.collect(study, "signal-to-noise", visits, compute, fresh)["layer_error"]
