"""Trends: functions of the features whose values at a training row come from the remaining rows."""
