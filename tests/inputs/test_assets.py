"""The real pip downloads small wheels made here from a local folder, through the code that fetches the assets."""

import base64
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from lib.errors import AssetError, InputError
from lib.inputs import assets, registries
from lib.paths import ROOT

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
    """Whatever a failed fetch left behind; the empty lock file stays on purpose."""
    return [p.name for p in (assets.CACHE / "assets").iterdir() if p.name != ".lock-whole"]


def start():
    """The command line that fetches the asset, as a process of its own."""
    code = (f"import sys; from pathlib import Path; from lib.inputs import assets; "
            f"assets.DATA = Path({str(assets.DATA)!r}); "
            f"assets.CACHE = Path({str(assets.CACHE)!r}); sys.exit(assets.main(['whole']))")
    # A shell's background job ignores interrupts, and would hand that down when the tests run in one.
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True,
                            stdout=subprocess.DEVNULL, start_new_session=True,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


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


def test_a_flipped_byte_is_found_by_verify_and_mended_by_fetch(shop, capsys):
    place = assets.fetch("whole")
    data = bytearray((place / "whole.bin").read_bytes())
    data[7] ^= 1
    (place / "whole.bin").write_bytes(data)
    with pytest.raises(AssetError, match="whole.bin .* damaged"):
        assets.verify("whole")
    assets.fetch("whole")
    assert "whole.bin is damaged, so whole is fetched again" in capsys.readouterr().err
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
        registries.extract(bad, ["*.txt"], tmp_path / "cache", keep_tree=True)
    assert not (tmp_path / "evil.txt").exists() and not (tmp_path.parent / "evil.txt").exists()


def test_a_member_that_is_not_there_is_named(shop, tmp_path):
    with pytest.raises(AssetError, match="alpha-1.0.* has no member .*part07"):
        registries.extract(shop / "alpha-1.0-py3-none-any.whl", ["*.part07"], tmp_path)


@contextmanager
def fetching():
    """The process that fetches, in the middle of a download from an index that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.MonkeyPatch.context() as patch:
        patch.delenv("PIP_NO_INDEX")
        patch.delenv("PIP_FIND_LINKS")
        patch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/simple")
        process = start()
        silent.settimeout(60)
        with silent.accept()[0]:
            yield process


def test_an_interrupt_is_an_error_and_keeps_nothing(shop):
    with fetching() as process:
        process.send_signal(signal.SIGINT)
        assert "error: interrupted" in process.communicate(timeout=60)[1]
    assert process.returncode == 1 and leftovers() == []


def test_what_a_killed_process_left_is_not_trusted_and_is_swept(shop):
    with fetching() as process:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
    assert [n[:12] for n in leftovers()] == [".part-whole-"] and not assets.is_complete("whole")
    assets.fetch("whole")
    assert leftovers() == ["whole"]


def test_two_processes_fetch_once_and_both_succeed(shop):
    processes = [start(), start()]
    said = [p.communicate(timeout=120)[1] for p in processes]
    assert [p.returncode for p in processes] == [0, 0], said
    assert "".join(said).count("fetching whole") == 1
    assert leftovers() == ["whole"]
    assets.verify("whole")


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(shop):
    assets.CACHE.write_text("a file where the folder should be")
    with pytest.raises(AssetError, match=f"cannot be written into {assets.CACHE}"):
        assets.fetch("whole")


@pytest.mark.skipif(not shutil.which("npm"), reason="npm is not on this machine (the test of it must not download it)")
def test_npm_packs_are_fetched_and_checked_too(shop, tmp_path):
    (tmp_path / "pack").mkdir()
    about = {"name": "pack", "version": "1.0.0", "scripts": {"prepack": "exit 1"}}
    (tmp_path / "pack" / "package.json").write_text(json.dumps(about))
    (tmp_path / "pack" / "text.html").write_text("<p>kept</p>")
    subprocess.run(["npm", "pack", "--silent", "--ignore-scripts", tmp_path / "pack"], cwd=tmp_path, check=True,
                   capture_output=True)
    pinned = registries.digest(tmp_path / "pack-1.0.0.tgz")
    archive = registries.download("npm", str(tmp_path / "pack-1.0.0.tgz"), pinned, tmp_path)
    registries.extract(archive, ["package/*.html"], tmp_path / "made")
    assert [p.name for p in Path(tmp_path, "made").iterdir()] == ["text.html"]
    with pytest.raises(AssetError, match="has sha256"):
        registries.download("npm", str(tmp_path / "pack-1.0.0.tgz"), "0" * 64, tmp_path)
    with pytest.raises(AssetError, match="cannot be downloaded"):
        registries.download("npm", str(tmp_path / "none.tgz"), pinned, tmp_path)


def test_unknown_asset_lists_the_known(shop, capsys):
    with pytest.raises(InputError, match="allowed: whole"):
        assets.fetch("hole")
    assert assets.main(["hole"]) == 2
    assert "whole" in capsys.readouterr().err
