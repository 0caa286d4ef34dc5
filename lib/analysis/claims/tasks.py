"""Rules for what the pruned model can still do: C3 to C6, C12."""

from itertools import permutations

import numpy as np
import pandas as pd

from lib.analysis.claims.items import answers, by_calibration, ceiling, halves_agree, wins
from lib.analysis.claims.margins import (
    ALPHA,
    LEVEL,
    METHODS,
    NO_WIN,
    READABLE,
    RELIABLY,
    SAME_ORDER,
    TRUST,
    WORTHWHILE,
)
from lib.analysis.claims.rules import CELL, Finding, Missing, is_mixture, main_rows, matched, rule, table
from lib.analysis.intervals import mean_interval, paired_bootstrap, rank_correlation, rate_interval, spearman
from lib.analysis.significance import holm, mcnemar, t_test
from lib.inputs.languages import weights

ABOVE_CHANCE = ("Tasks and languages where the dense model is not above chance (exact binomial, one-sided, "
                f"p < {ALPHA:.2g}) are left out and counted. ")
POWER = (f"Power: the rate that a true lead of {WORTHWHILE} in accuracy would give with the noise of these "
         f"items is at least {RELIABLY:.2f}; else cannot tell. ")


@rule("C3", "Calibrating in the target language does not reliably give the best downstream accuracy; "
            "another language often wins.",
      "Statistic: the rate at which the target language gives the highest accuracy (ties shared out), over "
      f"models, methods and tasks within each language; interval over languages (Wilson, {LEVEL:.0%}). "
      f"{ABOVE_CHANCE}{POWER}Supported: the upper end is below {RELIABLY:.2f}. Contradicted: the lower end "
      "is above it. Otherwise not supported. The chance rate is one over the number of languages.",
      ["task_items", "downstream"])
def target_accuracy(tables, main) -> Finding:
    pruned, _, dropped = answers(tables, main)
    found, seen = [], []
    for cell, grid in by_calibration(matched(pruned)):
        if cell["language"] in grid:
            t = grid.columns.get_loc(cell["language"])
            others = grid.drop(columns=cell["language"])
            found.append((cell["language"], wins(grid.mean().to_numpy(), t), ceiling(grid.to_numpy(), t)))
            # 2.49: standard errors between 0 and what a one-sided 5 % test finds four times in five
            spread = others.rsub(grid[cell["language"]], axis=0).std(ddof=1) / np.sqrt(len(grid))
            seen.append(2.49 * spread.mean())
    return not_reliable(found, f"{dropped} at-chance left out; smallest difference one cell "
                               f"can show: {np.median(seen):.3f} (median)" if seen else "")


def not_reliable(found: list[tuple], note: str) -> Finding:
    """found: (language, win, what it would be with a worthwhile lead) a cell -> Finding on "not reliably"."""
    if not found:
        raise Missing("no task was answered under the calibrations to compare")
    by_language = pd.DataFrame(found, columns=["language", "win", "ceiling"]).groupby("language").mean()
    rate = rate_interval(by_language["win"].mean(), len(by_language), LEVEL)
    reach = by_language["ceiling"].mean()
    if reach < RELIABLY:
        verdict = "cannot tell"
    elif rate.high < RELIABLY:
        verdict = "supported"
    else:
        verdict = "contradicted" if rate.low > RELIABLY else "not supported"
    return Finding(verdict, rate.estimate, rate.low, rate.high, rate.n,
                   f"{len(found)} cells; a lead of {WORTHWHILE} would give {reach:.2f}; {note}")


@rule("C4", "Bilingual and multilingual calibration help downstream only now and then.",
      "Each mixture that contains the target language against the target language alone, same items, same "
      "number of windows. Statistic: the rate at which the mixture has the higher accuracy (ties: half), "
      "over models, methods, mixtures and tasks within each language; interval over languages (Wilson, "
      f"{LEVEL:.0%}). {ABOVE_CHANCE}{POWER}Supported: the upper end is below {RELIABLY:.2f} (no reliable "
      "help) and at least one gain is shown (exact McNemar, one-sided, Holm over all comparisons and "
      f"draws, p < {ALPHA:.2g}: help now and then). Contradicted: the lower end is above {RELIABLY:.2f}. "
      "Otherwise not supported.",
      ["task_items", "downstream"])
def mixtures(tables, main) -> Finding:
    pruned, _, dropped = answers(tables, main)
    mixed = is_mixture(pruned["calibration"])
    if not mixed.any():
        raise Missing("no answers under a calibration mixture")
    found, p = [], []
    for mixture, rows in pruned[mixed].groupby("calibration"):
        holds = pruned["language"].isin(weights(mixture, pruned["language"].unique()))
        alone = pruned[holds & (pruned["calibration"] == pruned["language"])]
        both = pd.concat([rows[holds[rows.index]], alone.assign(calibration="alone")])
        both = both.groupby([*CELL, "task", "language"]).filter(lambda g: g["calibration"].nunique() == 2)
        for cell, grid in by_calibration(both):
            t = grid.columns.get_loc(mixture)
            found.append((cell["language"], wins(grid.mean().to_numpy(), t), ceiling(grid.to_numpy(), t)))
        for _, draw in both.groupby([*CELL, "task", "language", "seed"]):
            grid = draw.groupby(["item", "calibration"])["correct"].first().unstack().dropna()
            if grid.shape[1] == 2:
                p.append(mcnemar(grid[mixture], grid["alone"], "greater"))
    gains = int((holm(p) < ALPHA).sum())
    finding = not_reliable(found, f"{gains} of {len(p)} gains shown; {dropped} at-chance left out")
    if finding.verdict == "supported" and not gains:
        return Finding(**vars(finding) | {"verdict": "not supported"})
    return finding


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
