"""Formulas as MathML, which a browser draws without a script: a Sphinx extension."""

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml


def renderer(is_block):
    """Write a formula of a line or of a block to a page."""

    def visit(translator, node):
        translator.body.append(tex2mathml(node.astext(), as_block=is_block))
        raise SkipNode

    return visit, None


def setup(app):
    """Register the renderer that docs/conf.py names."""
    app.add_html_math_renderer("mathml", renderer(is_block=False), renderer(is_block=True))
    return {"parallel_read_safe": True}
