"""The paper's profile, made small: folders stand where the hub's models and datasets would, the rest is as it is."""

import gzip
import json
import random
import re
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from babel import Locale
from shapes import stored

from lib.errors import InputError
from lib.inputs import languages
from lib.paths import ROOT
from lib.run import plan, states
from lib.study import Study
from tests.test_reproduce import command, copies  # noqa: F401

MODELS = {"meta-llama/Meta-Llama-3-8B-Instruct": "tiny-llama", "CohereForAI/aya-23-8B": "tiny-cohere"}
SMALL = {"windows": "8", "seqlen": "64", "segments": "8", "tasks": "knowledge=10,completion=6", "dtype": "float32",
         "seeds": "0", "only_above_chance": "false"}
TEXT = ("ar", "de", "en", "es", "ru", "sw", "zh")


def lines(language: str, count: int) -> list[str]:
    """Text of a language: names of countries, languages and months in a random order, the same names in each line of
    that number whatever the language."""
    locale = Locale(language)
    names = [locale.territories.get(c, c) for c in sorted(Locale("en").territories) if c.isalpha()]
    names += [locale.languages.get(c, c) for c in sorted(Locale("en").languages)[:200]]
    drawn, (comma, stop) = random.Random(0), ("，", "。") if language == "zh" else (", ", ".")
    return [comma.join(names[k] for k in drawn.sample(range(len(names)), 12)) + stop for _ in range(count)]


def lay_out(place) -> None:
    """The datasets as the hub has them, and the models, under `place`."""
    for language in TEXT:
        code, text = languages.external("mc4", language), lines(language, 400)
        folder = place / "c4/multilingual"
        folder.mkdir(parents=True, exist_ok=True)
        for name, part in ((f"c4-{code}", text[:300]), (f"c4-{code}-validation", text[300:])):
            with gzip.open(folder / f"{name}.tfrecord-00000.json.gz", "wt") as file:
                file.writelines(json.dumps({"text": t}) + "\n" for t in part)
        val = place / f"m_hellaswag/data/{language}/val.jsonl"
        val.parent.mkdir(parents=True)
        val.write_text("".join(json.dumps({"ctx": t, "endings": [t, t, t, t], "label": "0"}) + "\n" for t in text))
    (place / "ntrex").mkdir()
    columns = {languages.external("ntrex", language): lines(language, 120) for language in TEXT}
    pq.write_table(pa.table(columns), place / "ntrex/test.parquet")
    for name, recipe in MODELS.items():
        stored(recipe, place / name)


@pytest.fixture(scope="module")
def small(copies):  # noqa: F811
    """A copy of the repository whose pins lead to folders beside it."""
    place = copies("paper")
    lay_out(place)
    pins = place / "data/assets.toml"
    text = pins.read_text()
    for hub, folder in (("allenai/c4", "c4"), ("mteb/NTREX", "ntrex"), ("alexandrainst/m_hellaswag", "m_hellaswag")):
        text = text.replace(f'path = "{hub}"', f'path = "{place / folder}"')
    pins.write_text(text)
    return place


def settings() -> list[str]:
    return [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]


def test_without_a_network_the_profile_says_what_to_fetch():
    with pytest.raises(InputError, match=re.escape("Run `hf download meta-llama/Meta-Llama-3-8B-Instruct` once")):
        Study.load("paper")


@pytest.mark.parametrize(("streamed", "least", "most"), [("0", 30e9, 50e9), ("1", 5e9, 7e9)])
def test_an_honest_plan_is_made_of_the_real_shapes(tmp_path, monkeypatch, streamed, least, most):
    """From the configurations alone, which anyone may read: no weight is there."""
    monkeypatch.setenv("COMPENDIUM_STREAMED", streamed)
    states.streamed.cache_clear()
    llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "vocab_size": 128256,
             "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
             "max_position_embeddings": 8192, "tie_word_embeddings": False}
    (tmp_path / "config.json").write_text(json.dumps(llama))
    study = Study.load("paper", models=str(tmp_path), methods="wanda,sparsegpt", seeds="0", tasks="")
    made = plan.plan(study, True, only="02")
    assert made.work["visits"].tolist() == [14]
    linear = 6.98e9  # weights; half of SparseGPT's are kept, in two bytes
    assert made.disk["masks"] == pytest.approx(7 * linear * (1 / 8 + 1 / 8 + 1), rel=0.01)
    assert least < made.memory < most and ("sparsegpt" in made.largest or streamed == "1")
    assert (made.work["rough"] == made.work["seconds"]).all() and made.work["seconds"].item() > 3600


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_all_ten_notebooks_run_at_the_papers_grid(small):
    done = subprocess.run(**command(small, "--profile", "paper", *settings()))
    assert done.returncode == 0, done.stderr
    for source in (ROOT / "notebooks").glob("[0-9]*.ipynb"):
        assert f"  {source.stem}  " in done.stdout
    parts = small / "data/cache/runs/paper"
    assert {"robustness", "mixture_nll", "silencing", "task_items"} <= {p.name for p in parts.iterdir()}
