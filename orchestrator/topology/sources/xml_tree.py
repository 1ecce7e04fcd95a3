"""XML elements that know their lines. No document types, so no entities: an XML bomb is refused at its first line."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from orchestrator.topology.sources.content import Content
from orchestrator.topology.sources.reading import InvalidFabricError

MAX_ELEMENTS = 200_000
MAX_DEPTH = 64


@dataclass(slots=True)
class Element:
    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)

    def number(self, name: str) -> int | None:
        """A whole number of at most 15 digits; None where there is none."""
        text = self.attributes.get(name, "").strip()
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= 15 else None


def read_xml(content: Content) -> Element:
    """The root element. InvalidFabricError with the line where the text is no XML."""
    parser = expat.ParserCreate()
    stack: list[Element] = []
    roots: list[Element] = []
    count = 0

    def begin(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > MAX_ELEMENTS or len(stack) >= MAX_DEPTH:
            limit = f"{MAX_ELEMENTS} elements" if count > MAX_ELEMENTS else f"{MAX_DEPTH} levels"
            raise content.refuse(f"line {parser.CurrentLineNumber}: more than {limit}")
        element = Element(tag, attributes, parser.CurrentLineNumber)
        (stack[-1].children if stack else roots).append(element)
        stack.append(element)

    def refuse(*_: object) -> None:
        raise content.refuse(f"line {parser.CurrentLineNumber}: document types and entities are not read")

    parser.StartElementHandler = begin
    parser.EndElementHandler = lambda _: stack.pop()
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(content.text.strip().encode(), True)
    except expat.ExpatError as error:
        what = expat.errors.messages[error.code]
        cut = " (the file was cut off)" if what in ("no element found", "unclosed token") else ""
        raise InvalidFabricError(content.file, [f"line {error.lineno}: not valid XML: {what}{cut}"]) from None
    return roots[0]
