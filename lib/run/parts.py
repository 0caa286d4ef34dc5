"""Files that tables are made of: written whole or not at all, and never read when damaged.

A part is named by its cells and by its bytes, `<cells>-<digest>.parquet`, 16 hex digits each.
"""

import hashlib
import io
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq


def write(folder: Path, frame: pd.DataFrame) -> None:
    """Add the frame's cells as one part, in place of an earlier part of the same cells."""
    cells = _name(frame["cell"].unique())
    path = write_file(frame, folder / f"{cells}.parquet", digested=True)
    for before in folder.glob(f"{cells}-*.parquet"):
        if before != path:
            before.unlink(missing_ok=True)


def read(folder: Path, cells: Iterable[str] | None = None) -> pd.DataFrame:
    """All parts, or the one of exactly these `cells`. A damaged one is named, removed, and so computed again."""
    pattern = f"{'*' if cells is None else _name(cells)}-*.parquet"
    while True:
        try:
            frames = [frame for path in sorted(folder.glob(pattern)) for frame in _whole(path)]
        except FileNotFoundError:  # another process has just put a newer part of the same cells in its place
            continue
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"cell": []})


def _whole(path: Path) -> Iterator[pd.DataFrame]:
    """The part's frame, unless it is damaged."""
    data = path.read_bytes()
    if path.stem.endswith(f"-{_digest(data)}"):
        yield read_file(io.BytesIO(data))
    else:
        print(f"{path} is damaged: its bytes do not have the digest in its name; its cells are computed again",
              file=sys.stderr)
        path.unlink(missing_ok=True)


def write_file(frame: pd.DataFrame, path: Path, digested: bool = False) -> Path:
    """Write atomically and return the path; `digested`: with the digest of the bytes in its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    os.close(handle)
    try:
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), temporary, compression="zstd",
                       write_page_checksum=True)
        os.chmod(temporary, 0o644)
        if digested:
            path = path.with_stem(f"{path.stem}-{_digest(Path(temporary).read_bytes())}")
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path


def read_file(source: Path | io.BytesIO) -> pd.DataFrame:
    """The frame, its page checksums verified. Raises OSError or pyarrow.ArrowException when damaged."""
    return pq.read_table(source, page_checksum_verification=True).to_pandas()


def _name(cells: Iterable[str]) -> str:
    return _digest("".join(sorted(cells)).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
