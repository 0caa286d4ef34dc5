"""Models in a state: loaded, with their calibration windows, pruned. What a visit of the grid starts from.

torch is imported only where something is computed.
"""

import hashlib
import os
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import cache, lru_cache
from math import ceil
from pathlib import Path

from lib.errors import InputError
from lib.inputs import corpora, models, released, sizes, tiny
from lib.run import memory, store
from lib.run.store import Visit
from lib.study import Study, Variant

STREAMED = 0.6  # share of the memory that a model which is loaded whole may take with its weights


def visit(study: Study, variant: Variant, cells: dict[str, list[dict]]) -> Visit:
    """A visit whose cells are named by everything their values depend on."""
    known = inputs(study, variant)
    return Visit(variant, {table: {store.key(table, known | extra): extra for extra in extras}
                           for table, extras in cells.items()})


def inputs(study: Study, variant: Variant) -> dict:
    """What decides a variant's weights: its fields, and the identity of model and text."""
    found = asdict(variant) | {"model identity": models.fingerprint(variant.model)}
    source = study.released().get(variant)
    if source:
        found["checkpoint"] = models.fingerprint(source)
    elif variant.calibration != "none":
        found["calibration text"] = corpora.fingerprint(variant.calibration_corpus)
        if variant.calibration == "all" or variant.budget == "segments":
            found["pool"] = study.calibration_languages()
    return found


@lru_cache(maxsize=1)
def loaded(name: str, dtype: str):
    """(model, tokenizer), the last one kept.

    "mixed": everything is float32, but matrix products may round their factors to bfloat16 and sum in float32,
    where the processor has instructions for it; elsewhere they are plain float32.
    """
    import torch

    _start.cache_clear()  # they hold on to the model before
    dense.cache_clear()
    dense_embeddings.cache_clear()
    torch.set_float32_matmul_precision("medium" if dtype == "mixed" else "highest")
    return models.load(name, "float32" if dtype == "mixed" else dtype, streamed=streamed(name, dtype),
                       gpus=gpus(name, dtype))


@cache
def streamed(name: str, dtype: str) -> bool:
    """Whether a model's blocks are read from its files when they are at work: where its weights are most of the memory
    there is for them, that of all GPUs together, or the environment variable COMPENDIUM_STREAMED is 1. No value depends
    on it."""
    if name in tiny.RECIPES or os.environ.get("COMPENDIUM_STREAMED") == "0":
        return False
    return os.environ.get("COMPENDIUM_STREAMED") == "1" or _needed(name, dtype) > memory.for_models()[1]


@cache
def gpus(name: str, dtype: str) -> int:
    """Over how many GPUs the blocks of a model that is loaded whole are spread: as few as have room for it."""
    number = memory.for_models()[1]
    return 1 if number == 1 or name in tiny.RECIPES else min(_needed(name, dtype), number)


def _needed(name: str, dtype: str) -> int:
    """How many memories such as there are would hold the model's weights."""
    width = 2 if dtype in ("bfloat16", "float16") else 4
    return ceil(sizes.size(name).parameters * width / (STREAMED * memory.for_models()[0]))


@lru_cache(maxsize=1)
def dense(name: str, dtype: str):
    """lib.analysis.snr.Dense of the model, the last one kept: a second copy of its blocks."""
    from lib.analysis.snr import Dense

    model, _ = loaded(name, dtype)
    with _plain_attention(model):  # the copy runs beside the model in that state
        return Dense(model)


@cache
def pool(corpus: str, language: str, split: str):
    return corpora.load(corpus, language, split)


def windows(study: Study, variant: Variant):
    """The calibration windows of a variant."""
    from lib.inputs.calibration import mixture, shares

    languages = study.calibration_languages()
    share = shares(variant.calibration, languages, variant.n_samples)
    pools = {x: pool(variant.calibration_corpus, x, "calibration")
             for x in (languages if variant.budget == "segments" else share)}
    try:
        return mixture(share, variant.calibration_corpus, loaded(variant.model, variant.dtype)[1], variant.seqlen,
                       variant.seed, variant.budget, pools)
    except InputError as error:
        raise InputError(f"{variant.calibration} in {variant.calibration_corpus}, budget {variant.budget}: {error} "
                         "With fewer `windows`, methods that ask for a share of the study's need fewer") from error


def pruned(study: Study, variant: Variant):
    """(lib.pruning.driver.Pruned of the variant, digest of its calibration windows): from this run's file, else
    pruned now, or read from a released checkpoint, of whose windows no digest is known."""
    from lib.pruning import files, resumable
    from lib.pruning.driver import prune

    path = mask_file(study, variant)
    source = study.released().get(variant)
    text = variant.calibration != "none" and not source
    digest = windows(study, variant).digest() if text else ""
    request = variant.method, variant.sparsity, variant.pattern, variant.group
    made = files.load_if_whole(path)
    if made is None and streamed(variant.model, variant.dtype) and not source:
        made = resumable.prune_into(path, loaded(variant.model, variant.dtype)[0],
                                    windows(study, variant).ids if text else None, *request)
    if made is None:
        model, _ = loaded(variant.model, variant.dtype)
        made = _read(source, variant, model) if source else prune(
            model, _start(study, draw(variant)) if text else None, *request)
        files.save(made, path)
    return made, digest


def mask_file(study: Study, variant: Variant) -> Path:
    """Where the run keeps a pruned variant, made already or not."""
    name = store.key("pruning", inputs(study, variant))
    by_block = streamed(variant.model, variant.dtype) and variant not in study.released()
    return store.run_folder(study) / "masks" / (f"{name}.blocks" if by_block else f"{name}.safetensors")


@lru_cache(maxsize=1)
def dense_embeddings(study: Study, name: str):
    """(embeddings of the dense model, as `embeddings` gives them; digest of the sentences), the last kept."""
    with entered(study, study.dense(name)) as (model, tokenizer):
        return embeddings(study, model, tokenizer), _sentences(study)[1]


def embeddings(study: Study, model, tokenizer):
    """float32 [languages, sentences, layers, d] of the parallel sentences, by the model as it is."""
    import numpy as np

    from lib.analysis.embeddings import sentence_embeddings

    return np.stack([sentence_embeddings(model, tokenizer, texts) for texts in _sentences(study)[0]])


@cache
def _sentences(study: Study) -> tuple[list[list[str]], str]:
    """The parallel sentences that all languages have, a list a language, in one order; SHA-256 (hex) of them."""
    texts: list[list[str]] = [[] for _ in study.languages]
    for corpus in study.parallel_corpora:
        pools = [dict(zip(p["id"], p["text"], strict=True))
                 for p in (pool(corpus, language, "parallel") for language in study.languages)]
        shared = [key for key in pools[0] if all(key in p for p in pools)]
        for found, p in zip(texts, pools, strict=True):
            found += [p[key] for key in shared]
    return texts, hashlib.sha256("\n".join(t for found in texts for t in found).encode()).hexdigest()


@contextmanager
def entered(study: Study, variant: Variant):
    """(model, tokenizer) while the model is in the variant's state, to be read with short texts."""
    from lib.pruning.driver import applied

    model, tokenizer = loaded(variant.model, variant.dtype)
    state = nullcontext() if variant.method == "dense" else applied(model, pruned(study, variant)[0])
    with state, _plain_attention(model):
        yield model, tokenizer


@contextmanager
def _plain_attention(model):
    """On a CPU the fused kernel of attention takes longer than plain matrix products for many short sequences."""
    usual = model.config._attn_implementation
    if model.device.type == "cpu":
        model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(usual)


def _read(source: str, variant: Variant, model):
    """The Pruned of a released checkpoint; what its weights deny of its name is said in warnings."""
    from lib.inputs.stored import Stored
    from lib.pruning import zeros

    made = zeros.masks_from_zeros(Stored(released.folder(source), model), model, variant.method)
    for denial in zeros.contradictions(made, variant.method, variant.sparsity, variant.pattern):
        warnings.warn(f"checkpoint {source}: {denial}", stacklevel=2)
    return made


def draw(variant: Variant) -> Variant:
    """The dense model beside the variant's calibration text."""
    return replace(variant, method="dense", pattern="none", sparsity=0.0, group="none")


@lru_cache(maxsize=1)
def _start(study: Study, draw: Variant):
    """What all methods share on one draw of calibration text, the last one kept."""
    from lib.pruning.driver import Start

    return Start(loaded(draw.model, draw.dtype)[0], windows(study, draw).ids)
