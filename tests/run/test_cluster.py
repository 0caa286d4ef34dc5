"""The grid on a real local cluster of processes."""

import os
import shutil
import signal
from pathlib import Path

import pandas as pd
import pytest
from dask.distributed import LocalCluster

from lib.errors import InputError
from lib.run import cluster, measure, store
from lib.run.store import Visit
from lib.study import Study


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    """Where two workers write, and this process reads."""
    folder = tmp_path_factory.mktemp("output")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMPENDIUM_OUTPUT", str(folder))
        patch.setattr(cluster, "OUTPUT", folder)
        patch.setattr(store, "CACHE", folder / "data/cache")
        with cluster.started(2, None):
            yield folder


@pytest.fixture
def study(output):
    yield Study.load("quick", models="tiny-llama", methods="wanda,sparsegpt seeds=0")
    shutil.rmtree(output / "data", ignore_errors=True)


def collect(study: Study, compute, count: int = 6) -> pd.DataFrame:
    """The table of made-up visits, each of one cell."""
    visits = [Visit(v, {"pruning": {f"cell{k}": {"k": k}}}) for k, v in enumerate(study.variants("pruning")[:count])]
    return store.collect(study, "made up", visits, compute, True)["pruning"]


def making(before=lambda k: None):
    """A compute that calls `before` and then gives the cell's row, with the process that made it."""
    def compute(visit, missing):
        import os

        ((cell, extra),) = missing["pruning"].items()
        before(extra["k"])
        yield "pruning", pd.DataFrame([{"cell": cell, "process": os.getpid()} | extra])
    return compute


def test_cells_are_made_by_workers_and_come_in_the_order_of_the_grid(study):
    def slow(k):
        import time
        time.sleep(0.3)

    found = collect(study, making(slow))
    assert found["k"].tolist() == list(range(6)) and len(set(found["process"])) == 2
    assert os.getpid() not in set(found["process"])
    assert collect(study, making(lambda k: 1 / 0)).equals(found), "nothing is computed again"


def test_a_worker_that_is_killed_in_the_middle_of_a_cell_loses_nothing(study, output):
    def killed_once(k):
        mark = output / "killed"
        if k == 2 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    assert collect(study, making(killed_once))["k"].tolist() == list(range(6))
    assert (output / "killed").exists()


def test_a_cell_that_always_fails_is_named_and_stops_no_other(study):
    def poison(k):
        if k in (1, 3):
            raise ValueError(f"the weights of {k} are poison")

    with pytest.raises(cluster.ClusterError, match=r"2 of 6 visits failed: tiny-llama .*: ValueError: the weights of"):
        collect(study, making(poison))
    assert sorted(store.own(study, "pruning")["k"]) == [0, 2, 4, 5]
    assert collect(study, making())["k"].tolist() == list(range(6)), "what failed can be tried again"


def test_a_cell_that_kills_every_worker_is_named_and_stops_no_other(study, output):
    def deadly(k):
        import time

        with open(output / "made", "a") as made:
            made.write(f"{k}\n")
        if k == 1:
            time.sleep(0.5)  # what was done before is known to be
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(cluster.ClusterError, match="1 of 6 visits failed: tiny-llama .*KilledWorker"):
        collect(study, making(deadly))
    assert sorted(store.own(study, "pruning")["k"]) == [0, 2, 3, 4, 5]
    made = (output / "made").read_text().split()
    assert sorted(k for k in made if k != "1") == list("02345"), "what is done is not done again when its worker dies"


def test_real_cells_have_the_bytes_of_those_of_one_process(study, output, monkeypatch, tmp_path):
    def measured() -> set[str]:
        """Names of parts, which hold the digest of their bytes."""
        measure.pruning(study, True)
        measure.segment_nll(study, True)
        parts = store.run_folder(study).rglob("*.parquet")
        return {f"{p.parent.name}/{p.name}" for p in parts if p.parent.name != "timings"}

    on_workers = measured()
    monkeypatch.delenv(cluster.SCHEDULER)
    monkeypatch.setattr(store, "CACHE", tmp_path)
    assert len(on_workers) > 10 and measured() == on_workers


def test_workers_of_another_folder_are_refused(study, monkeypatch):
    monkeypatch.setattr(cluster, "OUTPUT", Path("elsewhere"))
    with pytest.raises(cluster.ClusterError, match="same checkout, with the same COMPENDIUM_OUTPUT"):
        collect(study, making())


def test_a_scheduler_that_is_not_there_or_has_no_worker_is_refused():
    with pytest.raises(InputError, match="cannot be reached .*dask scheduler"), \
            cluster.started(None, "tcp://127.0.0.1:9"):
        pass
    with LocalCluster(n_workers=0, dashboard_address=None) as empty, \
            pytest.raises(InputError, match="has no worker; start some"), \
            cluster.started(None, empty.scheduler_address):
        pass


def test_each_worker_of_a_local_cluster_takes_one_of_the_gpus(output, study, monkeypatch):
    def compute(visit, missing):
        import os
        import time

        time.sleep(0.3)
        for cell, extra in missing["pruning"].items():
            yield "pruning", pd.DataFrame([{"cell": cell, "gpu": os.environ["CUDA_VISIBLE_DEVICES"]} | extra])

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    with cluster.started(2, None):
        assert set(collect(study, compute)["gpu"]) == {"4", "7"}
