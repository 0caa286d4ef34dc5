"""The words around a question, by relation and language (data/tasks/templates.toml)."""

import tomllib
from functools import cache

from lib.paths import DATA


@cache
def _templates() -> dict[str, dict]:
    return tomllib.loads((DATA / "tasks" / "templates.toml").read_text(encoding="utf-8"))


def languages(task: str) -> tuple[str, ...]:
    """Languages that have a template of the task."""
    return tuple(sorted(_templates()[task]))


def fill(task: str, language: str, subject: str) -> str:
    """The context of a question about the subject."""
    context = _templates()[task][language].replace("{x}", subject)
    return context[0].upper() + context[1:]


def separator(language: str) -> str:
    """What stands between the members of a list."""
    return _templates()["separator"][language]


def categories(language: str) -> dict[str, str]:
    """Category -> its name."""
    return _templates()["categories"][language]
