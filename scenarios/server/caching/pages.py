"""How many pages a PDF has, as far as that can be told without understanding it."""

import base64
import binascii
import re
from typing import Any

_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")


def count_pages(data: Any) -> int:
    """Pages of the PDF that is *data* in base64; 0 where they are packed away, or it is none."""
    if not isinstance(data, str):
        return 0
    try:
        return len(_PAGE.findall(base64.b64decode(data)))
    except (binascii.Error, ValueError):
        return 0
