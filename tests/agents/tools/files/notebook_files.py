"""Notebook files in the layouts that occur in repositories."""

import base64
import json
import struct
import zlib
from typing import Any


def png(width: int = 4, height: int = 3, *, padding: int = 0) -> bytes:
    """Build a picture; *padding* adds bytes to it."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress((b"\0" + b"\0" * width) * height)
    comment = chunk(b"tEXt", b"x" * padding) if padding else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + comment + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


PICTURE = base64.b64encode(png()).decode()


def code(source: Any, *outputs: dict[str, Any], id_: str | None = None, count: int | None = None) -> dict[str, Any]:
    named = {} if id_ is None else {"id": id_}
    return {
        "cell_type": "code",
        "execution_count": count,
        **named,
        "metadata": {},
        "outputs": list(outputs),
        "source": source,
    }


def prose(source: Any, *, id_: str | None = None) -> dict[str, Any]:
    return {"cell_type": "markdown", **({} if id_ is None else {"id": id_}), "metadata": {}, "source": source}


def stream(text: Any, name: str = "stdout") -> dict[str, Any]:
    return {"name": name, "output_type": "stream", "text": text}


def notebook(*cells: dict[str, Any], minor: int = 5) -> dict[str, Any]:
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python", "version": "3.11.4"}}
    return {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": minor}


def analysis(minor: int = 5) -> dict[str, Any]:
    """Build a notebook with prose, printed output, an image and an error."""
    ids = ("intro", "load", "plot", "fail") if minor >= 5 else (None,) * 4
    figure = {"image/png": PICTURE, "text/plain": ["<Figure size 640x480>"]}
    drawn = {"data": figure, "metadata": {}, "output_type": "display_data"}
    value = {"data": {"text/plain": ["42"]}, "execution_count": 2, "metadata": {}, "output_type": "execute_result"}
    traceback = ["\x1b[0;31mZeroDivisionError\x1b[0m", "division by zero"]
    failed = {"ename": "ZeroDivisionError", "evalue": "x", "output_type": "error", "traceback": traceback}
    return notebook(
        prose(["# Übersicht\n", "of the year"], id_=ids[0]),
        code(["import csv\n", "rows = 3\n", "rows"], stream(["read\n", "3 rows\n"]), value, id_=ids[1], count=2),
        code(["plot(rows)"], drawn, id_=ids[2], count=3),
        code(["1 / 0"], failed, id_=ids[3], count=4),
        minor=minor,
    )


LAYOUTS: dict[str, dict[str, Any]] = {
    "as Jupyter writes": {"indent": 1, "ensure_ascii": False},
    "by four": {"indent": 4},
    "by tabs": {"indent": "\t", "ensure_ascii": False},
    "on one line": {},
    "compact": {"separators": (",", ":"), "ensure_ascii": False},
}
"""Layout -> arguments of `json.dumps`."""


def written(value: dict[str, Any], layout: str = "as Jupyter writes", end: str = "\n") -> str:
    return json.dumps(value, **LAYOUTS[layout]) + end
