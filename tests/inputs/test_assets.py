"""The real pip downloads small wheels made here from a local folder, through the code that fetches the assets."""

import base64
import hashlib
import os
import shutil
import subprocess
import zipfile

import pytest

from lib.errors import AssetError, InputError
from lib.inputs import assets

FIRST, SECOND = b"first " * 100, b"second"
FILES = {"alpha": {"alpha/whole.bin.part00": FIRST, "alpha/other.txt": b"unwanted"},
         "beta": {"beta/whole.bin.part01": SECOND}}


def wheel(folder, name, files):
    """A wheel that pip accepts; its sha256."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    files = files | {f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
                     f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    with zipfile.ZipFile(path, "w") as opened:
        record = ""
        for member, data in files.items():
            opened.writestr(member, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{member},sha256={digest},{len(data)}\n"
        opened.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A local index with two wheels, and an asset joined from their parts."""
    index = tmp_path / "index"
    index.mkdir()
    pins = {name: wheel(index, name, files) for name, files in FILES.items()}
    data = tmp_path / "data"
    data.mkdir()
    (data / "assets.toml").write_text(f"""
        [whole]
        registry = "pypi"
        licence = "none"
        origin = "made in a test"
        join = "whole.bin"
        sha256 = "{hashlib.sha256(FIRST + SECOND).hexdigest()}"
        files = [
          {{package = "alpha==1.0", sha256 = "{pins['alpha']}", members = ["*.part00"]}},
          {{package = "beta==1.0", sha256 = "{pins['beta']}", members = ["*.part01"]}},
        ]
        """)
    monkeypatch.setattr(assets, "DATA", data)
    monkeypatch.setattr(assets, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    assets._pins.cache_clear()
    yield index
    assets._pins.cache_clear()


def leftovers():
    return [p.name for p in (assets.CACHE / "assets").iterdir()] if (assets.CACHE / "assets").exists() else []


def test_parts_are_fetched_joined_and_sealed(shop, capsys):
    place = assets.fetch("whole")
    assert (place / "whole.bin").read_bytes() == FIRST + SECOND
    assert sorted(p.name for p in place.iterdir()) == ["manifest.json", "whole.bin"]
    assert "licence" in capsys.readouterr().err
    assets.verify("whole")


def test_a_complete_asset_is_not_fetched_again(shop):
    assets.fetch("whole")
    shutil.rmtree(shop)
    assert assets.fetch("whole") == assets.folder("whole")


def test_a_wrong_hash_names_both_and_keeps_nothing(shop):
    wheel(shop, "beta", {"beta/whole.bin.part01": b"forged"})
    with pytest.raises(AssetError, match="beta==1.0 has sha256 [0-9a-f]{64}, but .* pins [0-9a-f]{64}"):
        assets.fetch("whole")
    assert leftovers() == []


def test_no_network_says_so_and_keeps_nothing(shop):
    (shop / "beta-1.0-py3-none-any.whl").unlink()
    with pytest.raises(AssetError, match="cannot be downloaded.*network"):
        assets.fetch("whole")
    assert leftovers() == []


@pytest.mark.parametrize("damage", ["cut", "manifest", "gone"])
def test_a_torn_asset_is_fetched_again(shop, damage):
    place = assets.fetch("whole")
    if damage == "cut":
        (place / "whole.bin").write_bytes(b"first")
    elif damage == "manifest":
        (place / "manifest.json").write_text("{")
    else:
        (place / "whole.bin").unlink()
    assert not assets.is_complete("whole")
    with pytest.raises(AssetError, match="not complete"):
        assets.verify("whole")
    assets.fetch("whole")
    assets.verify("whole")


def test_a_flipped_byte_is_found_by_verify(shop):
    place = assets.fetch("whole")
    data = bytearray((place / "whole.bin").read_bytes())
    data[7] ^= 1
    (place / "whole.bin").write_bytes(data)
    with pytest.raises(AssetError, match="whole.bin .* damaged"):
        assets.verify("whole")


def test_another_pin_makes_another_asset(shop):
    assets.fetch("whole")
    before = assets.pin("whole")
    wheel(shop, "beta", {"beta/whole.bin.part01": b"newer"})
    text = (assets.DATA / "assets.toml").read_text()
    (assets.DATA / "assets.toml").write_text(text.replace("none", "still none", 1))
    assets._pins.cache_clear()
    assert assets.pin("whole") == before, "the licence's words are no part of it"
    (assets.DATA / "assets.toml").write_text(text.replace("beta==1.0", "beta==1.1"))
    assets._pins.cache_clear()
    assert assets.pin("whole") != before and not assets.is_complete("whole")


def test_a_full_disk_is_an_error_that_says_so(shop, tmp_path, monkeypatch):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs is not permitted here")
    try:
        monkeypatch.setattr(assets, "CACHE", small)
        wheel(shop, "alpha", {"alpha/whole.bin.part00": os.urandom(20_000)})
        with pytest.raises(AssetError, match="disk is full"):
            assets.fetch("whole")
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_path_that_leaves_the_folder_is_refused(shop, tmp_path):
    bad = tmp_path / "bad.whl"
    with zipfile.ZipFile(bad, "w") as opened:
        opened.writestr("../../evil.txt", b"x")
    with pytest.raises(AssetError, match="outside"):
        assets._extract("whole", bad, {"package": "bad", "members": ["*.txt"], "keep_tree": True}, tmp_path / "cache")


def test_unknown_asset_lists_the_known(shop, capsys):
    with pytest.raises(InputError, match="allowed: whole"):
        assets.fetch("hole")
    assert assets.main(["hole"]) == 2
    assert "whole" in capsys.readouterr().err
