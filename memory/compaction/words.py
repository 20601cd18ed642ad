"""The human's words outlive every compaction, word for word; no summary is trusted with them."""

from collections.abc import Sequence

from coterie.memory.tool_results import beginning

BEGINNING = 2_000
"""Bytes of a message that stay when there is no room for all of it."""
_BYTES = 4
"""Of a token, at least."""


def missing_words(words: Sequence[str], text: str) -> list[str]:
    """Those of *words* that do not stand in *text* as they were said; each once, in their order."""
    return [said for said in dict.fromkeys(words) if said.strip() and said not in text]


def fitting_words(words: Sequence[str], tokens: int, where: str) -> list[str]:
    """*words* as far as there is room for them.

    The longest give way first: what is left of one is its beginning, and *where* the rest can be read. If that is not
    enough the oldest leave, but for the first, which is the task.
    """
    shown, sizes = list(words), [len(said.encode()) for said in words]
    over = sum(sizes) - tokens * _BYTES
    for number in sorted(range(len(words)), key=lambda number: sizes[number], reverse=True):
        if over <= 0 or sizes[number] <= 2 * BEGINNING:
            break
        shown[number] = f"{beginning(words[number], BEGINNING)}\n[... {sizes[number]:,} bytes in all; see {where}]"
        over -= sizes[number] - len(shown[number].encode())
    gone = 0
    while over > 0 and gone < len(shown) - 1:
        gone += 1
        over -= len(shown[gone].encode())
    return [*shown[:1], *([f"[{gone} messages left out here; see {where}]"] if gone else []), *shown[1 + gone :]]
