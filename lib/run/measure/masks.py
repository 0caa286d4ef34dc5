"""The masks of pruned models, compared with each other and mixed: notebook 07."""

from collections.abc import Iterator
from dataclasses import asdict, replace

import numpy as np
import pandas as pd

from lib.run import states, store
from lib.run.measure.rows import labelled, read, texts
from lib.run.store import Visit
from lib.study import Study, Variant

SHARES = (0.25, 0.5, 0.75)  # of the weights in which two masks differ; 0 and 1 are the masks themselves


def mask_overlap(study: Study, fresh: bool = False) -> pd.DataFrame:
    """One row a pair of masks and matrix, with the columns of lib.analysis.masks.overlap. Pairs are those of one
    method, and those of two methods that pruned by the same text or by none; each from as many windows."""
    visits = [states.visit(study, dense, {"mask_overlap": [
        {"windows": n, "masks": [store.key("pruning", states.inputs(study, v)) for v in group]}
        for n, group in _groups(study, dense.model).items() if len(group) > 1]})
        for dense in study.variants("masks") if dense.method == "dense"]
    visits = [visit for visit in visits if visit.cells["mask_overlap"]]

    def compute(visit: Visit, missing: dict) -> Iterator[tuple[str, pd.DataFrame]]:
        from lib.analysis import masks

        model, tokenizer = states.loaded(visit.variant.model, visit.variant.dtype)
        nonzero = masks.pack({name: W != 0 for name, W in _weights(model)}, "row")
        for cell, extra in missing["mask_overlap"].items():
            group = {tuple(getattr(v, name) for name in masks.DRAW): v
                     for v in _groups(study, visit.variant.model)[extra["windows"]]}
            for variant in group.values():
                states.pruned(study, variant)
            found = masks.overlap({draw: masks.read(states.mask_file(study, v)) for draw, v in group.items()}, nonzero)
            rows = [asdict(group[tuple(row[name] for name in masks.DRAW)]) | row for row in found if _kindred(row)]
            frame = labelled(cell, visit.variant, tokenizer, "", rows)
            yield "mask_overlap", frame.astype({column: np.int32 if column in masks.COUNTS else np.float32
                                                for column in (*masks.COUNTS, "expected", "jaccard", "chance")})

    return store.collect(study, "masks", visits, compute, fresh)["mask_overlap"] if visits else pd.DataFrame()


def mask_pairs(study: Study, fresh: bool = False) -> dict[str, pd.DataFrame]:
    """Two tables on Wanda's masks of each language beside those of English (`other_calibration`), first seed:
    `mask_changes`, where they differ (lib.analysis.mask_pairs.changes, pooled by projection), and `mask_swap`, nll of
    evaluation segments while a `share` of the differing weights goes over from one mask to the other, in both
    languages; and, as the ceiling, to the mask of another draw of the same language (`other_seed`)."""
    visits = [states.visit(study, v, {"mask_changes": [{"other": "en"}], "mask_swap": _swaps(study, v)})
              for model in study.models for v in _grid(study, model) if _has_pair(study, v)]

    def compute(visit: Visit, missing: dict) -> Iterator[tuple[str, pd.DataFrame]]:
        pruned, digest = states.pruned(study, visit.variant)
        model, tokenizer = states.loaded(visit.variant.model, visit.variant.dtype)
        for cell, extra in missing["mask_changes"].items():
            other = states.pruned(study, replace(visit.variant, calibration=extra["other"]))[0]
            rows = [{"other_calibration": extra["other"]} | row for row in _changes(model, pruned, other)]
            yield "mask_changes", labelled(cell, visit.variant, tokenizer, digest, rows)
        if missing["mask_swap"]:
            yield "mask_swap", _swapped(study, visit.variant, pruned, missing["mask_swap"])

    if not visits:
        return {"mask_changes": pd.DataFrame(), "mask_swap": pd.DataFrame()}
    return store.collect(study, "mask pairs", visits, compute, fresh)


def _grid(study: Study, model: str) -> list[Variant]:
    """The variants of a model whose masks are compared: pruned, at the study's own sparsity and pattern."""
    return [v for v in study.pruned("masks") if v.model == model
            and (v.sparsity, v.pattern) == (study.sparsity, study.pattern)]


def _groups(study: Study, model: str) -> dict[int, list[Variant]]:
    """The grid by windows of calibration text; what needs no text goes with the study's own number."""
    groups: dict[int, list[Variant]] = {}
    for variant in _grid(study, model):
        groups.setdefault(variant.n_samples or study.windows, []).append(variant)
    return groups


def _kindred(row: dict) -> bool:
    draws = {tuple(row[f"{side}{name}"] for name in ("calibration", "budget", "seed")) for side in ("", "other_")}
    return row["method"] == row["other_method"] or len(draws) == 1 or ("none", "none", -1) in draws


def _has_pair(study: Study, variant: Variant) -> bool:
    """Wanda's rows keep equally many in each mask, so that a swap leaves the sparsity as it is."""
    own = (variant.method, variant.group, variant.n_samples, variant.budget, variant.seed) == (
        "wanda", "row", study.windows, study.budget, study.seeds[0])
    return own and variant.calibration != "en" and replace(variant, calibration="en") in _grid(study, variant.model)


def _swaps(study: Study, variant: Variant) -> list[dict]:
    """Cells of mask_swap: to English at all shares, read in both languages; to another draw at the middle share."""
    ours = [text for text in texts(study, study.evaluation_corpora[:1], study.segments)
            if text["language"] in (variant.calibration, "en")]
    cells = [text | {"other_calibration": "en", "other_seed": variant.seed, "share": share}
             for text in ours for share in SHARES]
    again = replace(variant, seed=study.seeds[-1])
    if again != variant and again in _grid(study, variant.model):
        cells += [text | {"other_calibration": variant.calibration, "other_seed": again.seed, "share": SHARES[1]}
                  for text in ours if text["language"] == variant.calibration]
    return cells


def _changes(model, pruned, other) -> list[dict]:
    """Rows of lib.analysis.mask_pairs.changes, summed over the matrices of each projection."""
    from lib.analysis.mask_pairs import changes
    from lib.analysis.masks import place

    rows = []
    for layer, W in _weights(model):
        kept = pruned.masks[layer].numpy()
        rows += [{"module": place(layer)[1]} | row for row in changes(kept, other.masks[layer].numpy(), W)]
    frame = pd.DataFrame(rows)
    for column in ("share", "even"):
        frame[column] = frame[column].fillna(0) * frame["changed"]
    table = frame.groupby(["module", "by", "part"], sort=False)[["share", "even", "changed", "weights"]].sum()
    return (table.assign(share=table["share"] / table["changed"], even=table["even"] / table["changed"])
            .reset_index().to_dict("records"))


def _weights(model) -> Iterator[tuple[str, np.ndarray]]:
    """The dense W [out, in] of every linear layer by its full name, block by block."""
    from lib.pruning import residency
    from lib.pruning.blocks import find_blocks, linear_layers, weight_matrix

    place, blocks = find_blocks(model)
    for k, block in enumerate(blocks):
        residency.bring(model, k)
        for layer, linear in linear_layers(block).items():
            yield f"{place}.{k}.{layer}", weight_matrix(linear).float().cpu().numpy()


def _swapped(study: Study, variant: Variant, pruned, cells: dict[str, dict]) -> pd.DataFrame:
    """Segments scored by the model under mixtures of two masks."""
    import torch

    from lib.analysis import likelihood
    from lib.analysis.mask_pairs import swap_all
    from lib.pruning.driver import applied

    model, tokenizer = states.loaded(variant.model, variant.dtype)
    own, head, frames = {name: mask.numpy() for name, mask in pruned.masks.items()}, likelihood.Head(model), []
    settings = dict.fromkeys((c["other_calibration"], c["other_seed"], c["share"]) for c in cells.values())
    for calibration, seed, share in settings:
        other = states.pruned(study, replace(variant, calibration=calibration, seed=seed))[0]
        mixed = swap_all(own, {name: mask.numpy() for name, mask in other.masks.items()}, share)
        with applied(model, replace(pruned, masks={name: torch.from_numpy(mask) for name, mask in mixed.items()})):
            for cell, c in cells.items():
                if (c["other_calibration"], c["other_seed"], c["share"]) == (calibration, seed, share):
                    data, digest = read(c)
                    scores = likelihood.segment_nll(model, tokenizer, data["id"], data["text"], head=head)
                    rows = [{k: c[k] for k in ("other_calibration", "other_seed", "share", "corpus", "language")} | row
                            for row in scores.to_dict("records")]
                    frames.append(labelled(cell, variant, tokenizer, digest, rows))
    return pd.concat(frames, ignore_index=True)
