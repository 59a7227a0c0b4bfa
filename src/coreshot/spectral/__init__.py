"""The spectral coreset: rows in feature space at the client, a posterior in closed form at the server.

In the order of the computation: features (frozen_network), coreset, evidence, calibration, posterior; then
private_posterior, for noisy moments, and outlier_clients.
"""
