"""What works: signals, node service state, service levels, forecast of healthy counts."""
