"""Computations of the server on what clients send, such as clusters and graphs."""
