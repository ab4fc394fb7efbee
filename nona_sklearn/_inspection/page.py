"""Pages of HTML in one file: elements, whose texts are escaped, and the frame around them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files
from typing import Any
from xml.etree import ElementTree

from .._utils.files import as_path, destination, put_in_place
from .._utils.validation import check_flag

Element = ElementTree.Element
Child = str | Element | None
#: What a page may load: only what is in it. A page with scripts is drawn by Bokeh, which makes
#: functions and modules of texts.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
SCRIPTS = "; script-src 'unsafe-inline' 'unsafe-eval' blob:"
OTHER_FORMATS = ".pdf", ".png", ".svg", ".docx", ".json", ".csv", ".md", ".txt"
#: Characters that change the direction of the text after them.
DIRECTIONS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def element(tag: str, *children: Child | Iterable[Child], **attributes: Any) -> Element:
    """An element with texts, which are escaped, and other elements.

    An underscore at the end of an attribute's name is left out, as of ``class_``, and others
    become hyphens. None is no child.
    """
    given = {k.rstrip("_").replace("_", "-"): str(value) for k, value in attributes.items()}
    made, last = ElementTree.Element(tag, given), None
    for child in _flat(children):
        if isinstance(child, str):
            if last is None:
                made.text = (made.text or "") + child
            else:
                last.tail = (last.tail or "") + child
        else:
            made.append(child)
            last = child
    return made


def _flat(children: Iterable[Child | Iterable[Child]]) -> Iterable[str | Element]:
    """The children, those of lists one by one."""
    for child in children:
        if isinstance(child, str | Element):
            yield child
        elif child is not None:
            yield from _flat(child)


def own_text(text: str) -> Element:
    """A text of a user, whose direction does not change that of the text around it."""
    return element("bdi", text)


def as_html(*parts: Element) -> str:
    """The text of elements."""
    return "".join(ElementTree.tostring(part, encoding="unicode", method="html") for part in parts)


def style(name: str) -> Element:
    """The style sheet of this package with a name."""
    return element("style", (files(__package__) / name).read_text(encoding="utf-8"))


def whole_page(
    title: str, *body: Element, head: Iterable[Element] = (), scripts: bool = False
) -> str:
    """A page that needs no other file, and that can load none."""
    policy = POLICY + (SCRIPTS if scripts else "")
    page = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=policy),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("title", DIRECTIONS.sub("", title)),
            head,
        ),
        element("body", body),
        lang="en",
    )
    return f"<!DOCTYPE html>\n{as_html(page)}\n"


def write_page(page: str, path: Any, overwrite: Any) -> None:
    """Write a page as a file, where none is unless `overwrite` is True.

    A name without an ending gets ".html", without which no browser would open it.

    Raises
    ------
    ValueError
        If the name has the ending of another format.
    """
    check_flag("overwrite", overwrite)
    path = as_path("path", path)
    if path.suffix.lower() in OTHER_FORMATS:
        raise ValueError(
            f"path must end in .html, got {str(path)!r}: a browser prints the page as PDF"
        )
    if not (path.suffix or path.exists()):
        path = path.with_name(f"{path.name}.html")
    with put_in_place(destination(path, overwrite)) as place:
        place.write_text(page, encoding="utf-8")


def table(caption: str, head: list, lines: list[list], *, query: bool = False) -> Element:
    """A table that scrolls where it is too wide; with `query`, a line parts the second column.

    Cells are texts, or elements for their contents and class; the first of a line is its name.
    """
    made = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", [_cell("th", name, scope="col") for name in head])),
        element("tbody", [_line(line) for line in lines]),
        class_="beside" if query else "plain",
    )
    return element("div", made, class_="scroll", role="region", tabindex=0, aria_label=caption)


def _line(cells: list) -> Element:
    first, *others = cells
    return element("tr", _cell("th", first, scope="row"), [_cell("td", cell) for cell in others])


def _cell(tag: str, content: Any, **attributes: Any) -> Element:
    """A cell of some content; numbers stay on one line."""
    own = content if isinstance(content, Element) else element("span", own_text(content))
    text = own.findtext("bdi") or own.text or ""
    names = [own.get("class", ""), "number" if text[-1:].isdigit() or text[-1:] == "%" else ""]
    attributes["class_"] = " ".join(filter(None, names)) or None
    given = {name: value for name, value in attributes.items() if value is not None}
    return element(tag, own.text or "", list(own), **given)


def details(summary: Child, *content: Child) -> Element:
    """What is shown on demand."""
    return element("details", element("summary", summary), content)
