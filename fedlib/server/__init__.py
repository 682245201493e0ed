"""What the server computes from what clients send: clusters, graphs."""
