"""What a client computes beside its loss: distances of embeddings, networks with modules for domains."""
