"""The grid: one function a table, called by the notebook that owns it.

Each takes a study and returns a frame with every cell of that study in it, computing what is missing
(`fresh`: published cells do not count as computed). torch is imported only where something is computed.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache, lru_cache

import pandas as pd

from lib.analysis.activations import similarity
from lib.analysis.perplexity import totals
from lib.errors import InputError
from lib.inputs import corpora, models
from lib.run import store
from lib.run.store import Visit
from lib.study import Study, Variant

COMMON = ["cell", *Variant.__dataclass_fields__, "bos", "corpus_digest"]


def calibration(study: Study, fresh: bool = False) -> pd.DataFrame:
    """One row a calibration set and seed: windows, segments, tokens, bytes, and how many windows there are."""
    visits = [_visit(study, draw, {"calibration": [{}]})
              for draw in _draws(study, study.calibration_sets(), study.seeds)]

    def compute(visit: Visit, missing: dict) -> Iterator[tuple[str, pd.DataFrame]]:
        model, tokenizer = _loaded(visit.variant.model, visit.variant.dtype)
        drawn = _windows(study, visit.variant)
        (cell,) = missing["calibration"]
        yield "calibration", _rows(cell, visit.variant, tokenizer, drawn.digest(), [{
            "windows": len(drawn.ids), "segments": len(drawn.segments), "tokens": drawn.tokens,
            "bytes": drawn.bytes, "available": drawn.available}])

    return store.collect(study, "calibration text", visits, compute, fresh)["calibration"]


def norm_similarity(study: Study, fresh: bool = False) -> pd.DataFrame:
    """Rank correlation between two languages' input norms, for each linear layer of the dense model.

    Each language's windows are halved: its first half is compared with the second half of every language,
    itself included, which is the ceiling."""
    languages = study.calibration_languages()
    visits = [_visit(study, draw, {"norm_similarity": [{"languages": languages}]})
              for draw in _draws(study, ["all"], study.seeds[:1])]

    def compute(visit: Visit, missing: dict) -> Iterator[tuple[str, pd.DataFrame]]:
        from lib.pruning.statistics import input_norms

        model, tokenizer = _loaded(visit.variant.model, visit.variant.dtype)
        halves, digest = {}, hashlib.sha256()
        for language in languages:
            drawn = _windows(study, replace(visit.variant, calibration=language))
            middle = len(drawn.ids) // 2
            halves[language] = [input_norms(model, ids) for ids in (drawn.ids[:middle], drawn.ids[middle:])]
            digest.update(drawn.digest().encode())
        (cell,) = missing["norm_similarity"]
        yield "norm_similarity", _rows(cell, visit.variant, tokenizer, digest.hexdigest(), similarity(halves))

    return store.collect(study, "activation norms", visits, compute, fresh)["norm_similarity"]


def pruning(study: Study, fresh: bool = False) -> dict[str, pd.DataFrame]:
    """Two tables: `pruning`, one row a pruned matrix (weights, removed, zero_before, mask_digest), and
    `block_error`, one row a block (relative error of its update on the calibration text)."""
    visits = [_visit(study, v, {"pruning": [{}], "block_error": [{}]})
              for v in study.variants() if v.method != "dense"]

    def compute(visit: Visit, missing: dict) -> Iterator[tuple[str, pd.DataFrame]]:
        pruned, digest = _pruned(study, visit.variant)
        _, tokenizer = _loaded(visit.variant.model, visit.variant.dtype)
        rows = {"pruning": pruned.layers, "block_error": pruned.block_errors}
        for table, cells in missing.items():
            for cell in cells:
                yield table, _rows(cell, visit.variant, tokenizer, digest, rows[table])

    # A method without calibration text has no block errors, hence no cell there.
    for visit in visits:
        if visit.variant.calibration == "none":
            visit.cells["block_error"].clear()
    return store.collect(study, "pruning", visits, compute, fresh)


def segment_nll(study: Study, fresh: bool = False) -> pd.DataFrame:
    """One row an evaluation segment and variant: nll (nats), tokens, bytes."""
    texts = [{"corpus": c, "language": x, "segments": study.segments, "text": corpora.fingerprint(c)}
             for c in study.evaluation_corpora for x in study.languages]
    visits = [_visit(study, v, {"segment_nll": texts}) for v in study.variants()]

    def compute(visit: Visit, missing: dict) -> Iterator[tuple[str, pd.DataFrame]]:
        from lib.pruning.driver import applied

        model, tokenizer = _loaded(visit.variant.model, visit.variant.dtype)
        if visit.variant.method == "dense":
            yield "segment_nll", _evaluate(visit, missing["segment_nll"], model, tokenizer)
            return
        with applied(model, _pruned(study, visit.variant)[0]):
            yield "segment_nll", _evaluate(visit, missing["segment_nll"], model, tokenizer)

    return store.collect(study, "perplexity", visits, compute, fresh)["segment_nll"]


def perplexity(study: Study, fresh: bool = False) -> pd.DataFrame:
    """One row a variant, corpus and language: nll, tokens, bytes, perplexity, bits_per_byte (sums of
    segment_nll, so that nothing is measured twice)."""
    return totals(segment_nll(study, fresh), [*COMMON, "corpus", "language"])


def timings(study: Study) -> pd.DataFrame:
    """Seconds a visit (`what` it measured, of which variant): this profile's own, else the published ones."""
    own = store.own(study, "timings")
    return store.published("timings") if own.empty else own


TABLES = {"calibration": calibration, "norm_similarity": norm_similarity,
          "pruning": lambda s, f: pruning(s, f)["pruning"], "block_error": lambda s, f: pruning(s, f)["block_error"],
          "segment_nll": segment_nll, "perplexity": perplexity}


def _draws(study: Study, sets, seeds) -> list[Variant]:
    """The dense model beside a draw of calibration text."""
    return [Variant(model, "dense", "none", 0.0, "none", calibration, study.calibration_corpus, study.windows,
                    study.seqlen, study.budget, seed, study.dtype)
            for model in study.models for seed in seeds for calibration in sets]


def _visit(study: Study, variant: Variant, cells: dict[str, list[dict]]) -> Visit:
    """A visit whose cells are named by everything their values depend on."""
    inputs = asdict(variant) | {"model identity": models.fingerprint(variant.model)}
    if variant.calibration != "none":
        inputs["calibration text"] = corpora.fingerprint(variant.calibration_corpus)
        if variant.calibration == "all" or variant.budget == "segments":
            inputs["pool"] = study.calibration_languages()
    return Visit(variant, {table: {store.key(table, inputs | extra): extra for extra in extras}
                           for table, extras in cells.items()})


def _rows(cell: str, variant: Variant, tokenizer, digest: str, rows: list[dict]) -> pd.DataFrame:
    """Rows with the common columns in front."""
    prefix = models.prefix_token(tokenizer)
    bos = "" if prefix is None else tokenizer.convert_ids_to_tokens(prefix)
    return pd.DataFrame([{"cell": cell} | asdict(variant) | {"bos": bos, "corpus_digest": digest[:16]} | row
                         for row in rows])


@lru_cache(maxsize=1)
def _loaded(name: str, dtype: str):
    """(model, tokenizer), the last one kept.

    "mixed": everything is float32, but matrix products may round their factors to bfloat16 and sum in float32,
    where the processor has instructions for it; elsewhere they are plain float32.
    """
    import torch

    torch.set_float32_matmul_precision("medium" if dtype == "mixed" else "highest")
    return models.load(name, "float32" if dtype == "mixed" else dtype)


@cache
def _pool(corpus: str, language: str, split: str):
    return corpora.load(corpus, language, split)


def _windows(study: Study, variant: Variant):
    """The calibration windows of a variant."""
    from lib.inputs.calibration import mixture, shares

    languages = study.calibration_languages()
    share = shares(variant.calibration, languages, variant.n_samples)
    pools = {x: _pool(variant.calibration_corpus, x, "calibration")
             for x in (languages if variant.budget == "segments" else share)}
    return mixture(share, variant.calibration_corpus, _loaded(variant.model, variant.dtype)[1], variant.seqlen,
                   variant.seed, variant.budget, pools)


def _pruned(study: Study, variant: Variant):
    """(masks of the variant, digest of its calibration windows): from this run's file, else pruned now."""
    from lib.pruning import files
    from lib.pruning.driver import prune

    cell = _visit(study, variant, {"pruning": [{}]}).cells["pruning"]
    path = store.run_folder(study) / "masks" / f"{next(iter(cell))}.safetensors"
    drawn = None if variant.calibration == "none" else _windows(study, variant)
    digest = "" if drawn is None else drawn.digest()
    pruned = files.load_if_whole(path)
    if pruned is None:
        model, _ = _loaded(variant.model, variant.dtype)
        pruned = prune(model, None if drawn is None else drawn.ids, variant.method, variant.sparsity,
                       variant.pattern, variant.group)
        files.save(pruned, path)
    return pruned, digest


def _evaluate(visit: Visit, cells: dict[str, dict], model, tokenizer) -> pd.DataFrame:
    """Rows of segment_nll for these cells; the model is in the visit's state."""
    from lib.analysis import likelihood

    frames, head = [], likelihood.Head(model)
    for cell, text in cells.items():
        data = _pool(text["corpus"], text["language"], "evaluation")
        if len(data) < text["segments"]:
            raise InputError(f"{text['segments']} evaluation segments were asked for, but {text['corpus']} has "
                             f"{len(data)} in {text['language']!r}; set segments to at most that")
        data = data.select(range(text["segments"]))
        scores = likelihood.segment_nll(model, tokenizer, data["id"], data["text"], head=head)
        digest = hashlib.sha256("\n".join(data["text"]).encode()).hexdigest()
        place = {"corpus": text["corpus"], "language": text["language"]}
        rows = [place | row for row in scores.to_dict("records")]
        frames.append(_rows(cell, visit.variant, tokenizer, digest, rows))
    return pd.concat(frames, ignore_index=True)
