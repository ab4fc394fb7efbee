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
