"""Rules for the output of the network and its layers: C1, C2, C7."""

import re

import numpy as np
import pandas as pd

from lib.analysis.claims.margins import (
    ALPHA,
    CARRY_OVER,
    GENERALLY,
    LARGE,
    LEVEL,
    MODELS,
    SNR_MARGIN,
    TIMES_LARGER,
)
from lib.analysis.claims.rules import (
    CELL,
    Finding,
    Missing,
    decide,
    main_rows,
    matched,
    rule,
    table,
    whatever,
)
from lib.analysis.intervals import best_by_cell, mean_interval, rate_interval, spearman
from lib.analysis.significance import matching_test, t_test

GENERALLY_RULE = (
    "The rate is averaged over cells within each language; its interval is over languages (Wilson, "
    f"{LEVEL:.0%}). Supported: the lower end is above {GENERALLY}, the rate is above {GENERALLY} in every "
    f"model, method and {{place}}, and the match of calibration and evaluation language is beyond chance "
    f"(relabelling test, p < {ALPHA:.2g}; the chance rate is one over the number of languages). "
    f"Contradicted: the upper end is below {GENERALLY} and in more than half of the cells another "
    f"calibration is {{shown}}. Cannot tell: in less than half of the cells the target is shown either to "
    f"be best or not to be. Otherwise not supported. Needs both methods and {MODELS} models.")


def generally(cells: pd.DataFrame, place: str) -> Finding:
    """cells: CELL, language, `place`, best (who wins), win (the target's, 0 to 1), ahead and beaten (shown,
    bool)."""
    languages = sorted(cells["language"].unique())
    by_language = cells.groupby("language")["win"].mean()
    rate = rate_interval(by_language.mean(), len(languages), LEVEL)
    winners = cells.groupby("language")["best"].value_counts(normalize=True).unstack(fill_value=0)
    winners = winners.reindex(index=languages, columns=languages, fill_value=0).to_numpy()
    _, chance, p = matching_test(winners)
    weakest = cells.groupby([*CELL, place])["win"].mean().min()
    ahead, beaten = cells["ahead"].mean(), cells["beaten"].mean()
    if ahead + beaten < 0.5:
        verdict = "cannot tell"
    elif rate.low > GENERALLY and weakest > GENERALLY and p < ALPHA:
        verdict = "supported"
    elif rate.high < GENERALLY and beaten > 0.5:
        verdict = "contradicted"
    else:
        verdict = "not supported"
    return Finding(verdict, rate.estimate, rate.low, rate.high, rate.n,
                   f"{len(cells)} cells: target shown best in {ahead:.0%}, shown not best in {beaten:.0%}; "
                   f"lowest rate of a model, method and {place} {weakest:.2f}; chance {chance:.2f}, p "
                   f"{p:.2g}")


@rule("C1", "Calibrating in the target language generally gives the lowest perplexity in that language, "
            "whatever the method and model; exceptions exist.",
      "Statistic: the rate at which the target language gives the fewest bits per "
      "byte, over models, methods, corpora (in-domain and out-of-domain) and "
      "languages. " + GENERALLY_RULE.format(
          place="corpus", shown="shown to be better (hierarchical bootstrap over draws and segments)"),
      ["segment_nll"])
def target_perplexity(tables, main) -> Finding:
    columns = ["language", "corpus", "segment", "nll", "bytes"]
    rows = matched(main_rows(table(tables, "segment_nll", columns), main))
    whatever(rows)
    cells = best_by_cell(rows, [*CELL, "corpus", "language"])
    if cells.empty:
        raise Missing("no cell of segment_nll holds the target and another calibration")
    # An exact tie is nobody's win: `best` would go to the first in the alphabet.
    cells["win"] = (cells["difference"] < 0).astype(float)
    cells["ahead"] = cells["high"] < 0
    return generally(cells, "corpus")


@rule("C2", "Calibrating in the target language gives the highest signal-to-noise ratio.",
      "Statistic: the rate at which the target language gives the highest SNR in dB, averaged over pruned "
      f"linear layers and draws, in its local and its propagated form; a lead under {SNR_MARGIN} dB is no "
      "win. Unpruned layers (infinite SNR) are left out. " + GENERALLY_RULE.format(
          place="kind",
          shown=f"shown to be better by more than {SNR_MARGIN} dB (paired over layers, one-sided t, "
                "corrected for the number of others)"),
      ["layer_error"])
def target_snr(tables, main) -> Finding:
    columns = ["language", "layer", "module", "kind", "snr_db"]
    rows = matched(main_rows(table(tables, "layer_error", columns), main))
    whatever(rows)
    linear = ~rows["module"].isin(["block", "final"])
    finite = np.isfinite(rows["snr_db"])
    place = [*CELL, "kind", "language"]
    cells = []
    for key, cell in rows[linear & finite].groupby(place):
        snr = cell.groupby(["layer", "module", "calibration"])["snr_db"].mean().unstack().dropna()
        target = key[-1]
        if target not in snr or snr.shape[1] < 2 or snr.empty:
            continue
        leads = snr.drop(columns=target).rsub(snr[target], axis=0)
        ahead = max(t_test(leads[c], SNR_MARGIN, "greater") for c in leads)
        behind = min(t_test(leads[c], -SNR_MARGIN, "less") for c in leads) * leads.shape[1]
        cells.append(dict(zip(place, key, strict=True)) | {
            "best": snr.mean().idxmax(), "win": float(leads.mean().min() > SNR_MARGIN),
            "ahead": ahead < ALPHA, "beaten": behind < ALPHA})
    if not cells:
        raise Missing("no cell of layer_error has a finite SNR for the target and another calibration")
    finding = generally(pd.DataFrame(cells), "kind")
    note = f"{finding.note}; {(linear & ~finite).sum()} unpruned left out"
    return Finding(**vars(finding) | {"note": note})


def parameters(model: str) -> float | None:
    """Number of parameters as the model's name states it ("Aya-23-8B" -> 8e9), else None."""
    found = re.search(r"(?<![\d.])(\d+(?:\.\d+)?)([mb])(?![a-z])", model.lower())
    return float(found[1]) * {"m": 1e6, "b": 1e9}[found[2]] if found else None


@rule("C7", "Patterns of small models do not carry over to large ones.",
      f"Needs a model of at least {LARGE:.0e} parameters and one at least {TIMES_LARGER} times smaller "
      "(sizes as their names state them); else cannot tell. Statistic: for the smallest and the largest "
      "such model, Spearman's correlation over calibration languages of bits per byte, averaged over "
      f"corpora and methods within each evaluation language; Student interval over languages ({LEVEL:.0%}). "
      f"Supported: the upper end is below {CARRY_OVER}. Contradicted: the lower end is above it. Otherwise "
      "cannot tell. Accuracies are not used: their noise alone lowers the correlation.",
      ["segment_nll"])
def small_and_large(tables, main) -> Finding:
    rows = matched(main_rows(table(tables, "segment_nll", ["language", "corpus", "nll", "bytes"]), main))
    sizes = {m: parameters(m) for m in rows["model"].unique()}
    sizes = {m: size for m, size in sizes.items() if size}
    small, large = (min(sizes, key=sizes.get), max(sizes, key=sizes.get)) if sizes else ("", "")
    if not sizes or sizes[large] < LARGE or sizes[large] < TIMES_LARGER * sizes[small]:
        raise Missing(f"no model of at least {LARGE:.0e} parameters beside one {TIMES_LARGER} times smaller; "
                      f"there: {', '.join(sorted(rows['model'].unique()))}")
    index = ["model", "method", "corpus", "language", "calibration"]
    total = rows.groupby(index)[["nll", "bytes"]].sum()
    bits = (total["nll"] / total["bytes"]).unstack("calibration")
    ours, theirs = bits.loc[small].dropna(), bits.loc[large].dropna()
    shared = ours.index.intersection(theirs.index)
    if shared.empty:
        raise Missing(f"{small} and {large} share no method, corpus and language")
    found = pd.Series(spearman(ours.loc[shared].to_numpy(), theirs.loc[shared].to_numpy()), shared)
    rho = mean_interval(found.groupby("language").mean(), LEVEL)
    verdict = decide(-rho.high, -rho.low, -CARRY_OVER, powered=False)
    return Finding(verdict, rho.estimate, rho.low, rho.high, rho.n, f"{small} against {large}")
