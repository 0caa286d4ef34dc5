import re

import torch

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


def test_products_do_not_depend_on_where_their_factors_lie_in_memory():
    X, W = torch.randn(2, 40, 64, generator=torch.Generator().manual_seed(0))
    for start in range(1, 16):
        elsewhere = torch.empty(W.numel() + 16)[start:start + W.numel()].view(W.shape).copy_(W)
        for rows in (1, 7, 40):
            assert torch.equal(torch.nn.functional.linear(X[:rows], elsewhere), torch.nn.functional.linear(X[:rows], W))
