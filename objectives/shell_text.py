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
        """Read the construct that begins at `at`, and return its number of characters."""
        mode = self.stack[-1]
        character = text[at]
        if self._is_escaped:
            self._is_escaped = self._is_word_start = False
            return 1
        if mode in ("comment", "here-document"):
            return self._in_lines(character)
        if mode == "single":
            return self._close_at("'", character)
        if character == "\\":
            self._is_escaped = True
            return 1
        if mode == "dollar-single":
            return self._close_at("'", character)
        if mode == "double":
            return self._close_at('"', character) if character == '"' else self._expansion(text, at) or 1
        return self._expansion(text, at) or self._in_plain(text, at)

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

    def _close_at(self, sign: str, character: str) -> int:
        if character == sign:
            self.stack.pop()
        return 1

    def _expansion(self, text: str, at: int) -> int:
        """Return the end of an expansion at `at`, inside or outside quotes; 0 if there is none."""
        if text.startswith("$((", at):
            self.stack.append("arithmetic")
            return 3
        if text.startswith("$(", at):
            self.stack.append("parenthesis")
            self._is_word_start = True
            return 2
        if text[at] == "`":
            if self.stack[-1] == "back":
                self.stack.pop()
            else:
                self.stack.append("back")
            return 1
        return 0

    def _in_plain(self, text: str, at: int) -> int:
        character = text[at]
        if self.stack[-1] == "arithmetic":
            is_end = text.startswith("))", at)
            if is_end:
                self.stack.pop()
            return 2 if is_end else 1
        if document := _HERE_DOCUMENT.match(text, at) if not text.startswith("<<<", at) else None:
            self._delimiters.append(document[2])
            return document.end() - at
        if character == "#" and self._is_word_start:
            self.stack.append("comment")
            return 1
        if character == "\n":
            self._end_line()
            return 1
        self._open_or_close(text, at)
        self._is_word_start = character in " \t;&|("
        return 2 if text.startswith("$'", at) else 1

    def _open_or_close(self, text: str, at: int) -> None:
        character = text[at]
        if text.startswith("$'", at):
            self.stack.append("dollar-single")
        elif character == "'":
            self.stack.append("single")
        elif character == '"':
            self.stack.append("double")
        elif character == "(":
            self.stack.append("parenthesis")
        elif character == ")" and self.stack[-1] == "parenthesis":
            self.stack.pop()
