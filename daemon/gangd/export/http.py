# SPDX-License-Identifier: Apache-2.0
"""A small HTTP/1.1 server for /metrics, and for a page for people.

One request per connection, bounded in size and in time: nothing that a client sends
can hold more than a few kilobytes or a few seconds. Of the request, what is asked of gangd holds two
bits: which page, and which of two formats. A browser is told to load and run nothing for a page.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from gangd.control.text import printable
from gangd.errors import GangError, InvalidConfig
from gangd.export.frame import absent, index

log = logging.getLogger(__name__)

HEADER_BYTES = 8192
TIMEOUT_SECONDS = 5.0
CONNECTIONS = 64
HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
MARKDOWN = "text/markdown; charset=utf-8"
OPENMETRICS = "application/openmetrics-text"

# Names of guests are in the pages: if one of them ever were markup, it could load, run and send nothing.
GUARDED = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

Reply = tuple[HTTPStatus, dict[str, str], bytes]
# Content type and text of a page, as OpenMetrics or not where it is of metrics.
Page = Callable[[bool], Awaitable[tuple[str, str]]]


async def serve(
    listen: str,
    pages: Mapping[str, Page],
    tls: ssl.SSLContext | None = None,
    runbooks: Mapping[str, bytes] | None = None,
) -> asyncio.Server:
    """Serve at `listen`: "HOST:PORT" or "[IPV6]:PORT", "[::]:PORT" for every address, IPv4's too.

    pages: by path, each made when it is asked for. tls: by HTTPS. runbooks: served at /runbooks/NAME.
    Raises InvalidConfig for a `listen` that is not an address, GangError when it cannot be had.
    """
    host, port = parse_listen(listen)
    exporter = _Exporter(pages, runbooks or {})
    bounds: dict[str, Any] = {"limit": HEADER_BYTES}
    if tls:
        bounds |= {"ssl": tls, "ssl_handshake_timeout": TIMEOUT_SECONDS}
    try:
        anywhere = host in ("", "::")  # asyncio binds "::" for IPv6 alone
        return await asyncio.start_server(exporter.handle, None if anywhere else host, port, **bounds)
    except (OSError, UnicodeError) as error:
        raise GangError(f"cannot listen at '{printable(listen)}': {printable(str(error))}")


def secure(certificate: str, key: str) -> ssl.SSLContext:
    """A server's side of TLS 1.2 or later, by PEM files. Raises GangError if they cannot be used."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    present(context, certificate, key)
    return context


def present(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Read the certificate anew, for connections from now on. Raises GangError, and the old one is kept."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            certificate, key
        )  # halves of two would break it
        context.load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        which = f"'{printable(certificate)}' with the key '{printable(key)}'"
        raise GangError(f"cannot use the certificate {which}: {printable(str(error))}")


def parse_listen(listen: str) -> tuple[str, int]:
    """Host ("" = every address) and port (0 = any free one)."""
    host, separator, port = listen.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    valid = port.isascii() and port.isdigit() and int(port[:6]) <= 65535
    if not separator or not valid or (":" in host and not bracketed) or "\0" in host:
        raise InvalidConfig(f"'{printable(listen)}' is not HOST:PORT or [IPV6]:PORT")
    return host[1:-1] if bracketed else host, int(port)


class _Exporter:
    def __init__(self, pages: Mapping[str, Page], runbooks: Mapping[str, bytes]) -> None:
        self.pages = pages
        self.fixed = {"/runbooks/": (HTML, index(runbooks).encode())} | {
            f"/runbooks/{name}": (MARKDOWN, text) for name, text in runbooks.items()
        }
        self.open = 0
        self.trouble = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection. A client's fault never leaves this method."""
        self.open += 1
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await self._exchange(reader, writer)
                writer.close()
                await writer.wait_closed()  # drain() does not wait for the last 64 KiB
        except (OSError, TimeoutError):
            pass
        except Exception:
            log.exception("failed to answer a scrape")
        finally:
            writer.transport.abort()
            self.open -= 1

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = False
        try:
            if self.open > CONNECTIONS:
                reply = _plain(HTTPStatus.SERVICE_UNAVAILABLE)
            else:
                method, target, headers = parse(await reader.readuntil(b"\r\n\r\n"))
                head = method == "HEAD"
                reply = await self._answer(method, target, headers)
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                return
            reply = _plain(HTTPStatus.BAD_REQUEST)
        except asyncio.LimitOverrunError:
            reply = _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except ValueError:
            reply = _plain(HTTPStatus.BAD_REQUEST)
        writer.write(_encode(reply, head))
        await writer.drain()

    async def _answer(self, method: str, target: str, headers: Mapping[str, str]) -> Reply:
        path = target.partition("?")[0]
        if path not in self.pages and path not in self.fixed:
            return _plain(HTTPStatus.NOT_FOUND)
        if method not in ("GET", "HEAD"):
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "GET, HEAD"})
        if path in self.fixed:
            kind, body = self.fixed[path]
            return HTTPStatus.OK, _typed(kind), body
        try:
            content_type, text = await self.pages[path](_accepts(headers.get("accept", ""), OPENMETRICS))
        except GangError as error:
            if self.trouble != error.cause:  # once, not at every scrape
                log.warning("%s", error.cause)
            self.trouble = error.cause
            return _unavailable(path)
        except Exception:
            log.exception("failed to make %s", path)
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)
        self.trouble, body = "", text.encode()
        fields = _typed(content_type) | {"Vary": "Accept, Accept-Encoding"}
        if _accepts(headers.get("accept-encoding", ""), "gzip"):
            return HTTPStatus.OK, fields | {"Content-Encoding": "gzip"}, gzip.compress(body, 6)
        return HTTPStatus.OK, fields, body


def parse(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Method, target and lower-cased headers of a request. Raises ValueError on anything else."""
    lines = head.decode("latin-1").split("\r\n")
    method, target, version = lines[0].split(" ")
    if not method.isalpha() or not method.isascii() or not target.startswith("/"):
        raise ValueError("not a request")
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise ValueError("not HTTP/1")
    headers: dict[str, str] = {}
    for line in filter(None, lines[1:]):
        name, separator, value = line.partition(":")
        if not separator or not name or name != name.strip():
            raise ValueError("not a header")
        headers[name.lower()] = value.strip()
    return method, target, headers


def _accepts(accepted: str, wanted: str) -> bool:
    for entry in accepted.split(","):
        name, _, quality = entry.partition(";")
        if name.strip().lower() == wanted:
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _typed(kind: str) -> dict[str, str]:
    return {"Content-Type": kind} | (GUARDED if kind == HTML else {})


def _unavailable(path: str) -> Reply:
    """The answer while gangd does not: a page where a person asks, the same for every cause."""
    if path == "/":
        return HTTPStatus.SERVICE_UNAVAILABLE, _typed(HTML), absent().encode()
    return _plain(HTTPStatus.SERVICE_UNAVAILABLE)


def _plain(status: HTTPStatus, fields: dict[str, str] | None = None) -> Reply:
    return status, {"Content-Type": TEXT, **(fields or {})}, f"{status.phrase}\n".encode()


def _encode(reply: Reply, head: bool) -> bytes:
    status, fields, body = reply
    fields |= {"Content-Length": str(len(body)), "Connection": "close"}
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{k}: {v}" for k, v in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (b"" if head else body)
