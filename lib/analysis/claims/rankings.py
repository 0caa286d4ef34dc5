"""Rules for how the answers rank languages, methods, and calibrations beside other measures: C5, C6, C12."""

from itertools import permutations

import numpy as np
import pandas as pd

from lib.analysis.claims.items import ABOVE_CHANCE, answers, by_calibration, halves_agree
from lib.analysis.claims.margins import ALPHA, LEVEL, METHODS, NO_WIN, READABLE, SAME_ORDER, TRUST
from lib.analysis.claims.rules import CELL, Finding, Missing, is_mixture, main_rows, matched, rule, table
from lib.analysis.intervals import mean_interval, paired_bootstrap, rank_correlation, rate_interval, spearman
from lib.analysis.significance import holm, t_test


@rule("C5", "Pruning changes which languages the model is best and worst at.",
      "Accuracy by language on items that are the same in all languages, averaged over tasks, calibrations "
      f"and draws, before and after pruning. {ABOVE_CHANCE}Only tasks with every language above chance are "
      "read. A pair of languages is reversed when one is shown ahead in the dense model and behind in the "
      "pruned one (paired over items, both one-sided t-tests, the larger p, Holm over all pairs and cells, "
      f"p < {ALPHA:.2g}). Supported: a reversed pair in more than half of the models and methods. "
      f"Contradicted: no reversed pair, and the lower end of the statistic is above {SAME_ORDER} in every "
      "one. Not supported: reversed pairs in half of them or fewer. Otherwise cannot tell. Statistic: "
      "Spearman's correlation of the languages before and after, the lowest over models and methods; "
      f"bootstrap interval over items ({LEVEL:.0%}).",
      ["task_items", "downstream"])
def order_of_languages(tables, main) -> Finding:
    pruned, dense, dropped = answers(tables, main)
    pruned = pruned[~is_mixture(pruned["calibration"])]
    found, p, cell_of = [], [], []
    for key, rows in pruned.groupby(CELL):
        before, after = (by_language(r) for r in (dense[dense["model"] == key[0]], rows))
        shared = before.index.intersection(after.index)
        if len(shared) < 2 or before.shape[1] < 3 or set(before.columns) != set(after.columns):
            continue
        before, after = before.loc[shared], after.loc[shared, before.columns]
        found.append(rank_correlation(before, after, LEVEL))
        for a, b in permutations(before.columns, 2):
            p.append(max(t_test(before[a] - before[b], 0, "greater"), t_test(after[a] - after[b], 0, "less")))
            cell_of.append(len(found))
    if not found:
        raise Missing("no model has a task with items shared by three languages, all above chance")
    changed = len({c for c, q in zip(cell_of, holm(p), strict=True) if q < ALPHA})
    if changed > len(found) / 2:
        verdict = "supported"
    elif changed:
        verdict = "not supported"
    else:
        verdict = "contradicted" if all(f.low > SAME_ORDER for f in found) else "cannot tell"
    lowest = min(found, key=lambda f: f.estimate)
    return Finding(verdict, lowest.estimate, lowest.low, lowest.high, lowest.n,
                   f"reversed pairs in {changed} of {len(found)} models and methods; {dropped} at-chance "
                   "left out")


def by_language(rows: pd.DataFrame) -> pd.DataFrame:
    """-> [(task, item), languages], averaged over calibrations and draws; only tasks that all languages
    have."""
    grid = rows.groupby(["task", "item", "language"])["correct"].mean().unstack()
    whole = grid.notna().groupby(level="task").any().all(axis=1)
    return grid[grid.index.get_level_values("task").isin(whole[whole].index)].dropna()


@rule("C6", "Neither Wanda nor SparseGPT wins on all tasks.",
      "For each model and task: accuracy under Wanda minus under SparseGPT on the same items, averaged "
      "over languages, calibrations and draws that both have; bootstrap interval over items, corrected for "
      f"the number of models and tasks (Bonferroni, {LEVEL:.0%} together). {ABOVE_CHANCE}A method is shown "
      "to win a task when the whole interval is on its side, and shown not to win it when the interval "
      f"ends below a lead of {NO_WIN}. Supported: in every model each method is shown not to win some task. "
      "Contradicted: in every model one method is shown to win all tasks. Not supported: that holds in "
      "some model. Otherwise cannot tell. Statistic: the share of models and tasks with Wanda ahead "
      "(Wilson interval). Needs two tasks.",
      ["task_items", "downstream"])
def methods_by_task(tables, main) -> Finding:
    pruned, _, dropped = answers(tables, main)
    pruned = pruned[~is_mixture(pruned["calibration"])]
    draw = ["model", "task", "item", "language", "calibration", "seed"]
    grid = pruned.groupby([*draw, "method"])["correct"].mean().unstack()
    if set(grid.columns) != set(METHODS):
        raise Missing(f"answers under {' and '.join(map(str, grid.columns))} only")
    items = grid.dropna().groupby(["model", "task", "item"]).mean()
    pairs = [(model, rows) for (model, _), rows in items.groupby(["model", "task"])]
    if items.index.get_level_values("task").nunique() < 2:
        raise Missing("fewer than two tasks answered under both methods")
    level = 1 - (1 - LEVEL) / len(pairs)
    leads = pd.DataFrame([
        {"model": model} | vars(paired_bootstrap(rows["wanda"], rows["sparsegpt"], level, n_resamples=10000))
        for model, rows in pairs])
    neither = sweeps = 0
    for _, of_model in leads.groupby("model"):
        sweeps += bool((of_model["low"] > 0).all() or (of_model["high"] < 0).all())
        neither += bool((of_model["high"] < NO_WIN).any() and (of_model["low"] > -NO_WIN).any())
    models = leads["model"].nunique()
    if sweeps:  # a small lead everywhere is a win everywhere, even where it is below NO_WIN
        verdict = "contradicted" if sweeps == models else "not supported"
    else:
        verdict = "supported" if neither == models else "cannot tell"
    rate = rate_interval(float((leads["estimate"] > 0).mean()), len(leads), LEVEL)
    return Finding(verdict, rate.estimate, rate.low, rate.high, rate.n,
                   f"leads of Wanda from {leads['estimate'].min():+.3f} to {leads['estimate'].max():+.3f}; "
                   f"{dropped} at-chance left out")


@rule("C12", "Do not judge a model pruned for a language by its perplexity, or by its English scores.",
      "Spearman's correlation over calibration languages of accuracy in the target language with (a) bits "
      "per byte in it, lower being better, and (b) accuracy in English on the same task; averaged over "
      "models, methods, tasks (and corpora) within each language; Student interval over languages "
      f"({LEVEL:.0%}). {ABOVE_CHANCE}Noise in accuracy lowers any correlation, so the attainable one is "
      f"estimated from halves of the items (Spearman-Brown) and the threshold is {TRUST} times it. "
      "Supported: both upper ends are below their thresholds. Contradicted: a lower end is above its "
      f"threshold. Cannot tell: an attainable correlation is below {READABLE}. Otherwise not supported. "
      "Statistic: (a).",
      ["task_items", "downstream", "segment_nll"])
def stand_ins(tables, main) -> Finding:
    pruned, _, dropped = answers(tables, main)
    pruned = matched(pruned)
    text = matched(main_rows(table(tables, "segment_nll", ["language", "corpus", "nll", "bytes"]), main))
    sums = text.groupby([*CELL, "language", "corpus", "calibration"])[["nll", "bytes"]].sum()
    bits = (sums["nll"] / sums["bytes"]).unstack("calibration")
    grids = {(*(cell[k] for k in CELL), cell["task"], cell["language"]): grid.mean()
             for cell, grid in by_calibration(pruned)}
    rows = []
    for (*cell, task, language), accuracy in grids.items():
        by_corpus = bits[[c for c in accuracy.index if c in bits]].dropna()
        by_corpus = by_corpus[by_corpus.index.droplevel("corpus") == (*cell, language)]
        english = grids.get((*cell, task, "en"))
        rho = np.nan if by_corpus.empty else np.mean([
            -spearman(b.to_numpy(), accuracy[b.index].to_numpy()) for _, b in by_corpus.iterrows()])
        other = np.nan if english is None or language == "en" else float(
            spearman(*(x.to_numpy() for x in accuracy.align(english, join="inner"))))
        rows.append((language, rho, other))
    found = pd.DataFrame(rows, columns=["language", "perplexity", "english"]).groupby("language").mean()
    if found.isna().all().any():
        raise Missing(f"nothing to compare accuracy with: {', '.join(found.columns[found.isna().all()])}")
    reach = halves_agree(pruned)
    # English accuracies are noisy as well, so both sides lower that correlation.
    attainable = {"perplexity": reach.mean(), "english": reach.drop("en").mean() * reach["en"]}
    intervals = {name: mean_interval(found[name].dropna(), LEVEL) for name in attainable}
    if min(attainable.values()) < READABLE:
        verdict = "cannot tell"
    elif any(intervals[k].low > TRUST * attainable[k] for k in attainable):
        verdict = "contradicted"
    else:
        below = all(intervals[k].high < TRUST * attainable[k] for k in attainable)
        verdict = "supported" if below else "not supported"
    rho, english = intervals["perplexity"], intervals["english"]
    return Finding(verdict, rho.estimate, rho.low, rho.high, rho.n,
                   f"English {english.estimate:.2f} ({english.low:.2f} to {english.high:.2f}); attainable "
                   f"{attainable['perplexity']:.2f} and {attainable['english']:.2f}; {dropped} at-chance "
                   "left out")
