"""The paper's claims C1 to C12, the rules that judge them, and the verdicts on a set of tables.

The rules (words and code side by side) and their margins were written before the first published numbers. A
rule that is changed afterwards says so in `Claim.changed`, with the reason. Each claim is tested at its own
level; twelve claims at 5 % are not corrected for each other.
"""

from collections.abc import Iterable, Mapping

import pandas as pd

from lib.analysis.claims import inside, perplexity, rankings, tasks
from lib.analysis.claims.guide import guide
from lib.analysis.claims.margins import MAIN
from lib.analysis.claims.rules import VERDICTS, Claim, Finding, Missing
from lib.errors import InputError

CLAIMS: tuple[Claim, ...] = (
    perplexity.target_perplexity, perplexity.target_snr, tasks.target_accuracy, tasks.mixtures,
    rankings.order_of_languages, rankings.methods_by_task, perplexity.small_and_large, inside.uniform_loss,
    inside.depth_of_loss, inside.mask_change, inside.neuron_noise, rankings.stand_ins)

COLUMNS = ["id", "claim", "rule", "verdict", "statistic", "low", "high", "n", "table", "note", "changed"]

__all__ = ["CLAIMS", "MAIN", "VERDICTS", "Claim", "Finding", "guide", "verdicts"]


def verdicts(tables: Mapping[str, pd.DataFrame], main: Mapping | None = None,
             only: Iterable[str] | None = None) -> pd.DataFrame:
    """Tables by name -> one row a claim, with COLUMNS. `low` and `high` are a 90 % interval of the statistic.

    `main`: entries of MAIN to replace, for a run of another size. `only`: ids, all by default. A claim whose
    table or rows are missing, or whose grid has holes, is "cannot tell", and the note says what is missing.
    """
    setting = {**MAIN, **(main or {})}
    wanted = [c.id for c in CLAIMS] if only is None else list(only)
    for what, given, allowed in (("main setting", setting, MAIN), ("claim", wanted, [c.id for c in CLAIMS])):
        unknown = sorted(set(given) - set(allowed))
        if unknown:
            raise InputError(f"{what} {', '.join(unknown)} is unknown; allowed: {', '.join(allowed)}")
    rows = []
    for claim in CLAIMS:
        if claim.id not in wanted:
            continue
        try:
            finding = claim.judge(tables, setting)
        except (Missing, InputError) as error:
            finding = Finding("cannot tell", float("nan"), float("nan"), float("nan"), 0, str(error))
        rows.append({"id": claim.id, "claim": claim.claim, "rule": claim.rule} | vars(finding)
                    | {"table": ", ".join(claim.tables), "changed": claim.changed})
    return pd.DataFrame(rows, columns=COLUMNS)
