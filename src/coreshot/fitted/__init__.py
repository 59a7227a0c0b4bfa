"""What comes out: the fitted model, its folder, its metrics."""
