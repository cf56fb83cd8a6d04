"""The version of the project, defined only here: the package's metadata read it."""

__version__ = "0.3.0"
