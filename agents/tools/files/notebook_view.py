"""View of a notebook for the model."""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

import attrs

from coterie.agents.errors import ToolFailed
from coterie.agents.loop.conversation.token_estimate import MEDIA_TOKENS, estimate_text
from coterie.agents.tools.files.images import checked_size, media_type_of
from coterie.agents.tools.files.notebook import Cell, Notebook, joined
from coterie.agents.tools.tool import Image, ToolResult

OUTPUT_LIMIT = 4_000
"""Characters of one output that are shown."""
LINE_LIMIT = 2_000
"""Characters of one line that are shown."""
MOST_IMAGES = 10
"""Pictures shown at once."""
IMAGE_BYTES = 8 * 1024 * 1024
"""Bytes of all of them, as they stand in the notebook."""

_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_TEXTS = ("text/plain", "text/markdown", "text/latex", "application/json", "text/html", "image/svg+xml")
"""Of an output that can be shown in several ways, the first of these that it has."""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
"""Colours and the like, which notebooks keep of terminals."""


def show_notebook(name: str, notebook: Notebook, *, first: int, count: int | None, tokens: int) -> ToolResult:
    """The cells from *first* on, *count* of them, in at most *tokens*, for the model that calls the file *name*.

    Raises `ToolFailed` that says which cells fit.
    """
    total = len(notebook)
    if first > max(total, 1):
        raise ToolFailed(f"{name} has {total:,} cells; cell {first:,} is behind its end")
    version = ".".join(map(str, notebook.version))
    view = _View(lines=[f"[{name}: {total:,} cell{'s' * (total != 1)}, {notebook.language}, nbformat {version}]"])
    shown = notebook.cells[first - 1 : None if count is None else first - 1 + count]
    for cell in shown:
        view.add(cell)
        if view.tokens > tokens:
            raise _too_much(name, first, cell.number - first, tokens)
    if shown and shown[-1].number < total:
        view.lines.append(f"[cells {shown[-1].number + 1:,} to {total:,} follow]")
    return ToolResult(text="\n".join(view.lines), images=tuple(view.images))


@attrs.define(eq=False)
class _View:
    """What has been put together so far."""

    lines: list[str]
    images: list[Image] = attrs.field(factory=list)
    tokens: int = 0
    _image_bytes: int = 0

    def add(self, cell: Cell) -> None:
        """One more cell."""
        before, pictures = len(self.lines), len(self.images)
        id_ = "" if cell.id is None else f" id={_clean(cell.id)}"
        run = "" if cell.execution_count is None else f" run={cell.execution_count}"
        self.lines.append(f"--- cell {cell.number}{id_} {_clean(cell.type)}{run} ---")
        if cell.source:
            self.lines += [_cut(line) for line in _clean(cell.source).split("\n")]
        for output in cell.outputs:
            self.lines += self._output(output)
        self.tokens += sum(estimate_text(line) + 1 for line in self.lines[before:])
        self.tokens += MEDIA_TOKENS * (len(self.images) - pictures)

    def _output(self, output: dict[str, Any]) -> Iterator[str]:
        kind = str(output.get("output_type"))
        if kind == "stream":
            yield from _labelled(f"output {output.get('name', 'stdout')}", joined(output.get("text")))
        elif kind == "error":
            traceback = output.get("traceback")
            lines = [each for each in traceback if isinstance(each, str)] if isinstance(traceback, list) else []
            yield from _labelled("output error", "\n".join(lines) or f"{output.get('ename')}: {output.get('evalue')}")
        else:
            yield from self._rich(output.get("data"))

    def _rich(self, data: Any) -> Iterator[str]:
        given = data if isinstance(data, dict) else {}
        pictures = [kind for kind in _PICTURES if kind in given]
        for kind in pictures[:1]:
            yield self._picture(kind, joined(given[kind]))
        texts = [kind for kind in _TEXTS if kind in given]
        # What stands for a picture in a terminal, such as <Figure size 640x480>, says nothing beside it.
        for kind in [] if pictures else texts[:1]:
            yield from _labelled(f"output {kind}", joined(given[kind]) or str(given[kind]))
        if not pictures and not texts:
            yield f"[output {', '.join(map(_clean, map(str, given))) or 'empty'}: not shown]"

    def _picture(self, kind: str, text: str) -> str:
        try:
            content = base64.b64decode(text)
        except (binascii.Error, ValueError):
            return f"[output {kind}: not shown, it is not base64]"
        found = media_type_of(content)
        if found is None:
            return f"[output {kind}: not shown, it is damaged]"
        if len(self.images) >= MOST_IMAGES or self._image_bytes + len(content) > IMAGE_BYTES:
            return f"[output {kind}: not shown, there are too many; ask for this cell alone]"
        try:
            width, height = checked_size("it", found, content)
        except ToolFailed as exc:
            return f"[output {kind}: not shown. {exc.reason.partition('. ')[0]}]"
        self._image_bytes += len(content)
        self.images.append(Image(media_type=found, data=base64.b64encode(content).decode()))
        return f"[output {found}: picture {len(self.images)}, {width:,} x {height:,} pixels]"


def _labelled(label: str, text: str) -> Iterator[str]:
    clean = _clean(text).removesuffix("\n")
    yield f"[{_clean(label)}]"
    if clean:
        yield from (_cut(line) for line in clean[:OUTPUT_LIMIT].split("\n"))
    if len(clean) > OUTPUT_LIMIT:
        yield f"[output cut after {OUTPUT_LIMIT:,} characters; it has {len(clean):,}]"


def _clean(text: str) -> str:
    """*text* without what only a terminal understands, and without halves of characters, which no JSON can carry."""
    plain = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return plain.encode("utf-8", "replace").decode()


def _cut(line: str) -> str:
    return line if len(line) <= LINE_LIMIT else f"{line[:LINE_LIMIT]} [line cut; it has {len(line):,} characters]"


def _too_much(name: str, first: int, fitting: int, tokens: int) -> ToolFailed:
    if not fitting:
        return ToolFailed(
            f"Cell {first:,} of {name} alone is over {tokens:,} tokens. Search it with Grep or a command."
        )
    return ToolFailed(
        f"{name} from cell {first:,} on is over {tokens:,} tokens. {fitting:,} cells fit: ask for offset={first} and "
        f"limit={fitting}. Of a notebook these count cells."
    )
