"""How the lines of a terminal are shared between the parts of a board."""

from collections.abc import Sequence

LEAST = (3, 4, 2, 2)
"""Lines that approvals, agents, mail and events have before another part has more; the first come first."""
FIRST = 2
"""How many of these have all that they want before the rest has more than its least; the rest shares."""


def share_lines(wanted: Sequence[int], room: int) -> list[int]:
    """How many of *room* lines each part gets, of those that it wants: none, or at least two.

    Approvals have no more than a third: they are answered one after another, and agents are to be seen meanwhile.
    """
    wanted = [min(wanted[0], max(LEAST[0], room // 3)), *wanted[1:]]
    given = [0] * len(wanted)
    for part, least in enumerate(LEAST):
        lines = min(wanted[part], least, room)
        if lines >= min(2, wanted[part]):
            given[part], room = lines, room - lines
    for part in range(FIRST):
        if given[part]:
            lines = min(wanted[part] - given[part], room)
            given[part], room = given[part] + lines, room - lines
    while room and (open_ := [part for part in range(FIRST, len(wanted)) if 0 < given[part] < wanted[part]]):
        part = min(open_, key=lambda part: given[part])
        given[part], room = given[part] + 1, room - 1
    return given
