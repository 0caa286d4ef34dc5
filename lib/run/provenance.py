"""Who, what, when, from which code."""

import datetime
import hashlib
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import pandas as pd

from lib.paths import ROOT
from lib.study import Study

PACKAGES = ("torch", "transformers", "datasets", "numpy", "pandas", "seaborn", "matplotlib", "papermill")


def stamp(study: Study) -> pd.DataFrame:
    """One column of facts: the study, the code, the packages, the machine, the time."""
    facts = {"profile": study.label, "study digest": study.digest()[:16], "code digest": code_digest()[:16],
             "git commit": commit()}
    facts |= {name: _version(name) for name in PACKAGES}
    facts |= {"python": platform.python_version(), "machine": platform.machine(),
              "time": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")}
    return pd.DataFrame({"value": facts})


@cache
def code_digest() -> str:
    """SHA-256 (hex) of the sources in lib/, in the order of their paths."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "lib").rglob("*")):
        if path.suffix in (".py", ".toml"):
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def commit() -> str:
    """The commit of the checkout, marked when the sources differ from it; "unknown" outside git."""
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (" + changes" if git("status", "--porcelain", "lib") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
