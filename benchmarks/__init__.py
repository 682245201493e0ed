"""How much faster it is to train many clients in one stack than one after another."""
