"""Commands that keep the book in order; a reader needs none of them."""
