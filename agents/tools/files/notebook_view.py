"""View of a Jupyter notebook for the model: cells and their outputs as text, and images in outputs as images."""

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
"""Maximum characters shown of one output of a cell."""
LINE_LIMIT = 2_000
"""Maximum characters shown of one line of a cell or of an output."""
MAX_IMAGES = 10
"""Maximum number of output images that one view of a notebook shows."""
MAX_IMAGE_BYTES = 8 * 1024 * 1024
"""Maximum bytes of all output images together in one view of a notebook, before base64 encoding."""

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_TEXTS = ("text/plain", "text/markdown", "text/latex", "application/json", "text/html", "image/svg+xml")
"""Media types of an output that are shown as text; of several, only the first in this order is shown."""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
"""Pattern of terminal control sequences, such as color codes, and control characters, which are removed from text."""


def show_notebook(name: str, notebook: Notebook, *, first: int, count: int | None, tokens: int) -> ToolResult:
    """Return *count* cells of *notebook* (None: all) from number *first* on as a result; *name* is its path.

    Raises `ToolFailed` if there is no cell *first*, or if the cells exceed *tokens* tokens; it then says how many fit.
    """
    total = len(notebook)
    if first > max(total, 1):
        raise ToolFailed(f"{name} has only {total:,} cells, so there is no cell {first:,}. Use a smaller offset.")
    version = ".".join(map(str, notebook.version))
    view = _View(lines=[f"[{name}: {total:,} cell{'s' * (total != 1)}, {notebook.language}, nbformat {version}]"])
    shown = notebook.cells[first - 1 : None if count is None else first - 1 + count]
    for cell in shown:
        view.add(cell)
        if view.tokens > tokens:
            fitting = cell.number - first
            raise ToolFailed(
                f"{name} has over {tokens:,} tokens from cell {first:,} on. {fitting:,} cells fit: use offset={first} "
                f"and limit={fitting}, which count cells in a notebook."
                if fitting
                else f"Cell {first:,} of {name} alone has over {tokens:,} tokens. Search it with Grep or a command."
            )
    if shown and shown[-1].number < total:
        view.lines.append(f"[cells {shown[-1].number + 1:,} to {total:,} follow]")
    return ToolResult(text="\n".join(view.lines), images=tuple(view.images))


@attrs.define(eq=False)
class _View:
    """Collector of the lines, images and estimated tokens of a notebook view, to which cells are added one by one."""

    lines: list[str]
    images: list[Image] = attrs.field(factory=list)
    tokens: int = 0
    _image_bytes: int = 0

    def add(self, cell: Cell) -> None:
        """Append *cell* with its outputs to the view, and add the estimate of its tokens to `tokens`."""
        before, images = len(self.lines), len(self.images)
        id_ = "" if cell.id is None else f" id={_clean(cell.id)}"
        run = "" if cell.execution_count is None else f" run={cell.execution_count}"
        self.lines.append(f"--- cell {cell.number}{id_} {_clean(cell.type)}{run} ---")
        if cell.source:
            self.lines += [_cut(line) for line in _clean(cell.source).split("\n")]
        for output in cell.outputs:
            self.lines += self._output(output)
        self.tokens += sum(estimate_text(line) + 1 for line in self.lines[before:])
        self.tokens += MEDIA_TOKENS * (len(self.images) - images)

    def _output(self, output: dict[str, Any]) -> Iterator[str]:
        output_type = str(output.get("output_type"))
        if output_type == "stream":
            yield from _labelled(f"output {output.get('name', 'stdout')}", joined(output.get("text")))
        elif output_type == "error":
            traceback = output.get("traceback")
            lines = [each for each in traceback if isinstance(each, str)] if isinstance(traceback, list) else []
            yield from _labelled("output error", "\n".join(lines) or f"{output.get('ename')}: {output.get('evalue')}")
        else:
            yield from self._rich(output.get("data"))

    def _rich(self, data: Any) -> Iterator[str]:
        formats = data if isinstance(data, dict) else {}
        images = [media_type for media_type in _IMAGES if media_type in formats]
        for media_type in images[:1]:
            yield self._image(media_type, joined(formats[media_type]))
        texts = [media_type for media_type in _TEXTS if media_type in formats]
        # The text form of an image, such as <Figure size 640x480>, adds no information.
        for media_type in [] if images else texts[:1]:
            yield from _labelled(f"output {media_type}", joined(formats[media_type]) or str(formats[media_type]))
        if not images and not texts:
            yield f"[output {', '.join(map(_clean, map(str, formats))) or 'empty'}: not shown]"

    def _image(self, declared: str, text: str) -> str:
        try:
            content = base64.b64decode(text)
        except (binascii.Error, ValueError):
            return f"[output {declared}: not shown, it is not base64]"
        media_type = media_type_of(content)
        if media_type is None:
            return f"[output {declared}: not shown, it is damaged]"
        if len(self.images) >= MAX_IMAGES or self._image_bytes + len(content) > MAX_IMAGE_BYTES:
            return f"[output {declared}: not shown, there are too many images; read only this cell]"
        try:
            width, height = checked_size("the image", media_type, content)
        except ToolFailed as exc:
            return f"[output {declared}: not shown. {exc.reason.partition('. ')[0]}]"
        self._image_bytes += len(content)
        self.images.append(Image(media_type=media_type, data=base64.b64encode(content).decode()))
        return f"[output {media_type}: image {len(self.images)}, {width:,} x {height:,} pixels]"


def _labelled(label: str, text: str) -> Iterator[str]:
    clean = _clean(text).removesuffix("\n")
    yield f"[{_clean(label)}]"
    if clean:
        yield from (_cut(line) for line in clean[:OUTPUT_LIMIT].split("\n"))
    if len(clean) > OUTPUT_LIMIT:
        yield f"[output cut after {OUTPUT_LIMIT:,} characters; it has {len(clean):,}]"


def _clean(text: str) -> str:
    """Return *text* without terminal control sequences, with line ends LF, and with "?" for unpaired surrogates."""
    plain = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return plain.encode("utf-8", "replace").decode()


def _cut(line: str) -> str:
    return line if len(line) <= LINE_LIMIT else f"{line[:LINE_LIMIT]} [line cut; it has {len(line):,} characters]"
