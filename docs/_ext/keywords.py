"""Words that readers search for, and the page of each: a Sphinx extension.

They become entries of the index, which the search ranks above words in a text.
"""

import re

KEYWORDS = {
    "benchmarks": "benchmark, accuracy, comparison",
    "check_data": "label errors, outliers, influential rows, leave-one-out, data quality",
    "classes": "classification, classifier, class probabilities, class_weight, calibration",
    "coming": "catboost, xgboost, lightgbm, tabpfn, ebm, interpret, quantile-forest, migrate",
    "compare": "alternatives, limitations, when not to use, explain catboost",
    "decision": "counterfactuals, report, what-if",
    "editing": "forget a row, delete rows, new rows, online learning, update a model, unlearning",
    "effects": "feature importances, partial dependence, shap, shapley, global explanation",
    "eligibility": "caliper, exact matching, filter rows, comparables, which rows",
    "errors": "error, warning, valueerror, typeerror, convergencewarning, not fitted",
    "extending": "custom similarity, custom metric, custom weighting, distance metric",
    "fairness": "bias, discrimination, protected attributes, gender, proxy variables",
    "faq": "troubleshooting, help",
    "faster": "slow fit, speed, n_jobs, threads, max_time, prediction time",
    "formulas": "formula, equation, weighting, softmax, deviations from the paper",
    "install": "install, gpu, cuda, extras, requirements",
    "intervals": "prediction intervals, prediction sets, quantiles, uncertainty, conformal",
    "method": "how it works, algorithm, geometry",
    "neighbors": "explain prediction, stability, novelty, applicability domain",
    "places": "latitude, longitude, coordinates, spatial cross-validation, map, geography",
    "references": "cite, citation, bibliography, paper",
    "saving": "save model, load model, pickle, joblib, onnx, safetensors, skops",
    "scaling": "large data, memory, dask, parquet, shards, distributed, faiss, approximate search",
    "serving": "deployment, production, fastapi, mlflow, rest api",
    "similar": "similar items, recommender, names of rows, pipeline, plots, kneighbors",
    "survival": "censoring, kaplan-meier, cox, time to event, hazard, churn, scikit-survival",
    "tables": "missing values, categorical features, categories, dates, encoding, preprocessing",
    "targets": "sample_weight, sample weights, bounds, counts, poisson, exposure, missing targets",
    "texts_images": "text embeddings, images, fine-tuning, language model, transformers",
    "time": "time series, forecast, drift, backtest, timeseriessplit",
    "tune": "hyperparameters, grid search, random search, gridsearchcv, tuning",
}


def add_entries(app, page, source):
    """Put the words of a page below its title, as entries of the index."""
    if page in KEYWORDS:
        entries = ", ".join(f"! {word}" for word in KEYWORDS[page].split(", "))
        index = rf"\g<0>\n\n```{{index}} {entries}\n```\n"
        source[0] = re.sub("^# .*$", index, source[0], count=1, flags=re.MULTILINE)


def setup(app):
    """Register what is done to pages before they are read."""
    app.connect("source-read", add_entries, priority=600)  # after conf.py has mended links
    return {"parallel_read_safe": True}
