"""Pages of the reference: which members they list, and the groups of an estimator's parameters.

A Sphinx extension: ``extensions = [..., "reference"]``, with this folder on ``sys.path``.
"""

import inspect
import re

from nona_sklearn._estimators.parameters import PARAMETER_GROUPS

#: Members that pages list, by the class that defines them. Pages of other classes list all public
#: methods of their own. What is left out is called by other parts of the package only.
SHOWN = {
    "ASSoftmax": (),
    "FeatureExtractor": (),
    "Rows": (),
    "TableEncoder": ("fit", "fit_transform", "transform", "get_feature_names_out"),
    "Explanation": ("of_rows", "first_lines", "of_single_rows", "totals"),
    "NONAHead": ("forward", "neighbor_weights"),
    "ClassHead": ("forward",),
    "AverageHead": ("forward", "neighbor_weights"),
    "SoftStep": ("forward", "thresholds"),
    "MLPEmbedding": ("forward",),
    "PeriodicEmbedding": ("forward",),
    "FeatureWeights": ("forward", "weight"),
    "LogLoss": ("forward",),
    "ASSoftmaxLoss": ("forward",),
    "MultilabelASSoftmaxLoss": ("forward",),
    "Weighting": ("log_weight", "weigh"),
    "Entmax": ("weigh",),
    "Preconditioned": ("weigh",),
    "Triangular": ("weigh",),
    "RegressionTargets": (
        *("fit", "check", "values", "encode", "restore", "decode", "make_head"),
    ),
    **dict.fromkeys(("Gaussian", "Sigmoid", "Softmax", "Softpick"), ("log_weight",)),
    **dict.fromkeys(("Softplus", "SparseSoftmax", "Uniform"), ("log_weight",)),
}
GROUP_OF = {name: group for group, names in PARAMETER_GROUPS.items() for name in names}


def function_of(member):
    """The function behind a method or a property; None of what is neither."""
    member = getattr(member, "fget", member)
    member = inspect.unwrap(getattr(member, "__func__", member))
    return member if inspect.isfunction(member) else None


def is_listed(name, member):
    """Whether a page of a class lists a member, by its name and where it is defined."""
    function = function_of(member)
    if name.startswith("_") or function is None:
        return False
    owner = function.__qualname__.rpartition(".")[0]
    ours = function.__module__.startswith("nona_sklearn.")
    return ours and name in SHOWN.get(owner, (name,))


def members_of(cls):
    """Names of the methods and properties that the page of a class lists."""
    members = inspect.getmembers_static(cls)
    return [name for name, member in members if is_listed(name, member)]


def _skip(app, what, name, member, skip, options):
    """Leave members out of pages; None lets Sphinx decide."""
    if what == "module" or name.startswith("_"):
        return None
    return None if function_of(member) is None or is_listed(name, member) else True


def group_parameters(lines):
    """Sort the parameters of a docstring that numpydoc made into groups, with a heading each."""
    start = next((i for i, line in enumerate(lines) if line == ":Parameters:"), None)
    if start is None:
        return lines
    end = next((i for i in range(start + 1, len(lines)) if re.match(r"\S", lines[i])), len(lines))
    entries: list[list[str]] = []
    for line in lines[start + 1 : end]:
        if re.match(r" {4}\S", line):
            entries.append([])
        if entries:
            entries[-1].append(line)
    by_name = {entry[0].split("**")[1]: entry for entry in entries if "**" in entry[0]}
    if len(by_name) < len(entries) or not {*by_name} <= {*GROUP_OF}:
        return lines
    sorted_lines = [":Parameters:", ""]
    for group, names in PARAMETER_GROUPS.items():
        if own := [by_name[name] for name in names if name in by_name]:
            sorted_lines += [f"    .. rubric:: {group}", ""]
            sorted_lines += [line for entry in own for line in entry]
    return [*lines[:start], *sorted_lines, "", *lines[end:]]


def _group(app, what, name, obj, options, lines):
    if what == "class" and hasattr(obj, "_parameter_constraints") and hasattr(obj, "kneighbors"):
        lines[:] = group_parameters(lines)


def setup(app):
    """Register the hooks: parameters are grouped after numpydoc has rewritten the docstring."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-docstring", _group, priority=900)
    return {"parallel_read_safe": True}
