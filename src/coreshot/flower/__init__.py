"""coreshot over Flower: the same methods, between machines. No other package imports flwr."""
