"""How well a pruned model predicts text: notebook 03."""

from collections.abc import Iterator

import pandas as pd

from lib.analysis.perplexity import totals
from lib.run import states, store
from lib.run.measure.rows import COMMON, labelled, read, texts
from lib.run.store import Visit
from lib.study import Study


def segment_nll(study: Study, fresh: bool = False) -> pd.DataFrame:
    """One row an evaluation segment and variant: nll (nats), tokens, bytes."""
    cells = texts(study, study.evaluation_corpora)
    visits = [states.visit(study, v, {"segment_nll": cells}) for v in study.variants("perplexity")]

    def compute(visit: Visit, missing: dict) -> Iterator[tuple[str, pd.DataFrame]]:
        from lib.analysis import likelihood

        with states.entered(study, visit.variant) as (model, tokenizer):
            frames, head = [], likelihood.Head(model)
            for cell, text in missing["segment_nll"].items():
                data, digest = read(text)
                scores = likelihood.segment_nll(model, tokenizer, data["id"], data["text"], head=head)
                rows = [{"corpus": text["corpus"], "language": text["language"]} | row
                        for row in scores.to_dict("records")]
                frames.append(labelled(cell, visit.variant, tokenizer, digest, rows))
        yield "segment_nll", pd.concat(frames, ignore_index=True)

    return store.collect(study, "perplexity", visits, compute, fresh)["segment_nll"]


def perplexity(study: Study, fresh: bool = False) -> pd.DataFrame:
    """One row a variant, corpus and language: nll, tokens, bytes, perplexity, bits_per_byte (sums of
    segment_nll, so that nothing is measured twice)."""
    return totals(segment_nll(study, fresh), [*COMMON, "corpus", "language"])
