"""What commands may do in one place."""

from typing import Literal

View = Literal["hidden", "read", "write"]
