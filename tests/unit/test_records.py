"""Records behave like dataclasses of the standard library, whenever their methods are written."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, FrozenInstanceError, field, fields, is_dataclass, replace
from threading import Barrier
from typing import ClassVar, Generic, TypeVar

import pytest

from asterism.records import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Point:
    """A place on a plane."""

    x: int
    y: int = 0
    names: list[str] = field(default_factory=list[str], compare=False)

    @property
    def sum(self) -> int:
        """Both coordinates in one."""
        return self.x + self.y


@dataclass(frozen=True, slots=True)
class Point3(Point):
    """A place in space, whose default for `y` is another."""

    y: int = 7
    z: int = 1


@dataclass(slots=True)
class Counter:
    """What may change."""

    count: int = 0


@dataclass(frozen=True, slots=True)
class Pair(Generic[T]):
    """Two of a kind."""

    first: T
    second: T


@dataclass(frozen=True, slots=True)
class Kelvin:
    """A value that is checked."""

    zero: ClassVar[int] = 0
    degrees: int

    def __post_init__(self) -> None:
        if self.degrees < self.zero:
            raise ValueError(self.degrees)


def test_a_record_is_what_the_standard_library_would_make() -> None:
    point = Point(1)
    assert (point.x, point.y, point.names, point.sum) == (1, 0, [], 1)
    assert repr(point) == "Point(x=1, y=0, names=[])"
    assert point == Point(1, 0, ["other"])
    assert point != Point(2)
    assert {point: "found"}[Point(1)] == "found"
    assert replace(point, y=3) == Point(1, 3)
    assert dataclasses.asdict(point) == {"x": 1, "y": 0, "names": []}
    assert not hasattr(point, "__dict__")
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # pyright: ignore[reportAttributeAccessIssue]: this is the test
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required"):
        Point()  # pyright: ignore[reportCallIssue]: this is the test


def test_fields_are_known_before_the_first_record_is_made() -> None:
    @dataclass(frozen=True, slots=True)
    class Unused:
        """Nobody makes one."""

        text: str
        size: int = 1

    assert is_dataclass(Unused)
    assert [one.name for one in fields(Unused)] == ["text", "size"]
    match Unused("a"):
        case Unused(text, size):
            assert (text, size) == ("a", 1)


def test_a_record_inherits_fields_and_may_change_their_default() -> None:
    assert repr(Point3(1)) == "Point3(x=1, y=7, names=[], z=1)"
    assert Point3.__slots__ == ("z",)
    assert Point3(1, 0) != Point(1, 0)


def test_a_class_that_only_inherits_makes_records_too() -> None:
    class Named(Pair[str]):
        """Not decorated."""

    assert Named("a", "b").second == "b"
    assert Pair(1, 2) == Pair(1, 2)


def test_records_that_may_change() -> None:
    counter = Counter()
    counter.count += 1
    assert counter == Counter(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)


def test_class_variables_and_checks_after_making() -> None:
    assert Kelvin(5).zero == 0
    assert [one.name for one in fields(Kelvin)] == ["degrees"]
    with pytest.raises(ValueError, match="-1"):
        Kelvin(-1)


def test_fields_that_must_be_named() -> None:
    @dataclass(frozen=True, slots=True)
    class Named:
        """The second only by its name."""

        first: int
        _: KW_ONLY
        second: int = 2

    assert Named(1, second=3).second == 3
    with pytest.raises(TypeError, match="positional"):
        Named(1, 3)  # pyright: ignore[reportCallIssue]: this is the test


def test_records_are_copied_and_pickled() -> None:
    point = Point(1, 2, ["a"])
    assert copy.copy(point) == point
    assert copy.deepcopy(point).names is not point.names
    assert pickle.loads(pickle.dumps(point)) == point


def test_a_pickled_record_is_whole_in_a_process_that_never_made_one() -> None:
    module = "from tests.unit.test_records import Counter, Point; import pickle, sys\n"
    read = "first, second = (pickle.loads(bytes.fromhex(text)) for text in sys.argv[1:])\n"
    script = f"{module}{read}assert first == second; print(first)"
    for record in (Point(1, 2), Counter(3)):
        text = pickle.dumps(record).hex()
        printed = subprocess.check_output([sys.executable, "-c", script, text, text], text=True)
        assert printed.strip() == repr(record)


def test_many_threads_may_make_the_first_record() -> None:
    threads = 8
    for _ in range(50):

        @dataclass(frozen=True, slots=True)
        class Fresh:
            """New in each round."""

            first: int
            second: int = 2
            third: int = 3

        barrier = Barrier(threads)

        def make(number: int, kind: type[Fresh] = Fresh, start: Barrier = barrier) -> Fresh:
            start.wait(10)
            return kind(number)

        with ThreadPoolExecutor(threads) as pool:
            made = list(pool.map(make, range(threads)))
        assert made == [Fresh(number, 2, 3) for number in range(threads)]
