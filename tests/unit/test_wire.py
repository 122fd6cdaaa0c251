"""What goes over the socket: values, errors, lines, and who is let in."""

import inspect
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, cast, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism import errors
from asterism.app.home import Home
from asterism.client import HOME, STREAMS, SYNC
from asterism.errors import AsterismError, ModelBusy, NotFound
from asterism.types.agents import AgentRecord, Limits, Trust
from asterism.wire import (
    FILE,
    BadFrame,
    bind,
    connect,
    decode,
    decode_error,
    encode,
    encode_error,
    from_line,
    peer_uid,
    refuse_peer,
    short_path,
    to_line,
)

pytestmark = pytest.mark.promise("A8")

AGENT = AgentRecord("agent_1", "aria", "default", "Be brief.", 5, ("pay",), Limits())


def over_the_wire(value: Any) -> Any:
    return decode(from_line(to_line({"value": encode(value)}))["value"])


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.datetimes(timezones=st.just(UTC))
    | st.dates()
    | st.timedeltas()
    | st.sampled_from(Trust)
)
VALUES = st.recursive(
    SCALARS,
    lambda parts: (
        st.lists(parts)
        | st.lists(parts).map(tuple)
        | st.dictionaries(st.text() | st.just("!"), parts)
        | st.dictionaries(st.integers(), parts)
        | st.frozensets(st.text() | st.integers())
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(VALUES)
def test_every_value_comes_back_as_it_was(value: Any):
    found = over_the_wire(value)
    assert found == value
    assert type(found) is type(value)


def test_records_keep_their_class_and_fields():
    assert over_the_wire(AGENT) == AGENT
    assert over_the_wire({"deep": [(AGENT, {1: b"\x00"})]}) == {"deep": [(AGENT, {1: b"\x00"})]}
    assert over_the_wire(replace(AGENT, name="\ud800")).name == "\ud800"
    assert over_the_wire(iter(["a", "b"])) == ["a", "b"]
    moment = [datetime(2026, 11, 18, tzinfo=UTC), date(2026, 11, 18), timedelta(microseconds=3)]
    assert over_the_wire(moment) == moment
    assert over_the_wire(Path("notes.md")) == Path.cwd() / "notes.md"


def test_what_cannot_be_sent_says_so():
    with pytest.raises(TypeError, match="cannot be sent"):
        encode(object())
    with pytest.raises(TypeError, match="cannot be sent"):
        encode({"in": inspect.Signature()})


@pytest.mark.parametrize(
    "value",
    [
        {"!": "os.system", "value": "true"},
        {"!": "asterism.nowhere.Thing"},
        {"!": "asterism.__main__.main"},
        {"!": "asterism.types.agents.now_ms"},
        {"!": "asterism.types.agents.Path", "value": "x"},
        {"!": "asterism.types.agents.AgentRecord"},
        {"!": "asterism.types.agents.AgentRecord", "unknown": 1},
        {"!": "asterism.types.agents.Trust", "value": "nothing of the kind"},
        {"!": "datetime", "value": 5},
        {"!": "bytes", "value": "not base64!"},
        {"!": "tuple"},
        {"!": 5},
        {"!": ["list"]},
        {"!": None},
    ],
)
def test_values_that_nobody_writes_are_refused(value: Any):
    with pytest.raises(BadFrame):
        decode(value)


FOREIGN = [
    *("planted.Thing", "planted", "asterism.planted.Thing", "asterism.types..planted.Thing"),
    *("asterism.__main__.X", "asterism.cli.X", "asterism.sources.__main__.X", "os.system"),
    *("asterism.types.agents.__import__.X", "asterismplanted.X", "asterism.types/../x.X"),
]


@pytest.mark.parametrize("name", [*FOREIGN, None, 5, ["planted.Thing"]])
@pytest.mark.parametrize("read", [decode_error, partial(decode, trusted=True)])
def test_an_answer_imports_nothing_but_modules_with_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: Any, read: Callable[[Any], Any]
):
    (tmp_path / "planted.py").write_text("raise SystemExit('imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = {*sys.modules}
    with pytest.raises(BadFrame):
        read({"!": name, "reason": "x", "outcome": "", "notes": []})
    assert {*sys.modules} == before


def test_an_error_brings_no_inner_attributes():
    frame = encode_error(NotFound("No."))
    same = decode_error(from_line(to_line({**frame, "__class__": "x", "_hidden": 1, "shown": 2})))
    assert type(same) is NotFound
    assert not hasattr(same, "_hidden")
    assert getattr(same, "shown", None) == 2


@pytest.mark.parametrize("line", [b"", b"\n", b"{", b"[]\n", b"5\n", b"\xff\xfe\n", b"[" * 100_000])
def test_lines_that_nobody_writes_are_refused(line: bytes):
    with pytest.raises(BadFrame):
        from_line(line)


def test_errors_keep_type_text_code_and_fields():
    known: list[type[AsterismError]] = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, AsterismError)
    ]
    for kind in known:
        error = kind("It is so.")
        error.add_note("And more.")
        same = decode_error(from_line(to_line(encode_error(error))))
        assert (type(same), same.message, same.code) == (kind, "It is so. And more.", kind.code)
    busy = decode_error(encode_error(ModelBusy("Wait.", retry_after=2.5)))
    assert isinstance(busy, ModelBusy)
    assert (busy.retry_after, busy.begun) == (2.5, False)
    split = decode_error(encode_error(NotFound("No.", outcome="Nothing was done.")))
    assert (split.reason, split.outcome) == ("No.", "Nothing was done.")


# -- the socket ------------------------------------------------------------------------------------


@pytest.mark.parametrize("deep", [1, 20])
def test_a_socket_is_private_however_long_its_path_is(tmp_path: Path, deep: int):
    place = tmp_path.joinpath(*["a-rather-long-name"] * deep)
    place.mkdir(parents=True)
    path = place / FILE
    assert connect(path, 1) is None
    with bind(path) as listening:
        assert path.stat().st_mode & 0o777 == 0o600
        connection = connect(path, 1)
        assert connection is not None
        with connection, listening.accept()[0] as accepted:
            assert peer_uid(connection) == peer_uid(accepted) == os.geteuid()
            connection.sendall(b"hello")
            assert accepted.recv(5) == b"hello"
    # A process that was killed leaves its socket behind, which nobody listens at.
    assert path.exists()
    assert connect(path, 1) is None
    bind(path).close()


def test_a_file_in_place_of_the_socket_is_nobody(tmp_path: Path):
    path = tmp_path / FILE
    path.write_text("not a socket")
    assert connect(path, 1) is None


def test_short_paths_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = tmp_path.joinpath(*["a-rather-long-name"] * 10)
    with short_path(place / FILE) as name:
        assert len(os.fsencode(name)) <= 100
    assert not list(tmp_path.glob("asterism-*"))


def test_only_the_same_user_is_let_in(tmp_path: Path):
    assert refuse_peer(os.geteuid(), tmp_path) == ""
    for uid in (os.geteuid() + 1, 4_294_967_294):
        refused = refuse_peer(uid, tmp_path)
        assert f"the other end as user {uid}" in refused
        assert "Nothing was changed." in refused


def test_a_socket_of_another_user_is_not_talked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def other(_: socket.socket) -> int:
        return os.geteuid() + 1

    with bind(tmp_path / FILE):
        monkeypatch.setattr("asterism.wire.peer_uid", other)
        with pytest.raises(errors.NotAllowed, match="Only the user who runs a home"):
            connect(tmp_path / FILE, 1)


# -- verbs -----------------------------------------------------------------------------------------


def declared_verbs() -> dict[str, Callable[..., Any]]:
    """Return every verb of a home by its name on the wire."""
    members: dict[str, Any] = dict(vars(Home))
    found: dict[str, Callable[..., Any]] = {
        f"home.{name}": member for name, member in members.items() if hasattr(member, "verb")
    }
    for noun, member in members.items():
        if isinstance(member, cached_property):
            kind = noun_class(cast("cached_property[Any]", member))
            methods: dict[str, Any] = dict(vars(kind))
            for name, method in methods.items():
                if hasattr(method, "verb"):
                    found[f"{noun}.{name}"] = method
    return found


def noun_class(noun: "cached_property[Any]") -> type[Any]:
    import asterism.app

    modules = [
        import_module(f"asterism.app.{found.name}") for found in iter_modules(asterism.app.__path__)
    ]
    names: dict[str, Any] = {
        name: kind for module in modules for name, kind in vars(module).items()
    }
    return get_type_hints(noun.func, localns=names)["return"]


def test_clients_know_which_verbs_return_at_once_and_which_yield():
    verbs = declared_verbs()
    assert len(verbs) > 130
    for name, method in verbs.items():
        plain = inspect.unwrap(method)
        yields = "AsyncGenerator" in str(inspect.signature(plain).return_annotation)
        assert (name in STREAMS) == yields, name
        waits = inspect.iscoroutinefunction(plain)
        assert (name in SYNC) == (not yields and not waits), name
    assert {name.removeprefix("home.") for name in verbs if name.startswith("home.")} == HOME
    assert verbs.keys() >= STREAMS | SYNC
