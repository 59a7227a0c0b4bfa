"""A foreign app, as another site could send it: for tests of what a site executes."""
