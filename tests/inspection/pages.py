"""Pages of HTML as trees."""

from html.parser import HTMLParser
from xml.etree.ElementTree import TreeBuilder

VOID = {"meta", "br", "img", "input"}


def read_html(html):
    """The root element of a piece of HTML; all tags must be closed in their order."""
    reader = _Reader()
    reader.feed(f"<root>{html}</root>")
    assert not reader.open
    return reader.tree.close()


def text_of(element):
    """The text of an element and of those in it, with single spaces."""
    return " ".join("".join(element.itertext()).split())


def policy_of(html):
    """What a page may load."""
    metas = read_html(html).iter("meta")
    (policy,) = [
        meta.get("content")
        for meta in metas
        if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    return policy


class Page:
    """The tags, addresses, tables and other texts of a page."""

    def __init__(self, html):
        root = read_html(html)
        self.tags = [element.tag for element in root.iter()]
        self.addresses = [
            element.get(name)
            for element in root.iter()
            for name in ("src", "href")
            if name in element.attrib
        ]
        self.captions = ["".join(caption.itertext()) for caption in root.iter("caption")]
        self.tables = [
            [["".join(cell.itertext()) for cell in line] for line in table.iter("tr")]
            for table in root.iter("table")
        ]
        self.texts = [*_texts_outside_tables(root)]

    def lines(self, caption):
        """The lines of the first table whose caption starts so, by their names."""
        numbers = [i for i, text in enumerate(self.captions) if text.startswith(caption)]
        return {line[0]: line[1:] for line in self.tables[numbers[0]]}


def _texts_outside_tables(element):
    if element.tag not in ("table", "style"):
        yield element.text or ""
        for child in element:
            yield from _texts_outside_tables(child)
            yield child.tail or ""


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tree, self.open = TreeBuilder(), []

    def handle_starttag(self, tag, attrs):
        self.tree.start(tag, {name: value or "" for name, value in attrs})
        if tag in VOID:
            self.tree.end(tag)
        else:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.tree.end(tag)

    def handle_data(self, data):
        self.tree.data(data)
