"""Rows of every table: the common columns, and the text a measurement reads."""

import hashlib
from dataclasses import asdict

import pandas as pd

from lib.errors import InputError
from lib.inputs import corpora, models
from lib.run import states
from lib.study import Study, Variant

COMMON = ["cell", *Variant.__dataclass_fields__, "bos", "corpus_digest"]


def labelled(cell: str, variant: Variant, tokenizer, digest: str, rows: list[dict]) -> pd.DataFrame:
    """Rows with the common columns in front."""
    prefix = models.prefix_token(tokenizer)
    bos = "" if prefix is None else tokenizer.convert_ids_to_tokens(prefix)
    return pd.DataFrame([{"cell": cell} | asdict(variant) | {"bos": bos, "corpus_digest": digest[:16]} | row
                         for row in rows])


def texts(study: Study, corpora_read: tuple[str, ...], segments: int) -> list[dict]:
    """What a cell needs that reads the first evaluation segments of one corpus and language."""
    return [{"corpus": c, "language": x, "segments": segments, "text": corpora.fingerprint(c)}
            for c in corpora_read for x in study.languages]


def read(text: dict):
    """(the dataset's rows, SHA-256 (hex) of their text) of an entry of `texts`."""
    data = states.pool(text["corpus"], text["language"], "evaluation")
    if len(data) < text["segments"]:
        raise InputError(f"{text['segments']} evaluation segments were asked for, but {text['corpus']} has "
                         f"{len(data)} in {text['language']!r}; set segments to at most that")
    data = data.select(range(text["segments"]))
    return data, hashlib.sha256("\n".join(data["text"]).encode()).hexdigest()
