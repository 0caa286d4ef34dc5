"""What the verdicts mean for someone who prunes a model for one language."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from lib.errors import InputError

UNKNOWN = "These tables do not tell: measure it on your own model and text."


@dataclass(frozen=True)
class Line:
    """A question of practice, the claim it hangs on, and the advice by the claim's verdict (else UNKNOWN)."""

    question: str
    claim: str
    advice: Mapping[str, str]


LINES = (
    Line("Which text to calibrate on, when the pruned model must predict text of one language?", "C1",
         {"supported": "Text of that language, whatever the method: the other languages cost more perplexity.",
          "contradicted": "Not simply text of that language: another one is often better. Try several.",
          "not supported": "That language is no sure choice; try it beside English and a mixture."}),
    Line("Does that make the model better at tasks in the language?", "C3",
         {"supported": "Do not count on it: another calibration language is often as good or better. Ask your task.",
          "contradicted": "Yes, the target language is reliably the best there too.",
          "not supported": "It is near the line between reliable and not; ask your own task."}),
    Line("Would a mixture of languages be better for tasks?", "C4",
         {"supported": "Now and then, not reliably. Of the same budget it is no safe gain.",
          "contradicted": "Yes, a mixture with the language in it is reliably better than the language alone.",
          "not supported": "No gain of it is shown; the language alone is the simpler choice."}),
    Line("May a low perplexity, or good scores in English, stand in for the task?", "C12",
         {"supported": "No. Neither ranks calibrations as the task does.",
          "contradicted": "Yes, one of them ranks calibrations as the task does.",
          "not supported": "One of them is close to the line; check it on a few items of the task."}),
    Line("Wanda or SparseGPT?", "C6",
         {"supported": "Neither wins everywhere: choose by your task.",
          "contradicted": "One of them wins all tasks here; notebook 04 says which.",
          "not supported": "In some model one of them wins all tasks; notebook 04 says which."}),
    Line("Does the model keep its order of languages?", "C5",
         {"supported": "No: check each language that you serve after pruning, not only the target.",
          "contradicted": "Yes, the strong languages stay the strong ones.",
          "not supported": "A few pairs of languages change places; check those that you serve."}),
    Line("Is a pruned model of a small kind a guide for a large one?", "C7",
         {"supported": "No. Repeat the comparison at the size that you use.",
          "contradicted": "Yes, calibrations rank alike in both."}),
    Line("Is a clean inside (a high signal-to-noise ratio) worth looking at?", "C2",
         {"supported": "It says which text the pruning was fitted to, not what the model can still do.",
          "contradicted": "It does not follow the calibration language."}),
)


def guide(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Rows of `lib.analysis.claims.verdicts` -> one row a question: question, advice, claim (its id), verdict.

    Raises InputError when a claim that the guide hangs on has no verdict.
    """
    known = verdicts.set_index("id")["verdict"]
    absent = [line.claim for line in LINES if line.claim not in known]
    if absent:
        raise InputError(f"no verdict on {', '.join(absent)}; give lib.analysis.claims.verdicts of all claims")
    return pd.DataFrame([{"question": line.question, "advice": line.advice.get(known[line.claim], UNKNOWN),
                          "claim": line.claim, "verdict": known[line.claim]} for line in LINES])
