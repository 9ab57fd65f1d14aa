"""A place in the text of a design, and what stands there."""

from __future__ import annotations

import re

from roofline.foundation.places import PlacedError

MOST_DEPTH = 40

_SPACE = re.compile(r"\s*")


class Cursor:
    """A place in a text, between any spaces; ``depth`` is how many brackets are open there."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    def wrong(self, message: str, at: int | None = None) -> PlacedError:
        """The error that something is wrong here, or at another place."""
        return PlacedError(message, self.text, self.at if at is None else at)

    def skip(self) -> None:
        """Moves behind spaces."""
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at

    def next(self) -> str:
        """The letter that stands here; ``""`` at the end."""
        self.skip()
        return self.text[self.at : self.at + 1]

    def found(self, form: re.Pattern[str]) -> re.Match[str] | None:
        """The match of `form` at this place; does not move."""
        self.skip()
        return form.match(self.text, self.at)

    def take(self, sign: str) -> bool:
        """Whether `sign` stands here; moves behind it."""
        self.skip()
        if not self.text.startswith(sign, self.at):
            return False
        self.at += len(sign)
        return True

    def seen(self) -> str:
        """What stands here, for a message."""
        letter = self.next()
        return f"'{letter}'" if letter else "the end"

    def deeper(self, at: int) -> None:
        """A bracket was opened at `at`."""
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise self.wrong(f"more than {MOST_DEPTH} brackets lie in each other", at)

    def close(self, bracket: str, opened: int) -> None:
        """Takes the bracket that closes the one at `opened`."""
        self.depth -= 1
        if self.take(bracket):
            return
        if not self.next():
            raise self.wrong(f"this bracket is not closed: a '{bracket}' is missing", opened)
        raise self.wrong(f"expected '{bracket}' here, not {self.seen()}")
