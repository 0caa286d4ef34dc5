"""Language-specific neurons (LAPE) of dense and pruned models: notebook 08."""

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from lib.analysis import neuron_controls
from lib.analysis import neurons as analysis
from lib.inputs import corpora, models
from lib.inputs.languages import weights
from lib.run import states, store
from lib.run.measure.rows import labelled, read, texts
from lib.run.store import Visit
from lib.study import Study, Variant

SEQLEN = 64  # tokens a window of the text on which firing is counted
SEGMENTS = 25  # evaluation segments that are read with neurons silenced
TABLES = ("neurons", "neuron_shift", "neuron_pruned", "neuron_halves")


class Fired(NamedTuple):
    """`halves` [2, L, layers, neurons]: shares of tokens on which neurons fired, in two halves of the text; `tokens`
    [L] in a half. `norms` [L, layers, neurons] of their activations. `digest` of the token ids."""

    halves: np.ndarray
    tokens: list[int]
    norms: np.ndarray
    digest: str

    @property
    def p(self) -> np.ndarray:
        return self.halves.mean(axis=0)


def neurons(study: Study, fresh: bool = False) -> dict[str, pd.DataFrame]:
    """Four tables, on text that nothing was calibrated with (the first evaluation corpus, packed, equally many windows
    in each language): `neurons`, how many are specific by language and layer; `neuron_shift`, how many are gained and
    lost; `neuron_pruned`, whether their outgoing weights are pruned more than others'; `neuron_halves`, how far two
    halves of the text agree on them (`source` "text"), and two draws of noise. Columns: lib.analysis.neurons,
    neuron_controls. The dense model has rows in the first and the last."""
    corpus = study.evaluation_corpora[0]
    text = {"corpus": corpus, "text": corpora.fingerprint(corpus), "languages": list(study.languages), "seqlen": SEQLEN}
    visits = [states.visit(study, v, {table: [text] if v.method != "dense" or table in (TABLES[0], TABLES[3]) else []
                                      for table in TABLES}) for v in study.variants("neurons")]

    def compute(visit: Visit, missing: dict) -> Iterator[tuple[str, pd.DataFrame]]:
        before = _dense(study, visit.variant.model)
        with states.entered(study, visit.variant) as (model, tokenizer):
            after = before if visit.variant.method == "dense" else _fired(study, model, tokenizer)
        for table, cells in missing.items():
            for cell in cells:
                yield table, labelled(cell, visit.variant, tokenizer, after.digest,
                                      _rows(table, study, visit.variant, before, after))

    return store.collect(study, "neurons", visits, compute, fresh)


def silencing(study: Study, fresh: bool = False) -> pd.DataFrame:
    """One row an evaluation segment (nll in nats, tokens, bytes) of a `language` while the neurons of language
    `silenced` are silent, as found in the dense model: `control` "specific", or "random" ones of the same layers; and
    with none silent (`silenced` "none")."""
    sets = [("none", "none"), *((x, control) for control in ("specific", "random") for x in study.languages)]
    cells = [text | {"silenced": silenced, "control": control} for silenced, control in sets
             for text in texts(study, study.evaluation_corpora[:1], min(study.segments, SEGMENTS))]
    visits = [states.visit(study, v, {"silencing": cells}) for v in study.variants("silencing")]

    def compute(visit: Visit, missing: dict) -> Iterator[tuple[str, pd.DataFrame]]:
        yield "silencing", _silenced(study, visit.variant, missing["silencing"])

    return store.collect(study, "silencing", visits, compute, fresh)["silencing"]


@lru_cache(maxsize=1)
def _dense(study: Study, name: str) -> Fired:
    with states.entered(study, study.dense(name)) as (model, tokenizer):
        return _fired(study, model, tokenizer)


def _fired(study: Study, model, tokenizer) -> Fired:
    """Firing of the model as it is, on as many windows of each language as the smallest one fills."""
    from lib.analysis.firing import counting
    from lib.analysis.mlps import find_mlps
    from lib.inputs.calibration import windows
    from lib.pruning import lockstep

    mlps, skipped = find_mlps(model), 0 if models.prefix_token(tokenizer) is None else 1
    pools = [states.pool(study.evaluation_corpora[0], x, "evaluation") for x in study.languages]
    number = min(windows(pool, tokenizer, 1, SEQLEN, 0).available for pool in pools) // 2 * 2
    halves, tokens, norms, digest = [], [], [], hashlib.sha256()
    for pool in pools:
        drawn = windows(pool, tokenizer, number, SEQLEN, 0)
        digest.update(drawn.digest().encode())
        counted = []
        for ids in (drawn.ids[0::2], drawn.ids[1::2]):
            with counting(model, mlps, skipped) as firing:
                lockstep.look(model, (lockstep.forward(model, batch) for batch in ids.split(32)))
            counted.append(firing)
        halves.append([firing.probabilities() for firing in counted])
        norms.append(np.sqrt(sum(firing.norms().astype(np.float64) ** 2 for firing in counted)))
        tokens.append(counted[0].tokens)
    return Fired(np.array(halves).swapaxes(0, 1), tokens, np.array(norms), digest.hexdigest())


def _rows(table: str, study: Study, variant: Variant, before: Fired, after: Fired) -> list[dict]:
    names = study.languages
    if table == "neurons":
        return analysis.neuron_rows(names, before.p, after.p)
    if table == "neuron_shift":
        return analysis.shift_rows(before.p, after.p)
    if table == "neuron_halves":
        draws = [analysis.noise(after.p, after.tokens, seed) for seed in (0, 1)]
        return [{"source": source} | row for source, pair in (("text", after.halves), ("noise", draws))
                for row in analysis.overlap(names, *(analysis.specific(p) for p in pair))]
    from lib.analysis.firing import pruned_shares
    from lib.analysis.mlps import find_mlps

    model = states.loaded(variant.model, variant.dtype)[0]
    shares = pruned_shares(model, find_mlps(model), states.pruned(study, variant)[0].masks)
    own = [k for k, x in enumerate(names) if x in weights(variant.calibration, names)] or list(range(len(names)))
    norms = np.sqrt((before.norms[own] ** 2).sum(axis=0))  # of the text that the masks were made with, but held out
    return neuron_controls.pruned_share_rows(names, shares, norms, analysis.specific(before.p))


def _silenced(study: Study, variant: Variant, cells: dict[str, dict]) -> pd.DataFrame:
    from lib.analysis import likelihood
    from lib.analysis.firing import silenced
    from lib.analysis.mlps import find_mlps

    owned = analysis.specific(_dense(study, variant.model).p)
    sets = {("none", "none"): np.zeros(owned.shape[1:], dtype=bool)}
    for k, language in enumerate(study.languages):
        sets[language, "specific"] = owned[k]
        sets[language, "random"] = neuron_controls.random_neurons(owned[k], owned.any(axis=0), seed=k)
    frames = []
    with states.entered(study, variant) as (model, tokenizer):
        mlps, head = find_mlps(model), likelihood.Head(model)
        for cell, c in cells.items():
            data, digest = read(c)
            with silenced(mlps, sets[c["silenced"], c["control"]]):
                scores = likelihood.segment_nll(model, tokenizer, data["id"], data["text"], head=head)
            rows = [{k: c[k] for k in ("silenced", "control", "corpus", "language")} | row
                    for row in scores.to_dict("records")]
            frames.append(labelled(cell, variant, tokenizer, digest, rows))
    return pd.concat(frames, ignore_index=True)
