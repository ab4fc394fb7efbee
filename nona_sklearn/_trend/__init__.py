"""Trends: functions of the features whose values at a training row are of other rows."""
