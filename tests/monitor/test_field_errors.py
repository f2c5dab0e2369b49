"""Errors in a field are explained in words, in both languages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from greencrawl.monitor.field_errors import field_errors, plainly, sentence
from greencrawl.monitor.words import words


class Inner(Struct, forbid_unknown_fields=True):
    """A record with a field that must be there."""

    kind: Literal["a", "b"]


class Outer(Struct, forbid_unknown_fields=True, kw_only=True):
    """A record with fields of all kinds."""

    whole: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    part: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    yes: bool | None = None
    text: Annotated[str, Meta(min_length=1, max_length=3)] = "x"
    some: Annotated[list[int], Meta(max_length=1)] = []
    inner: Inner | None = None
    choice: Literal["a", "b"] = "a"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"whole": "many"}, "whole: must be a whole number"),
        ({"whole": 0}, "whole: must be 1 or more"),
        ({"whole": 10_001}, "whole: must be 10,000 or less"),
        ({"part": []}, "part: must be a number"),
        ({"part": 0}, "part: must be more than 0"),
        ({"part": 1.5}, "part: must be less than 1"),
        ({"yes": "perhaps"}, "yes: must be true or false"),
        ({"text": {}}, "text: must be a text"),
        ({"text": ""}, "text: must have at least 1 character or entry"),
        ({"text": "long"}, "text: must have at most 3 characters or entries"),
        ({"some": 5}, "some: must be a list"),
        ({"some": ["x"]}, "some[0]: must be a whole number"),
        ({"some": [1, 2]}, "some: must have at most 1 character or entry"),
        ({"inner": []}, "inner: must be a JSON object"),
        ({"inner": {}}, "inner.kind: has no field kind"),
        ({"choice": "moon"}, "choice: is not a word that is allowed here"),
        ({"other": 1}, "other: has a field other, which does not exist"),
    ],
)
def test_a_wrong_type_is_explained_in_plain_words(given: dict[str, Any], said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, Outer, strict=False)
    assert sentence(words("en"), caught.value) == said
    field, _, english = said.partition(": ")
    ((named, chinese),) = field_errors(words("zh"), caught.value)
    assert named == field
    assert chinese not in ("", english)
    assert "Expected" not in chinese


def test_the_choices_of_a_field_are_named_and_other_messages_stay() -> None:
    english = words("en")
    assert plainly(english, "Invalid enum value 'x'", ["a", "b"]) == "must be one of: a, b"
    for ours in ("needs a host", "Expected `set`, got `str`", "Expected something else"):
        assert plainly(english, ours) == ours
