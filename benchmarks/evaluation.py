"""Items a second of the knowledge tasks: lib.analysis.scoring against the plain harness, same model, same requests.

    python -m benchmarks.evaluation [--model gemma-3-270m] [--dtype float32|mixed] [--items 60] [--plain-batch 16]

Prints one row a scorer, the ratio, and the largest difference between their log-likelihoods.
"""

import argparse
import sys
import time
from collections.abc import Sequence

import pandas as pd

from lib.analysis.tasks import BATCH
from lib.errors import InputError
from lib.inputs import models, tasks
from lib.inputs.tasks import items


def measure(model, tokenizer, languages: Sequence[str], n_items: int, plain_batch: int) -> pd.DataFrame:
    """Rows `scorer`, `batch`, `items`, `requests`, `seconds`, `items_per_second`, `difference` (largest, in nats, of
    a log-likelihood from the plain harness')."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    from lib.analysis.scoring import ScoredPositions

    asked = [item for x in languages for item in items.read(tasks.build("knowledge", x))[:n_items]]
    requests = [Instance("loglikelihood", {}, (item.context, option), k)
                for item in asked for k, option in enumerate(item.options)]
    scorers = {"plain harness": (HFLM(pretrained=model, tokenizer=tokenizer, backend="causal", batch_size=plain_batch),
                                 plain_batch),
               "scored positions": (ScoredPositions(model, tokenizer, BATCH), BATCH)}
    rows, answers = [], {}
    for name, (scorer, batch) in scorers.items():
        scorer.loglikelihood(requests[:8], disable_tqdm=True)  # what only the first call pays for
        start = time.perf_counter()
        answers[name] = [score for score, _ in scorer.loglikelihood(requests, disable_tqdm=True)]
        seconds = time.perf_counter() - start
        off = [abs(a - b) for a, b in zip(answers[name], answers["plain harness"], strict=True)]
        rows.append({"scorer": name, "batch": batch, "items": len(asked), "requests": len(requests), "seconds": seconds,
                     "items_per_second": len(asked) / seconds, "difference": max(off)})
    return pd.DataFrame(rows)


def main(words: list[str] | None = None) -> int:
    """Print the table; exit code 0, or 2 for what cannot be run."""
    import torch

    parser = argparse.ArgumentParser(prog="python -m benchmarks.evaluation", description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="gemma-3-270m")
    parser.add_argument("--dtype", choices=("float32", "mixed"), default="float32")
    parser.add_argument("--languages", default="ar,de,en,es,ru,sw,zh")
    parser.add_argument("--items", type=int, default=60, help="items a language")
    parser.add_argument("--plain-batch", type=int, default=16, help="requests at a time of the plain harness")
    given = parser.parse_args(words)
    torch.set_float32_matmul_precision("medium" if given.dtype == "mixed" else "highest")
    try:
        model, tokenizer = models.load(given.model)
        table = measure(model, tokenizer, given.languages.split(","), given.items, given.plain_batch)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table.to_string(index=False, float_format="%.4g"))
    plain, ours = table["items_per_second"]
    print(f"{given.model}, {given.dtype}, {torch.get_num_threads()} thread(s): {ours / plain:.2f} times the items a "
          "second of the plain harness")
    return 0


if __name__ == "__main__":
    sys.exit(main())
