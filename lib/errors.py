"""The two errors that are addressed to a person: what was given, what is allowed, what to do."""


class InputError(ValueError):
    """What was asked for cannot be done as asked; raised before any long work starts."""


class AssetError(RuntimeError):
    """A pinned download could not be had or is not what its pin says."""
