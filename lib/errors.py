"""The two errors that are addressed to a person (what was given, what is allowed, what to do), and how a command line
says them."""

import sys
from collections.abc import Callable


class InputError(ValueError):
    """What was asked for cannot be done as asked; raised before any long work starts."""


class AssetError(RuntimeError):
    """A pinned download could not be had or is not what its pin says."""


def exit_code(work: Callable[[], int], interrupted: str, *failures: type[Exception]) -> int:
    """What `work` returns; 2 after an InputError, which is said, 1 after an AssetError, an OSError or one of
    `failures`, and 1 after an interrupt. `interrupted` says what became of the work, there and after an OSError (a full
    disk, say)."""
    try:
        return work()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (AssetError, *failures) as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"error: {error}; {interrupted}", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"interrupted; {interrupted}", file=sys.stderr)
    return 1
