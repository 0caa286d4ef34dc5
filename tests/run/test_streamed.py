"""Every table of a model whose blocks are read when they are needed has the bytes of one that is in memory."""

import pytest
from shapes import stored

from lib.run import measure, states, store
from lib.study import Study

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return stored("tiny-gemma3", tmp_path_factory.mktemp("model"))


def tables(study: Study) -> set[str]:
    """Names of parts, which hold the digest of their bytes."""
    for table in measure.TABLES.values():
        table(study, True)
    parts = store.run_folder(study).rglob("*.parquet")
    return {f"{p.parent.name}/{p.name}" for p in parts if p.parent.name != "timings"}


def test_all_tables_have_the_same_bytes(folder, tmp_path, monkeypatch):
    methods = ["magnitude:row", "wanda:row", "sparsegpt", "wanda:row calibrations=en tables=silencing/robustness",
               "wanda:row calibrations=de+en tables=mixtures"]
    study = Study.load("quick", models=folder, methods=methods, seeds="0", languages="de,en", tasks="knowledge=8",
                       only_above_chance="false")
    found = []
    for streamed in "01":
        monkeypatch.setenv("COMPENDIUM_STREAMED", streamed)
        monkeypatch.setattr(store, "CACHE", tmp_path / streamed)
        for cached in (states.streamed, states.loaded, states.dense, states.dense_embeddings, states._start,
                       measure.firing._dense):
            cached.cache_clear()
        found.append(tables(study))
        kinds = {p.suffix for p in (tmp_path / streamed / "runs/quick/masks").iterdir()}
        assert kinds == {".safetensors" if streamed == "0" else ".blocks"}
    whole, streamed = found
    assert len(whole) > 30 and whole == streamed
