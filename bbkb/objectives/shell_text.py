"""Finds the context of a placeholder in a shell command: a plain word, or a construct in which the
shell would not read it as one word.

A small parser of POSIX shell syntax: quotes, backslashes, comments, command substitution,
arithmetic, here-documents. It does not need to understand a command, only to determine which of
these constructs contains a position.
"""

import re
from collections.abc import Sequence

_HERE_DOCUMENT = re.compile(r"<<-?\s*(['\"\\]?)([A-Za-z0-9_.-]+)['\"]?")
_NAMES = {
    "double": "double quotes",
    "single": "single quotes",
    "dollar-single": "single quotes",
    "back": "backquotes",
    "arithmetic": "an arithmetic expansion",
    "comment": "a comment",
    "here-document": "a here-document",
    "backslash": "an escape",
}
_PLAIN = ("plain", "parenthesis")
_COMMANDS = (*_PLAIN, "back")  # constructs whose text consists of words
_ENDS = {
    "single": "'",
    "dollar-single": "'",
    "double": '"',
    "arithmetic": "))",
    "parenthesis": ")",
    "back": "`",
}
# the constructs by the signs that open them: also inside double quotes, and between words
_EXPANSIONS = {"$((": "arithmetic", "$(": "parenthesis", "`": "back"}
_OPENERS = {**_EXPANSIONS, "$'": "dollar-single", "'": "single", '"': "double", "(": "parenthesis"}


def places(literals: Sequence[str]) -> list[str]:
    """Return the context of each placeholder of a command; "" for a plain word. The placeholders
    are between these pieces of the command's text.

    A command with n placeholders has n + 1 pieces.
    """
    reader = _QuoteReader()
    places = []
    for literal in literals[:-1]:
        reader.read(literal)
        places.append(reader.place())
        reader.pass_word()
    return places


class _QuoteReader:
    """Reads a command piece by piece. `stack` contains the open constructs, the innermost last."""

    def __init__(self) -> None:
        self.stack = ["plain"]
        self._is_word_start = True
        self._is_escaped = False
        self._delimiters: list[str] = []  # of here-documents whose text begins on the next line
        self._line = ""

    def place(self) -> str:
        """Return the construct around the current position; "" for a plain word."""
        if self._is_escaped:
            return _NAMES["backslash"]
        if "back" in self.stack:  # the meaning of quotes inside differs between shells
            return _NAMES["back"]
        return "" if self.stack[-1] in _PLAIN else _NAMES[self.stack[-1]]

    def pass_word(self) -> None:
        """Advance over a placeholder, which is part of a word."""
        self._is_word_start = self._is_escaped = False

    def read(self, text: str) -> None:
        """Update the state of the quotes for this piece of the command."""
        position = 0
        while position < len(text):
            position += self._step(text, position)

    def _step(self, text: str, at: int) -> int:
        """Read the sign at `at`, and return its number of characters."""
        mode = self.stack[-1]
        if self._is_escaped:
            self._is_escaped = self._is_word_start = False
            return 1
        if mode in ("comment", "here-document"):
            return self._in_lines(text[at])
        if text[at] == "\\" and mode != "single":
            self._is_escaped = True
            return 1
        if mode in _ENDS and text.startswith(_ENDS[mode], at):
            self._is_word_start &= mode != "parenthesis"
            self.stack.pop()
            return len(_ENDS[mode])
        return self._opened(text, at) or (self._in_words(text, at) if mode in _COMMANDS else 1)

    def _opened(self, text: str, at: int) -> int:
        """Open the construct that begins at `at`, and return its number of characters; 0 if none
        does."""
        mode = self.stack[-1]
        openers = _OPENERS if mode in _COMMANDS else _EXPANSIONS if mode in ("double", "arithmetic") else {}
        for sign, construct in openers.items():
            if text.startswith(sign, at):
                self.stack.append(construct)
                if construct not in ("arithmetic", "back"):
                    self._is_word_start = construct == "parenthesis"
                return len(sign)
        return 0

    def _in_lines(self, character: str) -> int:
        """Read a character of a comment or a here-document, both of which end with a line."""
        if character != "\n":
            self._line += character
        elif self.stack[-1] == "comment":
            self.stack.pop()
            self._end_line()
        else:
            if self._line.lstrip("\t") == self._delimiters[0]:
                self.stack.pop()
                self._delimiters.pop(0)
                self._end_line()
            self._line = ""
        return 1

    def _end_line(self) -> None:
        self._is_word_start = True
        self._line = ""
        if self._delimiters:
            self.stack.append("here-document")

    def _in_words(self, text: str, at: int) -> int:
        """Read a here-document's operator, or a character of a word or between words."""
        if document := _HERE_DOCUMENT.match(text, at) if not text.startswith("<<<", at) else None:
            self._delimiters.append(document[2])
            return document.end() - at
        if text[at] == "#" and self._is_word_start:
            self.stack.append("comment")
        elif text[at] == "\n":
            self._end_line()
        else:
            self._is_word_start = text[at] in " \t;&|"
        return 1
