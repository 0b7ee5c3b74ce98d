"""registry.url: one parser for registration, guard and upstream (contract 5.1, pitfalls 33, 47, 48, 154)."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from registry.url import Url, parse_url

ACCEPTED = [
    ("http://h", "http", "h", 80, b"h", b"/"),
    ("http://h/", "http", "h", 80, b"h", b"/"),
    ("HTTP://H", "http", "h", 80, b"h", b"/"),
    ("https://Agent.Example:443/a", "https", "agent.example", 443, b"agent.example", b"/a"),
    ("https://h:80/", "https", "h", 80, b"h:80", b"/"),
    ("http://h:8080", "http", "h", 8080, b"h:8080", b"/"),
    ("http://h?x=1", "http", "h", 80, b"h", b"/?x=1"),
    ("http://h:0080/", "http", "h", 80, b"h", b"/"),
    ("http://my_service-1:65535/", "http", "my_service-1", 65535, b"my_service-1:65535", b"/"),
    ("http://svc.cluster.local.:81/", "http", "svc.cluster.local.", 81, b"svc.cluster.local.:81", b"/"),
    ("http://xn--bcher-kva.example/", "http", "xn--bcher-kva.example", 80, b"xn--bcher-kva.example", b"/"),
    ("http://[::1]:18080/x", "http", "::1", 18080, b"[::1]:18080", b"/x"),
    ("http://[0:0:0:0:0:0:0:1]/", "http", "::1", 80, b"[::1]", b"/"),
    ("http://[::ffff:127.0.0.1]:9001/", "http", "::ffff:7f00:1", 9001, b"[::ffff:7f00:1]:9001", b"/"),
    # Odd spellings of addresses are names here; the guard judges what they resolve to (contract 6.3).
    ("http://2130706433/", "http", "2130706433", 80, b"2130706433", b"/"),
    ("http://0x7f.1/", "http", "0x7f.1", 80, b"0x7f.1", b"/"),
]

TARGETS = [
    "/a2a/v1", "/a2a/v1/", "/a2a?k=v%2F1", "/a/../b", "//x//", "/%2e%2e/%2F", "/?", "/a?b?c", "/a?x[]=1|2",
    "/a@b:c;d=e,f", "/~u/(x)!*'$&+", "/a?next=http://other/",
]  # fmt: skip

REFUSED = {
    "credentials": [
        "http://u:p@127.0.0.1:9001/", "http://@h/", "http://h:80@169.254.169.254/", "http://u@[::1]/",
    ],
    "zone": ["http://[fe80::1%25eth0]/", "http://[fe80::1%eth0]/"],
    "brackets": ["http://::1/", "http://h:80:80/", "http://[::1/", "http://[::1]x/", "http://[[::1]]/"],
    "IPv6": ["http://[]/", "http://[v1.x]/", "http://[127.0.0.1]/"],
    "backslash": ["http://127.0.0.1:6666\\@1.1.1.1/", "http://h\\x"],
    "control": [
        "http://h\t.com", "http://h\r\nX: y/", "http://h/\x00", "http://h/\x7f", " http://h/", "http://h/ ",
        "http://h/a b",
    ],
    "absolute": ["http:/x", "http:x", "", "h", "//h/x", "/x"],
    "missing": ["http://", "http:///x", "http://:80/", "http://?x"],
    "fragment": ["http://h#@i/", "http://h/#"],
    "ASCII": [
        "http://１２７.0.0.1/", "http://bücher.example/", "http://h/é", "http://h/\u2028", "http://h\u3002com/",
        "http://h/\ud83d",
    ],
    "port": [
        "http://h:0/", "http://h:-1/", "http://h:99999/", "http://h:65536/", "http://h:/", "http://h:8x/",
        "http://h:+80/", "http://h:000080/", "http://h:" + "9" * 5000 + "/",
    ],
    "host is malformed": [
        "http://127.0.0.%31/", "http://h%00/", "http://a..b/", "http://./", "http://.a/", "http://a../",
        "http://a*b/", "http://a,b/", "http://" + "a" * 64 + "/", "http://" + "a." * 127 + "a/",
    ],
    "scheme": ["ftp://h/", "file:///etc/passwd", "javascript:alert(1)", "httpx://h/", "h:80"],
    "percent-encoded": [
        "http://h/<x>", 'http://h/"', "http://h/{t}", "http://h/100%", "http://h/%zz", "http://h/?q=%4",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("text", "scheme", "host", "port", "authority", "target"), ACCEPTED)
def test_accepted_and_taken_apart(
    text: str, scheme: Literal["http", "https"], host: str, port: int, authority: bytes, target: bytes
) -> None:
    assert parse_url(text) == Url(scheme, host, port, authority, target)


@pytest.mark.parametrize("target", TARGETS)
def test_path_and_query_stay_as_registered(target: str) -> None:
    """Pitfall 33: the request target equals the registered path and query."""
    assert parse_url(f"http://h:9{target}").target == target.encode()


@pytest.mark.parametrize(
    ("text", "reason"), [(text, reason) for reason, texts in REFUSED.items() for text in texts]
)
def test_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_url(text)


def test_the_reason_never_repeats_a_password() -> None:
    """Pitfall 47: credentials are never echoed."""
    for text in ("http://u:secret@h/", "ftp://u:secret@h/", "http://u:secret@h/ x", "http://h:secret/"):
        with pytest.raises(ValueError, match=r".") as refused:
            parse_url(text)
        assert "secret" not in str(refused.value)


def test_server_name_has_no_trailing_dot() -> None:
    assert parse_url("https://a.example./").server_name == "a.example"


_PIECES = st.sampled_from(
    ["http://", "https://", "h", "a.b", "[::1]", "[", "]", ":", "80", "@", "/", "?", "#", "%41", "\\", "é"]
)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), st.text().map("http://{}".format), st.lists(_PIECES).map("".join)))
@example("http://[::1%0]/")
@example("http://h:٣/")
def test_only_url_or_value_error_and_a_fixed_point(text: str) -> None:
    """Pitfall 154: nothing but a Url or ValueError; what was put together again reads the same."""
    try:
        url = parse_url(text)
    except ValueError:
        return
    assert parse_url(str(url)) == url
    assert url.target.startswith(b"/")
    assert 1 <= url.port <= 65535
