"""The page of `watch --web`: who may read it, what it may load, and its end."""

from __future__ import annotations

import base64
import hashlib
import http.client
import io
import re
import socket
import threading
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from tests.busy import BUSY
from tests.unit.report import conftest as given

from ddplaunch.backends.job import Job, State
from ddplaunch.cli.page_server import HOST, WebView
from ddplaunch.errors import UsageError
from ddplaunch.report import board, html


class Reply(NamedTuple):
    """What a browser gets."""

    status: int
    headers: http.client.HTTPMessage
    text: str


def get(view: WebView, path: str, method: str = "GET") -> Reply:
    port = int(view.url.split(":")[2].split("/")[0])
    connection = http.client.HTTPConnection(HOST, port, timeout=BUSY * 10)
    connection.request(method, path)
    reply = connection.getresponse()
    found = Reply(reply.status, reply.headers, reply.read().decode())
    connection.close()
    return found


def path(view: WebView) -> str:
    """The page's path, which has the token."""
    return "/" + view.url.split("/", 3)[3]


def running(**changes: object) -> Job:
    """A job with a notice."""
    return given.job(State.RUNNING, status=given.status(verdicts=[given.VERDICT], **changes))


@pytest.fixture(name="view")
def _view() -> Iterator[WebView]:
    with WebView(io.StringIO()) as view:
        yield view


def test_the_page_can_be_read_as_it_is(view: WebView) -> None:
    """By a browser without scripts, too, which loads it again every few seconds."""
    view.show(running())
    reply = get(view, path(view))

    assert 200 == reply.status
    for text in ("local://digits/3", "running on 2 nodes", given.VERDICT.sentence, "ranks 1-3 can only wait"):
        assert text in reply.text
    assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in reply.text
    assert "notice: rank-in-user-code" in reply.text


def test_the_part_that_changes_is_asked_for_alone(view: WebView) -> None:
    """As the page's script does, once a second."""
    view.show(running())

    part = get(view, f"{path(view)}board")

    assert part.text.strip().startswith('<div id="state">')
    assert part.text.strip() in get(view, path(view)).text


@pytest.mark.parametrize("guess", ["/", "/board", "/x/", "/x/board", "/%2e%2e/", "/../"])
def test_who_does_not_know_the_address_gets_nothing(view: WebView, guess: str) -> None:
    """Other users of the machine reach the port as well."""
    view.show(running())

    reply = get(view, guess)

    assert (404, "not found\n") == (reply.status, reply.text)
    assert 404 == get(view, f"{path(view)[:-2]}/").status
    assert 404 == get(view, f"{path(view)}other").status


def test_each_page_has_an_address_of_its_own(view: WebView) -> None:
    """An old one tells nothing about the next."""
    with WebView(io.StringIO()) as other:
        assert 32 == len(path(view).strip("/"))
        assert path(view) != path(other)


def test_the_page_loads_and_runs_nothing_else(view: WebView) -> None:
    """The policy allows its own script and style by their sums, and the page has no others."""
    view.show(running())
    reply = get(view, path(view))
    policy = reply.headers["Content-Security-Policy"]

    assert policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        inside = re.findall(rf"<{tag}>(.*?)</{tag}>", reply.text, re.DOTALL)
        digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in inside]
        assert [f"{tag}-src 'sha256-{digest}';" in policy for digest in digests] == [True]
    assert not re.search(r"(src|href)\s*=|https?:|\son\w+=|url\(|@import", reply.text)
    assert "no-store" == reply.headers["Cache-Control"]
    assert "no-referrer" == reply.headers["Referrer-Policy"]


def test_what_a_job_says_is_text() -> None:
    evil = given.job(State.PENDING, detail="<script>alert(1)</script>\x1b[31m", hint='"><img onerror=x>')
    shown = board.make_board(evil, given.AT)

    for text in (html.live_page(shown, ["<b>"]), html.live_part(shown, ["<b>"])):
        assert not re.search(r"<script>alert|<img|<b>|\x1b", text)
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_only_reading_is_possible(view: WebView) -> None:
    """HEAD is answered without the page, and nothing can be sent."""
    view.show(running())

    head = get(view, path(view), "HEAD")

    assert (200, "") == (head.status, head.text)
    assert 501 == get(view, path(view), "POST").status


def test_before_anything_is_known_there_is_a_reply(view: WebView) -> None:
    assert 503 == get(view, path(view)).status


def test_a_reader_gets_the_end() -> None:
    """The server waits a moment for the browser that has looked before; its script then stops."""
    with WebView(io.StringIO()) as view:
        view.show(running())
        get(view, path(view))
        view.show(given.job(State.FAILED, exit_code=50))
        seen: list[str] = []
        later = threading.Timer(0.3, lambda: seen.append(get(view, f"{path(view)}board").text))
        later.start()
    later.join()

    assert [True] == ["data-ended" in text and "This page has ended with the job." in text for text in seen]
    with pytest.raises(OSError, match="refused"):
        get(view, path(view))


def test_a_page_that_nobody_reads_delays_nothing() -> None:
    """Nor does a client that sends nothing."""
    stream = io.StringIO()
    with WebView(stream) as view:
        port = int(view.url.split(":")[2].split("/")[0])
        silent = socket.create_connection((HOST, port))
        view.show(running())
        view.show(given.job(State.SUCCEEDED))
    silent.close()

    assert view.url in stream.getvalue()
    assert f"ssh -L {port}:{HOST}:{port} " in stream.getvalue()
    assert "ddplaunch: running on 2 nodes" in stream.getvalue()


def test_a_port_that_is_taken_is_an_error_with_advice() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            UsageError, match=f"port {port} on {HOST} is not available: Address already in use"
        ):
            WebView(io.StringIO(), port)


def test_a_port_of_one_s_own_is_taken() -> None:
    """It can be forwarded before the job begins."""
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    with WebView(io.StringIO(), port) as view:
        assert view.url.startswith(f"http://{HOST}:{port}/")
