"""Estimators as files that hold data and no code, and as ONNX graphs."""
