# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes the exporter; clients that are none are turned away."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import re
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fakes import counters, guest, snapshot
from gangd.errors import GangError, NoDaemon
from gangd.export import http as exporter
from gangd.model.domain import Mark
from gangd.model.snapshot import Snapshot
from host.system.scraped import prometheus, served

WEB = guest("web", 3, mark=Mark())
EVIL = 'e"v\\il\n\x1b'


@pytest.fixture
def port() -> Iterator[int]:
    with served(snapshot(guest("web", 3, mark=Mark()), guest(EVIL, 4, 1))) as found:
        yield found


def get(port: int, method: str = "GET", path: str = "/metrics", **headers: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    return connection.getresponse()


def raw(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while piece := peer.recv(65536):
                answer += piece
        except ConnectionError:
            pass
        return answer


def test_metrics_in_every_form(port: int) -> None:
    """Text, OpenMetrics, gzip and HEAD agree."""
    plain = get(port)
    body = plain.read()
    assert plain.status == 200 and plain.headers["Content-Type"].startswith("text/plain")
    names = {
        s.labels["domain"]
        for f in text_string_to_metric_families(body.decode())
        for s in f.samples
        if "domain" in s.labels
    }
    assert names == {"web", EVIL}
    packed = get(port, Accept_Encoding="deflate, gzip;q=0.5")
    assert gzip.decompress(packed.read()) == body and packed.headers["Content-Encoding"] == "gzip"
    assert get(port, Accept_Encoding="gzip;q=0").read() == body
    assert get(port, Accept="application/openmetrics-text").read().endswith(b"# EOF\n")
    head = get(port, "HEAD")
    assert int(head.headers["Content-Length"]) == len(body) and head.read() == b""


def test_runbooks_are_served_and_nothing_beside_them(port: int) -> None:
    page = get(port, path="/runbooks/GangdDown.md")
    assert (page.status, page.read()) == (200, b"# GangdDown\n")
    assert get(port, path="/runbooks/../../etc/passwd").status == 404


def certificate(folder: Path, name: str) -> tuple[str, str]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    files = str(folder / f"{name}.pem"), str(folder / f"{name}.key")
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0]]
    subprocess.run([*words, "-keyout", files[1]], check=True, capture_output=True)
    return files


def test_https(tmp_path: Path) -> None:
    """A client that trusts the certificate gets the page, also after it is renewed; one that speaks HTTP gets
    nothing. A certificate without its key is refused, and the one before stays in use."""
    old, new = certificate(tmp_path, "old"), certificate(tmp_path, "new")

    def scraped(trusted: str) -> int:
        trust = ssl.create_default_context(cafile=trusted)
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/metrics", context=trust, timeout=10) as page:
            return int(page.status)

    context = exporter.secure(*old)
    with served(snapshot(guest("web", 3)), context) as port:
        assert scraped(old[0]) == 200
        assert b"200" not in raw(port, b"GET /metrics HTTP/1.1\r\n\r\n")
        with pytest.raises(GangError, match="cannot use the certificate"):
            exporter.present(context, new[0], old[1])
        assert scraped(old[0]) == 200
        exporter.present(context, *new)
        assert scraped(new[0]) == 200
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            scraped(old[0])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        *(("GET", "/", 200), ("GET", "/nope", 404), ("POST", "/metrics", 405), ("GET", "/metrics?x=1", 200)),
        *(("POST", "/", 405), ("HEAD", "/", 200), ("GET", "/runbooks/", 200), ("GET", "/runbooks", 404)),
    ],
)
def test_status(port: int, method: str, path: str, status: int) -> None:
    assert get(port, method, path).status == status


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n", b"\0" * 5000 + b"\r\n\r\n", b"GET /metrics\r\n\r\n", b"GET /metrics HTTP/9\r\n\r\n",
        b"GET http://x/ HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/1.1\r\n : x\r\n\r\n", b"GET /metrics HTTP/1.1\r\nhalf",
    ],
)  # fmt: skip
def test_garbage_is_a_bad_request(port: int, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """No garbage gets more than a 400, and none an exception."""
    assert raw(port, data).startswith(b"HTTP/1.1 400 ")
    assert get(port).status == 200
    assert not caplog.records


def test_endless_headers_are_cut_off(port: int) -> None:
    """A header section beyond the bound is refused or reset, never collected."""
    request = b"GET / HTTP/1.1\r\nx: "
    assert raw(port, request + b"y" * 10_000).startswith(b"HTTP/1.1 431 ")
    with contextlib.suppress(OSError):  # a reset may overtake the answer
        assert raw(port, request + b"y" * 1_000_000)[:13] in (b"", b"HTTP/1.1 431 ")
    assert get(port).status == 200


def test_slow_clients_are_dropped(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends nothing holds its connection for a bounded time, and nobody else's."""
    assert exporter.TIMEOUT_SECONDS <= 5
    monkeypatch.setattr(exporter, "TIMEOUT_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as idle:
        assert get(port).status == 200
        with suppress(ConnectionError):
            assert idle.recv(1) == b""


def status_now(port: int) -> int:
    """The status of a scrape, 0 where the connection is cut off."""
    try:
        return int(get(port).status)
    except OSError:
        return 0


@contextlib.contextmanager
def stopped_reading(port: int) -> Iterator[socket.socket]:
    """A client that has read one byte of its answer, and reads no more."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(10)
        client.connect(("127.0.0.1", port))
        client.sendall(b"GET /runbooks/GangdDown.md HTTP/1.1\r\n\r\n")
        assert client.recv(1) == b"H"
        yield client


def test_clients_that_stop_reading_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a client is counted as long as it is served, and is cut off after a bounded time, also where the
    rest of its answer is so short that drain() does not wait for it."""

    async def at_once(_writer: asyncio.StreamWriter) -> None:
        pass

    def until_served() -> None:
        deadline = time.monotonic() + 10
        while status_now(port) != 200:
            assert time.monotonic() < deadline, "nobody else is served"
            time.sleep(0.02)

    monkeypatch.setattr(asyncio.StreamWriter, "drain", at_once)
    monkeypatch.setattr(exporter, "CONNECTIONS", 1)
    monkeypatch.setattr(exporter, "TIMEOUT_SECONDS", 3600)
    with served(snapshot(), runbook=bytes(32 << 20)) as port:  # more than sockets take
        with stopped_reading(port), socket.create_connection(("127.0.0.1", port), 10) as beyond:
            assert beyond.recv(13) == b"HTTP/1.1 503 "
        until_served()
        monkeypatch.setattr(exporter, "TIMEOUT_SECONDS", 0.5)
        with stopped_reading(port) as client:
            until_served()
            answer = 1
            with suppress(ConnectionError):
                while piece := client.recv(1 << 20):
                    answer += len(piece)
            assert answer < 32 << 20


def test_connections_are_bounded(port: int) -> None:
    """A client beyond 64 at once is turned away before it says anything; the 64th is not, and makes room."""
    with contextlib.ExitStack() as opened:
        *_, last = (
            opened.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(64)
        )
        with socket.create_connection(("127.0.0.1", port), 10) as beyond:
            assert beyond.recv(13) == b"HTTP/1.1 503 "
        last.shutdown(socket.SHUT_WR)
        assert last.recv(1) == b""
        assert get(port).status == 200


@pytest.mark.parametrize("path", ["/", "/metrics"])
def test_a_broken_snapshot_is_a_500(path: str) -> None:
    """The inner failure is logged, not told."""
    with served(RuntimeError("secret detail")) as port:
        answer = get(port, path=path)
        assert answer.status == 500 and b"secret" not in answer.read()


def test_the_page_for_people(port: int) -> None:
    """The page is HTML that a browser may add nothing to, and the same in a gzip."""
    answer = get(port, path="/")
    body = answer.read()
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert {answer.headers[name] for name in exporter.GUARDED} == set(exporter.GUARDED.values())
    assert b">web</th>" in body and b"e&quot;v\\il\\x0a\\x1b</th>" in body
    assert gzip.decompress(get(port, path="/", Accept_Encoding="gzip").read()) == body
    listed = get(port, path="/runbooks/")
    assert b'href="GangdDown.md"' in listed.read() and listed.headers["Content-Security-Policy"]
    assert get(port).headers["Content-Security-Policy"] is None


def test_without_gangd_a_person_gets_a_page() -> None:
    """The page tells no cause: that may be about the host."""
    with served(GangError("cannot reach /secret: gone")) as port:
        answer = get(port, path="/")
        body = answer.read()
        assert answer.status == 503 and answer.headers["Content-Type"].startswith("text/html")
        assert b"gangd does not answer" in body and b"secret" not in body
        assert get(port).headers["Content-Type"].startswith("text/plain")


def test_without_gangd_there_is_no_page(caplog: pytest.LogCaptureFixture) -> None:
    """A scrape fails as long as gangd does not answer; the log says why, once."""
    with served(NoDaemon("gangd is not running")) as port:
        assert [get(port).status for _ in range(3)] == [503, 503, 503]
    assert [record.getMessage() for record in caplog.records] == ["gangd is not running"]


def test_a_taken_port_is_a_gang_error(port: int) -> None:
    async def never(_openmetrics: bool) -> tuple[str, str]:
        return "", ""

    with pytest.raises(GangError, match="cannot listen"):
        asyncio.run(exporter.serve(f"127.0.0.1:{port}", never))


def test_a_descheduler_may_ask_for_contention(tmp_path: Path) -> None:
    """The query of docs/stacks.md gives the Kubernetes descheduler (usageclients.go) an instant vector: each
    sample has `instance` and a value in [0,1], and each node has one, also where gangd is down."""
    page = (Path(__file__).parents[3] / "docs/stacks.md").read_text()
    (query,) = re.findall(r'query: "(gangd:.*)"\}', page)
    growing = count()

    def busy() -> Snapshot:
        return snapshot(WEB, stats={WEB.uuid: counters(WEB, float(next(growing)))})

    with socket.socket() as down, served(busy) as port:
        down.bind(("127.0.0.1", 0))  # nobody listens
        nodes = {f"127.0.0.1:{one}" for one in (port, down.getsockname()[1])}
        with prometheus(tmp_path, port, down.getsockname()[1]) as ask:
            ask.wait("gangd:node_contention:ratio > 0")
            samples = ask.samples(query.replace("\\", ""))
            assert {labels["instance"] for labels, _ in samples} == nodes and len(samples) == len(nodes)
            assert all(0 <= value <= 1 for _, value in samples)
            assert sorted(value for _, value in samples) == [pytest.approx(0.2, abs=0.02), 0.35]


def test_prometheus_scrapes_it(port: int, tmp_path: Path) -> None:
    """The target is up and a query returns the counter."""
    with prometheus(tmp_path, port) as ask:
        assert ask.wait('up{job="gangd"}') == [1]
        assert ask.wait('gangd_kvm_pause_exits_total{domain="web",vcpu="1"}') == [10001]
        assert ask.wait("count(gangd_domain_info)") == [2]
