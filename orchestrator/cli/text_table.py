"""Tables with aligned columns, as lines of text for a terminal."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size


def align_columns(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """Return the lines of a table with header *head*; the first *left* columns are left-aligned, the others right."""
    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    aligned = [
        [cell.ljust(width) if at < left else cell.rjust(width) for cell in column]
        for at, (column, width) in enumerate(zip(columns, widths, strict=True))
    ]
    return ["  ".join(row) for row in zip(*aligned, strict=True)]


def table_lines(rows: Sequence[Sequence[str]], width: int, *, widest: int | None = None) -> Iterator[str]:
    """Yield *rows* as aligned lines; cut the last cell to the rest of *width*, the other cells to *widest* columns."""
    columns = [max(map(cell_len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    columns = columns if widest is None else [min(widest, column) for column in columns]
    rest = max(20, width - sum(columns) - 2 * len(columns) - 2)  # readable even on a narrow terminal
    for row in rows:
        yield f"  {'  '.join(map(_fit, row, [*columns, rest]))}".rstrip()


def _fit(text: str, room: int) -> str:
    return set_cell_size(text, room) if cell_len(text) <= room else set_cell_size(text, room - 3) + "..."
