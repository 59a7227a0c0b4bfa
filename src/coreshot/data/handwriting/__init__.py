"""Federated handwriting: EMNIST and UNIPEN, 62 classes."""
