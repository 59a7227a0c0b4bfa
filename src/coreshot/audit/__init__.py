"""Audits: many trials with and without one record, and a likelihood-ratio attack on what the server receives."""
