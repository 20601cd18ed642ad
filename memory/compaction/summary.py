"""What a model said when it was asked for a summary, and whether it can stand for what it summarises."""

import re

from coterie.memory.errors import SummaryUnusable

_ANALYSIS = re.compile(r"<analysis>.*?(</analysis>|\Z)", re.DOTALL)
_SUMMARY = re.compile(r"<summary>(.*?)(</summary>|\Z)", re.DOTALL)


def read_summary(text: str, *, is_whole: bool) -> str:
    """The summary in a reply, without the analysis before it; a reply without tags is all summary.

    Raises `SummaryUnusable` for one that is empty, and one that is not *is_whole*: it was cut or refused, and nobody
    can tell what is missing.
    """
    if not is_whole:
        raise SummaryUnusable("the reply with the summary was cut off or refused")
    rest = _ANALYSIS.sub("", text)
    tagged = _SUMMARY.search(rest)
    summary = (tagged.group(1) if tagged else rest).strip()
    if not summary:
        raise SummaryUnusable("the reply has no summary in it")
    return summary
