"""Client-side computations other than the loss, such as distances of embeddings and networks with domain modules."""
