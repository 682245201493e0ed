"""What a reader sees: results, statistics, figures."""
