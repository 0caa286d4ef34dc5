"""Calibration text to packed token windows.

A window is the prefix token (BOS where the model has one) followed by `seqlen - 1` tokens of a stream
in which the segments stand one after another, a line break between two. Nothing is padded, so that
every token a pruning method sees is a token of text. The order of the segments is a seeded shuffle of
their ids, the same in every language: the text of two languages differs in its language only.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from datasets import Dataset

from lib.errors import InputError
from lib.inputs import corpora
from lib.inputs.languages import weights
from lib.inputs.models import prefix_token

BUDGETS = ("tokens", "segments", "rest")


@dataclass(frozen=True)
class Windows:
    """Token ids [n, seqlen] int64, with an account of the text that is in them.

    `segments`: ids of the segments of which at least one token stands in a window, in order.
    `tokens`: tokens of text, prefix tokens not counted. `bytes`: UTF-8 bytes of the segments used, the
    last one counted in proportion to its tokens that fitted.
    """

    ids: torch.Tensor
    segments: tuple[str, ...]
    tokens: int
    bytes: int
    available: int

    def digest(self) -> str:
        """SHA-256 (hex) of the token ids: the identity of what a method is calibrated on."""
        return hashlib.sha256(self.ids.numpy().astype("<i8").tobytes()).hexdigest()


def shuffled(ids: Sequence[str], seed: int) -> list[str]:
    """The ids in the seed's order. A hash orders them, so that the order of a subset is the subset's order
    in the whole: languages that lack a segment still follow the same shuffle."""
    return sorted(ids, key=lambda i: hashlib.sha256(f"{seed}:{i}".encode()).digest())


def windows(dataset: Dataset, tokenizer, n: int, seqlen: int, seed: int, budget: str = "tokens",
            keep: Sequence[str] | None = None) -> Windows:
    """`n` windows [n, seqlen] of the dataset's text in the seed's order.

    budget "tokens": every language fills `n` windows, with as many segments as that takes.
    budget "segments": exactly the segments `keep`, whatever number of full windows they fill, at most `n`.
    budget "rest": `n` windows of the segments that budget "tokens" leaves over: the two draws have nothing in common.
    `keep` limits the segments to these ids (all budgets).

    Raises InputError when the text does not fill `n` windows (or, for "segments", a single one).
    """
    if budget == "rest":
        taken = set(windows(dataset, tokenizer, n, seqlen, seed, keep=keep).segments)
        keep = [i for i in (dataset["id"] if keep is None else keep) if i not in taken]
    if budget not in BUDGETS:
        raise InputError(f"budget is {budget!r}; allowed: {', '.join(BUDGETS)}")
    if n < 1 or seqlen < 2:
        raise InputError(f"asked for {n} windows of {seqlen} tokens; at least 1 window of 2 tokens is needed")
    if budget == "segments" and keep is None:
        raise InputError('budget "segments" needs the ids to keep; calibration.common_segments chooses them')
    text = dict(zip(dataset["id"], dataset["text"], strict=True))
    order = shuffled(text if keep is None else [i for i in keep if i in text], seed)
    stream, owner, sizes = _stream([text[i] for i in order], tokenizer)
    prefix = prefix_token(tokenizer)
    body = seqlen if prefix is None else seqlen - 1
    available = len(stream) // body
    wanted = min(n, available) if budget == "segments" else n
    if available < max(wanted, 1):
        raise InputError(
            f"{n} windows of {seqlen} tokens were asked for, but the {len(order)} calibration segments hold "
            f"{len(stream)} tokens and so fill {available}. Ask for at most {available} windows, make them shorter "
            f"(seqlen), or give more text.")
    ids = torch.from_numpy(stream[: wanted * body].reshape(wanted, body))
    if prefix is not None:
        ids = torch.cat([torch.full((wanted, 1), prefix, dtype=ids.dtype), ids], dim=1)
    used, counts = np.unique(owner[: wanted * body], return_counts=True)
    size = sum(len(text[order[k]].encode()) * c / sizes[k] for k, c in zip(used, counts, strict=True))
    return Windows(ids, tuple(order[k] for k in used), wanted * body, round(size), available)


def _stream(texts: list[str], tokenizer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All tokens [t], the index of the segment each belongs to [t], and each segment's token count.

    Every segment but the last carries the line break that parts it from the next. Segments are tokenized
    one by one, so that a segment has the same tokens wherever it stands.
    """
    pieces = tokenizer([t + "\n" for t in texts], add_special_tokens=False)["input_ids"] if texts else []
    sizes = np.array([len(p) for p in pieces], dtype=np.int64)
    stream = np.fromiter((token for piece in pieces for token in piece), dtype=np.int64, count=int(sizes.sum()))
    return stream, np.repeat(np.arange(len(pieces)), sizes), sizes


def common_segments(pools: dict[str, Dataset], tokenizer, n: int, seqlen: int, seed: int) -> tuple[str, ...]:
    """The longest run of the shared shuffle that fits into `n` windows in *every* language of `pools`:
    the ids for budget "segments". The language with most tokens a segment fills its windows; the others
    have fewer."""
    order = shuffled(set.intersection(*(set(pool["id"]) for pool in pools.values())), seed)
    body = seqlen - (prefix_token(tokenizer) is not None)
    longest = np.zeros(len(order), dtype=np.int64)
    for pool in pools.values():
        text = dict(zip(pool["id"], pool["text"], strict=True))
        longest = np.maximum(longest, np.cumsum(_stream([text[i] for i in order], tokenizer)[2]))
    fits = int(np.searchsorted(longest, n * body, side="right"))
    if not fits:
        raise InputError(f"not one segment fits into {n} windows of {seqlen} tokens in every language "
                         f"of {', '.join(pools)}; ask for more or longer windows")
    return tuple(order[:fits])


def shares(calibration: str, languages: Sequence[str], n: int) -> dict[str, int]:
    """Windows by language of a mixture (see lib.inputs.languages.weights): `n` in proportion to the weights, what is
    left over going to the largest remainders, of equal ones to the first named; without the languages that get none.
    The budget of a mixture is thus that of a single language, not a multiple of it."""
    parts = weights(calibration, languages)
    if n < len(parts):
        raise InputError(f"{n} windows cannot be shared out among the {len(parts)} languages of {calibration!r}")
    total = sum(parts.values())
    found = {code: n * weight // total for code, weight in parts.items()}
    for code in sorted(parts, key=lambda code: -(n * parts[code] % total))[: n - sum(found.values())]:
        found[code] += 1
    return {code: windows for code, windows in found.items() if windows}


def mixture(share: dict[str, int], corpus: str, tokenizer, seqlen: int, seed: int, budget: str = "tokens",
            pools: dict[str, Dataset] | None = None) -> Windows:
    """Windows [sum of share, seqlen] with `share[language]` windows of each language.

    No segment id is used in two languages of a mixture: the shared shuffle is dealt out to them in proportion to
    their windows, so a mixture holds as much different content as a single language does. The windows follow
    language by language. `pools` gives the datasets when the caller has them already.
    With budget "segments" the same ids are cut so that they fit in every language of `pools`.
    """
    pools = pools or {language: corpora.load(corpus, language, "calibration") for language in share}
    parts = []
    for language, ids in _dealt(shuffled(sorted(set().union(*(p["id"] for p in pools.values()))), seed), share).items():
        n = share[language]
        if budget == "segments":
            fitting = {code: pool.select(_rows(pool, ids)) for code, pool in pools.items()}
            ids = common_segments(fitting, tokenizer, n, seqlen, seed)
        parts.append(windows(pools[language], tokenizer, n, seqlen, seed, budget, keep=ids))
    return Windows(torch.cat([p.ids for p in parts]), tuple(i for p in parts for i in p.segments),
                   sum(p.tokens for p in parts), sum(p.bytes for p in parts), min(p.available for p in parts))


def _dealt(ids: Sequence[str], share: dict[str, int]) -> dict[str, list[str]]:
    """The ids, one by one to the language that has least of what is its due; in turn where shares are equal."""
    hands: dict[str, list[str]] = {language: [] for language in share}
    total = sum(share.values())
    for count, i in enumerate(ids, 1):
        due = {language: n * count - total * len(hands[language]) for language, n in share.items()}
        hands[max(due, key=due.get)].append(i)
    return hands


def _rows(pool: Dataset, ids: Sequence[str]) -> list[int]:
    """Row numbers of these ids in a pool, those it lacks left out."""
    wanted = set(ids)
    return [row for row, i in enumerate(pool["id"]) if i in wanted]
