"""Training: which tasks are drawn, who plays them, the loop, checkpoints."""
