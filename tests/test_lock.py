"""A lock is one process's, says whose, and ends with it however it ends."""

import os
import signal
import subprocess
import sys
import time

import pytest

from lib import lock
from lib.errors import InputError
from lib.paths import ROOT

HOLD = "import sys, time; from pathlib import Path; from lib import lock\n" \
       "with lock.held(Path(sys.argv[1]), 'the thing'): print('held', flush=True); time.sleep(60)"


@pytest.fixture
def holder(tmp_path):
    """(another process that holds the lock, its path)"""
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, path], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process, path
        process.kill()


def test_a_second_process_is_refused_and_told_who_has_it(holder):
    process, path = holder
    with pytest.raises(InputError, match=rf"the thing is in use by process {process.pid} on \S+, since \d{{4}}-.*wait"):
        with lock.held(path, "the thing"):
            pass


def test_a_killed_holder_leaves_no_lock(holder):
    process, path = holder
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with lock.held(path, "the thing"):
        assert path.read_text().startswith(f"process {os.getpid()} on ")


def test_who_waits_goes_on_when_the_lock_is_free(holder, capsys):
    process, path = holder
    start = time.monotonic()
    with subprocess.Popen(["sh", "-c", f"sleep 1; kill {process.pid}"]), lock.held(path, "the thing", wait=True):
        assert time.monotonic() - start > 0.5
    assert f"in use by process {process.pid}" in capsys.readouterr().err
