"""Formulas as MathML, which a browser draws without a script: a Sphinx extension."""

from docutils.nodes import SkipNode
from latex2mathml.converter import convert


def renderer(display):
    """Write a formula of a line or of a block to a page."""

    def visit(translator, node):
        translator.body.append(convert(node.astext(), display=display))
        raise SkipNode

    return visit, None


def setup(app):
    """Register the renderer that docs/conf.py names."""
    app.add_html_math_renderer("mathml", renderer("inline"), renderer("block"))
    return {"parallel_read_safe": True}
