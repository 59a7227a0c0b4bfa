"""coreshot over Flower: the same methods, between machines. Nothing outside this folder imports flwr."""
