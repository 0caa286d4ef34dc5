"""The whole run, as a user starts it: in a copy of the repository, in processes of their own."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lib.paths import RESULTS, ROOT

PARTS = ("lib", "notebooks", "data")


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """Makes fresh copies of the repository without caches, drawn figures or executed notebooks."""
    def copy(name: str) -> Path:
        place = tmp_path_factory.mktemp(name)
        for part in PARTS:
            shutil.copytree(ROOT / part, place / part,
                            ignore=shutil.ignore_patterns("cache", "executed", "__pycache__"))
        return place
    return copy


def command(place: Path, *words: str, **more) -> dict:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COMPENDIUM_")}
    environment |= {"HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg"}
    return {"args": [sys.executable, "-m", "lib.reproduce", *words], "cwd": place, "env": environment,
            "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more


def reproduce(place: Path, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(**command(place, *words))


def files(place: Path) -> dict[str, str]:
    """SHA-256 of what must be the same each time: the run's parts but timings, and the figures."""
    parts = (place / "data/cache/runs").rglob("*.parquet")
    kept = [p for p in parts if p.parent.name != "timings"]
    kept += [p for p in (place / "figures").rglob("*") if p.is_file()]
    return {p.relative_to(place).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in kept}


@pytest.fixture(scope="module")
def unbroken(copies):
    place = copies("unbroken")
    done = reproduce(place, "--profile", "quick", "--fresh")
    assert done.returncode == 0, done.stderr
    return place, done


def test_quick_lists_its_figures_its_minutes_and_the_comparison(unbroken):
    place, done = unbroken
    for source in (ROOT / "notebooks").glob("[0-9]*.ipynb"):
        assert f"figures/quick/{source.name[:2]}_" in done.stdout
        assert f"  {source.stem}  " in done.stdout
    assert "reproduction against the published tables" in done.stdout
    assert "left here" in done.stdout, "progress with the time left"
    assert not list(place.rglob("*.partial*"))


def test_run_again_it_says_that_nothing_has_changed(unbroken):
    place, _ = unbroken
    before = files(place)
    start = time.monotonic()
    again = reproduce(place, "--profile", "quick", "--fresh")
    assert again.returncode == 0
    assert again.stdout.count("nothing has changed") == len(list((ROOT / "notebooks").glob("[0-9]*.ipynb")))
    assert time.monotonic() - start < 60
    assert files(place) == before


def test_a_figure_that_was_deleted_is_drawn_again(unbroken):
    place, _ = unbroken
    before = files(place)
    svg = next((place / "figures/quick").glob("01_*.svg"))
    svg.unlink()
    assert reproduce(place, "--profile", "quick", "--fresh", "--only", "01").returncode == 0
    assert files(place) == before


def test_killed_in_the_middle_of_pruning_it_ends_with_the_same_bytes(copies, unbroken):
    place, words = copies("killed"), ("--profile", "quick", "--fresh", "--only", "02")
    process = subprocess.Popen(**command(place, *words, start_new_session=True))
    parts = place / "data/cache/runs/quick/pruning"
    deadline = time.monotonic() + 300
    while len(list(parts.glob("*.parquet"))) < 2:
        assert process.poll() is None and time.monotonic() < deadline, process.stderr.read()
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    done_before = len(list(parts.glob("*.parquet")))
    assert not (place / "notebooks/executed/quick/02_pruning.ipynb").exists(), "killed in the middle of 02"
    first = {p: p.stat().st_mtime_ns for p in parts.glob("[!.]*.parquet")}
    resumed = reproduce(place, *words)
    assert resumed.returncode == 0, resumed.stderr
    assert all(p.stat().st_mtime_ns == at for p, at in first.items()), f"{done_before} finished cells are kept"
    mine, whole = files(place), files(unbroken[0])
    assert mine.items() <= whole.items()
    assert sum("/pruning/" in name for name in mine) == sum("/pruning/" in name for name in whole)


@pytest.mark.parametrize(("words", "named"), [
    (["--set", "calibrations=de"], "compare calibration languages"),
    (["--set", "langages=de"], "languages"), (["--set", "languages=de,xx"], "de, en, sw"),
    (["--set", "models=tiny-lama"], "tiny-llama"), (["--set", "methods=wnada"], "wanda"),
    (["--set", "sparsity=-0.1"], "above 0"), (["--set", "sparsity=1.0"], "below 1"),
    (["--set", "sparsity=1.5"], "below 1"), (["--set", "seqlen=0"], "2 or more"), (["--set", "seqlen=4096"], "512"),
    (["--set", "sparsity"], "KEY=VALUE"), (["--only", "77"], "01_calibration"), (["--publish"], "published"),
    (["--profile", "qick"], "quick")])
def test_what_cannot_be_run_ends_with_2_and_one_paragraph(copies_of_errors, words, named):
    done = reproduce(copies_of_errors, *(["--profile", "quick"] if "--profile" not in words else []), *words)
    assert done.returncode == 2
    assert named in done.stderr and "Traceback" not in done.stderr and done.stderr.count("\n") == 1
    assert not (copies_of_errors / "data/cache/runs").exists(), "refused before anything was made"


@pytest.fixture(scope="module")
def copies_of_errors(copies):
    return copies("errors")


def test_an_unwritable_results_folder_is_refused(copies):
    place = copies("unwritable")
    (place / "data/cache").mkdir(exist_ok=True)
    (place / "data/cache/runs").write_text("a file where the folder should be")
    done = reproduce(place, "--profile", "quick")
    assert done.returncode == 2 and "cannot be written" in done.stderr and "Traceback" not in done.stderr


def test_a_cell_that_fails_ends_with_1_and_keeps_what_was_computed(copies):
    place = copies("failing")
    (place / "data/quick/home/sw.txt").write_text("Too short.\n" * 3)
    done = reproduce(place, "--profile", "quick", "--fresh")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "windows" in done.stderr and "01_calibration" in done.stderr


def test_plain_papermill_from_another_folder_gives_the_same_figures(copies, unbroken, tmp_path):
    place = copies("papermill")
    source, target = place / "notebooks/01_calibration.ipynb", tmp_path / "out.ipynb"
    words = [sys.executable, "-m", "papermill", source, target, "-p", "profile", "quick", "-k", "python3"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(place)}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    svgs = {p.name: p.read_bytes() for p in (place / "figures/quick").glob("01_*.svg")}
    assert svgs == {p.name: p.read_bytes() for p in (unbroken[0] / "figures/quick").glob("01_*.svg")}


@pytest.mark.skipif(not (RESULTS / "published").is_dir(), reason="no published tables yet: make publish")
def test_redraw_needs_the_tables_only(copies):
    """A package named torch that fails when it is imported stands first on the path: nothing imports it."""
    place = copies("redraw")
    (place / "torch.py").write_text("raise ImportError('torch was imported while drawing')")
    done = reproduce(place, "--profile", "published", "--redraw")
    assert done.returncode == 0, done.stderr
    drawn = sorted(p.name for p in (place / "figures/published").iterdir())
    assert drawn == sorted(p.name for p in (ROOT / "figures/published").iterdir())
    for path in (place / "figures/published").glob("*.csv"):
        assert path.read_bytes() == (ROOT / "figures/published" / path.name).read_bytes()
