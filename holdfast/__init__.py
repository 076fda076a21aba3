"""Holdfast, a seat-hold engine for flash sales."""

from importlib.metadata import version

__version__ = version("holdfast")
