"""Ways to resume a federation or to run it elsewhere, by checkpoints, several processes or Flower."""
