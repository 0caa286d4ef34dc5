"""Rules for the inside of the network: C8 to C11. Units are languages throughout."""

from itertools import combinations

import numpy as np
import pandas as pd

from lib.analysis.claims.margins import (
    ALPHA,
    DEEPER,
    EARLY,
    LEVEL,
    MASK_MARGIN,
    NEURON_MARGIN,
    NEURON_SPARSITIES,
    UNIFORM,
)
from lib.analysis.claims.rules import (
    CELL,
    Finding,
    Missing,
    decide,
    dense_rows,
    is_mixture,
    main_rows,
    matched,
    rule,
    table,
)
from lib.analysis.intervals import mean_interval
from lib.analysis.significance import holm, t_test, tost


def subspace_loss(tables, main) -> pd.DataFrame:
    """Centred relative error of each part: one row a CELL, language, calibration, layer and part."""
    rows = table(tables, "subspaces", ["language", "layer", "part", "error"])
    if "variant" in rows:  # raw embeddings are dominated by a few massive features
        rows = rows[rows["variant"] == "centred"]
    if "control" in rows:
        rows = rows[rows["control"] == "none"]
    rows = matched(main_rows(rows, main))
    absent = {"agnostic", "specific"} - set(rows["part"])
    if absent:
        raise Missing(f"table subspaces has no rows of the {' and '.join(sorted(absent))} part")
    return rows.groupby([*CELL, "language", "calibration", "layer", "part"])["error"].mean().reset_index()


@rule("C8", "Pruning keeps the dominant language-specific part of the representation and loses the "
            "language-agnostic part, uniformly over calibration languages.",
      "Loss: relative error of a part (centred where both forms are there), averaged over layers and "
      "draws. Two halves, in every model and method. (a) The agnostic loss exceeds the specific loss "
      f"(paired over evaluation languages, one-sided t, p < {ALPHA:.2g}). (b) The agnostic loss is the same "
      f"for every pair of calibration languages: two one-sided tests with margin {UNIFORM:.0%} of the mean "
      f"agnostic loss, paired over evaluation languages, all pairs at p < {ALPHA:.2g} (all must pass, so no "
      "correction). Supported: (a) and (b). Contradicted: a pair is shown to differ by more than the "
      "margin (Holm over all pairs), or the specific loss is shown to exceed the agnostic one in every "
      "model and method. Otherwise cannot tell. Statistic: the mean agnostic minus specific loss over the "
      f"mean agnostic loss; Student interval over languages ({LEVEL:.0%}).",
      ["subspaces"])
def uniform_loss(tables, main) -> Finding:
    loss = subspace_loss(tables, main)
    index = [*CELL, "part", "language", "calibration"]
    means = loss.groupby(index)["error"].mean()
    larger, smaller, same, differ, relative = [], [], [], [], []
    for _, cell in means.groupby(level=CELL):
        parts = cell.droplevel(CELL).unstack("calibration").dropna()
        if parts.index.unique("part").size < 2:
            raise Missing("a model or method has no language with both parts under every calibration")
        agnostic, specific = parts.loc["agnostic"], parts.loc["specific"]
        excess = (agnostic.mean(axis=1) - specific.mean(axis=1)).dropna()
        larger.append(t_test(excess, 0, "greater"))
        smaller.append(t_test(excess, 0, "less"))
        margin = UNIFORM * agnostic.to_numpy().mean()
        relative.append(excess / agnostic.to_numpy().mean())
        for a, b in combinations(agnostic.columns, 2):
            difference = agnostic[a] - agnostic[b]
            same.append(tost(difference, margin))
            # Two directions, each at half of the level, make one two-sided test of "beyond the margin".
            differ.append(min(1.0, 2 * min(t_test(difference, margin, "greater"),
                                           t_test(difference, -margin, "less"))))
    beyond = int((holm(differ) < ALPHA).sum())
    passed = int((np.array(same) < ALPHA).sum())
    if beyond or max(smaller) < ALPHA:
        verdict = "contradicted"
    elif passed == len(same) and max(larger) < ALPHA:
        verdict = "supported"
    else:
        verdict = "cannot tell"
    found = mean_interval(pd.concat(relative, axis=1).mean(axis=1), LEVEL)
    return Finding(verdict, found.estimate, found.low, found.high, found.n,
                   f"{passed} of {len(same)} pairs of calibrations within {UNIFORM:.0%}, {beyond} beyond; "
                   f"agnostic loss shown larger in {sum(p < ALPHA for p in larger)} of {len(larger)} models "
                   "and methods")


@rule("C9", "The loss of the language-agnostic part sits in the middle-to-late layers.",
      f"Statistic: mean agnostic loss of blocks deeper than the first {EARLY:.0%} of the network minus that "
      "of the earlier ones, over the mean loss, averaged over calibrations; Student interval over "
      f"evaluation languages ({LEVEL:.0%}). Supported: the lower end is above {DEEPER} in every model and "
      "method. Contradicted: the upper end is below 0 in every model and method. Not supported: every "
      f"upper end is below {DEEPER}. Otherwise cannot tell. Errors pile up along the residual stream, so a "
      "yes says where the loss is found, not where it is made.",
      ["subspaces"])
def depth_of_loss(tables, main) -> Finding:
    loss = subspace_loss(tables, main).query("part == 'agnostic'")
    found, pooled = [], []
    for _, cell in loss.groupby(CELL):
        first, last = cell["layer"].min(), cell["layer"].max()
        deep = (cell["layer"] - first) > EARLY * (last - first)
        means = cell.groupby(["language", deep.rename("deep")])["error"].mean().unstack()
        if means.shape[1] < 2:
            raise Missing("table subspaces has one layer only, so nothing sits deeper")
        excess = (means[True] - means[False]) / cell["error"].mean()
        found.append(mean_interval(excess, LEVEL))
        pooled.append(excess)
    if all(f.low > DEEPER for f in found):
        verdict = "supported"
    elif all(f.high < 0 for f in found):
        verdict = "contradicted"
    else:
        verdict = "not supported" if all(f.high < DEEPER for f in found) else "cannot tell"
    whole = mean_interval(pd.concat(pooled, axis=1).mean(axis=1), LEVEL)
    return Finding(verdict, whole.estimate, whole.low, whole.high, whole.n,
                   f"{len(found)} models and methods, lower ends {', '.join(f'{f.low:.2f}' for f in found)}")


@rule("C10", "The calibration language changes the mask, beyond what another draw of the same language "
             "changes.",
      "Statistic: Jaccard overlap of pruned weights between two draws of one language that have no segment "
      "in common (the draw and an equally large one from the rest of the text), minus that between such "
      "draws of this language and of the others, averaged over layers and projections; "
      f"Student interval over languages ({LEVEL:.0%}). Supported: the lower end is above {MASK_MARGIN} in "
      f"every model and method. Contradicted: the upper end is below {MASK_MARGIN} in every one. Otherwise "
      "cannot tell. Where: the note names the layer and projection with the largest difference.",
      ["mask_overlap"],
      changed="Before any mask was compared: it read draws of other seeds, which have segments in common, and the more "
              "so the smaller a language's pool of text is; that flatters the ceiling.")
def mask_change(tables, main) -> Finding:
    columns = ["other_method", "other_calibration", "other_budget", "layer", "module", "jaccard"]
    # Half of the smallest pool is less than the main setting's windows; both kinds of pairs have the same number.
    setting = {key: value for key, value in main.items() if key not in ("n_samples", "budget")}
    rows = main_rows(table(tables, "mask_overlap", columns), setting)
    apart = (rows["budget"] == "rest") != (rows["other_budget"] == "rest")
    rows = rows[apart & (rows["other_method"] == rows["method"]) & ~is_mixture(rows["calibration"])
                & ~is_mixture(rows["other_calibration"])]
    # A pair stands in the table once; for the interval over languages it belongs to both of its sides.
    swapped = rows.rename(columns={"calibration": "other_calibration", "other_calibration": "calibration"})
    rows = pd.concat([rows, swapped])
    own = rows["calibration"] == rows["other_calibration"]
    within, between = rows[own], rows[~own]
    if within.empty or between.empty:
        raise Missing("table mask_overlap has no pairs of draws without common segments "
                      + ("of one language" if within.empty else "of two languages"))
    place = [*CELL, "calibration", "layer", "module"]
    change = (within.groupby(place)["jaccard"].mean() - between.groupby(place)["jaccard"].mean()).dropna()
    if change.empty:
        raise Missing("no language has both kinds of pairs in one layer and projection")
    by_language = change.groupby([*CELL, "calibration"]).mean()
    found = [mean_interval(cell, LEVEL) for _, cell in by_language.groupby(level=CELL)]
    verdicts = {decide(f.low, f.high, MASK_MARGIN, powered=False) for f in found}
    whole = mean_interval(by_language.groupby("calibration").mean(), LEVEL)
    layer, module = change.groupby(["layer", "module"]).mean().idxmax()
    verdict = verdicts.pop() if len(verdicts) == 1 else "cannot tell"
    return Finding(verdict, whole.estimate, whole.low, whole.high, whole.n,
                   f"largest in layer {layer}, {module}")


@rule("C11", "Pruning adds noise to LAPE scores: new language-specific neurons appear and others become "
             "agnostic.",
      "Thresholds fixed on the dense model. For each language, summed over layers and averaged over "
      "calibrations: new = specific neurons of the pruned model that the dense one does not have (neurons "
      "- kept), lost = those of the dense model that are no longer specific, both over the dense model's "
      f"count. Student interval over languages ({LEVEL:.0%}) at sparsity "
      f"{' and '.join(str(s) for s in NEURON_SPARSITIES)}. Supported: the lower end of both is above "
      f"{NEURON_MARGIN} at both sparsities in every model and method. Contradicted: the upper end of one is "
      f"below {NEURON_MARGIN} at {NEURON_SPARSITIES[-1]} in every one. Otherwise cannot tell. Statistic: "
      f"the smaller of new and lost at {NEURON_SPARSITIES[-1]}, averaged over models and methods. A "
      "language without specific neurons in the dense model has no share and is left out, counted.",
      ["neurons"])
def neuron_noise(tables, main) -> Finding:
    rows = table(tables, "neurons", ["language", "layer", "neurons", "kept", "sparsity"])
    dense = dense_rows(rows).groupby(["model", "language"])["neurons"].sum()
    shares = []
    for sparsity in NEURON_SPARSITIES:
        pruned = main_rows(rows, {**main, "sparsity": sparsity})
        pruned = pruned[~is_mixture(pruned["calibration"])]
        sums = pruned.groupby([*CELL, "language", "calibration", "seed"])[["neurons", "kept"]].sum()
        means = sums.groupby([*CELL, "language"]).mean().join(dense.rename("dense"), on=["model", "language"])
        means = means[means["dense"] > 0]
        if means.empty:
            raise Missing(f"no language has neurons in the dense model and in one pruned to {sparsity}")
        shares.append(pd.DataFrame({"new": (means["neurons"] - means["kept"]) / means["dense"],
                                    "lost": 1 - means["kept"] / means["dense"]}).assign(sparsity=sparsity))
    shares = pd.concat(shares).set_index("sparsity", append=True)
    found = {key: {part: mean_interval(cell[part], LEVEL) for part in ("new", "lost")}
             for key, cell in shares.groupby(level=[*CELL, "sparsity"])}
    last = {key: parts for key, parts in found.items() if key[-1] == NEURON_SPARSITIES[-1]}
    if all(f.low > NEURON_MARGIN for parts in found.values() for f in parts.values()):
        verdict = "supported"
    elif all(min(f.high for f in parts.values()) < NEURON_MARGIN for parts in last.values()):
        verdict = "contradicted"
    else:
        verdict = "cannot tell"
    at_last = shares.xs(NEURON_SPARSITIES[-1], level="sparsity").groupby("language").mean()
    part = at_last.mean().idxmin()
    whole = mean_interval(at_last[part], LEVEL)
    return Finding(verdict, whole.estimate, whole.low, whole.high, whole.n,
                   f"the smaller is {part}; {int((dense == 0).sum())} model-language pair(s) without any")
