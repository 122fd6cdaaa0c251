"""The one parser for each kind of value: hosts, links, amounts … (promises X6, M10, X1)."""

import math
import unicodedata
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asterism.errors import ToolError
from asterism.tools.addresses import AllowedHosts, checked_url
from asterism.types.permissions import amounts_of
from asterism.types.values import (
    address_of,
    host_of,
    ip_of,
    links_in,
    number_of,
    numbers_in,
    plain_path,
    recipients_in,
)
from tests.conftest import examples

# -- hosts -----------------------------------------------------------------------------------------

EVIL = [
    "evil.test",
    "EVIL.test",
    "evil.test.",
    "evil.test?d=SECRET&x=//www.example.org",
    "evil.test#//www.example.org",
    "evil.test/?//www.example.org",
    "evil.test/?x=https://www.example.org",
    "evil.test:80//www.example.org",
    "//evil.test/x",
    "  https://evil.test/x\n",
    "HTTPS://Evil.Test:443/x",
    "http://www.example.org@evil.test/",
    "http://www.example.org:80@evil.test:81/",
    "ｅvil.test",
    "https://ｅｖｉｌ．ｔｅｓｔ/",
    "evil。test",
    "evil｡test",
    "ev\u00adil.test",
    "ev\u200bil.test",
    "evil%2etest",
    "%65vil.test",
    "https://%EF%BD%85vil.test",
    "ftp://evil.test/x",
    "x-custom://evil.test",
]


@pytest.mark.promise("X6")
@pytest.mark.parametrize("address", EVIL)
def test_a_host_has_one_spelling_however_it_is_written(address: str):
    assert host_of(address) == "evil.test"


@pytest.mark.promise("X6")
@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://bücher.example/x", "xn--bcher-kva.example"),
        ("https://BU\u0308CHER.example/x", "xn--bcher-kva.example"),
        ("XN--bcher-kva.example", "xn--bcher-kva.example"),
        ("straße.example", "xn--strae-oqa.example"),
        ("http://127.1/", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0x7f.0.0.1:80", "127.0.0.1"),
        ("http://0177.0.0.1", "127.0.0.1"),
        ("１２７.0.0.1", "127.0.0.1"),
        ("http://[::1]:80/", "::1"),
        ("::1", "::1"),
        ("http://[0:0::1]", "::1"),
        ("[::ffff:127.0.0.1]", "127.0.0.1"),
        ("localhost", "localhost"),
        ("_dmarc.example.org", "_dmarc.example.org"),
    ],
)
def test_names_and_numbers_are_brought_to_one_form(address: str, host: str):
    assert host_of(address) == host
    assert host_of(host) == host


@pytest.mark.promise("X6")
@pytest.mark.parametrize(
    "address",
    [
        "",
        " ",
        "https://",
        "https:/evil.test",
        "https:evil.test",
        "https:443/x",
        "///evil.test",
        "http:\\\\evil.test",
        "https://evil.test\\@www.example.org",
        "https://www.example.org\\.evil.test",
        "https://evil\t.test",
        "ht\ntps://evil.test",
        "https://evil.test\0.example.org",
        "https://a@b@evil.test",
        "https://evil.test:x/",
        "https://evil.test:99999/",
        "https://evil.test:٨٠/",
        "evil.test:/x",
        "https://evil..test",
        "https://.evil.test",
        "https://evil test/",
        "https://evil%00.test",
        "https://evil%2f.test",
        "https://evil%ff.test",
        "https://evil%252etest",
        "evil.test／x",
        "https：//evil.test",
        "evil.test://www.example.org",
        "https://[::1",
        "https://[fe80::1%25eth0]/",
        "https://[::1]x/",
        "1.2.3.4.5",
        "256.1.1.1",
        "evil.09",
        "javascript:alert(1)",
        "https://" + "a" * 64 + ".test",
        "https://" + "a." * 127 + "test",
        "https://\ud800.test",
        "https://xn--\u00fc.test",
    ],
)
def test_an_address_that_programs_read_differently_has_no_host(address: str):
    assert host_of(address) is None
    with pytest.raises(ToolError):
        checked_url(address, AllowedHosts())


_PIECES = st.sampled_from(
    [
        *("http", "https", ":", "/", "//", "://", "\\", "@", "?", "#", ".", "%", "[", "]", "&x="),
        *("evil", "test", "example", "org", "www", "evil.test", "www.example.org", "localhost"),
        *("80", "443", "127.0.0.1", "0x7f", "0177", "1", "::1", "::ffff:8.8.8.8", "8.8.8.8"),
        *("%2e", "%2F", "%00", "%40", "ｅ", "。", "．", "／", "：", "＠", "ü", "ß", "а", "xn--"),
        *(
            "\u200b",
            "\u00ad",
            "\u202e",
            "\t",
            "\n",
            " ",
            "\0",
            "-",
            "_",
            "+",
            "℀",
            "①",
            "²",
            "\ud800",
        ),
    ]
)
_HOSTILE = st.lists(_PIECES, max_size=12).map("".join) | st.text(max_size=40)


@pytest.mark.promise("X6", "M10")
@given(_HOSTILE)
@example("evil.test?d=SECRET&x=//www.example.org")
@example("8.8.8.8.")
@examples(200, 2_000)
def test_what_is_connected_to_is_what_was_judged(address: str):
    host = host_of(address)
    try:
        url = checked_url(address, AllowedHosts())
    except ToolError:
        return
    assert url.host == host
    assert host_of(str(url)) == host
    assert url.scheme in ("http", "https")


@pytest.mark.promise("X6")
@given(_HOSTILE)
@examples(200, 1_000)
def test_the_spelling_of_a_host_stays(address: str):
    parts = address_of(address)
    if parts is None:
        return
    assert parts.host.isascii()
    assert parts.host == parts.host.lower()
    assert host_of(parts.host) == parts.host
    number = ip_of(parts.host)
    assert number is None or str(number) == parts.host


# -- links -----------------------------------------------------------------------------------------


@pytest.mark.promise("X6", "M10")
@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("Log in at https://evil.example/login.html.", "https://evil.example/login.html"),
        ("Get https://evil.example/setup.zip now", "https://evil.example/setup.zip"),
        ("![x](https://evil.example/blue-tiger-42.png)", "https://evil.example/blue-tiger-42.png"),
        ("![x](//evil.example/p.png)", "//evil.example/p.png"),
        ("<img src='//evil.example/p.png'>", "//evil.example/p.png"),
        ("//evil.example/p.png", "//evil.example/p.png"),
        ("see evil.example/login.html, please", "evil.example/login.html"),
        ("see evil.example.", "evil.example"),
        ("(evil.example)", "evil.example"),
        ("evil.example:8080/x", "evil.example:8080/x"),
        ("evil.zip/x", "evil.zip/x"),
        ("evil.zip?x=SECRET", "evil.zip?x=SECRET"),
        ("www.evil.zip", "www.evil.zip"),
        ("[x](evil.example)", "evil.example"),
        ("[x]: evil.example/p 'title'", "evil.example/p"),
        ("[x](javascript:alert(1))", "javascript:alert(1)"),
        ("data:text/html,<b>", "data:text/html"),
        ('<a href="evil.example/x">', "evil.example/x"),
        ("<https://evil.example/x>", "https://evil.example/x"),
        ("ftp://evil.example", "ftp://evil.example"),
        ("x-evil://open", "x-evil://open"),
        ("x-evil:open", "x-evil:open"),
        ("mailto:eve@evil.example", "mailto:eve@evil.example"),
        ("Ask eve@evil.example!", "eve@evil.example"),
        ("eve@evil.zip", "eve@evil.zip"),
        ("https://en.example.org/wiki/A_(b)", "https://en.example.org/wiki/A_(b)"),
        ("[https://good.example](https://evil.example)", "https://evil.example"),
        ("https://good.example,https://evil.example", "https://evil.example"),
        ("https://good.example/?u=https://evil.example/x", "https://evil.example/x"),
        ("https://ev\u200bil.exam\u00adple", "https://evil.example"),
        ("ev\u2060il.example", "evil.example"),
        ("hxxps://evil.example/x", "https://evil.example/x"),
        ("hxxp[:]//evil[.]example", "http://evil.example"),
        ("evil[.]example", "evil.example"),
        ("evil (dot) example", "evil.example"),
        ("eve [at] evil {dot} example", "eve@evil.example"),
        ("ｅｖｉｌ．ｅｘａｍｐｌｅ", "evil.example"),
        ("ｈｔｔｐｓ：／／evil.example", "https://evil.example"),
        ("evil。example", "evil.example"),
        ("𝐞𝐯𝐢𝐥.example", "evil.example"),
        ("evil%2Eexample/x", "evil.example/x"),
        ("https%3A%2F%2Fevil.example%2Fx", "https://evil.example/x"),
        ("&#104;ttps&colon;//evil.example", "https://evil.example"),
        ("аpple.example", "аpple.example"),
        ("пример.рф/вход", "пример.рф/вход"),
        ("请访问evil.example谢谢", "evil.example"),
        ("10.1.2.3/x", "10.1.2.3/x"),
        ("http://intranet/x", "http://intranet/x"),
        ("\\\\evil.example\\share", "//evil.example\\share"),
        ('{"a":"https://evil.example/y","b":1}', "https://evil.example/y"),
        ("a" * 400 + "/https://evil.example", "https://evil.example"),
        ("a," * 400 + "evil.example/x", "evil.example/x"),
    ],
)
def test_a_link_is_found_however_it_is_written(text: str, link: str):
    assert link in links_in(text)
    assert link in links_in(f"Dear Bob,\n\n{text}\n\nYours, Anna")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello Bob, how are you?",
        "notes.txt and report.pdf, archive.tar.gz",
        "(see notes.txt)",
        "notes.txt:12",
        "3.14, 1.000,00 and 10.0.0.1 or v1.2.3",
        "e.g. this, i.e. that, at 10 a.m. in the U.S.",
        "Re: note:this 12:30",
        "wait...what",
        "@anna #general / // \\\\ :// . @ %",
        '{"a":1,"b":[2.5,3]}',
        "src/notes.txt ./a.py ~/b.md",
    ],
)
def test_what_is_plainly_no_link_is_none(text: str):
    assert [one for one in links_in(text) if one.strip(":/")] == []


@pytest.mark.promise("X6")
def test_a_long_word_that_begins_with_a_scheme_is_a_link():
    word = "https://evil.example/" + "x" * 100_000
    assert links_in(f"see {word}") == [word[:2_000]]
    many = links_in("a://" * 100_000)
    assert many
    assert max(map(len, many)) <= 2_000


@pytest.mark.promise("X6")
@given(
    st.text(st.characters(codec="utf-8"), max_size=60),
    st.sampled_from(["", "\u200b", "\u00ad", "\u2060", "\ufeff"]),
    st.integers(0, 20),
)
@examples(200, 500)
def test_no_text_around_a_link_hides_it(text: str, unseen: str, place: int):
    link = "https://evil.example/a1"
    hidden = link[:place] + unseen + link[place:]
    found = links_in(f"{text} {hidden} {text}")
    assert any(one.startswith(link) for one in found), found


@given(st.text(max_size=200) | st.lists(_PIECES, max_size=40).map("".join))
@examples(200, 500)
def test_any_text_is_read(text: str):
    for link in links_in(text):
        assert 0 < len(link) <= 2_000
    host_of(text)
    amounts_of(text)
    numbers_in(text)
    plain_path(text)
    recipients_in(text)


def test_every_form_of_an_ascii_letter_is_known():
    forms = [
        char
        for char in map(chr, range(0x80, 0x110000))
        if not "\ud800" <= char <= "\udfff"
        and (plain := unicodedata.normalize("NFKC", char)).isascii()
        and plain.isalpha()
        and len(plain) == 1
    ]
    assert len(forms) > 800
    assert [one for one in forms if not links_in(f"evi{one}x.example/")] == []
    plain = [unicodedata.normalize("NFKC", one) for one in forms]
    found = [links_in(f"evi{one}x.example/")[0] for one in forms]
    assert found == [f"evi{one}x.example/" for one in plain]


# -- amounts ---------------------------------------------------------------------------------------


@pytest.mark.promise("X6", "M10")
@pytest.mark.parametrize(
    ("value", "amounts"),
    [
        (9000, (9000,)),
        (-5.5, (-5.5,)),
        (Decimal("9000.10"), (9000.1,)),
        ("9000 EUR", (9000,)),
        ("9000€", (9000,)),
        ("EUR 9.000,00", (9000,)),
        ("US$ 9,000.00", (9000,)),
        ("€9.000,-", (9000,)),
        ("1'000.50", (1000.5,)),
        ("1 000,50", (1000.5,)),
        ("1\u202f000,50", (1000.5,)),
        ("1_000", (1000,)),
        ("12,34,567.80", (1234567.8,)),
        ("9k", (9000,)),
        ("$9k", (9000,)),
        ("1,5 Mio", (1_500_000,)),
        ("2 mrd", (2_000_000_000,)),
        ("3 lakh", (300_000,)),
        ("9万", (90_000,)),
        ("1e4", (10_000,)),
        ("-5", (-5,)),
        ("−5", (-5,)),
        ("+5", (5,)),
        ("٩٠٠٠", (9000,)),
        ("９０００", (9000,)),
        ("٩٬٠٠٠٫٥", (9000.5,)),
        ("nine thousand", (9000,)),
        ("Twenty-five dollars", (25,)),
        ("one million two hundred and five thousand", (1_205_000,)),
        ("a hundred", (100,)),
        ("9 thousand", (9000,)),
        ("nine hundred and ninety-nine thousand", (999_000,)),
        ("twelve hundred euros", (1200,)),
        ("1,00,000", (100_000,)),
        ("50 000", (50_000,)),
        ("-$5", (-5,)),
        ("$-5", (-5,)),
        ("¥500", (500,)),
        ("＄５０", (50,)),
        ("9万円", (90_000,)),
        ("9k€", (9000,)),
        ([10, 9000], (10, 9000)),
        ([10, "9000 EUR"], (10, 9000)),
        ({"value": "9000", "currency": "EUR"}, (9000,)),
        ({"a": {"b": [1, {"c": 2}]}}, (1, 2)),
        ("1.000", (1000,)),
        ("1,000", (1000,)),
        ("1.000.000", (1_000_000,)),
        ("0.500", (0.5,)),
        ("1234.567", (1234.567,)),
        ("10,5", (10.5,)),
        ("5.", (5,)),
        (None, ()),
        ("", ()),
        ([], ()),
    ],
)
def test_an_amount_is_read_as_people_write_it(value: Any, amounts: tuple[float, ...]):
    found = amounts_of(value)
    assert found is not None
    assert found == pytest.approx(amounts)


@pytest.mark.promise("X6")
@pytest.mark.parametrize(
    "value",
    [
        *("a lot", "all", "everything", "EUR", "a", "and", "-", "half a million", "50 cents", "½"),
        *("10²", "九千", "Ⅸ", "2026-01-01", "0x2328", "10 - 20", "1,2,3", "1,000,00", "10,9000"),
        *("5 per month", "9\u200b000", "nan", "inf", "1e999", "x" * 300, "9" * 300),
        *(True, float("nan"), float("inf"), -math.inf, 10**400, Decimal("NaN"), b"9000", object()),
        *([10, "a lot"], {"value": 10, "note": "rent"}, [10, True], ["EUR"]),
        *(
            "5 0 0",
            "50 50",
            "50\n000",
            "50\t000",
            "50  000",
            "50;000",
            "50; 000",
            "10; 9000",
            "1/0",
        ),
        *("10 and 9000 EUR", "50/EUR", "50 & 50", "5 EUR 50", "$50 €", "50 EUR USD", "5-", "(50)"),
        *("5_0_0", "50_00", "1 00 000", "1'00", "050,000", "050.000", "1234,567", "1 000 00"),
        *(
            "five zero zero",
            "five five",
            "two fifty",
            "five thousand thousand",
            "fifty hundred and",
        ),
        *(
            "50 BTC",
            "BTC 50",
            "50 USDT",
            "₿50",
            "50₿",
            "0.5 ETH",
            "50 kg",
            "50 XAU",
            "50¢",
            "5 mil",
        ),
        *("5000e-2", "5,000e2", {"value": 10, "currency": "BTC"}, [10, "ETH"]),
    ],
    # Without the address in memory, which differs from process to process.
    ids=lambda value: f"{type(value).__name__} {repr(value).partition(' at 0x')[0]:.30}",
)
def test_what_is_no_amount_is_said_to_be_unreadable(value: Any):
    assert amounts_of(value) is None


@given(st.floats(0.01, 1e12).map(lambda one: round(one, 2)))
def test_an_amount_is_the_same_in_every_country(amount: float):
    english = f"{amount:,.2f}"
    german = english.translate(str.maketrans(",.", ".,"))
    swiss = english.replace(",", "'")
    for written in (english, german, swiss, f"EUR {german}", f"{swiss} CHF", f"${english}"):
        assert amounts_of(written) == pytest.approx((amount,)), written


@given(st.recursive(st.integers() | st.floats() | st.text(max_size=9), st.lists, max_leaves=9))
def test_amounts_are_finite_or_unreadable(value: Any):
    found = amounts_of(value)
    assert found is None or all(map(math.isfinite, found))


def nested(value: Any, levels: int) -> Any:
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def cyclic() -> list[Any]:
    one: list[Any] = [5]
    one.append({"again": one})
    return one


def shared(levels: int) -> Any:
    """Two of the same at each level: few objects, and more leaves than anybody can count."""
    value: Any = 5
    for _ in range(levels):
        value = [value, value]
    return value


@pytest.mark.promise("X6")
def test_amounts_are_read_64_levels_deep_and_no_deeper():
    assert amounts_of(nested(5, 64)) == (5,)
    for value in (nested(5, 65), nested(5, 500), nested(5, 100_000), cyclic(), shared(60)):
        assert amounts_of(value) is None


@pytest.mark.promise("X6")
@pytest.mark.parametrize(
    "value",
    [10**5_000, [1, -(10**5_000)], "9" * 5_000],
    ids=("number", "negative number in a list", "text"),
)
def test_a_number_of_thousands_of_digits_is_unreadable(value: Any):
    assert amounts_of(value) is None


@given(st.integers(0, 10**9))
def test_numbers_in_a_text_are_found(number: int):
    for written in (f"{number}", f"{number:,}", f"{number:,}.00", f"{number}.0"):
        assert number_of(written) == number
        assert number in numbers_in(f"it is {written}, or so")
    assert numbers_in(f"x{number} 2026-{number} a/{number} {number}b") == set()
    assert numbers_in("twenty-five, and one hundred and five") == {25, 105}


# -- recipients ------------------------------------------------------------------------------------


@pytest.mark.promise("X6")
@pytest.mark.parametrize(
    "text",
    [
        "a@evil.test",
        "A@EVIL.TEST",
        "a@evil.test.",
        " a@evil.test\n",
        "\u00a0a@evil.test\u2003",
        "<a@evil.test>",
        "Anna <a@evil.test>",
        "Anna  Berg<A@Evil.Test>",
        '"Berg, Anna" <a@evil.test>',
        '"Anna \\"A\\" Berg" <a@evil.test>',
        "Anna (work) <a@evil.test>",
        "a@evil.test <a@evil.test>",
        '"A@evil.test" <a@evil.test>',
        "Anna <mailto:a@evil.test>",
        "mailto:a@evil.test",
        "MailTo:a@evil.test",
        "a@evil.test,",
        "; a@evil.test;;",
        "a@evil.test, A@evil.test",
        "a@\u200bevil.test",
        "a\u00ad@evil\u2060.test",
        "ａ＠ｅｖｉｌ．ｔｅｓｔ",
        "𝐚@evil.test",
        "a@evil。test",
        "a@ev\u202eil.test",
    ],
)
def test_a_mail_address_has_one_spelling_however_it_is_written(text: str):
    assert recipients_in(text) == ("a@evil.test",)


@pytest.mark.promise("X6")
@pytest.mark.parametrize(
    ("text", "recipients"),
    [
        ("a@evil.test, b@x.org", ("a@evil.test", "b@x.org")),
        ("b@x.org;a@evil.test ; c@x.org", ("b@x.org", "a@evil.test", "c@x.org")),
        ("b@x.org，a@evil.test；c@x.org", ("b@x.org", "a@evil.test", "c@x.org")),
        ("Bob <b@x.org>, Anna <a@evil.test>", ("b@x.org", "a@evil.test")),
        ('"Stone, Bob" <b@x.org>, a@evil.test', ("b@x.org", "a@evil.test")),
        ("DE89x, US13", ("DE89x", "US13")),
        ("DE89 3704  0044", ("DE89 3704 0044",)),
        ("Bob Stone <DE89>", ("DE89",)),
        ("Bob Stone", ("Bob Stone",)),
        ("Bob (work)", ("Bob (work)",)),
        ("Müller & Söhne", ("Müller & Söhne",)),
        ("#general", ("#general",)),
        ("@bob", ("@bob",)),
        ("@bob:home.example", ("@bob:home.example",)),
        ("+49 170 1234", ("+49 170 1234",)),
        ("x@bücher.example", ("x@xn--bcher-kva.example",)),
        ("x@XN--bcher-kva.example", ("x@xn--bcher-kva.example",)),
        ("x@BU\u0308CHER.example", ("x@xn--bcher-kva.example",)),
        ("Jürgen@weiß.example", ("jürgen@xn--wei-7ka.example",)),
        ("groß@x.org", ("groß@x.org",)),
        ("GROẞ@x.org", ("groß@x.org",)),
        ("gross@x.org", ("gross@x.org",)),
        ("x@еvil.test", ("x@xn--vil-qdd.test",)),
        ("root@localhost", ("root@localhost",)),
        ("a+b.c_d'e@x.org", ("a+b.c_d'e@x.org",)),
    ],
)
def test_recipients_are_read_into_a_list_of_one_form(text: str, recipients: tuple[str, ...]):
    assert recipients_in(text) == recipients


@pytest.mark.promise("X6")
@pytest.mark.parametrize(
    "text",
    [
        *("", " ", ",", " ; ", "<>", "mailto:", "\u200b"),
        *("a@evil.test b@x.org", "a@evil.test\nb@x.org", "DE89\nUS13", "a@x.org\r\nBcc: b@x.org"),
        *("a @evil.test", "a@ evil.test", "a@evil.test x", "a@", "a@@evil.test", "a@b@evil.test"),
        *(
            "@a@evil.test",
            "a@evil.test@x.org",
            "a@evil.test (x)",
            "(x) a@evil.test",
            '"a"@evil.test',
        ),
        *("a@evil.test?subject=x", "mailto:a@evil.test?cc=b@x.org", "mailto:mailto:bob"),
        *("a%40evil.test", "a@%65vil.test", "a%evil.test@x.org", "evil.test!a@x.org"),
        *(
            "smtp:a@evil.test",
            "Friends: a@evil.test",
            "a@evil.test/x",
            "a@[127.0.0.1]",
            "a\\@evil.test",
        ),
        *(
            "a@evil.test <b@x.org>",
            '"a@evil.test, Bob" <b@x.org>',
            '"US13, DE1" <DE2>',
            "a, <b, c>",
        ),
        *("Bob <b@x.org> x", "<a@x.org> <b@x.org>", "Bob <b@x.org", "b@x.org>", 'Bob "b@x.org'),
        *("Bob (b@x.org, c@x.org)", "=?utf-8?q?a=40evil.test=2C?= <b@x.org>", "DE1|US13"),
        *("a@evil..test", "a@-\u00fc.test\ud800", "a\0@evil.test", "Bob\0", "a@evil.test\u2028b"),
        "x@y.org, " * 1_000,
    ],
    ids=lambda text: ascii(text)[:40],
)
def test_recipients_that_programs_read_differently_are_unreadable(text: str):
    assert recipients_in(text) is None


_TO = st.sampled_from(
    [
        *("a", "A", "@", ".", "evil", "test", "x.org", ",", ";", "<", ">", '"', "(", ")", " ", ":"),
        *("mailto:", "%40", "\\", "\n", "\u200b", "\u00ad", "ｅ", "＠", "，", "ß", "ẞ", "İ", "ü"),
        *("\u0301", "´", "ﷺ", "①", "|", "=?", "\ud800", "xn--", "DE89", "#", "+", "Bob"),
    ]
)


@pytest.mark.promise("X6")
@given(st.lists(_TO, max_size=10).map("".join) | st.text(max_size=30))
@examples(200, 2_000)
def test_the_form_of_a_recipient_stays(text: str):
    for one in recipients_in(text) or ():
        assert recipients_in(one) == (one,)
        assert recipients_in(f" {one}\u200b ") == (one,)


# -- paths -----------------------------------------------------------------------------------------


@pytest.mark.promise("X6")
@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/srv/notes/../secret", "/srv/secret"),
        ("/srv//notes/./a", "/srv/notes/a"),
        ("//etc/shadow", "/etc/shadow"),
        ("///etc//shadow/", "/etc/shadow"),
        ("/../../etc", "/etc"),
        ("~/a", str(Path.home() / "a")),
        ("/srv/e\u0301", "/srv/\u00e9"),
        ("", "."),
        ("/srv/a\0b", None),
        ("/" + "a" * 5_000, None),
        ("/srv/My%20Notes", "/srv/My%20Notes"),
        ("/srv/100%", "/srv/100%"),
    ],
)
def test_a_path_has_one_form(path: str, plain: str | None):
    assert plain_path(path) == plain


@pytest.mark.promise("X6")
@pytest.mark.parametrize(
    "path",
    [
        "a\\b",
        "/srv/notes/..\\x",
        "/srv/notes/%2e%2e/x",
        "/srv/notes/%2E./x",
        "/srv/notes%2f..%2Fx",
        "/srv/notes%5c..%5Cx",
        "/srv/notes/%252e%252e/x",
        "/srv/notes/a%00b",
        "/srv/notes/．．/x",
        "/srv/notes/‥/x",
        "/srv/notes/..／..／x",
        "/srv/notes/a\n/etc/passwd",
        "/srv/notes/a\x7f",
        "file:///etc/passwd",
        "FILE:/etc/passwd",
    ],
)
def test_a_path_that_programs_read_differently_has_no_form(path: str):
    assert plain_path(path) is None


@given(st.text(st.sampled_from("/.~ae\u0301\u00e9"), max_size=20))
def test_the_form_of_a_path_stays(path: str):
    plain = plain_path(path)
    assert plain is not None
    if not plain.startswith("~"):
        assert plain_path(plain) == plain
