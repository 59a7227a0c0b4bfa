"""Rows -> tables, figures and pages. The only package that imports matplotlib."""
