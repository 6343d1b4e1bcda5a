"""Makes texts that JSON in UTF-8 can carry, whatever a program has cut off."""

import re

_HALF = re.compile(r"[\ud800-\udfff]")  # of a surrogate pair


def whole(text: str) -> str:
    """Return a text with U+FFFD in the place of each half of a surrogate pair, which UTF-8 cannot write.

    A text that was cut in the middle of an emoji ends in such a half. Its other characters say what it is about.
    """
    return text if text.isascii() else _HALF.sub("\ufffd", text)
