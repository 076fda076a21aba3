"""Holdfast, a seat-hold engine for flash sales."""

__version__: str


def __getattr__(name: str) -> str:
    """The version, looked up when somebody asks: a command that is starting can be interrupted cleanly the sooner."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version  # noqa: PLC0415 - it takes longer to import than all else here.

    return version("holdfast")
