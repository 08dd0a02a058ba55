"""The version of kvroom."""

__version__ = "0.1.0"
