import itertools
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

from lib.errors import InputError
from lib.run import parts, store
from lib.run.store import Visit
from lib.study import Study


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(store, "PUBLISHED", tmp_path / "published")
    return Study.load("quick")


def visits(study):
    return [Visit(v, {"pruning": {store.key("pruning", {"k": k, "x": x}): {"k": k, "x": x} for x in range(2)}})
            for k, v in enumerate(study.variants("perplexity")[:4])]


class Compute:
    """Counts its calls; can be told to fail at one."""

    def __init__(self, fail_at=None):
        self.calls, self.fail_at = [], fail_at

    def __call__(self, visit, missing):
        if len(self.calls) == self.fail_at:
            raise RuntimeError("interrupted")
        self.calls.append(missing)
        yield "pruning", pd.DataFrame([{"cell": c} | e for c, e in missing["pruning"].items()])


def test_only_what_is_missing_is_computed(study):
    compute = Compute()
    first = store.collect(study, "t", visits(study), compute, False)["pruning"]
    again = store.collect(study, "t", visits(study), compute, False)["pruning"]
    assert len(compute.calls) == 4
    pd.testing.assert_frame_equal(first, again)
    assert first["k"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3], "rows follow the grid, not the order of computing"


def test_an_interrupted_run_goes_on_where_it_was(study):
    with pytest.raises(RuntimeError):
        store.collect(study, "t", visits(study), Compute(fail_at=2), False)
    rest = Compute()
    table = store.collect(study, "t", visits(study), rest, False)["pruning"]
    assert len(rest.calls) == 2 and len(table) == 8


def test_a_visit_that_fills_in_the_rest_adds_to_its_time(study, monkeypatch):
    ticks = itertools.count(step=5)
    monkeypatch.setattr(store.time, "monotonic", lambda: next(ticks))
    (visit, *_), first = visits(study), Compute()
    cells = visit.cells["pruning"]
    some = Visit(visit.variant, {"pruning": dict([next(iter(cells.items()))])})
    for asked in (some, visit, visit):
        store.collect(study, "t", [asked], first, False)
    assert len(first.calls) == 2 and store.own(study, "timings")["seconds"].tolist() == [10]


@pytest.mark.parametrize("damage", [lambda b: b[:len(b) // 2], lambda b: b"", lambda b: flip(b, 60)])
def test_a_damaged_part_is_computed_again(study, damage, capsys):
    whole = store.collect(study, "t", visits(study), Compute(), False)["pruning"]
    part = sorted((store.run_folder(study) / "pruning").glob("*.parquet"))[1]
    part.write_bytes(damage(part.read_bytes()))
    rest = Compute()
    table = store.collect(study, "t", visits(study), rest, False)["pruning"]
    assert len(rest.calls) == 1 and part.name in capsys.readouterr().err
    pd.testing.assert_frame_equal(table, whole)


def test_no_flipped_bit_is_read(study, capsys):
    store.collect(study, "t", visits(study)[:1], Compute(), False)
    (part,) = (store.run_folder(study) / "pruning").glob("*.parquet")
    whole = part.read_bytes()
    for at in range(len(whole)):
        part.write_bytes(flip(whole, at))
        assert store.own(study, "pruning").empty and not part.exists(), f"byte {at} of {len(whole)}"
    assert capsys.readouterr().err.count(part.name) == len(whole)


def test_a_part_takes_the_place_of_an_earlier_one_of_the_same_cells(study):
    for seconds in (1, 2):
        store.write(study, "timings", pd.DataFrame({"cell": ["a"], "seconds": [seconds]}))
    assert store.own(study, "timings")["seconds"].tolist() == [2]


def test_a_part_is_read_while_newer_ones_take_its_place(study):
    def write(second: int) -> None:
        store.write(study, "timings", pd.DataFrame({"cell": ["a"], "seconds": [second]}))

    write(-1)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.map(write, range(300))
        found = [store.own(study, "timings")["seconds"].tolist() for _ in range(300)]
        list(writing)
    assert all(found) and store.own(study, "timings")["seconds"].tolist() == [299]


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1:]


def test_published_cells_count_unless_fresh(study):
    table = store.collect(study, "t", visits(study), Compute(), False)["pruning"]
    parts.write_file(table, store.PUBLISHED / "pruning.parquet")
    for part in (store.run_folder(study) / "pruning").glob("*.parquet"):
        part.unlink()
    stale, anew = Compute(), Compute()
    assert len(store.collect(study, "t", visits(study), stale, False)["pruning"]) == 8
    store.collect(study, "t", visits(study), anew, True)
    assert (len(stale.calls), len(anew.calls)) == (0, 4)


def test_a_redraw_reads_the_published_tables_alone_and_computes_nothing(study, monkeypatch):
    monkeypatch.setenv("COMPENDIUM_REDRAW", "1")
    with pytest.raises(InputError, match="make figures"):
        store.collect(study, "t", visits(study), Compute(), False)


def test_a_schema_raised_makes_other_cells(monkeypatch):
    before = store.key("pruning", {"a": 1})
    monkeypatch.setitem(store.SCHEMA, "pruning", 99)
    assert store.key("pruning", {"a": 1}) != before


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(Exception, match="Conversion|could not|Expected|tried to convert"):
        parts.write_file(pd.DataFrame({"a": [1, "x", object()]}), tmp_path / "t.parquet")
    assert list(tmp_path.iterdir()) == []
