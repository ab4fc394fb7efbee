"""Training by skorch: pools of neighbours, callbacks, what is refined afterwards."""
