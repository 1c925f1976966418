"""The version. setup.py and pyproject.toml read it from here."""

__version__ = "0.1.0"
