"""The report that the README's code writes, which the front page shows: a Sphinx extension."""

import contextlib
import io
import re
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def write_report(app):
    """Run the first program of the README, and keep what its page holds for the site's."""
    code = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.M)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(code[1], {})
        page = Path("house.html").read_text()
    parts = [re.search(rf"<{tag}.*</{tag}>", page, re.DOTALL)[0] for tag in ("style", "article")]
    place = Path(app.srcdir, "generated", "front.html")
    place.parent.mkdir(exist_ok=True)
    place.write_text(f'<div class="front">{"".join(parts)}</div>\n')


def setup(app):
    """Register the report, before pages are read."""
    app.connect("builder-inited", write_report)
    return {"parallel_read_safe": True}
