"""What every column of the published tables means: data/results/README.md, made of dictionary.toml.

    python -m lib.run.dictionary
"""

import tomllib
from pathlib import Path

import pyarrow.parquet as pq

from lib.errors import InputError
from lib.paths import RESULTS
from lib.run import measure, store
from lib.run.measure.rows import COMMON

HEAD = """# Tables

`published/<table>.parquet`, one row a measurement; read them with `pandas.read_parquet`. What a row is and what its
columns mean, by table; first the columns that every table has. This file is made by `python -m lib.run.dictionary`.
"""


def text() -> str:
    """The whole file. Raises InputError for a table or column without a description, or a description of none."""
    meanings = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    common = meanings.pop("common")
    unknown = set(meanings) - {*measure.TABLES, "timings"}
    if unknown:
        raise InputError(f"there is no table {', '.join(unknown)}; allowed: {', '.join(measure.TABLES)}, timings")
    parts = [HEAD, "## All tables\n", _table([(name, "", common[name]) for name in COMMON])]
    for name in [*measure.TABLES, "timings"]:
        own = dict(meanings.get(name, {}))
        own = meanings.get(own.pop("like", ""), {}) | own
        types = columns(name)
        unknown, unused = set(types) - set(own) - set(common), set(own) - set(types) - {""}
        if unknown or unused or "" not in own:
            raise InputError(f"{Path(__file__).stem}.toml does not fit the table {name}; without a description: "
                             f"{sorted(unknown)}, not in the table: {sorted(unused)}")
        rows = [(column, kind, own.get(column, common.get(column))) for column, kind in types.items()]
        parts += [f"## {name}\n", own[""] + "\n", _table(rows)]
    return "\n".join(parts)


def columns(table: str) -> dict[str, str]:
    """Columns of a published table beside the common ones, with their types."""
    schema = pq.read_schema(store.PUBLISHED / f"{table}.parquet")
    return {name: str(schema.field(name).type).replace("large_", "").replace("double", "float64").replace(
        "element: ", "") for name in schema.names if name not in COMMON}


def _table(rows: list[tuple[str, str, str]]) -> str:
    return "\n".join(["| column | type | meaning |", "|---|---|---|",
                      *(f"| `{name}` | {kind} | {meaning} |" for name, kind, meaning in rows)]) + "\n"


if __name__ == "__main__":
    (RESULTS / "README.md").write_text(text())
