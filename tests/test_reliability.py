"""What goes wrong on real machines: a full disk, a second run, a folder that may not be written to, a kill."""

import os
import random
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from lib.paths import ROOT
from tests.test_reproduce import command

MINIATURE = ("--profile", "quick", "--fresh", "--set", "models=tiny-llama", "--set", "methods=wanda,sparsegpt", "--set",
             "seeds=0")


def run(output: Path, *words: str, **more) -> subprocess.CompletedProcess:
    """`python -m lib.reproduce` in this checkout, writing into `output`."""
    started = command(ROOT, *words, **more)
    return subprocess.run(**started | {"env": started["env"] | {"COMPENDIUM_OUTPUT": str(output)}})


def written(output: Path) -> set[str]:
    """Every part of a run but its timings: file names hold the digest of their bytes."""
    parts = (output / "data/cache/runs").rglob("*.parquet")
    return {p.relative_to(output).as_posix() for p in parts if p.parent.name != "timings"}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> set[str]:
    """What the miniature run writes when nothing goes wrong, notebooks 02 and 03."""
    output = tmp_path_factory.mktemp("unbroken")
    for notebook in ("02", "03"):
        done = run(output, *MINIATURE, "--only", notebook)
        assert done.returncode == 0, done.stderr
    return written(output)


@pytest.fixture
def small_disk():
    """A mounted file system of 40 MB."""
    place = Path(tempfile.mkdtemp())
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        place.rmdir()
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", place], check=True)
    place.rmdir()


def test_a_full_disk_is_said_and_costs_nothing_that_was_computed(small_disk, unbroken):
    started = command(ROOT, *MINIATURE, "--only", "02")
    started["env"] |= {"COMPENDIUM_OUTPUT": str(small_disk)}
    filler, parts = small_disk / "filler", small_disk / "data/cache/runs/quick/pruning"
    with subprocess.Popen(**started) as process:
        while not list(parts.glob("*.parquet")):
            assert process.poll() is None
            time.sleep(0.01)
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(bytes(1000))
        _, said = process.communicate()
    assert process.returncode == 1 and said.count("\n") == 1, said
    assert "No space left" in said or "bytes and the disk has" in said
    assert "what was computed is kept" in said
    kept = written(small_disk)
    assert kept and kept <= unbroken
    filler.unlink()
    assert run(small_disk, *MINIATURE, "--only", "02").returncode == 0
    assert run(small_disk, *MINIATURE, "--only", "03").returncode == 0
    assert written(small_disk) == unbroken


def test_a_disk_that_is_too_small_is_refused_with_numbers_before_anything_is_written(small_disk):
    with (small_disk / "filler").open("wb") as file:
        file.write(bytes(39_000_000))
    refused = run(small_disk, *MINIATURE, "--only", "02")
    assert refused.returncode == 2
    assert re.search(r"writes about 0\.0\d GB into .* and 0\.00 GB are free", refused.stderr), refused.stderr
    assert written(small_disk) == set()


def test_a_second_run_on_the_same_folder_is_refused_and_told_of_the_first(tmp_path):
    started = command(ROOT, *MINIATURE, "--only", "02", start_new_session=True)
    started["env"] |= {"COMPENDIUM_OUTPUT": str(tmp_path)}
    with subprocess.Popen(**started) as first:
        try:
            deadline = time.monotonic() + 120
            while not (tmp_path / "data/cache/runs/.lock-quick").is_file():
                assert time.monotonic() < deadline and first.poll() is None
                time.sleep(0.05)
            time.sleep(0.5)  # it has written who it is
            os.killpg(first.pid, signal.SIGSTOP)  # that it cannot end before the other begins
            second = run(tmp_path, *MINIATURE, "--only", "02")
        finally:
            os.killpg(first.pid, signal.SIGKILL)
    assert second.returncode == 2 and f"process {first.pid} on " in second.stderr and "Traceback" not in second.stderr


def test_figures_are_redrawn_from_a_checkout_that_may_not_be_written_to(tmp_path):
    """In a mount namespace of its own, in which the checkout is mounted read-only."""
    sealed = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && "$@"', ROOT]
    if subprocess.run([*sealed, "true"], capture_output=True).returncode:
        pytest.skip("mounting a folder read-only needs root")
    started = command(ROOT, "--profile", "published", "--redraw", "--only", "01")
    started["args"] = [*sealed, *started["args"]]
    refused = subprocess.run(**started)
    assert refused.returncode == 2 and "COMPENDIUM_OUTPUT" in refused.stderr, refused.stderr
    done = subprocess.run(**started | {"env": started["env"] | {"COMPENDIUM_OUTPUT": str(tmp_path)}})
    assert done.returncode == 0, done.stderr
    drawn = sorted(p.name for p in (tmp_path / "figures/published").glob("01_*.csv"))
    assert drawn == sorted(p.name for p in (ROOT / "figures/published").glob("01_*.csv"))
    assert (tmp_path / "notebooks/executed/redraw/01_calibration.ipynb").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_killed_at_a_random_moment_and_resumed_it_writes_the_same_bytes(tmp_path, unbroken, seed):
    moments, killed = random.Random(seed), 0
    for notebook in ("02", "03"):
        started = command(ROOT, *MINIATURE, "--only", notebook, start_new_session=True)
        started["env"] |= {"COMPENDIUM_OUTPUT": str(tmp_path)}
        with subprocess.Popen(**started) as process:
            try:
                process.wait(timeout=moments.uniform(1, 10))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                killed += 1
            process.communicate()
        resumed = run(tmp_path, *MINIATURE, "--only", notebook)
        assert resumed.returncode == 0, resumed.stderr
    assert killed, "neither run was still at work when it was to be killed"
    assert written(tmp_path) == unbroken
    assert not list((tmp_path / "data/cache/runs/quick").rglob("*.partial*"))
