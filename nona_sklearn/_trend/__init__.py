"""Trends: functions of the features that predict a training row from the remaining rows."""
