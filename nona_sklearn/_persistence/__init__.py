"""Files of estimators that hold data and no code, and ONNX graphs."""
