"""Rules for which calibration keeps most of what the model can do: C3, C4."""

import numpy as np
import pandas as pd

from lib.analysis.claims.items import ABOVE_CHANCE, answers, by_calibration, ceiling, wins
from lib.analysis.claims.margins import ALPHA, LEVEL, RELIABLY, WORTHWHILE
from lib.analysis.claims.rules import CELL, Finding, Missing, is_mixture, matched, rule
from lib.analysis.intervals import rate_interval
from lib.analysis.significance import holm, mcnemar
from lib.inputs.languages import weights

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
