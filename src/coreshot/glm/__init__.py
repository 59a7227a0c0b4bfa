"""Generalised linear models of tables from one message a site: polynomials of the columns, and a posterior of sums."""
