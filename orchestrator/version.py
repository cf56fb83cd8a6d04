"""The version of the project, written once: the package's metadata are read from here."""

__version__ = "0.3.0"
