"""The file that torch writes at its build."""

__version__ = "0.0.0"
