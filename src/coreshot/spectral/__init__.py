"""The spectral coreset: rows in feature space at the client, a closed-form posterior at the server."""
