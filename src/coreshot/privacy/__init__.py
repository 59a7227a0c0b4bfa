"""What is computed from a client's records: declared releases, their noise, and the privacy guarantee that follows."""
