"""A server on 127.0.0.1 that speaks enough of S3 to be read from: it lists, and gives ranges.

It counts the bytes and requests of every object, and breaks connections when told to.
"""

import contextlib
import re
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

KEY, SECRET = "AKIDTESTTESTTEST", "no-such-secret-0123456789"


class S3Server(ThreadingHTTPServer):
    """The folders below ``root`` are the buckets."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.given: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.page = 7
        """Names in an answer that lists, at most: few, so that lists have pages."""
        self.breaks = 0
        """How many of the next answers with content end halfway."""
        self.refuses: set[str] = set()
        """Objects that are answered with 500."""
        self.unsigned = 0

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server_port}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def handle_error(self, request: object, client_address: object) -> None:
        """A reader that left is no error of a test."""


class _Handler(BaseHTTPRequestHandler):
    server: S3Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # header and body are two writes: 40 ms between them

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer_object(body=False)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        if "list-type" in query:
            self.listed(parts.path.strip("/"), query)
        else:
            self.answer_object(body=True)

    def answer_object(self, *, body: bool) -> None:
        if KEY not in self.headers.get("Authorization", ""):
            self.server.unsigned += 1
        name = unquote(urlsplit(self.path).path).strip("/")
        file = self.server.root / name
        self.server.requests[name] += 1
        if name in self.server.refuses:
            return self.sent(500, b"")
        if file.is_dir() and file.parent == self.server.root:
            return self.sent(200, b"")
        if not file.is_file():
            return self.sent(404, b"" if not body else b"<Error><Code>NoSuchKey</Code></Error>")
        size = file.stat().st_size
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last = int(match[1]), min(int(match[2] or size), size - 1)
            with file.open("rb") as opened:
                opened.seek(first)
                part = opened.read(last + 1 - first)
            more = {"Content-Range": f"bytes {first}-{last}/{size}"}
            return self.sent(206, part, body=body, name=name, **more)
        return self.sent(200, file.read_bytes(), body=body, name=name)

    def sent(
        self, status: int, content: bytes, *, body: bool = True, name: str = "", **headers: str
    ) -> None:
        self.send_response(status)
        headers |= {"Content-Length": str(len(content)), "ETag": '"0"', "Accept-Ranges": "bytes"}
        headers |= {"Last-Modified": "Mon, 23 Nov 2026 00:00:00 GMT"}
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        if not body:
            return
        if name and self.server.breaks > 0:
            self.server.breaks -= 1
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)
            return
        self.server.given[name] += len(content)
        self.wfile.write(content)

    def listed(self, bucket: str, query: dict[str, list[str]]) -> None:
        root = self.server.root / bucket
        prefix = query.get("prefix", [""])[0]
        found = sorted(f.relative_to(root).as_posix() for f in root.rglob("*") if f.is_file())
        found = [name for name in found if name.startswith(prefix)]
        start = int(query.get("continuation-token", ["0"])[0])
        most = min(int(query.get("max-keys", ["1000"])[0]), self.server.page)
        page = found[start : start + most]
        more = start + most < len(found)
        lines = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{(root / name).stat().st_size}</Size>"
            "<LastModified>2026-11-23T00:00:00.000Z</LastModified></Contents>"
            for name in page
        )
        token = f"<NextContinuationToken>{start + most}</NextContinuationToken>" if more else ""
        text = (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>'
            f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{lines}</ListBucketResult>"
        )
        self.sent(200, text.encode())


@contextlib.contextmanager
def s3_server(root: Path) -> Iterator[S3Server]:
    server = S3Server(root)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
