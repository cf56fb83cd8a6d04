"""The version of the project, defined only here: the package's metadata read it."""

__version__ = "0.1.0.dev0"
