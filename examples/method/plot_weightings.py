"""
How weight falls with distance
==============================

For each weighting: some weights never reach zero, others do.
"""

import matplotlib.pyplot as plt

from nona_sklearn import WeightingDisplay

figure, ax = plt.subplots(figsize=(8, 4.4), layout="constrained")
WeightingDisplay.from_weightings(ax=ax)
