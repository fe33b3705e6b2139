"""Prints JSON schemas that pydantic makes, with values that pydantic accepts and refuses.

The golden file constraint/jsonschema/testdata/pydantic.json has its output.
"""
import datetime
import decimal
import enum
import ipaddress
import json
import uuid
from typing import Annotated, Any, Literal, NamedTuple, Optional, Union

from pydantic import AnyUrl, BaseModel, ConfigDict, Field, HttpUrl, PositiveInt, StringConstraints, TypeAdapter, ValidationError


class Color(str, enum.Enum):
    red = "red"
    blue = "blue"


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    name: str


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    age: int = 3


class Bird(BaseModel):
    kind: Literal["bird", "parrot"]
    wings: Optional[float] = None


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: str


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: str


class Node(BaseModel):
    value: int
    children: "list[Node]" = []


class Pair(NamedTuple):
    a: int
    b: str


class Owner(BaseModel):
    pet: Annotated[Union[Cat, Dog], Field(discriminator="kind")]
    pets: list[Union[Cat, Dog]] = []


UUID = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
CASES = {
    "uuid": (uuid.UUID, [UUID], ["x"]),
    "datetime": (datetime.datetime, ["2024-02-29T12:00:00Z", "1990-12-31T15:59:59-08:00"], ["x"]),
    "date": (datetime.date, ["2024-02-29"], ["2023-02-29"]),
    "time": (datetime.time, ["12:30:00Z"], ["25:00:00Z"]),
    "timedelta": (datetime.timedelta, ["P1DT2H", "PT5M"], ["x"]),
    "http url": (HttpUrl, ["https://example.com/a"], ["x", ""]),
    "any url": (AnyUrl, ["mailto:a@example.com"], ["x"]),
    "ipv4": (ipaddress.IPv4Address, ["192.0.2.1"], ["300.0.2.1"]),
    "ipv6": (ipaddress.IPv6Address, ["2001:db8::1", "::ffff:192.0.2.1"], ["1::2::3"]),
    "enum": (Color, ["red"], ["green"]),
    "decimal": (decimal.Decimal, [1.5, "1.50", "-0"], ["x", "+"]),
    "price": (Annotated[decimal.Decimal, Field(ge=0, multiple_of=decimal.Decimal("0.01"))], [0, 12.25], [-1]),
    "score": (Annotated[float, Field(ge=0, le=1, multiple_of=0.25)], [0, 0.25, 1], [0.3, 1.25]),
    "percent": (Annotated[int, Field(ge=0, le=100, multiple_of=5)], [0, 95, 100], [3, 105]),
    "positive": (PositiveInt, [1], [0]),
    "code": (Annotated[str, Field(pattern=r"^[A-Z]{3}-\d+$", min_length=5, max_length=12)], ["ABC-1"], ["ABC-", "ABC-123456789"]),
    "slug": (Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(?:-[a-z0-9]+)*$", max_length=50)], ["a-b-1"], ["a--b", "-a"]),
    "dict": (dict[str, int], [{}, {"x": 1}], [{"x": "y"}]),
    "dict of an enum": (dict[Color, int], [{}, {"red": 1}], [{"green": 1}]),
    "dict of uuids": (dict[uuid.UUID, str], [{UUID: "a"}], [{"x": "a"}]),
    "tuple": (tuple[int, str], [[1, "a"]], [[1]]),
    "tuple of any length": (tuple[int, ...], [[], [1, 2]], [["a"]]),
    "named tuple": (Pair, [[1, "a"]], [[1]]),
    "set": (set[str], [["a"]], []),
    "union": (Union[int, str, list[int]], [1, "a", [1]], [{}]),
    "literal": (Literal["a", 1, None], ["a", 1, None], ["b"]),
    "optional": (Optional[int], [1, None], ["a"]),
    "any": (Any, [1, {}], []),
    "discriminated": (Annotated[Union[Cat, Dog], Field(discriminator="kind")], [{"kind": "cat", "name": "a"}, {"kind": "dog", "age": 1}], [{"kind": "cat"}, {"name": "a"}]),
    "discriminated three": (Annotated[Union[Cat, Dog, Bird], Field(discriminator="kind")], [{"kind": "parrot"}], [{"kind": "fish"}]),
    "union of models": (Union[Cat, Dog], [{"name": "a"}], []),
    "owner": (Owner, [{"pet": {"kind": "dog"}, "pets": [{"name": "a"}]}], [{"pet": {}}]),
    "closed": (Closed, [{"a": "x"}], [{"a": "x", "b": 1}]),
    "open": (Open, [{"a": "x", "b": 1}], [{"b": 1}]),
    "recursive": (Node, [{"value": 1, "children": [{"value": 2}]}], [{"value": 1, "children": [{}]}]),
}


def accepts(adapter, value):
    try:
        adapter.validate_json(json.dumps(value))
    except ValidationError:
        return False
    return True


out = {}
for name, (kind, yes, no) in CASES.items():
    adapter = TypeAdapter(kind)
    for value in yes:
        assert accepts(adapter, value), f"{name} refuses {value}"
    for value in no:
        assert not accepts(adapter, value), f"{name} accepts {value}"
    # A decimal is serialized as a text, but may also be read as a number.
    for mode in ("validation",) if name in ("decimal", "price") else ("validation", "serialization"):
        out[f"{name}, {mode}"] = {"schema": adapter.json_schema(mode=mode), "yes": yes, "no": no}
print(json.dumps(out, indent=1))
