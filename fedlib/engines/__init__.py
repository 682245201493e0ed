"""What runs a federation elsewhere, or again: checkpoints, several processes, Flower."""
