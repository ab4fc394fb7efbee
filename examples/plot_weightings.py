"""
Ways to weigh a neighbour
=========================

How weight falls with distance, for each weighting. Some never reach zero, others end.
"""

import matplotlib.pyplot as plt

from nona_sklearn import WeightingDisplay

figure, ax = plt.subplots(figsize=(8, 4.4), layout="constrained")
WeightingDisplay.from_weightings(ax=ax)
