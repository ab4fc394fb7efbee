"""Training of networks by skorch: epochs, pools of neighbours, refinement, several networks."""
