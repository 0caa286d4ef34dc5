"""Tokens a second of the perplexity measurement: attention and tokens a batch, same model, same text.

    python -m benchmarks.perplexity [--model gemma-3-270m] [--corpus chromium] [--segments 50]

Prints one row a setting, and how many times the first one's speed the last one, which the grid uses, has.
"""

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from lib.analysis.likelihood import BATCH_TOKENS, Head, segment_nll
from lib.errors import InputError
from lib.inputs import corpora, models

SETTINGS = (("sdpa", 2048), ("sdpa", BATCH_TOKENS), ("eager", 2048), ("eager", BATCH_TOKENS))


def measure(model, tokenizer, corpus: str, languages: Sequence[str], segments: int) -> pd.DataFrame:
    """Rows `attention`, `batch_tokens`, `tokens`, `seconds`, `tokens_per_second`, `difference` (relative, of the summed
    loss from the first setting's)."""
    texts = [corpora.load(corpus, x, "evaluation").select(range(segments)) for x in languages]
    head, rows = Head(model), []
    for attention, batch in SETTINGS:
        model.set_attn_implementation(attention)
        segment_nll(model, tokenizer, texts[0]["id"], texts[0]["text"], batch, head)  # what only the first call pays
        start = time.perf_counter()
        scores = pd.concat([segment_nll(model, tokenizer, t["id"], t["text"], batch, head) for t in texts])
        seconds, tokens = time.perf_counter() - start, int(scores["tokens"].sum())
        rows.append({"attention": attention, "batch_tokens": batch, "tokens": tokens, "seconds": seconds,
                     "tokens_per_second": tokens / seconds, "nll": scores["nll"].sum()})
    table = pd.DataFrame(rows)
    return table.assign(difference=np.abs(table["nll"] / table["nll"][0] - 1)).drop(columns="nll")


def main(words: list[str] | None = None) -> int:
    """Print the table; exit code 0, or 2 for what cannot be run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.perplexity", description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="gemma-3-270m")
    parser.add_argument("--dtype", choices=("float32", "mixed"), default="mixed")
    parser.add_argument("--corpus", default="chromium")
    parser.add_argument("--languages", default="ar,de,en,es,ru,sw,zh")
    parser.add_argument("--segments", type=int, default=50, help="segments a language")
    given = parser.parse_args(words)
    torch.set_float32_matmul_precision("medium" if given.dtype == "mixed" else "highest")
    try:
        model, tokenizer = models.load(given.model)
        table = measure(model, tokenizer, given.corpus, given.languages.split(","), given.segments)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table.to_string(index=False, float_format="%.4g"))
    speed = table["tokens_per_second"]
    print(f"{given.model}, {given.dtype}, {torch.get_num_threads()} thread(s): {speed.iloc[-1] / speed.iloc[0]:.2f} "
          "times the tokens a second of the first row")
    return 0


if __name__ == "__main__":
    sys.exit(main())
