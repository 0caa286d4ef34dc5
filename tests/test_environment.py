import re

from lib.paths import ROOT

RENAMED = {"pytorch-cpu": "torch", "matplotlib-base": "matplotlib", "dask-core": "dask"}  # conda's name -> pip's


def test_conda_and_pip_name_the_same_versions():
    lock = dict(line.split("==") for line in (ROOT / "requirements.txt").read_text().split())
    conda = re.findall(r"^ +- ([\w-]+)==?([\w.]+)$", (ROOT / "environment.yml").read_text(), re.M)
    assert len(conda) > 10
    for name, version in conda:
        if name != "python":
            assert lock[RENAMED.get(name, name)] == version, name


def test_every_package_of_the_lock_has_one_exact_version():
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        assert re.fullmatch(r"[\w.-]+==[\w.]+", line), line
