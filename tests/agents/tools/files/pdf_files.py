"""PDF files written as bytes, without a PDF library."""

import io
import zlib


def pdf(pages: int = 1, *, padding: int = 0) -> bytes:
    """Build a PDF whose pages contain their numbers; *padding* adds incompressible bytes to each page."""
    kids = " ".join(f"{3 + 2 * n} 0 R" for n in range(pages))
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Kids [{kids}] /Count {pages} >>".encode()]
    for number in range(pages):
        page = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents {4 + 2 * number} 0 R >>"
        text = f"BT (page {number + 1}) Tj ET".encode() + b"\n%" + b"x" * padding
        objects += [page.encode(), b"<< /Length %d >>\nstream\n" % len(text) + text + b"\nendstream"]
    return document(objects)


def document(objects: list[bytes]) -> bytes:
    """Build a PDF from objects; the first one is the catalog."""
    written = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(written))
        written += b"%d 0 obj\n" % number + content + b"\nendobj\n"
    table = len(written)
    written += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    written += b"".join(b"%010d 00000 n \n" % place for place in places)
    return bytes(written + b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(places) + 1, table))


def encrypted(user_password: str) -> bytes:
    """Build an encrypted PDF; with an empty password only changes are forbidden."""
    from pypdf import PdfWriter  # noqa: PLC0415 - tests of the server need none of it

    writer = PdfWriter()
    writer.add_blank_page(200, 200)
    writer.encrypt(user_password, "owner", algorithm="RC4-128")
    written = io.BytesIO()
    writer.write(written)
    return written.getvalue()


def endless() -> bytes:
    """Build a page tree with 60 levels, each of which contains the next one twice."""
    levels = 60
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    objects += [b"<< /Type /Pages /Kids [%d 0 R %d 0 R] /Count 2 >>" % (n, n) for n in range(3, 3 + levels)]
    return document([*objects, b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>"])


def bomb() -> bytes:
    """Build a PDF whose object table decompresses to gigabytes."""
    packed = zlib.compress(b"\0" * 64 * 1024 * 1024, 9)
    packed = zlib.compress(zlib.compress(packed, 9), 9)
    stream = b"<< /Type /ObjStm /N 1 /First 5 /Filter [/FlateDecode /FlateDecode /FlateDecode] /Length %d >>\nstream\n"
    objects = [b"<< /Type /Catalog /Pages 9 0 R >>", stream % len(packed) + packed + b"\nendstream"]
    return document(objects)
