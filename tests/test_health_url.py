"""One strict parser for every URL that a user or a card gives (pitfalls 47, 48, 154)."""

from __future__ import annotations

import pytest

import registry.url
from healthcheck.url import MAX_URL, UrlError, authority_of, parse_url

GOOD = {
    "http://h": "http://h/",
    "HTTP://H:80/x": "http://h/x",
    "https://h:443": "https://h/",
    "https://h:8443/a?b=c": "https://h:8443/a?b=c",
    "http://127.0.0.1:9/": "http://127.0.0.1:9/",
    "http://[::1]:8080/x": "http://[::1]:8080/x",
    "http://[0:0:0:0:0:0:0:1]/": "http://[::1]/",
    "http://a_b.example./": "http://a_b.example./",
    "http://h/a%2Fb;c=d,e:f@g": "http://h/a%2Fb;c=d,e:f@g",
    "http://h?": "http://h/?",
    "http://h?x=1": "http://h/?x=1",
    "http://h/a/../b/./c": "http://h/a/../b/./c",
    "http://h/a|b?c=[1]": "http://h/a|b?c=[1]",
    "http://-h/": "http://-h/",
}
BAD = {
    "": "url_malformed",
    "h:80": "url_scheme",
    "/x": "url_scheme",
    "ftp://h/": "url_scheme",
    "file:///etc/passwd": "url_scheme",
    "http:/x": "url_malformed",
    "http:///x": "url_malformed",
    "http://": "url_malformed",
    "http://h:/": "url_malformed",
    "http://h:0/": "url_malformed",
    "http://h:99999/": "url_malformed",
    "http://h:-1/": "url_malformed",
    "http://h:x/": "url_malformed",
    "http://h h/": "url_malformed",
    "http://h\t.com/": "url_malformed",
    "http://h\r\nX: y/": "url_malformed",
    "http://h\x00/": "url_malformed",
    "http://127.0.0.%31/": "url_malformed",
    "http://127.0.0.1:6666\\@1.1.1.1/": "url_malformed",
    "http://１２７.0.0.1/": "url_malformed",
    "http://u:p@h/": "url_userinfo",
    "http://@h/": "url_userinfo",
    "http://h:80@169.254.169.254/": "url_userinfo",
    "http://h/#": "url_fragment",
    "http://h/x#y": "url_fragment",
    "http://h#@i/": "url_fragment",
    "http://[::1/": "url_malformed",
    "http://[fe80::1%25eth0]/": "url_malformed",
    "http://[fe80::1%eth0]/": "url_malformed",
    "http://[127.0.0.1]/": "url_malformed",
    "http://[::1]evil/": "url_malformed",
    "http://evil[::1]/": "url_malformed",
    "http://[::1]:80:90/": "url_malformed",
    "http://h:80:90/": "url_malformed",
    "http://h/%zz": "url_malformed",
    "http://h/<x>": "url_malformed",
    "http://h..i/": "url_malformed",
    "http://h/" + "x" * 2048: "url_malformed",
}


@pytest.mark.parametrize("text", GOOD)
def test_good(text: str) -> None:
    assert str(parse_url(text)) == GOOD[text]


@pytest.mark.parametrize("text", BAD)
def test_bad(text: str) -> None:
    with pytest.raises(UrlError) as caught:
        parse_url(text)
    assert caught.value.reason == BAD[text]


@pytest.mark.parametrize("text", [*GOOD, *BAD])
def test_what_can_be_registered_can_be_probed(text: str) -> None:
    """Health contract 7: probes go where traffic goes, so both parsers must take the same URLs in the same way."""
    try:
        registered = registry.url.parse_url(text)
    except ValueError:
        registered = None
    try:
        probed = parse_url(text)
    except UrlError:
        probed = None
    if registered is None or len(text) > MAX_URL:
        assert probed is None
    else:
        assert probed is not None
        assert (probed.origin.host, probed.origin.port) == (registered.host, registered.port)
        assert (probed.origin.scheme, probed.target.encode()) == (registered.scheme, registered.target)


def test_what_is_shown_of_an_endpoint_holds_no_credential() -> None:
    """Health contract 2: never a URL with credentials."""
    assert authority_of("https://h:8443/secret?token=x") == "h:8443"
    assert authority_of("https://user:secret@h/") is None
